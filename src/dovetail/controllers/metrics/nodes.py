"""Allocatable and requests of nodes, and the instance types on offer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dovetail.clock import Clock
from dovetail.cluster.state import ClusterState
from dovetail.controllers.metrics.exposition import Row, gauge, labelled
from dovetail.model import wellknown
from dovetail.model.labels import WELL_KNOWN
from dovetail.model.nodes import Node
from dovetail.model.pod_resources import limits, requests
from dovetail.model.pods import Pod, owned_by
from dovetail.model.quantity import resources

Amounts = Mapping[str, int]
_TEXTS = {
    "allocatable": "Allocatable resources of a node.",
    "total_pod_requests": "Requests of the pods on a node, daemon pods included.",
    "total_pod_limits": "Limits of the pods on a node, daemon pods included.",
    "total_daemon_requests": "Requests of the daemon pods on a node.",
    "total_daemon_limits": "Limits of the daemon pods on a node.",
    "system_overhead": "Capacity of a node that is not allocatable.",
}
#: Labels of a node that its metrics have, and their metric names.
_LABELS = {key: key.partition("/")[2].replace("-", "_") for key in sorted(WELL_KNOWN)}


def nodes(cluster_state: ClusterState, clock: Clock) -> Iterator[str]:
    """Of every node, managed or not: amounts by resource, and age; of all together, the utilization."""
    seen = tuple(cluster_state.nodes.store.all())
    labels = [_labels(node) for node in seen]
    amounts = [_amounts(cluster_state, node) for node in seen]
    for name, text in _TEXTS.items():
        rows = zip(labels, (amount[name] for amount in amounts), strict=True)
        yield from gauge(f"karpenter_nodes_{name}", text, _rows(rows))
    now = clock.now()
    ages = [
        (text, (now - node.metadata.creation_timestamp).total_seconds())
        for text, node in zip(labels, seen, strict=True)
        if node.metadata.creation_timestamp is not None
    ]
    yield from gauge("karpenter_nodes_current_lifetime_seconds", "Age of a node.", ages)
    allocatable = _sum(amount["allocatable"] for amount in amounts)
    used = _sum(amount["total_pod_requests"] for amount in amounts)
    shares = [
        (f'resource_type="{plain(kind)}"', 100 * used.get(kind, 0) / allocatable[kind])
        for kind in allocatable
        if allocatable[kind]
    ]
    yield from gauge("karpenter_cluster_utilization_percent", "Requests as a share of allocatable.", shares)


def types(cluster_state: ClusterState) -> Iterator[str]:
    """The instance types of the last snapshot: size, price and availability."""
    types_on_offer = tuple(cluster_state.types_by_name.values())
    name = "karpenter_cloudprovider_instance_type"
    offerings = [
        (f'instance_type="{instance_type.name}",capacity_type="{offer.capacity_type}",zone="{offer.zone}"', offer)
        for instance_type in types_on_offer
        for offer in instance_type.offerings
    ]
    cores = (
        (f'instance_type="{instance_type.name}"', amount("cpu", instance_type.capacity.get("cpu", 0)))
        for instance_type in types_on_offer
    )
    yield from gauge(f"{name}_cpu_cores", "CPUs of an instance type.", cores)
    memory = (
        (f'instance_type="{instance_type.name}"', float(instance_type.capacity.get("memory", 0)))
        for instance_type in types_on_offer
    )
    yield from gauge(f"{name}_memory_bytes", "Memory of an instance type.", memory)
    available = {labels: 0.0 for labels, _ in offerings} | {
        labels: 1.0 for labels, offering in offerings if offering.available
    }
    yield from gauge(f"{name}_offering_available", "Whether an offering is available.", available.items())
    prices = {labels: offering.price for labels, offering in offerings if offering.price is not None}
    yield from gauge(f"{name}_offering_price_estimate", "Dollars an hour of an offering.", prices.items())


def plain(kind: str) -> str:
    """A resource's name as a label's value."""
    return kind.lower().replace("-", "_")


def amount(kind: str, value: int) -> float:
    return value / 1000.0 if kind == "cpu" else float(value)


def _labels(node: Node) -> str:
    labels = node.metadata.labels
    node_labels = {name: labels[key] for key, name in _LABELS.items() if key in labels}
    managed = "true" if wellknown.NODEPOOL in labels else "false"
    return labelled({"node_name": node.metadata.name, **node_labels, "managed": managed})


def _rows(rows: Iterable[tuple[str, Amounts]]) -> Iterator[Row]:
    for labels, amounts in rows:
        for kind, value in amounts.items():
            yield f'{labels},resource_type="{plain(kind)}"', amount(kind, value)


def _amounts(cluster_state: ClusterState, node: Node) -> Mapping[str, Amounts]:
    pods = [pod for pod in cluster_state.pods_on(node.metadata.name) if not pod.finished]
    daemons = [pod for pod in pods if owned_by(pod, "DaemonSet")]
    allocatable, capacity = resources(node.status.allocatable), resources(node.status.capacity)
    return {
        "allocatable": allocatable,
        "total_pod_requests": _sum(map(requests, pods), pods),
        "total_pod_limits": _sum(map(limits, pods), pods),
        "total_daemon_requests": _sum(map(requests, daemons), daemons),
        "total_daemon_limits": _sum(map(limits, daemons), daemons),
        "system_overhead": {kind: value - allocatable.get(kind, 0) for kind, value in capacity.items()},
    }


def _sum(amounts: Iterable[Amounts], pods: list[Pod] | None = None) -> dict[str, int]:
    total: dict[str, int] = {}
    for amount in amounts:
        for kind, value in amount.items():
            total[kind] = total.get(kind, 0) + value
    return total if pods is None else total | {"pods": len(pods)}
