"""Sums over the fleet, changed by what changed: integers, so that adding and removing is exact.

A node's price is divided among its pods by their requests, half by CPU and half by memory; what no pod requests is
idle. So the namespaces and the idle part together are the price of the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

from dovetail.view.model import NANO, FleetView, LowerBound, Money, NodeView, PodView, Sum, Totals

#: The namespace and workload of what no pod requests.
IDLE = "(idle)"
#: The pool and capacity type of a node that names none.
NONE = ""
_DIMENSIONS = ("pools", "namespaces", "workloads", "capacity_types")


def node_money(node: NodeView) -> Money:
    if not node.is_paid:
        return Money()
    if node.price is None:
        return Money(0, 1, 1)
    return Money(round(node.price.per_hour * NANO), 1, 0)


def pod_money(node: NodeView, pod: PodView) -> Money:
    """The part of the node's price that a pod's requests are."""
    if not node.is_paid:
        return Money()
    share = pod_share(node, pod)
    if node.price is None or share is None:
        return Money(0, 1, 1)
    return Money(round(node.price.per_hour * NANO * share), 1, 0)


def pod_share(node: NodeView, pod: PodView) -> float | None:
    cpu, memory = node.allocatable.get("cpu"), node.allocatable.get("memory")
    if pod.requests is None or not cpu or not memory:
        return None
    share = (pod.requests.get("cpu", 0) / cpu + pod.requests.get("memory", 0) / memory) / 2
    requested = ((node.share("cpu") or 0.0) + (node.share("memory") or 0.0)) / 2
    return share / max(1.0, requested)  # pods that request more than there is share the price, and no more


def contributions(node: NodeView) -> Iterator[tuple[str, str, Sum]]:
    """What a node adds to the sums: (dimension, key, amount). A node that is launching adds no money yet.

    What a NodeClaim without a node asks for is what pods request that are pending: they are counted once they run.
    """
    money, requested = node_money(node), (node.requests if node.has_node else None) or {}
    whole = Sum(1, len(node.pods), requested.get("cpu", 0), requested.get("memory", 0), money)
    yield "fleet", "", whole
    yield "pools", node.pool or NONE, whole
    yield "capacity_types", node.capacity_type or NONE, whole
    by_namespace: dict[str, Sum] = {}
    by_workload: dict[str, Sum] = {}
    shared = 0
    for pod in node.pods:
        part = pod_money(node, pod)
        shared += part.nano
        requests = pod.requests or {}
        amount = Sum(0, 1, requests.get("cpu", 0), requests.get("memory", 0), part)
        by_namespace[pod.namespace] = by_namespace.get(pod.namespace, Sum()).plus(amount)
        name = f"{pod.namespace}/{pod.workload}"
        by_workload[name] = by_workload.get(name, Sum()).plus(amount)
    for namespace, total in by_namespace.items():
        yield "namespaces", namespace, total
    for name, total in by_workload.items():
        yield "workloads", name, total
    if node.is_paid and node.price is not None:
        yield "namespaces", IDLE, Sum(0, 0, 0, 0, Money(money.nano - shared, 0, 0))


class RunningTotals:
    """The sums of all nodes that were added and not removed."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, Sum]] = {name: {} for name in ("fleet", *_DIMENSIONS)}
        self._states: Counter[str] = Counter()
        self._allocatable: Counter[str] = Counter()
        self._used: Counter[str] = Counter()
        self._without_usage = 0
        self._without_pods = 0

    def add(self, node: NodeView) -> None:
        self._count(node, 1)

    def remove(self, node: NodeView) -> None:
        self._count(node, -1)

    def _count(self, node: NodeView, sign: int) -> None:
        for dimension, key, amount in contributions(node):
            sums = self._sums[dimension]
            total = sums.get(key, Sum()).plus(amount, sign)
            if total == Sum():
                sums.pop(key, None)
            else:
                sums[key] = total
        self._states[node.state.value] += sign
        if not node.has_node:
            return
        self._without_usage += sign * (node.usage is None)
        self._without_pods += sign * (node.requests is None)
        for name in ("cpu", "memory"):
            self._allocatable[name] += sign * node.allocatable.get(name, 0)
            self._used[name] += sign * (node.usage or {}).get(name, 0)

    def totals(self, pending: int, bound: LowerBound | None, saved_per_hour: float | None) -> Totals:
        fleet = self._sums["fleet"].get("", Sum())
        measured = not self._without_usage and bool(self._allocatable["cpu"])
        return Totals(
            fleet=fleet,
            allocatable_cpu=self._allocatable["cpu"],
            allocatable_memory=self._allocatable["memory"],
            usage_cpu=self._used["cpu"] if measured else None,
            usage_memory=self._used["memory"] if measured else None,
            states={name: count for name, count in self._states.items() if count},
            pending=pending,
            pods=None if self._without_pods else fleet.pods,
            bound=bound,
            saved_per_hour=saved_per_hour,
            pools=dict(self._sums["pools"]),
            namespaces=dict(self._sums["namespaces"]),
            workloads=dict(self._sums["workloads"]),
            capacity_types=dict(self._sums["capacity_types"]),
        )


def summed(view: FleetView) -> Totals:
    """The totals of a view, counted anew: what the incremental ones must equal."""
    sums = RunningTotals()
    for node in view.nodes.values():
        sums.add(node)
    return sums.totals(len(view.pending), view.totals.bound, view.totals.saved_per_hour)


def grouped(nodes: Mapping[str, NodeView], by: str) -> dict[str, list[NodeView]]:
    """Nodes by `pool`, `group`, `zone`, `type` or `capacity`, the groups by name and those without one last."""
    field = {"type": "instance_type", "capacity": "capacity_type"}.get(by, by)
    nodes_by_value: dict[str, list[NodeView]] = {}
    for node in nodes.values():
        nodes_by_value.setdefault(getattr(node, field) or NONE, []).append(node)
    named = sorted((key for key in nodes_by_value if key), key=str.casefold)
    return {key: nodes_by_value[key] for key in chain(named, (NONE,) if NONE in nodes_by_value else ())}
