"""What may be wrong with a Service, in the order the complaints appear; pure functions of its spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.lab.apiserver.kinds.pod.probes import port_or_name
from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.addresses import endpoint_ip, is_ip, valid_cidr, valid_ip
from dovetail.model.validation.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    quoted,
    required,
    unsupported,
)
from dovetail.model.validation.selectors import label_name

Spec = Mapping[str, Any]
TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_BALANCED = "may only be used when `type` is 'LoadBalancer'"
_LONGEST_AFFINITY = 86400
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")


def external(spec: Spec) -> bool:
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def headless(spec: Spec) -> bool:
    return bool((spec.get("clusterIPs") or [None])[0] == "None")


def health_checked(spec: Spec) -> bool:
    return bool(spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local")


def check_spec(spec: Spec) -> list[FieldError]:
    errors = _by_type(spec) + _ports(spec)
    errors += metadata.labels(spec.get("selector") or {}, "spec.selector")
    errors += _affinity(spec) + _external_ips(spec)
    if spec["type"] not in TYPES:
        errors.append(unsupported("spec.type", spec["type"], TYPES))
    return errors + _port_conflicts(spec) + _balancer(spec) + _traffic(spec)


def _by_type(spec: Spec) -> list[FieldError]:
    kind, errors = spec["type"], list[FieldError]()
    if not spec.get("ports") and not headless(spec) and kind != "ExternalName":
        errors.append(required("spec.ports"))
    if kind in ("LoadBalancer", "NodePort") and headless(spec):
        errors.append(invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(field):
                errors.append(forbidden(f"spec.{field}", "may not be set for ExternalName services"))
        name = spec.get("externalName", "").removesuffix(".")
        if name:
            errors += [invalid("spec.externalName", name, text) for text in formats.subdomain(name)]
        else:
            errors.append(required("spec.externalName"))
    return errors


def _ports(spec: Spec) -> list[FieldError]:
    errors: list[FieldError] = []
    ports = spec.get("ports") or ()
    names: set[str] = set()
    for index, port in enumerate(ports):
        field_path, name = f"spec.ports[{index}]", port.get("name", "")
        if len(ports) > 1 and not name:
            errors.append(required(f"{field_path}.name"))
        elif name:
            errors += [invalid(f"{field_path}.name", name, text) for text in formats.label(name)]
            if name in names:
                errors.append(duplicate(f"{field_path}.name", name))
            names.add(name)
        number = port.get("port", 0)
        errors += [invalid(f"{field_path}.port", number, text) for text in formats.port_number(number)]
        if port.get("protocol", "") not in ("SCTP", "TCP", "UDP"):
            errors.append(unsupported(f"{field_path}.protocol", port.get("protocol", ""), ("SCTP", "TCP", "UDP")))
        errors += port_or_name(port.get("targetPort", 0), f"{field_path}.targetPort")
        if "appProtocol" in port:
            errors += label_name(port["appProtocol"], f"{field_path}.appProtocol")
    return errors


def _affinity(spec: Spec) -> list[FieldError]:
    affinity = spec.get("sessionAffinity", "")
    if affinity not in ("ClientIP", "None"):
        return [unsupported("spec.sessionAffinity", affinity, ("ClientIP", "None"))]
    if affinity == "None":
        return []
    seconds = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"]
    if 0 < seconds <= _LONGEST_AFFINITY:
        return []
    field_path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
    return [invalid(field_path, seconds, f"must be greater than 0 and less than {_LONGEST_AFFINITY}")]


def _external_ips(spec: Spec) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, address in enumerate(spec.get("externalIPs") or ()):
        field_path = f"spec.externalIPs[{index}]"
        errors += valid_ip(address, field_path) or endpoint_ip(address, field_path)
    return errors


def cluster_ips(spec: Spec) -> list[FieldError]:
    """Complaints about addresses and families, which are made before all others."""
    errors: list[FieldError] = []
    if spec["type"] == "ExternalName":
        return errors
    single, several = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    if single and several and several[0] != single:
        errors.append(invalid("spec.clusterIPs", several, "first value must match `clusterIP`"))
    if several and not single:
        errors.append(invalid("spec.clusterIPs", several, "must be empty when `clusterIP` is not specified"))
    families = spec.get("ipFamilies") or ()
    for index, family in enumerate(families):
        if family not in ("IPv4", "IPv6"):
            errors.append(unsupported(f"spec.ipFamilies[{index}]", family, ("IPv4", "IPv6")))
        if family in families[:index]:
            errors.append(duplicate(f"spec.ipFamilies[{index}]", family))
    policy = spec.get("ipFamilyPolicy")
    policies = ("PreferDualStack", "RequireDualStack", "SingleStack")
    if policy not in (None, *policies):
        errors.append(unsupported("spec.ipFamilyPolicy", policy, policies))
    for index, address in enumerate(several):
        if index == 0 and address == "None":
            continue
        errors += valid_ip(address, f"spec.clusterIPs[{index}]")
    return errors or _families(spec)


def _families(spec: Spec) -> list[FieldError]:
    """The cluster speaks IPv4; a headless service without a selector may name what it likes."""
    policy, families = spec.get("ipFamilyPolicy"), spec.get("ipFamilies") or ()
    field_path = "spec.ipFamilyPolicy"
    if policy == "SingleStack" and len(families) == 2:
        text = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"
        return [invalid(field_path, policy, text)]
    if headless(spec) and not spec.get("selector"):
        return []
    errors: list[FieldError] = []
    if policy == "RequireDualStack":
        errors.append(invalid(field_path, policy, "this cluster is not configured for dual-stack services"))
        if families == ["IPv4", "IPv6"]:
            return errors
    text = "not configured on this cluster"
    return errors + [invalid(f"spec.ipFamilies[{i}]", f, text) for i, f in enumerate(families) if f == "IPv6"]


def _port_conflicts(spec: Spec) -> list[FieldError]:
    errors: list[FieldError] = []
    ports = spec.get("ports") or ()
    if spec["type"] == "ClusterIP":
        text = "may not be used when `type` is 'ClusterIP'"
        errors += [forbidden(f"spec.ports[{i}].nodePort", text) for i, p in enumerate(ports) if p.get("nodePort")]
    node_ports: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        key = (port.get("protocol"), port.get("nodePort"))
        if port.get("nodePort"):
            if key in node_ports:
                errors.append(duplicate(f"spec.ports[{index}].nodePort", port["nodePort"]))
            node_ports.add(key)
    seen: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        key = (port.get("protocol"), port.get("port"))
        if key in seen:
            shown = {"Name": "", "Protocol": port.get("protocol", ""), "AppProtocol": None}
            shown |= {"Port": port.get("port", 0), "TargetPort": 0, "NodePort": 0}
            errors.append(duplicate(f"spec.ports[{index}]", shown))
        seen.add(key)
    return errors


def _balancer(spec: Spec) -> list[FieldError]:
    errors: list[FieldError] = []
    balanced = spec["type"] == "LoadBalancer"
    field_path = "spec.LoadBalancerSourceRanges"
    if spec.get("loadBalancerSourceRanges") and not balanced:
        errors.append(forbidden(field_path, _BALANCED))
    for index, text in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        errors += valid_cidr(text.strip(), f"{field_path}[{index}]")
    if "allocateLoadBalancerNodePorts" in spec and not balanced:
        errors.append(forbidden("spec.allocateLoadBalancerNodePorts", _BALANCED))
    name = spec.get("loadBalancerClass")
    if name is not None:
        errors += label_name(name, "spec.loadBalancerClass") if balanced else []
        if not balanced:
            errors.append(forbidden("spec.loadBalancerClass", _BALANCED))
    return errors


def _traffic(spec: Spec) -> list[FieldError]:
    errors: list[FieldError] = []
    policy = spec.get("externalTrafficPolicy", "")
    if not external(spec):
        if policy:
            text = "may only be set for externally-accessible services"
            errors.append(invalid("spec.externalTrafficPolicy", policy, text))
    elif policy not in ("Cluster", "Local"):
        errors.append(unsupported("spec.externalTrafficPolicy", policy, ("Cluster", "Local")))
    if spec.get("healthCheckNodePort") and not health_checked(spec):
        text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.append(invalid("spec.healthCheckNodePort", spec["healthCheckNodePort"], text))
    internal = spec.get("internalTrafficPolicy")
    if internal not in (None, "Cluster", "Local"):
        errors.append(unsupported("spec.internalTrafficPolicy", internal, ("Cluster", "Local")))
    distribution = spec.get("trafficDistribution")
    if distribution not in (None, *_DISTRIBUTIONS):
        errors.append(unsupported("spec.trafficDistribution", distribution, _DISTRIBUTIONS))
    return errors


def balancer_status(ingresses: Sequence[Spec], spec: Spec) -> list[FieldError]:
    """What a load balancer's controller may write through the status subresource of a Service."""
    field_path = "status.loadBalancer.ingress"
    if ingresses and spec["type"] != "LoadBalancer":
        return [forbidden(field_path, "may only be used when `spec.type` is 'LoadBalancer'")]
    errors = reached_at(ingresses)
    for index, entry in enumerate(ingresses):
        if "ipMode" in entry and not entry.get("ip"):
            errors.append(forbidden(f"{field_path}[{index}].ipMode", "may not be specified when `ip` is not set"))
    return errors


def reached_at(ingresses: Sequence[Spec]) -> list[FieldError]:
    """The addresses and names that a load balancer, or an ingress, is reached at."""
    errors: list[FieldError] = []
    for index, entry in enumerate(ingresses):
        field_path = f"status.loadBalancer.ingress[{index}]"
        if entry.get("ip"):
            errors += valid_ip(entry["ip"], f"{field_path}.ip")
        host = entry.get("hostname", "")
        if host:
            errors += [invalid(f"{field_path}.hostname", host, text) for text in formats.subdomain(host)]
            if is_ip(host):
                errors.append(invalid(f"{field_path}.hostname", host, "must be a DNS name, not an IP address"))
    return errors


def warnings(spec: Spec) -> list[str]:
    warnings: list[str] = []
    alone = spec["type"] == "ClusterIP" and spec.get("clusterIP") == "None"
    named = spec["type"] == "ExternalName"
    if alone:
        ignored = {"loadBalancerIP": spec.get("loadBalancerIP"), "externalIPs": spec.get("externalIPs")}
        ignored["SessionAffinity"] = spec.get("sessionAffinity") != "None"
        warnings += [f"spec.{field} is ignored for headless services" for field, given in ignored.items() if given]
    if spec.get("externalIPs") and not alone and not named:
        warnings.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    if spec.get("externalIPs") and named:
        warnings.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if spec.get("externalName") and not named:
        warnings.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        words = (quoted("PreferClose"), quoted("PreferSameZone"))
        warnings.append("spec.trafficDistribution: {} is deprecated; use {}".format(*words))
    return warnings
