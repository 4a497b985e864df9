"""Discovered capacity: what nodes of an instance type really have.

The predicted allocatable of a type can be wrong by a little (an agent that reserves memory, another kernel), and nodes
can have pods that no DaemonSet announces (static pods of the image, containers that a webhook adds to daemons). A
pod that fits the prediction and not the node would cause one launch after the other. So the largest
shortfall seen on nodes of a type is subtracted from the type from then on, and the requests of undeclared pods on
the nodes of a NodePool from all types of the NodePool; both for the image that the nodes run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dovetail.model import wellknown
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod
from dovetail.model.quantity import resources
from dovetail.model.workloads import DaemonSet

#: Shortfalls are rounded up to these steps, so that nodes that differ by a page do not count as a change.
STEPS: Mapping[str, int] = {"cpu": 10, "memory": 16 << 20, "ephemeral-storage": 64 << 20, "pods": 1}


class DiscoveredCapacity:
    """Shortfalls by instance type and by NodePool. `generation` increases when one grows."""

    def __init__(self) -> None:
        self.generation = 0
        self._types: dict[str, tuple[str, dict[str, int]]] = {}
        self._pools: dict[str, tuple[str, dict[str, int]]] = {}

    def observe(self, node: Node, claim: NodeClaim, undeclared: Mapping[str, int] | None = None) -> None:
        """Compare a ready node of ours with the allocatable of its NodeClaim, and count its undeclared requests."""
        name = node.metadata.labels.get(wellknown.INSTANCE_TYPE)
        if name is None or not node.ready or not claim.status.allocatable:
            return
        predicted, actual = resources(claim.status.allocatable), resources(node.status.allocatable)
        short = {kind: predicted[kind] - actual[kind] for kind in STEPS if kind in actual and kind in predicted}
        self._note(self._types, name, claim.status.image_id, short)
        if claim.node_pool is not None:
            self._note(self._pools, claim.node_pool, claim.status.image_id, undeclared or {})

    def _note(
        self, shortfalls: dict[str, tuple[str, dict[str, int]]], name: str, image: str, short: Mapping[str, int]
    ) -> None:
        seen_image, before = shortfalls.get(name, (image, {}))
        grown = dict(before) if seen_image == image else {}
        for kind, amount in short.items():
            step = STEPS.get(kind, 1)
            if amount > 0:
                grown[kind] = max(grown.get(kind, 0), -(-amount // step) * step)
        if grown and grown != before:
            shortfalls[name] = (image, grown)
            self.generation += 1

    def scope(self, pool: str) -> str:
        """The NodePool, if its nodes differ from those of others; else nothing."""
        return pool if pool in self._pools else ""

    def shortfall(self, name: str, pool: str = "") -> Mapping[str, int]:
        """What a type lacks in a NodePool."""
        total = dict(self._types.get(name, ("", {}))[1])
        for kind, amount in self._pools.get(pool, ("", {}))[1].items():
            total[kind] = total.get(kind, 0) + amount
        return total

    def apply(self, types: Sequence[InstanceType], pool: str = "") -> tuple[InstanceType, ...]:
        """The types with their discovered capacity in a NodePool."""
        if not self._types and not self.scope(pool):
            return tuple(types)
        return tuple(self._applied(t, pool) for t in types)

    def _applied(self, t: InstanceType, pool: str) -> InstanceType:
        short = self.shortfall(t.name, pool)
        if not short:
            return t
        overhead = {**t.overhead, **{kind: t.overhead.get(kind, 0) + amount for kind, amount in short.items()}}
        return msgspec.structs.replace(t, overhead=overhead)


def undeclared_requests(pods: Iterable[Pod], daemons: Iterable[DaemonSet]) -> dict[str, int]:
    """Requests on a node beyond those of DaemonSets: static pods as a whole, and what daemon pods have more."""
    announced = {daemon.metadata.uid: requests(Pod(spec=daemon.spec.template.spec)) for daemon in daemons}
    total: dict[str, int] = {}
    for pod in pods:
        owners = pod.metadata.owner_references
        shortfalls = next(
            (announced[owner.uid] for owner in owners if owner.kind == "DaemonSet" and owner.uid in announced), None
        )
        if pod.finished or (shortfalls is None and not any(owner.kind == "Node" for owner in owners)):
            continue
        for kind, amount in requests(pod).items():
            more = amount - (shortfalls or {}).get(kind, 0)
            if more > 0:
                total[kind] = total.get(kind, 0) + more
    return total
