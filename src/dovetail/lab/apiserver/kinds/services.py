"""Services: their addresses and ports are handed out here."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver import status_errors
from dovetail.lab.apiserver.kinds.admission import quota
from dovetail.lab.apiserver.kinds.base import KindStrategy
from dovetail.lab.apiserver.kinds.service_validation import (
    TYPES,
    balancer_status,
    check_spec,
    cluster_ips,
    external,
    headless,
    health_checked,
    warnings,
)
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, invalid

Spec = Mapping[str, Any]
NETWORK = ipaddress.ip_network("10.96.0.0/16")
NODE_PORTS = range(30000, 32768)
_SELECTABLE = frozenset(("spec.clusterIP", "spec.type"))


class ServiceStrategy(KindStrategy):
    name_rule = staticmethod(formats.label)
    has_status_subresource = True
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
        balancer = obj.setdefault("status", {}).setdefault("loadBalancer", {})
        for entry in balancer.get("ingress") or ():
            if entry.get("ip"):
                entry.setdefault("ipMode", "VIP")

    def clear_status(self, obj: Object) -> None:
        obj["status"] = {"loadBalancer": {}}

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        super().prepare_create(obj, ctx)
        self._normalise(obj["spec"])
        if not self.check_shape(obj):
            self._allocate(obj, None, ctx)

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        super().prepare_update(obj, old, ctx)
        if ctx.subresource:
            return
        spec, before = obj["spec"], old["spec"]
        if spec.get("clusterIP") != before.get("clusterIP") and spec.get("clusterIPs") == before.get("clusterIPs"):
            spec.pop("clusterIPs", None)
        self._patch(spec, before)
        _drop_unused(spec, before)
        if spec.get("type") != "LoadBalancer":
            obj["status"] = {**obj["status"], "loadBalancer": {}}
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
            node_ports = {(p.get("protocol"), p.get("port")): p.get("nodePort") for p in before.get("ports") or ()}
            for port in spec.get("ports") or ():
                kept = node_ports.get((port.get("protocol"), port.get("port")))
                if not port.get("nodePort") and kept:
                    port["nodePort"] = kept

    def _normalise(self, spec: Object) -> None:
        single, several = spec.get("clusterIP"), spec.get("clusterIPs")
        if single and not several:
            spec["clusterIPs"] = [single]

    def _allocate(self, obj: Object, old: Object | None, ctx: RequestContext) -> None:
        spec = obj["spec"]
        if spec["type"] != "ExternalName":
            both = headless(spec) and not spec.get("selector")
            spec.setdefault("ipFamilyPolicy", "RequireDualStack" if both else "SingleStack")
            spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if both else ["IPv4"])
            if not spec.get("clusterIP"):
                spec["clusterIP"] = self._address(ctx)
                spec["clusterIPs"] = [spec["clusterIP"]]
            elif spec["clusterIP"] != "None" and not (old or {"spec": {}})["spec"].get("clusterIP"):
                self._reserve(obj, ctx)  # an address that was there before may not change: validation says so
        wants = spec["type"] == "NodePort" or (
            spec["type"] == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)
        )
        if wants:
            self._allocate_ports(obj, ctx)
        if health_checked(spec) and not spec.get("healthCheckNodePort"):
            taken = self._node_ports(obj, ctx)
            spec["healthCheckNodePort"] = ctx.chance.choice([p for p in NODE_PORTS if p not in taken])

    def _allocate_ports(self, obj: Object, ctx: RequestContext) -> None:
        taken = self._node_ports(obj, ctx)
        for index, port in enumerate(obj["spec"].get("ports") or ()):
            number = port.get("nodePort")
            if not number:
                port["nodePort"] = ctx.chance.choice([p for p in NODE_PORTS if p not in taken])
            elif number not in NODE_PORTS and not ctx.dry_run:
                span = f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
                text = f"provided port is not in the valid range. The range of valid ports is {span}"
                raise _refused(obj, f"spec.ports[{index}].nodePort", number, text)
            elif number in taken:
                raise _refused(obj, f"spec.ports[{index}].nodePort", number, "provided port is already allocated")
            taken.add(port["nodePort"])

    def _addresses(self, ctx: RequestContext) -> dict[str, Object]:
        return {
            address: service
            for service in ctx.cluster.list("", "services")
            for address in service["spec"].get("clusterIPs") or ()
            if address != "None"
        }

    def _address(self, ctx: RequestContext) -> str:
        taken = self._addresses(ctx)
        while True:
            address = str(NETWORK[ctx.chance.randrange(16, NETWORK.num_addresses - 1)])
            if address not in taken:
                return address

    def _reserve(self, obj: Object, ctx: RequestContext) -> None:
        address = obj["spec"]["clusterIP"]
        holder = self._addresses(ctx).get(address)
        me = (obj["metadata"].get("namespace"), obj["metadata"].get("name", ""))
        failed = f"failed to allocate IP {address}"
        taken = holder is not None and (holder["metadata"].get("namespace"), holder["metadata"]["name"]) != me
        if taken and not ctx.dry_run:
            raise _refused(obj, "spec.clusterIPs", [address], f"{failed}: provided IP is already allocated")
        try:
            inside = ipaddress.ip_address(address) in NETWORK
        except ValueError:
            return
        if not inside:
            text = "the provided network does not match the current range"
            if ctx.dry_run:
                text = f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {NETWORK}"
            raise _refused(obj, "spec.clusterIPs", [address], f"{failed}: {text}")

    def _node_ports(self, obj: Object, ctx: RequestContext) -> set[int]:
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
        return spec["type"] not in TYPES or bool(spec.get("clusterIPs") and not spec.get("clusterIP"))

    def validate_create(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        """Addresses are handed out, or not, before anything else is looked at."""
        return cluster_ips(obj["spec"]) or super().validate_create(obj, ctx)

    def validate_update(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = [] if ctx.subresource else cluster_ips(obj["spec"])
        return errors or super().validate_update(obj, old, ctx)

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        return check_spec(obj["spec"])

    def check_status(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        return balancer_status(obj["status"]["loadBalancer"].get("ingress") or [], obj["spec"])

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        return [] if ctx.subresource else warnings(obj["spec"])

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {field: obj["spec"].get(field.partition(".")[2], "") for field in _SELECTABLE}

    def selectable_fields(self) -> frozenset[str]:
        return _SELECTABLE

    def unknown_selector(self, label: str) -> str:
        return f"field label not supported: {label}"

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        spec, before = obj["spec"], old["spec"]
        errors: list[FieldError] = []
        if "ExternalName" not in (spec["type"], before["type"]) and not (headless(spec) and headless(before)):
            new, was = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
            for index, address in enumerate(was):
                if index < len(new) and new[index] != address:
                    errors.append(invalid(f"spec.clusterIPs[{index}]", new, "may not change once set"))
        return errors + self.check(obj, ctx)

    def review(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
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


def _refused(obj: Object, field: str, value: object, text: str) -> StatusError:
    """An address or port that cannot be had, which is found out before the rest is checked."""
    return status_errors.invalid("", "Service", obj["metadata"].get("name", ""), [invalid(field, value, text)])
