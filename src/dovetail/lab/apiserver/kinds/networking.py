"""Ingresses and network policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.kinds.admission.storage import newest_default
from dovetail.lab.apiserver.kinds.base import CountedStrategy, KindStrategy, immutable
from dovetail.lab.apiserver.kinds.pod.probes import port_or_name
from dovetail.lab.apiserver.kinds.service_validation import reached_at
from dovetail.lab.apiserver.registry import Context, Object
from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.addresses import is_ip, network, valid_cidr
from dovetail.model.validation.field_errors import FieldError, forbidden, invalid, quoted, required, unsupported
from dovetail.model.validation.selectors import label_selector

Spec = Mapping[str, Any]
_PATH_TYPES = ("Exact", "Prefix", "ImplementationSpecific")
_ODD = ("//", "/./", "/../", "%2f", "%2F")
_ENDS = ("/..", "/.")
_CLASS = "kubernetes.io/ingress.class"
_DEFAULT = "ingressclass.kubernetes.io/is-default-class"
_PROTOCOLS = ("TCP", "UDP", "SCTP")


class IngressStrategy(CountedStrategy):
    rechecks_all = True
    generation = True
    has_status_subresource = True

    def clear_status(self, obj: Object) -> None:
        obj["status"] = {"loadBalancer": {}}

    def admit(self, obj: Object | None, old: Object | None, ctx: Context) -> None:
        super().admit(obj, old, ctx)
        if obj is None or ctx.operation != "CREATE":
            return
        named = _CLASS in (obj["metadata"].get("annotations") or {})
        if not named and obj.get("spec", {}).get("ingressClassName") is None:
            name = newest_default(ctx, "networking.k8s.io", "ingressclasses", (_DEFAULT,))
            if name:
                obj.setdefault("spec", {})["ingressClassName"] = name

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        found: list[FieldError] = []
        if not spec.get("rules") and "defaultBackend" not in spec:
            found.append(invalid("spec", spec.get("rules"), "either `defaultBackend` or `rules` must be specified"))
        if "defaultBackend" in spec:
            found += self._backend(spec["defaultBackend"], "spec.defaultBackend")
        for index, rule in enumerate(spec.get("rules") or ()):
            found += self._rule(rule, f"spec.rules[{index}]")
        for index, entry in enumerate(spec.get("tls") or ()):
            for number, host in enumerate(entry.get("hosts") or ()):
                found += _host(host, f"spec.tls[{index}].hosts[{number}]")
            secret = entry.get("secretName", "")
            if secret:
                found += [invalid(f"spec.tls[{index}].secretName", secret, text) for text in formats.subdomain(secret)]
        name = spec.get("ingressClassName")
        if name is not None:
            found += [invalid("spec.ingressClassName", name, text) for text in formats.subdomain(name)]
        marked = (obj["metadata"].get("annotations") or {}).get(_CLASS)
        if ctx.operation == "CREATE" and marked is not None and name is not None and marked != name:
            text = "must match `ingressClassName` when both are specified"
            found.append(invalid(f"annotations.{_CLASS}", marked, text))
        return found

    def check_status(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        return reached_at((obj["status"].get("loadBalancer") or {}).get("ingress") or ())

    def warnings(self, obj: Object, old: Object | None, ctx: Context) -> list[str]:
        marked = _CLASS in (obj["metadata"].get("annotations") or {})
        if old is None and marked and obj["spec"].get("ingressClassName") is None:
            return [f"annotation {quoted(_CLASS)} is deprecated, please use 'spec.ingressClassName' instead"]
        return []

    def _rule(self, rule: Spec, at: str) -> list[FieldError]:
        host, found = rule.get("host", ""), list[FieldError]()
        if host:
            if is_ip(host):
                found.append(invalid(f"{at}.host", host, "must be a DNS name, not an IP address"))
            found += _host(host, f"{at}.host")
        if "http" in rule and not rule["http"].get("paths"):
            found.append(required(f"{at}.http.paths"))
        for number, path in enumerate((rule.get("http") or {}).get("paths") or ()):
            found += self._path(path, f"{at}.http.paths[{number}]")
        return found

    def _path(self, path: Spec, at: str) -> list[FieldError]:
        kind, text = path.get("pathType"), path.get("path", "")
        found: list[FieldError] = []
        if kind is None:
            return [required(f"{at}.pathType", "pathType must be specified")]
        free = kind == "ImplementationSpecific"
        if kind not in _PATH_TYPES:
            found.append(unsupported(f"{at}.pathType", kind, sorted(_PATH_TYPES)))
        elif not text.startswith("/") and (text or not free):
            found.append(invalid(f"{at}.path", text, "must be an absolute path"))
        if kind in _PATH_TYPES and not free:
            found += [invalid(f"{at}.path", text, f"must not contain '{odd}'") for odd in _ODD if odd in text]
            found += [invalid(f"{at}.path", text, f"cannot end with '{end}'") for end in _ENDS if text.endswith(end)]
        return found + self._backend(path.get("backend") or {}, f"{at}.backend")

    def _backend(self, backend: Spec, at: str) -> list[FieldError]:
        service = backend.get("service")
        if service is None:
            if "resource" in backend:
                return []
            return [invalid(at, "", "resource or service backend is required")]
        if "resource" in backend:
            return [invalid(at, "", "cannot set both resource and service backends")]
        name, found = service.get("name", ""), list[FieldError]()
        if not name:
            found.append(required(f"{at}.service.name"))
        else:
            found += [invalid(f"{at}.service.name", name, text) for text in formats.label(name)]
        port = service.get("port") or {}
        if port.get("name") and port.get("number"):
            found.append(invalid(at, "", "cannot set both port name & port number"))
        elif port.get("name") or port.get("number"):
            field = "name" if port.get("name") else "number"
            found += port_or_name(port[field], f"{at}.service.port.{field}")
        else:
            found.append(required(at, "port name or number is required"))
        return found


def _host(host: str, at: str) -> list[FieldError]:
    check = formats.wildcard_subdomain if "*" in host else formats.subdomain
    return [invalid(at, host, text) for text in check(host)]


class IngressClassStrategy(KindStrategy):
    rechecks_all = True
    generation = True

    def default(self, obj: Object) -> None:
        parameters = (obj.get("spec") or {}).get("parameters")
        if parameters is not None and parameters.get("scope") is None:
            parameters["scope"] = "Cluster"

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        controller = (obj.get("spec") or {}).get("controller", "")
        if not controller:
            return [required("spec.controller")]
        host, _, rest = controller.partition("/")
        if not host or not rest:
            text = 'must be a domain-prefixed path (such as "acme.io/foo")'
            return [invalid("spec.controller", controller, text)]
        return [invalid("spec.controller", host, text) for text in formats.subdomain(host)]

    def check_change(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        new, before = (obj.get("spec") or {}).get("controller", ""), (old.get("spec") or {}).get("controller", "")
        return immutable(new, before, "spec.controller")


class NetworkPolicyStrategy(CountedStrategy):
    generation = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("podSelector", {})
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
        for direction in ("ingress", "egress"):
            for rule in spec.get(direction) or ():
                for port in rule.get("ports") or ():
                    port.setdefault("protocol", "TCP")

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj["spec"]
        found = label_selector(spec.get("podSelector"), "spec.podSelector")
        for direction, field in (("ingress", "from"), ("egress", "to")):
            for index, rule in enumerate(spec.get(direction) or ()):
                at = f"spec.{direction}[{index}]"
                for number, port in enumerate(rule.get("ports") or ()):
                    found += _policy_port(port, f"{at}.ports[{number}]")
                for number, peer in enumerate(rule.get(field) or ()):
                    found += _peer(peer, f"{at}.{field}[{number}]")
        for index, kind in enumerate(spec.get("policyTypes") or ()):
            if kind not in ("Ingress", "Egress"):
                found.append(unsupported(f"spec.policyTypes[{index}]", kind, ("Ingress", "Egress")))
        return found


def _policy_port(entry: Spec, at: str) -> list[FieldError]:
    found: list[FieldError] = []
    if entry.get("protocol") not in (None, *_PROTOCOLS):
        found.append(unsupported(f"{at}.protocol", entry["protocol"], _PROTOCOLS))
    port, end = entry.get("port"), entry.get("endPort")
    last = f"{at}.endPort"
    if end is not None and not isinstance(port, int):
        why = "not specified" if port is None else "non-numeric"
        found.append(invalid(last, end, f"may not be specified when `port` is {why}"))
    if port is not None:
        found += port_or_name(port, f"{at}.port")
    if end is not None and isinstance(port, int):
        if end < port:
            found.append(invalid(last, port, "must be greater than or equal to `port`"))
        found += port_or_name(end, last)
    return found


def _peer(peer: Spec, at: str) -> list[FieldError]:
    found: list[FieldError] = []
    for selector in ("podSelector", "namespaceSelector"):
        found += label_selector(peer.get(selector), f"{at}.{selector}")
    if "ipBlock" in peer:
        found += _block(peer["ipBlock"], f"{at}.ipBlock")
    if not peer:
        found.append(required(at, "must specify a peer"))
    elif len(peer) > 1 and "ipBlock" in peer:
        found.append(forbidden(at, "may not specify both ipBlock and another peer"))
    return found


def _block(block: Spec, at: str) -> list[FieldError]:
    text = block.get("cidr", "")
    if not text:
        return [required(f"{at}.cidr")]
    outer = network(text)
    found = valid_cidr(text, f"{at}.cidr")
    if outer is None:
        return found
    for index, cut in enumerate(block.get("except") or ()):
        inner, path = network(cut), f"{at}.except[{index}]"
        found += valid_cidr(cut, path)
        if inner is None:
            continue
        if inner.network_address not in outer or outer.prefixlen >= inner.prefixlen:
            found.append(invalid(path, cut, "must be a strict subset of `cidr`"))
    return found


class IPAddressStrategy(KindStrategy):
    name_rule = staticmethod(formats.path_segment)

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        return metadata.labels(obj["metadata"].get("labels") or {}, "metadata.labels")
