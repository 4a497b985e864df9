"""Ingresses, network policies, endpoints and their slices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.fielderror import FieldError, invalid, required, unsupported
from dovetail.lab.apiserver.kinds import formats, metadata
from dovetail.lab.apiserver.kinds.base import KindStrategy, immutable
from dovetail.lab.apiserver.kinds.pod.placement import valid_ip
from dovetail.lab.apiserver.kinds.selectors import label_selector
from dovetail.lab.apiserver.registry import Context, Object

Spec = Mapping[str, Any]
_PATH_TYPES = ("Exact", "Prefix", "ImplementationSpecific")


class IngressStrategy(KindStrategy):
    generation = True
    status_door = True

    def clear_status(self, obj: Object) -> None:
        obj["status"] = {"loadBalancer": {}}

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        found: list[FieldError] = []
        if not spec.get("rules") and "defaultBackend" not in spec:
            found.append(invalid("spec", spec.get("rules"), "either `defaultBackend` or `rules` must be specified"))
        if "defaultBackend" in spec:
            found += self._backend(spec["defaultBackend"], "spec.defaultBackend")
        for index, rule in enumerate(spec.get("rules") or ()):
            at = f"spec.rules[{index}]"
            host = rule.get("host", "")
            if host:
                check = formats.wildcard_subdomain if "*" in host else formats.subdomain
                found += [invalid(f"{at}.host", host, text) for text in check(host)]
            for number, path in enumerate((rule.get("http") or {}).get("paths") or ()):
                found += self._path(path, f"{at}.http.paths[{number}]")
            if "http" in rule and not rule["http"].get("paths"):
                found.append(required(f"{at}.http.paths"))
        name = spec.get("ingressClassName")
        if name is not None:
            found += [invalid("spec.ingressClassName", name, text) for text in formats.subdomain(name)]
        return found

    def _path(self, path: Spec, at: str) -> list[FieldError]:
        kind = path.get("pathType")
        found: list[FieldError] = []
        if kind is None:
            return [required(f"{at}.pathType", "pathType must be specified")]
        if kind not in _PATH_TYPES:
            found.append(unsupported(f"{at}.pathType", kind, sorted(_PATH_TYPES)))
        elif kind != "ImplementationSpecific" and not path.get("path", "").startswith("/"):
            found.append(invalid(f"{at}.path", path.get("path", ""), "must be an absolute path"))
        return found + self._backend(path.get("backend") or {}, f"{at}.backend")

    def _backend(self, backend: Spec, at: str) -> list[FieldError]:
        service = backend.get("service")
        if service is None:
            if "resource" in backend:
                return []
            return [required(at, "must specify one of: `service` or `resource`")]
        found: list[FieldError] = []
        name = service.get("name", "")
        if not name:
            found.append(required(f"{at}.service.name"))
        else:
            found += [invalid(f"{at}.service.name", name, text) for text in formats.label_1035(name)]
        port = service.get("port") or {}
        if not port.get("name") and not port.get("number"):
            found.append(required(f"{at}.service.port.number", "port name or number is required"))
        elif port.get("number"):
            texts = formats.port_number(port["number"])
            found += [invalid(f"{at}.service.port.number", port["number"], text) for text in texts]
        return found


class IngressClassStrategy(KindStrategy):
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


class NetworkPolicyStrategy(KindStrategy):
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
                for number, peer in enumerate(rule.get(field) or ()):
                    at = f"spec.{direction}[{index}].{field}[{number}]"
                    for selector in ("podSelector", "namespaceSelector"):
                        found += label_selector(peer.get(selector), f"{at}.{selector}")
                    if not peer:
                        found.append(required(at, "must specify a peer"))
        for kind in spec.get("policyTypes") or ():
            if kind not in ("Ingress", "Egress"):
                found.append(unsupported("spec.policyTypes[0]", kind, ("Egress", "Ingress")))
        return found


class EndpointsStrategy(KindStrategy):
    def default(self, obj: Object) -> None:
        for subset in obj.get("subsets") or ():
            for port in subset.get("ports") or ():
                port.setdefault("protocol", "TCP")

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        found: list[FieldError] = []
        for index, subset in enumerate(obj.get("subsets") or ()):
            at = f"subsets[{index}]"
            if not subset.get("addresses") and not subset.get("notReadyAddresses"):
                found.append(required(at, "must specify `addresses` or `notReadyAddresses`"))
            for field in ("addresses", "notReadyAddresses"):
                for number, address in enumerate(subset.get(field) or ()):
                    found += valid_ip(address.get("ip", ""), f"{at}.{field}[{number}].ip")
        return found


class EndpointSliceStrategy(KindStrategy):
    generation = True
    generation_fields = ("endpoints", "ports", "addressType")

    def default(self, obj: Object) -> None:
        for port in obj.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        kind = obj.get("addressType", "")
        known = ("FQDN", "IPv4", "IPv6")
        found: list[FieldError] = []
        if not kind:
            found.append(required("addressType"))
        elif kind not in known:
            found.append(unsupported("addressType", kind, known))
        for index, endpoint in enumerate(obj.get("endpoints") or ()):
            addresses = endpoint.get("addresses") or ()
            at = f"endpoints[{index}].addresses"
            if not addresses:
                found.append(required(at, "must contain at least 1 address"))
            for number, address in enumerate(addresses):
                if kind != "FQDN":
                    found += valid_ip(address, f"{at}[{number}]")
        return found

    def check_change(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        found = self.check(obj, ctx)
        return found + immutable(obj.get("addressType"), old.get("addressType"), "addressType")


class IPAddressStrategy(KindStrategy):
    name_rule = staticmethod(formats.path_segment)

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        return metadata.labels(obj["metadata"].get("labels") or {}, "metadata.labels")
