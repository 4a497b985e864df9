"""Learning what machines really have.

A type's predicted room can be wrong by a little (an agent that reserves memory, another kernel). A pod that
fits the prediction and not the machine would be bought one machine after the other. So the largest shortfall
seen on machines of a type, for the image they run, is taken off the type from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dovetail.cluster import keys
from dovetail.model.instancetype import InstanceType
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.quantity import resources

#: Shortfalls are rounded up to these steps, so that machines that differ by a page do not count as news.
STEPS: Mapping[str, int] = {"cpu": 10, "memory": 16 << 20, "ephemeral-storage": 64 << 20, "pods": 1}


class Learned:
    """Shortfalls by instance type. `generation` moves when one grows."""

    def __init__(self) -> None:
        self.generation = 0
        self._short: dict[str, tuple[str, dict[str, int]]] = {}

    def observe(self, node: Node, claim: NodeClaim) -> None:
        """A node of ours that is ready, beside what its claim was sold as."""
        name = node.metadata.labels.get(keys.INSTANCE_TYPE)
        if name is None or not node.ready or not claim.status.allocatable:
            return
        promised, found = resources(claim.status.allocatable), resources(node.status.allocatable)
        short = {
            kind: -(-(promised[kind] - found.get(kind, 0)) // step) * step
            for kind, step in STEPS.items()
            if kind in found and promised.get(kind, 0) > found[kind]
        }
        image, known = self._short.get(name, (claim.status.image_id, {}))
        if image != claim.status.image_id:
            known = {}
        grown = {kind: max(amount, known.get(kind, 0)) for kind, amount in {**known, **short}.items()}
        if grown != known:
            self._short[name] = (claim.status.image_id, grown)
            self.generation += 1

    def shortfall(self, name: str) -> Mapping[str, int]:
        return self._short.get(name, ("", {}))[1]

    def apply(self, types: Sequence[InstanceType]) -> tuple[InstanceType, ...]:
        """The types as they turn out to be."""
        if not self._short:
            return tuple(types)
        return tuple(self._applied(t) for t in types)

    def _applied(self, t: InstanceType) -> InstanceType:
        short = self.shortfall(t.name)
        if not short:
            return t
        overhead = {**t.overhead, **{kind: t.overhead.get(kind, 0) + amount for kind, amount in short.items()}}
        return msgspec.structs.replace(t, overhead=overhead)
