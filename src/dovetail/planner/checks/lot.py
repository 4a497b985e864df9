"""A lot: all offerings of a machine taken together, so that what holds for every one of them is shown once.

Machines of a plan share most of their offerings. A lot answers for all at once whether they would hold some pods; only
where one would not, the verifier goes through them one by one to say which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.model.fit.podinfo import PodInfo
from dovetail.model.instancetype import InstanceType
from dovetail.model.objects import Node
from dovetail.planner.checks.world import World
from dovetail.planner.plan import Machine


class Lot:
    """The nodes that a machine's offerings would be."""

    def __init__(self, world: World, machine: Machine) -> None:
        self._world = world
        twins = [world.twin(machine, choice) for choice in machine.offerings]
        self._nodes: list[Node] = [twin for _, twin in twins]
        self.kinds: dict[str, InstanceType] = {kind.name: kind for kind, _ in twins}
        self._rooms = {id(twin) if world.daemons else kind.name: (kind, twin) for kind, twin in twins}
        self._values: dict[str, set[str | None]] = {}
        self._least: dict[str, int] = {}
        self._suits: dict[int, bool] = {}

    def holds(self, infos: Iterable[PodInfo], pinned: Mapping[str, str | None], need: Mapping[str, int]) -> bool:
        """Whether each offering matches these pods, lies where they are pinned, and has the room they need."""
        return (
            all(self._lies(key) == {value} for key, value in pinned.items())
            and all(self._fits(info) for info in infos)
            and all(amount <= self._room(name) for name, amount in need.items())
        )

    def _lies(self, key: str) -> set[str | None]:
        known = self._values.get(key)
        if known is None:
            known = self._values[key] = {twin.metadata.labels.get(key) for twin in self._nodes}
        return known

    def _fits(self, info: PodInfo) -> bool:
        shape = info.shape
        if not (shape.node_selector or shape.node_terms is not None or shape.ports or shape.volumes):
            return True
        known = self._suits.get(id(shape))
        if known is None:
            known = self._suits[id(shape)] = all(self._world.suits(info, twin) for twin in self._nodes)
        return known

    def _room(self, name: str) -> int:
        known = self._least.get(name)
        if known is None:
            rooms = (self._world.room(kind, twin, name) for kind, twin in self._rooms.values())
            known = self._least[name] = min(rooms, default=0)
        return known


class Lots:
    """The lots of a plan; machines with the same offerings share one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[object, Lot] = {}

    def of(self, machine: Machine) -> Lot:
        key = (machine.pool, frozenset(map(id, machine.offerings)), *machine.labels.items())
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Lot(self._world, machine)
        return known
