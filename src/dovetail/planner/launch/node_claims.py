"""From a packing to NodeClaims: for each new node all offerings that hold its pods, cheapest first.

A NodeClaim admits as many offerings as its pods allow: all types, and all zones unless a topology constraint fixes one.
NodePool limits hold for whichever of them is launched.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, RESERVED, ZONE
from dovetail.planner.launch.rejected_offerings import rejected_cheaper_offerings
from dovetail.planner.offerings.alternatives import admitted_beyond, alternatives_mask, capacity_at_most, expressible
from dovetail.planner.offerings.catalog import CatalogEntry, OfferingCatalog
from dovetail.planner.offerings.open_labels import RESERVATION
from dovetail.planner.packing.pack import Packing
from dovetail.planner.packing.resize import NodeConstraints, constraints_on
from dovetail.planner.packing.state import PackingState, used_by_all
from dovetail.planner.packing.violated_preferences import failing_on, held_by
from dovetail.planner.plan import OfferingOption, Placement, PlannedNode
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.min_values import mask_meets_min_values
from dovetail.planner.problem.node_index import NEW
from dovetail.planner.problem.resources import PORT
from dovetail.planner.problem.shared_volumes import ATTACH
from dovetail.planner.problem.topology_groups import AFFINITY
from dovetail.planner.snapshot import Pool

_MAX_EXPLAINED_NODES = 100


class NodeClaimBuilder:
    """Turns the new nodes of a packing state into planned nodes; equal nodes share their offerings."""

    def __init__(self, problem: Problem, state: PackingState) -> None:
        self.problem = problem
        self.state = state
        self.catalog = problem.catalog
        self.zones: Counter[str] = Counter()
        self.counts = Counter([problem.frontier.pool_at[state.offering_of(node)] for node in state.new_nodes()])
        self._explained = 0
        self._fitting: dict[tuple[int, NodeConstraints], tuple[int, bool]] = {}
        self._binding_limits: dict[int, list[tuple[str, int]]] = {}
        self._rows: list[int] = problem.frontier.full.tolist()
        self._used = used_by_all(state)
        self._steps = [self.catalog.steps(name) for name in problem.dims]
        self._resources = [(dim, name) for dim, name in enumerate(problem.dims) if not name.startswith((PORT, ATTACH))]
        self._daemon_resources = daemon_resources(self.catalog)
        self._kept_pod_preferences = held_by(state) if problem.preferences else {}

    def planned_node(self, node: int, name: str, pods: tuple[str, ...]) -> PlannedNode:
        entry = self.catalog.rows[self._rows[self.state.offering_of(node)]]
        used = self._used[node - self.state.existing]
        pool = self.problem.pools[entry.pool]
        these = constraints_on(self.state, node)
        offer = self._options(self.offerings(node, these, entry, used), entry, pool)
        choices = self._choices(offer, node, entry)
        return PlannedNode(
            name=name,
            pool=pool.name,
            offerings=choices,
            requirements=offer.requirements,
            requests=self._requests(used, choices[0], entry),
            pods=pods,
            labels={key: value for key, value in entry.open_labels if value is not None} if entry.open_labels else {},
            cheaper=rejected_cheaper_offerings(self.state, node, entry, used, these)
            if self._explains_another()
            else (),
        )

    def _explains_another(self) -> bool:
        """Whether to explain the offerings of another node: only the first nodes of a plan are explained."""
        self._explained += 1
        return self._explained <= _MAX_EXPLAINED_NODES

    def offerings(self, node: int, these: NodeConstraints, entry: CatalogEntry, used: list[int]) -> int:
        """All offerings that the pods on a node accept and that hold the resources `used`."""
        cached = self._fitting.get((entry.index, these))
        if cached is None:
            cached = self._fitting[entry.index, these] = self._accepted(these, entry)
        mask, plain = cached
        for (levels, masks), amount in zip(self._steps, used, strict=True):
            if amount:
                mask &= masks[bisect_left(levels, amount)]
        mask = self._within_limits(mask, entry, self.state.offering_of(node))
        mask = mask if plain else self._expressible(mask, entry)
        return self._keeping_preferences(mask, node, entry) if self.problem.preferences else mask

    def _expressible(self, mask: int, entry: CatalogEntry) -> int:
        """The part of a mask that a NodeClaim can express, if that meets the NodePool's minValues."""
        needs = self.problem.min_values.get(entry.pool, ())
        return expressible(self.catalog, mask, entry, lambda left: mask_meets_min_values(self.catalog, left, needs))

    def _accepted(self, these: NodeConstraints, entry: CatalogEntry) -> tuple[int, bool]:
        """The alternatives of an offering that a node's pods accept, and whether a NodeClaim can express them."""
        mask = alternatives_mask(self.catalog, entry) & these.mask
        for key in these.keys:
            mask &= self.catalog.by_label(key).get(self.catalog.label(entry, key), 0)
        return mask, not admitted_beyond(self.catalog, mask, entry)

    def _keeping_preferences(self, mask: int, node: int, entry: CatalogEntry) -> int:
        """The offerings of a mask that keep every node and pod-affinity preference which holds on the node now.

        Where its NodePool has minValues, the heaviest preferences come first, as long as enough offerings are left.
        """
        needs, contents = self.problem.min_values.get(entry.pool), self.state.contents[node]
        preferred = {
            preference
            for number in contents
            for preference in self.state.placement_requests[number].cls.shape.preferred
        }
        wheres = [
            self.catalog.term(term)
            for _, term in sorted(preferred, key=lambda preference: (-preference[0], preference[1]))
        ]
        for key in sorted(key for kind, key in self._kept_pod_preferences.get(node, ()) if kind == AFFINITY):
            wheres.append(self.catalog.by_label(key).get(self.catalog.label(entry, key), 0))
        for where in wheres:
            if where >> entry.index & 1 and (needs is None or mask_meets_min_values(self.catalog, mask & where, needs)):
                mask &= where
        return mask

    def _within_limits(self, mask: int, entry: CatalogEntry, node: int) -> int:
        """The offerings of a mask that keep the pool's limits even if each of its nodes uses its largest offering."""
        for name, left in self._limits_that_bind(entry.pool):
            charge = self.problem.frontier.limited.get(name)
            own = entry.type.capacity.get(name, 0) if charge is None else int(charge[node])
            most = own + max(0, left) // max(1, self.counts[entry.pool])
            mask &= capacity_at_most(self.catalog, name, most) | 1 << entry.index
        return mask

    def _limits_that_bind(self, pool: int) -> list[tuple[str, int]]:
        """The limits of a pool that could be exceeded if each of its nodes used its largest type, with what is left."""
        cached = self._binding_limits.get(pool)
        if cached is None:
            nodes = max(1, self.counts[pool])
            cached = self._binding_limits[pool] = [
                (name, left)
                for name, left in self.state.left[pool].items()
                if name != "nodes" and max(0, left) // nodes < self.catalog.largest(name, pool)
            ]
        return cached

    def _options(self, mask: int, entry: CatalogEntry, pool: Pool) -> LaunchOptions:
        own = entry.index if entry.open_labels or entry.offering.reservation_id else -entry.pool - 1
        return self.catalog.recall(("offer", mask, own), lambda: launch_options(self.catalog.listed(mask), entry, pool))

    def _choices(self, offer: LaunchOptions, node: int, entry: CatalogEntry) -> tuple[OfferingOption, ...]:
        """All offerings; of those at the best price, the one in the zone used least so far comes first.

        A node that keeps a preference about other pods by its zone stays in it.
        """
        zone = min(offer.by_first_zone, key=self.zones.__getitem__)
        if entry.offering.zone in offer.by_first_zone and any(
            key == ZONE for _, key in self._kept_pod_preferences.get(node, ())
        ):
            zone = entry.offering.zone
        self.zones[zone] += 1
        return offer.by_first_zone[zone]

    def _requests(self, used: list[int], choice: OfferingOption, entry: CatalogEntry) -> dict[str, int]:
        total = {name: used[dim] for dim, name in self._resources if used[dim]}
        if not self._daemon_resources:
            return total
        index = self._index(choice, entry)
        for name in self._daemon_resources:
            total[name] = total.get(name, 0) + int(self.catalog.overhead(name)[index])
        return {name: amount for name, amount in sorted(total.items()) if amount}

    def _index(self, choice: OfferingOption, entry: CatalogEntry) -> int:
        if entry.choice == choice:
            return entry.index
        for row in self.catalog.rows:
            if row.choice == choice and row.pool == entry.pool and row.open_labels == entry.open_labels:
                return row.index
        return entry.index


class LaunchOptions(NamedTuple):
    """The offerings and requirements that equal NodeClaims share: see `_by_first_zone` and `requirements`."""

    by_first_zone: dict[str, tuple[OfferingOption, ...]]
    requirements: tuple[Mapping[str, Any], ...]


def launch_options(held: list[CatalogEntry], entry: CatalogEntry, pool: Pool) -> LaunchOptions:
    return LaunchOptions(
        _by_first_zone(tuple(dict.fromkeys(entry.choice for entry in held))), requirements(held, entry, pool)
    )


def _by_first_zone(choices: tuple[OfferingOption, ...]) -> dict[str, tuple[OfferingOption, ...]]:
    """For each zone that has an offering at the best price: all offerings, its own first."""
    led: dict[str, tuple[OfferingOption, ...]] = {}
    for index, choice in enumerate(choices):
        if choice.price != choices[0].price:
            break
        if choice.zone not in led:
            led[choice.zone] = (choice, *choices[:index], *choices[index + 1 :])
    return led


def with_daemon_requests(problem: Problem, was: PlannedNode, planned: PlannedNode) -> PlannedNode:
    """A planned node whose first offering has changed, with the DaemonSet requests of the new one."""
    names = daemon_resources(problem.catalog)
    if not names or was.choice == planned.choice:
        return planned
    before, after = _row(problem, was), _row(problem, planned)
    requests = dict(planned.requests)
    for name in names:
        taken = problem.catalog.overhead(name)
        requests[name] = requests.get(name, 0) + int(taken[after]) - int(taken[before])
    return replace(planned, requests={name: amount for name, amount in sorted(requests.items()) if amount})


def _row(problem: Problem, planned: PlannedNode) -> int:
    """The catalog index of a planned node's first offering."""
    return next(
        row.index
        for row in problem.catalog.rows
        if row.choice == planned.choice
        and problem.pools[row.pool].name == planned.pool
        and all(planned.labels.get(key) == value for key, value in row.open_labels)
    )


def daemon_resources(catalog: OfferingCatalog) -> list[str]:
    """The resources that DaemonSets request, except ports and attachments, which only packing counts."""
    return [name for name in sorted(catalog.overhead_resources()) if not name.startswith((PORT, ATTACH))]


def requirements(held: list[CatalogEntry], entry: CatalogEntry, pool: Pool) -> tuple[Mapping[str, Any], ...]:
    """The requirements of a NodeClaim: those of its pool, restricted to the chosen offerings."""
    narrowed: dict[str, set[str]] = {
        INSTANCE_TYPE: {entry.type.name for entry in held},
        ZONE: {entry.offering.zone for entry in held},
        CAPACITY_TYPE: {entry.offering.capacity_type for entry in held},
        NODEPOOL: {pool.name},
    }
    for name, value in entry.open_labels:
        if value is not None:
            narrowed[name] = {value}
    if entry.offering.reservation_id and narrowed[CAPACITY_TYPE] == {RESERVED}:
        narrowed[RESERVATION] = {entry.offering.reservation_id}
    requirements: list[Mapping[str, Any]] = []
    least = {
        requirement.key: requirement.min_values
        for requirement in pool.requirements
        if requirement.min_values is not None
    }
    for name in sorted(narrowed):
        requirement: dict[str, Any] = {"key": name, "operator": "In", "values": sorted(narrowed[name])}
        if name in least:
            requirement["minValues"] = least[name]
        requirements.append(requirement)
    for pool_requirement in pool.requirements:
        if pool_requirement.key not in narrowed:
            requirement = {"key": pool_requirement.key, "operator": pool_requirement.operator}
            if pool_requirement.values:
                requirement["values"] = list(pool_requirement.values)
            if pool_requirement.min_values is not None:
                requirement["minValues"] = pool_requirement.min_values
            requirements.append(requirement)
    return tuple(requirements)


def _prefix(problem: Problem) -> str:
    """A prefix for the names of new nodes that no existing node has."""
    prefix = NEW
    while any(name.startswith(prefix) for name in problem.names):
        prefix = f"{NEW[0]}{prefix}"
    return prefix


def nodes_and_placements(
    problem: Problem, packing: Packing
) -> tuple[tuple[PlannedNode, ...], dict[str, Placement], dict[int, list[str]]]:
    """The new nodes, the placement of every placed pod, and the names of unplaced pods by class."""
    state, placement_requests = packing.state, packing.state.placement_requests
    names = _pod_names(problem, state)
    taken, starts = [0] * len(problem.classes), _first_pods(problem, state, names)
    placements: dict[str, Placement] = {}
    launcher = NodeClaimBuilder(problem, state)
    planned_nodes: list[PlannedNode] = []
    prefix = _prefix(problem) if state.size > state.existing else ""
    for index, contents in enumerate(state.contents):
        if not contents:
            continue
        target = problem.nodes[index].name if index < state.existing else f"{prefix}{len(planned_nodes) + 1}"
        pods: list[str] = []
        plain = Placement(node=target) if index < state.existing else Placement(new_node=target)
        relaxed_placements: dict[str, Placement] = {}
        for number in sorted(contents):
            request, count = placement_requests[number], contents[number]
            pod_class, relaxed = request.cls, request.level.relaxed
            first = taken[pod_class.index]
            taken[pod_class.index] = first + count
            if starts:
                first = starts.get((index, number), first)
            these = names[pod_class.index][first : first + count]
            pods += these
            if relaxed:
                relaxed_placements.update(dict.fromkeys(these, replace(plain, relaxed=relaxed)))
        placements.update(dict.fromkeys(pods, plain))
        placements.update(relaxed_placements)
        if index >= state.existing:
            planned_nodes.append(launcher.planned_node(index, target, tuple(pods)))
    short = problem.classes if sum(taken) < problem.total else ()
    left = {
        pod_class.index: names[pod_class.index][taken[pod_class.index] :]
        for pod_class in short
        if taken[pod_class.index] < pod_class.count
    }
    return tuple(planned_nodes), placements, left


def _pod_names(problem: Problem, state: PackingState) -> list[list[str]]:
    """The names of every class's pods. Of pods that are alike, those that Karpenter leaves pending come last: they are
    pending here as well."""
    baseline = state.run.baseline
    if baseline is None or not baseline.names:
        return [pod_class.pods for pod_class in problem.classes]
    missed = baseline.names
    return [sorted(pod_class.pods, key=lambda name: missed.get(name, 0)) for pod_class in problem.classes]


def _first_pods(problem: Problem, state: PackingState, names: Sequence[list[str]]) -> dict[tuple[int, int], int]:
    """The index in its class of the first pod of each (node, request), if the baseline leaves pods of it pending.

    Those pods are the last of their class, and get the places that violate most preferences.
    """
    missed = state.run.baseline.names if state.run.baseline is not None else {}
    short = {index for index, pods in enumerate(names) if pods and pods[-1] in missed} if missed else set()
    starts: dict[tuple[int, int], int] = {}
    taken: Counter[int] = Counter()
    shares = sorted((failing, node, number) for node, number, failing in failing_on(state)) if short else ()
    for _, node, number in shares:
        index = state.placement_requests[number].cls.index
        if index in short:
            starts[node, number] = taken[index]
            taken[index] += state.contents[node][number]
    return starts
