"""Services: their addresses and ports are handed out here."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.fielderror import FieldError, duplicate, forbidden, invalid, required, unsupported
from dovetail.lab.apiserver.kinds import formats, metadata
from dovetail.lab.apiserver.kinds.admission import quota
from dovetail.lab.apiserver.kinds.base import KindStrategy
from dovetail.lab.apiserver.kinds.pod.placement import valid_ip
from dovetail.lab.apiserver.kinds.pod.probes import port_or_name
from dovetail.lab.apiserver.kinds.selectors import label_name
from dovetail.lab.apiserver.registry import Context, Object, Refusal

Spec = Mapping[str, Any]
NETWORK = ipaddress.ip_network("10.96.0.0/16")
NODE_PORTS = range(30000, 32768)
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def external(spec: Spec) -> bool:
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def headless(spec: Spec) -> bool:
    return bool((spec.get("clusterIPs") or [None])[0] == "None")


class ServiceStrategy(KindStrategy):
    name_rule = staticmethod(formats.label)
    status_door = True
    returns_deleted = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        affinity = spec.setdefault("sessionAffinity", "None")
        if affinity == "None":
            spec.pop("sessionAffinityConfig", None)
        elif affinity == "ClientIP":
            config = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
            if config.get("timeoutSeconds") is None:
                spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
        spec.setdefault("type", "ClusterIP")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in (None, 0, ""):
                port["targetPort"] = port["port"]
        if external(spec):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if spec["type"] in ("ClusterIP", "NodePort", "LoadBalancer"):
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
        obj.setdefault("status", {}).setdefault("loadBalancer", {})

    def clear_status(self, obj: Object) -> None:
        obj["status"] = {"loadBalancer": {}}

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        super().prepare_create(obj, ctx)
        self._normalise(obj["spec"])
        if not self.check_shape(obj):
            self._allocate(obj, None, ctx)

    def prepare_update(self, obj: Object, old: Object, ctx: Context) -> None:
        super().prepare_update(obj, old, ctx)
        if ctx.subresource:
            return
        spec, before = obj["spec"], old["spec"]
        if spec.get("clusterIP") != before.get("clusterIP") and spec.get("clusterIPs") == before.get("clusterIPs"):
            spec.pop("clusterIPs", None)
        self._patch(spec, before)
        _drop_unused(spec, before)
        self._normalise(spec)
        if not self.check_shape(obj):
            self._allocate(obj, old, ctx)

    def _patch(self, spec: Object, before: Spec) -> None:
        """What an update left out is kept: addresses, and node ports where the type still has them."""
        if spec["type"] == "ExternalName":
            return
        if before.get("type") != "ExternalName":
            if not spec.get("clusterIP") and not spec.get("clusterIPs"):
                for field in ("clusterIP", "clusterIPs"):
                    if field in before:
                        spec[field] = before[field]
            for field in ("ipFamilies", "ipFamilyPolicy"):
                if field not in spec and field in before:
                    spec[field] = before[field]
        if spec["type"] in ("NodePort", "LoadBalancer"):
            known = {(p.get("protocol"), p.get("port")): p.get("nodePort") for p in before.get("ports") or ()}
            for port in spec.get("ports") or ():
                kept = known.get((port.get("protocol"), port.get("port")))
                if not port.get("nodePort") and kept:
                    port["nodePort"] = kept

    def _normalise(self, spec: Object) -> None:
        single, several = spec.get("clusterIP"), spec.get("clusterIPs")
        if single and not several:
            spec["clusterIPs"] = [single]

    def _allocate(self, obj: Object, old: Object | None, ctx: Context) -> None:
        spec = obj["spec"]
        if spec["type"] != "ExternalName":
            both = headless(spec) and not spec.get("selector")
            spec.setdefault("ipFamilyPolicy", "RequireDualStack" if both else "SingleStack")
            spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if both else ["IPv4"])
            if not spec.get("clusterIP"):
                spec["clusterIP"] = self._address(ctx)
                spec["clusterIPs"] = [spec["clusterIP"]]
            elif spec["clusterIP"] != "None":
                self._reserve(obj, ctx)
        wants = spec["type"] == "NodePort" or (
            spec["type"] == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)
        )
        if wants:
            taken = self._node_ports(obj, ctx)
            for port in spec.get("ports") or ():
                if not port.get("nodePort"):
                    free = [p for p in NODE_PORTS if p not in taken]
                    port["nodePort"] = ctx.chance.choice(free)
                taken.add(port["nodePort"])
        needs_check = spec["type"] == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"
        if needs_check and not spec.get("healthCheckNodePort"):
            taken = self._node_ports(obj, ctx)
            spec["healthCheckNodePort"] = ctx.chance.choice([p for p in NODE_PORTS if p not in taken])

    def _addresses(self, ctx: Context) -> dict[str, Object]:
        return {
            address: service
            for service in ctx.cluster.list("", "services")
            for address in service["spec"].get("clusterIPs") or ()
            if address != "None"
        }

    def _address(self, ctx: Context) -> str:
        taken = self._addresses(ctx)
        while True:
            address = str(NETWORK[ctx.chance.randrange(16, NETWORK.num_addresses - 1)])
            if address not in taken:
                return address

    def _reserve(self, obj: Object, ctx: Context) -> None:
        address = obj["spec"]["clusterIP"]
        name = obj["metadata"].get("name", "")
        holder = self._addresses(ctx).get(address)
        me = (obj["metadata"].get("namespace"), name)
        if holder is not None and (holder["metadata"].get("namespace"), holder["metadata"]["name"]) != me:
            raise _invalid(name, address, "failed to allocate IP {ip}: provided IP is already allocated")
        try:
            inside = ipaddress.ip_address(address) in NETWORK
        except ValueError:
            return
        if not inside:
            text = "failed to allocate IP {ip}: the provided network does not match the current range"
            if ctx.dry_run:
                text = (
                    "failed to allocate IP {ip}: the provided IP ({ip}) is not in the valid range. "
                    f"The range of valid IPs is {NETWORK}"
                )
            raise _invalid(name, address, text)

    def _node_ports(self, obj: Object, ctx: Context) -> set[int]:
        me = (obj["metadata"].get("namespace"), obj["metadata"].get("name"))
        return {
            port["nodePort"]
            for service in ctx.cluster.list("", "services")
            if (service["metadata"].get("namespace"), service["metadata"]["name"]) != me
            for port in service["spec"].get("ports") or ()
            if port.get("nodePort")
        }

    def check_shape(self, obj: Object) -> bool:
        """Whether the request is too odd for addresses to be handed out; validation then says why."""
        spec = obj["spec"]
        return spec["type"] not in _TYPES or bool(spec.get("clusterIPs") and not spec.get("clusterIP"))

    def validate_create(self, obj: Object, ctx: Context) -> list[FieldError]:
        """Addresses are handed out, or not, before anything else is looked at."""
        return self._cluster_ips(obj["spec"]) or super().validate_create(obj, ctx)

    def validate_update(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        found = [] if ctx.subresource else self._cluster_ips(obj["spec"])
        return found or super().validate_update(obj, old, ctx)

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj["spec"]
        kind, ports = spec["type"], spec.get("ports") or ()
        found: list[FieldError] = []
        if not ports and not headless(spec) and kind != "ExternalName":
            found.append(required("spec.ports"))
        if kind in ("LoadBalancer", "NodePort") and headless(spec):
            text = f"may not be set to 'None' for {kind} services"
            found.append(invalid("spec.clusterIPs[0]", "None", text))
        if kind == "ExternalName":
            for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                if spec.get(field):
                    found.append(forbidden(f"spec.{field}", "may not be set for ExternalName services"))
            name = spec.get("externalName", "").removesuffix(".")
            if name:
                found += [invalid("spec.externalName", name, text) for text in formats.subdomain(name)]
            else:
                found.append(required("spec.externalName"))
        found += self._ports(spec)
        found += metadata.labels(spec.get("selector") or {}, "spec.selector")
        affinity = spec.get("sessionAffinity", "")
        if affinity not in ("ClientIP", "None"):
            found.append(unsupported("spec.sessionAffinity", affinity, ("ClientIP", "None")))
        for index, address in enumerate(spec.get("externalIPs") or ()):
            found += valid_ip(address, f"spec.externalIPs[{index}]")
        if kind not in _TYPES:
            found.append(unsupported("spec.type", kind, _TYPES))
        return found + self._port_conflicts(spec) + self._policies(spec)

    def _ports(self, spec: Spec) -> list[FieldError]:
        found: list[FieldError] = []
        ports = spec.get("ports") or ()
        names: set[str] = set()
        for index, port in enumerate(ports):
            at, name = f"spec.ports[{index}]", port.get("name", "")
            if len(ports) > 1 and not name:
                found.append(required(f"{at}.name"))
            elif name:
                found += [invalid(f"{at}.name", name, text) for text in formats.label(name)]
                if name in names:
                    found.append(duplicate(f"{at}.name", name))
                names.add(name)
            number = port.get("port", 0)
            found += [invalid(f"{at}.port", number, text) for text in formats.port_number(number)]
            if port.get("protocol", "") not in ("SCTP", "TCP", "UDP"):
                found.append(unsupported(f"{at}.protocol", port.get("protocol", ""), ("SCTP", "TCP", "UDP")))
            found += port_or_name(port.get("targetPort", 0), f"{at}.targetPort")
            if "appProtocol" in port:
                found += label_name(port["appProtocol"], f"{at}.appProtocol")
        return found

    def _cluster_ips(self, spec: Spec) -> list[FieldError]:
        found: list[FieldError] = []
        if spec["type"] == "ExternalName":
            return found
        single, several = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
        if single and several and several[0] != single:
            found.append(invalid("spec.clusterIPs", several, "first value must match `clusterIP`"))
        if several and not single:
            found.append(invalid("spec.clusterIPs", several, "must be empty when `clusterIP` is not specified"))
        families = spec.get("ipFamilies") or ()
        for index, family in enumerate(families):
            if family not in ("IPv4", "IPv6"):
                found.append(unsupported(f"spec.ipFamilies[{index}]", family, ("IPv4", "IPv6")))
        policy = spec.get("ipFamilyPolicy")
        known = ("PreferDualStack", "RequireDualStack", "SingleStack")
        if policy not in (None, *known):
            found.append(unsupported("spec.ipFamilyPolicy", policy, known))
        for index, address in enumerate(several):
            if index == 0 and address == "None":
                continue
            found += valid_ip(address, f"spec.clusterIPs[{index}]")
        return found

    def _port_conflicts(self, spec: Spec) -> list[FieldError]:
        found: list[FieldError] = []
        ports = spec.get("ports") or ()
        if spec["type"] == "ClusterIP":
            text = "may not be used when `type` is 'ClusterIP'"
            found += [forbidden(f"spec.ports[{i}].nodePort", text) for i, p in enumerate(ports) if p.get("nodePort")]
        node_ports: set[tuple[Any, Any]] = set()
        for index, port in enumerate(ports):
            key = (port.get("protocol"), port.get("nodePort"))
            if port.get("nodePort"):
                if key in node_ports:
                    found.append(duplicate(f"spec.ports[{index}].nodePort", port["nodePort"]))
                node_ports.add(key)
        seen: set[tuple[Any, Any]] = set()
        for index, port in enumerate(ports):
            key = (port.get("protocol"), port.get("port"))
            if key in seen:
                shown = {
                    "Name": "",
                    "Protocol": port.get("protocol", ""),
                    "AppProtocol": None,
                    "Port": port.get("port", 0),
                    "TargetPort": 0,
                    "NodePort": 0,
                }
                found.append(duplicate(f"spec.ports[{index}]", shown))
            seen.add(key)
        return found

    def _policies(self, spec: Spec) -> list[FieldError]:
        found: list[FieldError] = []
        if spec.get("loadBalancerSourceRanges") and spec["type"] != "LoadBalancer":
            text = "may only be used when `type` is 'LoadBalancer'"
            found.append(forbidden("spec.LoadBalancerSourceRanges", text))
        if "allocateLoadBalancerNodePorts" in spec and spec["type"] != "LoadBalancer":
            text = "may only be used when `type` is 'LoadBalancer'"
            found.append(forbidden("spec.allocateLoadBalancerNodePorts", text))
        policy = spec.get("externalTrafficPolicy", "")
        if not external(spec):
            if policy:
                text = "may only be set for externally-accessible services"
                found.append(invalid("spec.externalTrafficPolicy", policy, text))
        elif policy not in ("Cluster", "Local"):
            found.append(unsupported("spec.externalTrafficPolicy", policy, ("Cluster", "Local")))
        internal = spec.get("internalTrafficPolicy")
        if internal not in (None, "Cluster", "Local"):
            found.append(unsupported("spec.internalTrafficPolicy", internal, ("Cluster", "Local")))
        return found

    def check_change(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        spec, before = obj["spec"], old["spec"]
        found: list[FieldError] = []
        if "ExternalName" not in (spec["type"], before["type"]) and not (headless(spec) and headless(before)):
            new, was = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
            for index, address in enumerate(was):
                if index < len(new) and new[index] != address:
                    found.append(invalid(f"spec.clusterIPs[{index}]", new, "may not change once set"))
        return found + self.check(obj, ctx)

    def review(self, obj: Object | None, old: Object | None, ctx: Context) -> None:
        quota.review(obj, old, ctx)


def _drop_unused(spec: Object, before: Spec) -> None:
    """A service that changed its type lets go of what only the old type had, unless the request speaks of it."""
    had, has = (kind.get("type") in ("NodePort", "LoadBalancer") for kind in (before, spec))
    if had and not has:
        for port, was in zip(spec.get("ports") or (), before.get("ports") or (), strict=False):
            if port.get("nodePort") == was.get("nodePort"):
                port.pop("nodePort", None)
    same = spec.get("externalTrafficPolicy") == before.get("externalTrafficPolicy")
    if external(before) and not external(spec) and same:
        spec.pop("externalTrafficPolicy", None)
    if before.get("type") == "LoadBalancer" and spec.get("type") != "LoadBalancer":
        for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"):
            if spec.get(field) == before.get(field):
                spec.pop(field, None)
    if before.get("type") != "ExternalName" and spec.get("type") == "ExternalName":
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
            if spec.get(field) == before.get(field):
                spec.pop(field, None)


def _invalid(name: str, address: str, text: str) -> Refusal:
    body = f'Invalid value: {{"{address}"}}'.replace("{", "[").replace("}", "]")
    message = f"{body}: {text.format(ip=address)}"
    details = {
        "name": name,
        "kind": "Service",
        "causes": [{"reason": "FieldValueInvalid", "message": message, "field": "spec.clusterIPs"}],
    }
    return Refusal(422, "Invalid", f'Service "{name}" is invalid: spec.clusterIPs: {message}', details)
