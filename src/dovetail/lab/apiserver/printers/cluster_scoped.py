"""Columns of nodes, namespaces, events, services and storage."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dovetail.lab.apiserver.printers.cells import ColumnHeader, age, created, labels, listed, shown_selector

Json = dict[str, Any]
NAME = ColumnHeader("Name", format="name")
AGE = ColumnHeader("Age")
_ROLE = "node-role.kubernetes.io/"

NODES = (
    NAME,
    ColumnHeader("Status"),
    ColumnHeader("Roles"),
    AGE,
    ColumnHeader("Version"),
    ColumnHeader("Internal-IP", priority=1),
    ColumnHeader("External-IP", priority=1),
    ColumnHeader("OS-Image", priority=1),
    ColumnHeader("Kernel-Version", priority=1),
    ColumnHeader("Container-Runtime", priority=1),
)


def node(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    words = []
    for condition in status.get("conditions") or []:
        if condition.get("type") == "Ready":
            words = ["Ready" if condition.get("status") == "True" else "NotReady"]
    words = words or ["Unknown"]
    if spec.get("unschedulable"):
        words.append("SchedulingDisabled")
    info = status.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or "<unknown>"
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        obj["metadata"]["name"],
        ",".join(words),
        _roles(obj["metadata"].get("labels") or {}),
        created(obj, now),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or "<unknown>",
        kernel,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _roles(values: Json) -> str:
    roles = {name.removeprefix(_ROLE) for name in values if name.startswith(_ROLE) and name != _ROLE}
    if values.get("kubernetes.io/role"):
        roles.add(values["kubernetes.io/role"])
    return ",".join(sorted(roles)) or "<none>"


def _address(status: Json, kind: str) -> str:
    return next((a.get("address", "") for a in status.get("addresses") or [] if a.get("type") == kind), "<none>")


NAMESPACES = (NAME, ColumnHeader("Status"), AGE)


def namespace(obj: Json, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], (obj.get("status") or {}).get("phase", ""), created(obj, now)]


EVENTS = (
    ColumnHeader("Last Seen"),
    ColumnHeader("Type"),
    ColumnHeader("Reason"),
    ColumnHeader("Object"),
    ColumnHeader("Subobject", priority=1),
    ColumnHeader("Source", priority=1),
    ColumnHeader("Message"),
    ColumnHeader("First Seen", priority=1),
    ColumnHeader("Count", priority=1),
    ColumnHeader("Name", format="name", priority=1),
)


def event(obj: Json, now: datetime) -> list[Any]:
    """An event of either group."""
    target = obj.get("involvedObject") or obj.get("regarding") or {}
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    first_stamp = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp")
    last_stamp = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    first = age(first_stamp or obj.get("eventTime"), now)
    last = age(last_stamp, now) if last_stamp else first
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    series = obj.get("series")
    if series:
        last, count = age(series.get("lastObservedTime"), now), series.get("count", 0)
    kind = (target.get("kind") or "").lower()
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{target['name']}" if target.get("name") else kind,
        target.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        (obj.get("message") or obj.get("note") or "").strip(),
        first,
        count,
        obj["metadata"]["name"],
    ]


SERVICES = (
    NAME,
    ColumnHeader("Type"),
    ColumnHeader("Cluster-IP"),
    ColumnHeader("External-IP"),
    ColumnHeader("Port(s)"),
    AGE,
    ColumnHeader("Selector", priority=1),
)


def service(obj: Json, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    ports = []
    for port in spec.get("ports") or []:
        number = f"{port.get('port')}:{port['nodePort']}" if port.get("nodePort") else f"{port.get('port')}"
        ports.append(f"{number}/{port.get('protocol', '')}")
    ips = spec.get("clusterIPs") or ["<none>"]
    row = [obj["metadata"]["name"], spec.get("type", ""), ips[0], _external(spec, obj.get("status") or {})]
    return [*row, ",".join(ports) or "<none>", created(obj, now), labels(spec.get("selector"))]


def _external(spec: Json, status: Json) -> str:
    outside = spec.get("externalIPs") or []
    kind = spec.get("type")
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(outside) or "<none>"
    if kind == "LoadBalancer":
        return ",".join([*_balancer(status), *outside]) or "<pending>"
    return str(spec.get("externalName", "")) if kind == "ExternalName" else "<unknown>"


def _balancer(status: Json) -> list[str]:
    ingress = (status.get("loadBalancer") or {}).get("ingress") or []
    return sorted({point.get("ip") or point.get("hostname") or "" for point in ingress} - {""})


INGRESSES = (NAME, ColumnHeader("Class"), ColumnHeader("Hosts"), ColumnHeader("Address"), ColumnHeader("Ports"), AGE)


def ingress(obj: Json, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    rules = spec.get("rules") or []
    hosts = [rule["host"] for rule in rules if rule.get("host")]
    shown = ",".join(hosts[:3]) or "*"
    if len(hosts) >= 3 and len(rules) > 3:
        shown += f" + {len(rules) - 3} more..."
    address = ",".join(_balancer(obj.get("status") or {}))
    ports = "80, 443" if spec.get("tls") else "80"
    return [obj["metadata"]["name"], spec.get("ingressClassName") or "<none>", shown, address, ports, created(obj, now)]


INGRESS_CLASSES = (NAME, ColumnHeader("Controller"), ColumnHeader("Parameters"), AGE)


def ingress_class(obj: Json, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    name = obj["metadata"]["name"]
    if _annotation(obj, "ingressclass.kubernetes.io/is-default-class") == "true":
        name += " (default)"
    given = spec.get("parameters")
    parameters = "<none>"
    if given:
        kind = f"{given.get('kind', '')}.{given['apiGroup']}" if given.get("apiGroup") else given.get("kind", "")
        parameters = f"{kind}/{given.get('name', '')}"
    return [name, spec.get("controller", ""), parameters, created(obj, now)]


def _annotation(obj: Json, name: str) -> str | None:
    annotation: str | None = (obj["metadata"].get("annotations") or {}).get(name)
    return annotation


ENDPOINTS = (NAME, ColumnHeader("Endpoints"), AGE)


def endpoints(obj: Json, now: datetime) -> list[Any]:
    items: list[str] = []
    for subset in obj.get("subsets") or []:
        addresses = [address.get("ip", "") for address in subset.get("addresses") or []]
        if not subset.get("ports"):
            items += addresses
        for port in subset.get("ports") or []:
            items += [f"{_bracketed(address)}:{port.get('port')}" for address in addresses]
    text = ",".join(items[:3])
    if len(items) > 3:
        text += f" + {len(items) - 3} more..."
    return [obj["metadata"]["name"], text if obj.get("subsets") else "<none>", created(obj, now)]


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


SLICES = (NAME, ColumnHeader("AddressType"), ColumnHeader("Ports"), ColumnHeader("Endpoints"), AGE)


def endpoint_slice(obj: Json, now: datetime) -> list[Any]:
    ports = [str(port.get("port", port.get("name", "*"))) for port in obj.get("ports") or []]
    addresses = [address for endpoint in obj.get("endpoints") or [] for address in endpoint.get("addresses") or []]
    shown = [listed(ports, len(ports), 3) or "<unset>", listed(addresses, len(addresses), 3)]
    return [obj["metadata"]["name"], obj.get("addressType", ""), *shown, created(obj, now)]


POLICIES = (NAME, ColumnHeader("Pod-Selector"), AGE)


def network_policy(obj: Json, now: datetime) -> list[Any]:
    chosen = shown_selector((obj.get("spec") or {}).get("podSelector") or {})
    return [obj["metadata"]["name"], chosen, created(obj, now)]
