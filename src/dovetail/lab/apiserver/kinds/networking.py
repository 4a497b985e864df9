"""Ingresses and network policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.kinds.admission.storage import newest_default
from dovetail.lab.apiserver.kinds.base import CountedStrategy, KindStrategy, immutable
from dovetail.lab.apiserver.kinds.pod.probes import port_or_name
from dovetail.lab.apiserver.kinds.service_validation import reached_at
from dovetail.lab.apiserver.registry import Object, RequestContext
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

    def admit(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        super().admit(obj, old, ctx)
        if obj is None or ctx.operation != "CREATE":
            return
        named = _CLASS in (obj["metadata"].get("annotations") or {})
        if not named and obj.get("spec", {}).get("ingressClassName") is None:
            name = newest_default(ctx, "networking.k8s.io", "ingressclasses", (_DEFAULT,))
            if name:
                obj.setdefault("spec", {})["ingressClassName"] = name

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        if not spec.get("rules") and "defaultBackend" not in spec:
            errors.append(invalid("spec", spec.get("rules"), "either `defaultBackend` or `rules` must be specified"))
        if "defaultBackend" in spec:
            errors += self._backend(spec["defaultBackend"], "spec.defaultBackend")
        for index, rule in enumerate(spec.get("rules") or ()):
            errors += self._rule(rule, f"spec.rules[{index}]")
        for index, entry in enumerate(spec.get("tls") or ()):
            for number, host in enumerate(entry.get("hosts") or ()):
                errors += _host(host, f"spec.tls[{index}].hosts[{number}]")
            secret = entry.get("secretName", "")
            if secret:
                errors += [invalid(f"spec.tls[{index}].secretName", secret, text) for text in formats.subdomain(secret)]
        name = spec.get("ingressClassName")
        if name is not None:
            errors += [invalid("spec.ingressClassName", name, text) for text in formats.subdomain(name)]
        marked = (obj["metadata"].get("annotations") or {}).get(_CLASS)
        if ctx.operation == "CREATE" and marked is not None and name is not None and marked != name:
            text = "must match `ingressClassName` when both are specified"
            errors.append(invalid(f"annotations.{_CLASS}", marked, text))
        return errors

    def check_status(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        return reached_at((obj["status"].get("loadBalancer") or {}).get("ingress") or ())

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        marked = _CLASS in (obj["metadata"].get("annotations") or {})
        if old is None and marked and obj["spec"].get("ingressClassName") is None:
            return [f"annotation {quoted(_CLASS)} is deprecated, please use 'spec.ingressClassName' instead"]
        return []

    def _rule(self, rule: Spec, field_path: str) -> list[FieldError]:
        host, errors = rule.get("host", ""), list[FieldError]()
        if host:
            if is_ip(host):
                errors.append(invalid(f"{field_path}.host", host, "must be a DNS name, not an IP address"))
            errors += _host(host, f"{field_path}.host")
        if "http" in rule and not rule["http"].get("paths"):
            errors.append(required(f"{field_path}.http.paths"))
        for number, path in enumerate((rule.get("http") or {}).get("paths") or ()):
            errors += self._path(path, f"{field_path}.http.paths[{number}]")
        return errors

    def _path(self, path: Spec, field_path: str) -> list[FieldError]:
        kind, text = path.get("pathType"), path.get("path", "")
        errors: list[FieldError] = []
        if kind is None:
            return [required(f"{field_path}.pathType", "pathType must be specified")]
        free = kind == "ImplementationSpecific"
        if kind not in _PATH_TYPES:
            errors.append(unsupported(f"{field_path}.pathType", kind, sorted(_PATH_TYPES)))
        elif not text.startswith("/") and (text or not free):
            errors.append(invalid(f"{field_path}.path", text, "must be an absolute path"))
        if kind in _PATH_TYPES and not free:
            errors += [invalid(f"{field_path}.path", text, f"must not contain '{odd}'") for odd in _ODD if odd in text]
            errors += [
                invalid(f"{field_path}.path", text, f"cannot end with '{end}'") for end in _ENDS if text.endswith(end)
            ]
        return errors + self._backend(path.get("backend") or {}, f"{field_path}.backend")

    def _backend(self, backend: Spec, field_path: str) -> list[FieldError]:
        service = backend.get("service")
        if service is None:
            if "resource" in backend:
                return []
            return [invalid(field_path, "", "resource or service backend is required")]
        if "resource" in backend:
            return [invalid(field_path, "", "cannot set both resource and service backends")]
        name, errors = service.get("name", ""), list[FieldError]()
        if not name:
            errors.append(required(f"{field_path}.service.name"))
        else:
            errors += [invalid(f"{field_path}.service.name", name, text) for text in formats.label(name)]
        port = service.get("port") or {}
        if port.get("name") and port.get("number"):
            errors.append(invalid(field_path, "", "cannot set both port name & port number"))
        elif port.get("name") or port.get("number"):
            field = "name" if port.get("name") else "number"
            errors += port_or_name(port[field], f"{field_path}.service.port.{field}")
        else:
            errors.append(required(field_path, "port name or number is required"))
        return errors


def _host(host: str, field_path: str) -> list[FieldError]:
    check = formats.wildcard_subdomain if "*" in host else formats.subdomain
    return [invalid(field_path, host, text) for text in check(host)]


class IngressClassStrategy(KindStrategy):
    rechecks_all = True
    generation = True

    def default(self, obj: Object) -> None:
        parameters = (obj.get("spec") or {}).get("parameters")
        if parameters is not None and parameters.get("scope") is None:
            parameters["scope"] = "Cluster"

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        controller = (obj.get("spec") or {}).get("controller", "")
        if not controller:
            return [required("spec.controller")]
        host, _, rest = controller.partition("/")
        if not host or not rest:
            text = 'must be a domain-prefixed path (such as "acme.io/foo")'
            return [invalid("spec.controller", controller, text)]
        return [invalid("spec.controller", host, text) for text in formats.subdomain(host)]

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
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

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        errors = label_selector(spec.get("podSelector"), "spec.podSelector")
        for direction, field in (("ingress", "from"), ("egress", "to")):
            for index, rule in enumerate(spec.get(direction) or ()):
                field_path = f"spec.{direction}[{index}]"
                for number, port in enumerate(rule.get("ports") or ()):
                    errors += _policy_port(port, f"{field_path}.ports[{number}]")
                for number, peer in enumerate(rule.get(field) or ()):
                    errors += _peer(peer, f"{field_path}.{field}[{number}]")
        for index, kind in enumerate(spec.get("policyTypes") or ()):
            if kind not in ("Ingress", "Egress"):
                errors.append(unsupported(f"spec.policyTypes[{index}]", kind, ("Ingress", "Egress")))
        return errors


def _policy_port(entry: Spec, field_path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if entry.get("protocol") not in (None, *_PROTOCOLS):
        errors.append(unsupported(f"{field_path}.protocol", entry["protocol"], _PROTOCOLS))
    port, end = entry.get("port"), entry.get("endPort")
    last = f"{field_path}.endPort"
    if end is not None and not isinstance(port, int):
        why = "not specified" if port is None else "non-numeric"
        errors.append(invalid(last, end, f"may not be specified when `port` is {why}"))
    if port is not None:
        errors += port_or_name(port, f"{field_path}.port")
    if end is not None and isinstance(port, int):
        if end < port:
            errors.append(invalid(last, port, "must be greater than or equal to `port`"))
        errors += port_or_name(end, last)
    return errors


def _peer(peer: Spec, field_path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for selector in ("podSelector", "namespaceSelector"):
        errors += label_selector(peer.get(selector), f"{field_path}.{selector}")
    if "ipBlock" in peer:
        errors += _block(peer["ipBlock"], f"{field_path}.ipBlock")
    if not peer:
        errors.append(required(field_path, "must specify a peer"))
    elif len(peer) > 1 and "ipBlock" in peer:
        errors.append(forbidden(field_path, "may not specify both ipBlock and another peer"))
    return errors


def _block(block: Spec, field_path: str) -> list[FieldError]:
    text = block.get("cidr", "")
    if not text:
        return [required(f"{field_path}.cidr")]
    outer = network(text)
    errors = valid_cidr(text, f"{field_path}.cidr")
    if outer is None:
        return errors
    for index, cut in enumerate(block.get("except") or ()):
        inner, path = network(cut), f"{field_path}.except[{index}]"
        errors += valid_cidr(cut, path)
        if inner is None:
            continue
        if inner.network_address not in outer or outer.prefixlen >= inner.prefixlen:
            errors.append(invalid(path, cut, "must be a strict subset of `cidr`"))
    return errors


class IPAddressStrategy(KindStrategy):
    name_rule = staticmethod(formats.path_segment)

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        return metadata.labels(obj["metadata"].get("labels") or {}, "metadata.labels")
