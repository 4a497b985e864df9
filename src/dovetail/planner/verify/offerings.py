"""All offerings of a planned node together, so that what holds for every one of them is checked once.

Nodes of a plan share most of their offerings. `PlannedOfferings` checks whether all of them hold some pods; only if one
does not, the verifier checks them one by one to report which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.model.fit.podinfo import PodInfo
from dovetail.model.instance_type import InstanceType
from dovetail.model.nodes import Node
from dovetail.model.requirements import Requirements
from dovetail.planner.plan import PlannedNode
from dovetail.planner.snapshot import PoolRequirement
from dovetail.planner.verify.cluster import PlannedCluster


class PlannedOfferings:
    """The nodes that the offerings of a planned node would become."""

    def __init__(self, planned_cluster: PlannedCluster, planned: PlannedNode) -> None:
        self._planned_cluster = planned_cluster
        alternatives = [planned_cluster.alternative(planned, choice) for choice in planned.offerings]
        self._nodes: list[Node] = [alternative for _, alternative in alternatives]
        self.kinds: dict[str, InstanceType] = {kind.name: kind for kind, _ in alternatives}
        self.choices = planned.offerings
        self.listed = set(planned.offerings)
        self._rooms = {
            id(alternative) if planned_cluster.daemons else kind.name: (kind, alternative)
            for kind, alternative in alternatives
        }
        self._values: dict[str, set[str | None]] = {}
        self._least: dict[str, int] = {}
        self._suits: dict[int, bool] = {}
        self._largest: dict[str, int] = {}
        self._facts: dict[str, set[str | None]] = {}

    def holds(self, infos: Iterable[PodInfo], pinned: Mapping[str, str | None], need: Mapping[str, int]) -> bool:
        """Whether each offering matches these pods, is in the `pinned` domains, and has the resources they need."""
        return (
            all(self._label_values(key) == {value} for key, value in pinned.items())
            and all(self._fits(info) for info in infos)
            and all(amount <= self._room(name) for name, amount in need.items())
        )

    def _label_values(self, key: str) -> set[str | None]:
        cached = self._values.get(key)
        if cached is None:
            cached = self._values[key] = {alternative.metadata.labels.get(key) for alternative in self._nodes}
        return cached

    def _fits(self, info: PodInfo) -> bool:
        shape = info.shape
        if not (shape.node_selector or shape.node_terms is not None or shape.ports or shape.volumes):
            return True
        cached = self._suits.get(id(shape))
        if cached is None:
            cached = self._suits[id(shape)] = all(
                self._planned_cluster.suits(info, alternative) for alternative in self._nodes
            )
        return cached

    def admitted(self, need: PoolRequirement) -> bool:
        """Whether each offering meets a requirement; an open label does."""
        requirements = Requirements.of_entries((need,))
        values = [value for value in self._label_values(need.key) if value is not None]
        return all(requirement.has(value) for requirement in requirements.values() for value in values)

    def _room(self, name: str) -> int:
        cached = self._least.get(name)
        if cached is None:
            rooms = (self._planned_cluster.room(kind, alternative, name) for kind, alternative in self._rooms.values())
            cached = self._least[name] = min(rooms, default=0)
        return cached

    def largest(self, name: str) -> int:
        """The largest capacity of a resource among the offerings."""
        cached = self._largest.get(name)
        if cached is None:
            cached = self._largest[name] = max(kind.capacity.get(name, 0) for kind in self.kinds.values())
        return cached

    def facts(self, field: str) -> set[str | None]:
        """The values of a field of the offerings: their types, zones, capacity types or reservations."""
        cached = self._facts.get(field)
        if cached is None:
            cached = self._facts[field] = {getattr(choice, field) for choice in self.choices}
        return cached


class PlannedOfferingsCache:
    """The `PlannedOfferings` of a plan; nodes with the same offerings share one."""

    def __init__(self, planned_cluster: PlannedCluster) -> None:
        self._planned_cluster = planned_cluster
        self._by_content: dict[object, PlannedOfferings] = {}
        self._by_list: dict[object, PlannedOfferings] = {}

    def of(self, planned: PlannedNode) -> PlannedOfferings:
        """Looked up by the identity of the list of offerings, then by its content in any order."""
        label = (planned.pool, *planned.labels.items())
        listed = self._by_list.get((id(planned.offerings), label))
        if listed is None:
            key = (frozenset(map(id, planned.offerings)), label)
            cached = self._by_content.get(key)
            listed = cached if cached is not None else PlannedOfferings(self._planned_cluster, planned)
            self._by_content[key] = self._by_list[id(planned.offerings), label] = listed
        return listed
