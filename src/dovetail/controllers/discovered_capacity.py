"""Learning what machines really have.

A type's predicted room can be wrong by a little (an agent that reserves memory, another kernel), and machines can
come with pods that no DaemonSet announces (static pods of the image, containers that a webhook adds to daemons). A
pod that fits the prediction and not the machine would be bought one machine after the other. So the largest
shortfall seen on machines of a type is taken off the type from then on, and what comes unannounced with the machines
of a pool off all the pool's types; both for the image that the machines run.
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

#: Shortfalls are rounded up to these steps, so that machines that differ by a page do not count as news.
STEPS: Mapping[str, int] = {"cpu": 10, "memory": 16 << 20, "ephemeral-storage": 64 << 20, "pods": 1}


class Learned:
    """Shortfalls by instance type and by pool. `generation` moves when one grows."""

    def __init__(self) -> None:
        self.generation = 0
        self._types: dict[str, tuple[str, dict[str, int]]] = {}
        self._pools: dict[str, tuple[str, dict[str, int]]] = {}

    def observe(self, node: Node, claim: NodeClaim, unannounced: Mapping[str, int] | None = None) -> None:
        """A node of ours that is ready, beside what its claim was sold as, and what came with it unannounced."""
        name = node.metadata.labels.get(wellknown.INSTANCE_TYPE)
        if name is None or not node.ready or not claim.status.allocatable:
            return
        nominated_pods, found = resources(claim.status.allocatable), resources(node.status.allocatable)
        short = {kind: nominated_pods[kind] - found[kind] for kind in STEPS if kind in found and kind in nominated_pods}
        self._note(self._types, name, claim.status.image_id, short)
        if claim.node_pool is not None:
            self._note(self._pools, claim.node_pool, claim.status.image_id, unannounced or {})

    def _note(
        self, known: dict[str, tuple[str, dict[str, int]]], name: str, image: str, short: Mapping[str, int]
    ) -> None:
        of, before = known.get(name, (image, {}))
        grown = dict(before) if of == image else {}
        for kind, amount in short.items():
            step = STEPS.get(kind, 1)
            if amount > 0:
                grown[kind] = max(grown.get(kind, 0), -(-amount // step) * step)
        if grown and grown != before:
            known[name] = (image, grown)
            self.generation += 1

    def scope(self, pool: str) -> str:
        """The pool, if its machines differ from those of others; else nothing."""
        return pool if pool in self._pools else ""

    def shortfall(self, name: str, pool: str = "") -> Mapping[str, int]:
        """What a type lacks in a pool."""
        total = dict(self._types.get(name, ("", {}))[1])
        for kind, amount in self._pools.get(pool, ("", {}))[1].items():
            total[kind] = total.get(kind, 0) + amount
        return total

    def apply(self, types: Sequence[InstanceType], pool: str = "") -> tuple[InstanceType, ...]:
        """The types as they turn out to be in a pool."""
        if not self._types and not self.scope(pool):
            return tuple(types)
        return tuple(self._applied(t, pool) for t in types)

    def _applied(self, t: InstanceType, pool: str) -> InstanceType:
        short = self.shortfall(t.name, pool)
        if not short:
            return t
        overhead = {**t.overhead, **{kind: t.overhead.get(kind, 0) + amount for kind, amount in short.items()}}
        return msgspec.structs.replace(t, overhead=overhead)


def unannounced(pods: Iterable[Pod], daemons: Iterable[DaemonSet]) -> dict[str, int]:
    """What comes with a machine beyond what DaemonSets say: static pods whole, and what daemons have more."""
    said = {each.metadata.uid: requests(Pod(spec=each.spec.template.spec)) for each in daemons}
    total: dict[str, int] = {}
    for pod in pods:
        owners = pod.metadata.owner_references
        known = next((said[each.uid] for each in owners if each.kind == "DaemonSet" and each.uid in said), None)
        if pod.finished or (known is None and not any(each.kind == "Node" for each in owners)):
            continue
        for kind, amount in requests(pod).items():
            more = amount - (known or {}).get(kind, 0)
            if more > 0:
                total[kind] = total.get(kind, 0) + more
    return total
