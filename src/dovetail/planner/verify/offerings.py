"""A lot: all offerings of a node taken together, so that what holds for every one of them is shown once.

Nodes of a plan share most of their offerings. A lot answers for all at once whether they would hold some pods; only
where one would not, the verifier goes through them one by one to say which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.model.fit.podinfo import PodInfo
from dovetail.model.instance_type import InstanceType
from dovetail.model.nodes import Node
from dovetail.model.requirements import Requirements
from dovetail.planner.plan import PlannedNode
from dovetail.planner.snapshot import PoolRequirement
from dovetail.planner.verify.cluster import World


class Lot:
    """The nodes that a node's offerings would be."""

    def __init__(self, world: World, planned: PlannedNode) -> None:
        self._world = world
        twins = [world.twin(planned, choice) for choice in planned.offerings]
        self._nodes: list[Node] = [twin for _, twin in twins]
        self.kinds: dict[str, InstanceType] = {kind.name: kind for kind, _ in twins}
        self.choices = planned.offerings
        self.known = set(planned.offerings)
        self._rooms = {id(twin) if world.daemons else kind.name: (kind, twin) for kind, twin in twins}
        self._values: dict[str, set[str | None]] = {}
        self._least: dict[str, int] = {}
        self._suits: dict[int, bool] = {}
        self._largest: dict[str, int] = {}
        self._facts: dict[str, set[str | None]] = {}

    def holds(self, infos: Iterable[PodInfo], pinned: Mapping[str, str | None], need: Mapping[str, int]) -> bool:
        """Whether each offering matches these pods, lies where they are pinned, and has the room they need."""
        return (
            all(self._lies(key) == {value} for key, value in pinned.items())
            and all(self._fits(info) for info in infos)
            and all(amount <= self._room(name) for name, amount in need.items())
        )

    def _lies(self, key: str) -> set[str | None]:
        cached = self._values.get(key)
        if cached is None:
            cached = self._values[key] = {twin.metadata.labels.get(key) for twin in self._nodes}
        return cached

    def _fits(self, info: PodInfo) -> bool:
        shape = info.shape
        if not (shape.node_selector or shape.node_terms is not None or shape.ports or shape.volumes):
            return True
        cached = self._suits.get(id(shape))
        if cached is None:
            cached = self._suits[id(shape)] = all(self._world.suits(info, twin) for twin in self._nodes)
        return cached

    def admitted(self, need: PoolRequirement) -> bool:
        """Whether each offering meets a requirement; where a label is left open, it can."""
        asked = Requirements.of_entries((need,))
        values = [value for value in self._lies(need.key) if value is not None]
        return all(requirement.has(value) for requirement in asked.values() for value in values)

    def _room(self, name: str) -> int:
        cached = self._least.get(name)
        if cached is None:
            rooms = (self._world.room(kind, twin, name) for kind, twin in self._rooms.values())
            cached = self._least[name] = min(rooms, default=0)
        return cached

    def largest(self, name: str) -> int:
        """What the largest of them has of a resource in all."""
        cached = self._largest.get(name)
        if cached is None:
            cached = self._largest[name] = max(kind.capacity.get(name, 0) for kind in self.kinds.values())
        return cached

    def facts(self, field: str) -> set[str | None]:
        """What the offerings say of themselves: their types, zones, capacity types or reservations."""
        cached = self._facts.get(field)
        if cached is None:
            cached = self._facts[field] = {getattr(choice, field) for choice in self.choices}
        return cached


class Lots:
    """The lots of a plan; nodes with the same offerings share one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[object, Lot] = {}
        self._listed: dict[object, Lot] = {}

    def of(self, planned: PlannedNode) -> Lot:
        """Found by the list of offerings itself, or by what is on it in another order."""
        label = (planned.pool, *planned.labels.items())
        listed = self._listed.get((id(planned.offerings), label))
        if listed is None:
            key = (frozenset(map(id, planned.offerings)), label)
            cached = self._known.get(key)
            listed = cached if cached is not None else Lot(self._world, planned)
            self._known[key] = self._listed[id(planned.offerings), label] = listed
        return listed
