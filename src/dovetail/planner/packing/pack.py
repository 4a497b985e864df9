"""One packing: place all pod classes once, in the order of a strategy.

Classes that others have an affinity to come before their dependents, classes with one pod per node before those that
share nodes, and large pods before small ones. Pods left unplaced are tried again after all others: the counts that an
affinity or a spread needs may have risen by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Floats, Ints
from dovetail.planner.packing.baseline import Baseline, total
from dovetail.planner.packing.objective import Score, weighted_cost
from dovetail.planner.packing.packer import Packer
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.run import PackingRun
from dovetail.planner.packing.state import PackingState
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.packing.topology_validation import hosts_sound, spreads_hold
from dovetail.planner.packing.violated_preferences import violated_on
from dovetail.planner.packing.zone_spread import zones_reached
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.frontier import OfferingFrontier
from dovetail.planner.problem.pod_classes import ConstraintClass, PodClass
from dovetail.planner.problem.request import NodeFilter, PlacementRequest, TopologyConstraints
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.problem.topology_groups import AFFINITY, SPREAD, TopologyGroup

#: Affinity chains longer than this are not followed: unplaced pods are tried again at the end anyway.
_MAX_AFFINITY_CHAIN = 8
#: Up to this many pods, many packings take milliseconds.
_MAX_FEW_PODS = 500
#: From this many pods on, the LP relaxation guides the choice of new nodes.
_MIN_RELAXED_PODS = 40
#: A sort key of the classes: one value for each.
Key = Sequence[float] | Ints | Floats


class Packing:
    """A finished packing state with its unplaced pods by class, its price, and its relaxed and violated preferences."""

    def __init__(self, state: PackingState, left: dict[int, int], cautious: Packing | None = None) -> None:
        self.state = state
        self.left = left
        self.cautious = cautious
        """The packing without the pods whose spread holds only for some binding orders."""
        self.cost = state.cost()
        self.violated = violated_on(state)
        self.violated_count = total(self.violated)
        relaxed = state.problem.relaxed
        self.relaxed = sum(
            count * relaxed.get(number, 0)
            for contents in (state.contents if relaxed else ())
            for number, count in contents.items()
        )

    def joined(self, run: PackingRun) -> Packing:
        """The same packing as a packing of another run: the run's baseline is in the score."""
        cautious = self.cautious.joined(run) if self.cautious is not None else None
        return Packing(self.state.join(run), self.left, cautious)

    @cached_property
    def order_independent(self) -> bool:
        """Whether every spread holds for any order in which pods are bound."""
        return spreads_hold(self.state) and hosts_sound(self.state)

    @property
    def is_free(self) -> bool:
        """Whether all pods have a node at no cost, with all preferences, in any binding order: nothing is better."""
        return not (self.left or self.cost or self.violated_count or self.relaxed) and self.order_independent

    @cached_property
    def score(self) -> Score:
        """How good it is, by the one objective that all stages share."""
        baseline: Baseline | None = self.state.run.baseline
        pending = sum(self.left.values())
        if baseline is None:
            cost = weighted_cost(self.cost, self.violated, self.left, None, 0)
            return Score(0, 0, False, pending, False, cost)
        return Score(
            baseline_runs_missed=baseline.short(self.left),
            baseline_pods_missed=baseline.missing(self.left),
            order_dependent=not self.order_independent,
            pending=pending,
            above_baseline=baseline.beyond(self.left, self.cost) > 0,
            weighted_cost=weighted_cost(self.cost, self.violated, self.left, baseline, self.zones_missed),
        )

    @property
    def misses_nothing(self) -> bool:
        """Whether its score is its cost: it places all pods, in any order, violates nothing and meets the baseline."""
        return not (self.left or self.violated_count or self.zones_missed) and self.meets_baseline

    def shortage_score(self, guide: Packing) -> tuple[object, ...]:
        """The score to minimise where not all pods can be placed.

        First count the unplaced pods that Karpenter places (or the `guide`, which takes pods in Karpenter's order),
        then the unplaced pods by priority.
        """
        missed = (self.missing(guide), 0) if self.state.run.baseline is None else self.score[:2]
        return (*missed, self.shortfall(self.state.problem), self.score)

    @property
    def zones_missed(self) -> int:
        """Zones that Karpenter's new nodes reach and these do not."""
        baseline = self.state.run.baseline
        return 0 if baseline is None else baseline.zones - zones_reached(self.state, baseline.zones)

    @cached_property
    def excess(self) -> int:
        """Preferences violated beyond those that the baseline violates."""
        baseline = self.state.run.baseline
        return baseline.excess(self.violated, self.left) if baseline is not None else self.violated_count

    @property
    def falls_short(self) -> bool:
        """Whether fewer preferences are kept than by the baseline, or fewer pods placed."""
        baseline = self.state.run.baseline
        return baseline is not None and (self.excess > 0 or baseline.missing(self.left) > 0)

    @property
    def meets_baseline(self) -> bool:
        """Whether it holds in any binding order and lacks nothing that the baseline has, at no more than its price."""
        baseline = self.state.run.baseline
        if baseline is None:
            return self.order_independent and not self.left
        return self.order_independent and not self.falls_short and not baseline.beyond(self.left, self.cost)

    @property
    def meets_baseline_fully(self) -> bool:
        """Whether every pod has a node, and it meets the baseline and reaches as many zones as the baseline."""
        return not self.left and not self.zones_missed and self.meets_baseline

    def missing(self, guide: Packing) -> int:
        """Unplaced pods that another packing places."""
        return sum(max(0, count - guide.left.get(index, 0)) for index, count in self.left.items())

    def shortfall(self, problem: Problem) -> tuple[int, ...]:
        """Unplaced pods by priority, the highest first, then by class: compared where not all pods can be placed."""
        short: dict[int, int] = {pod_class.priority: 0 for pod_class in problem.classes}
        for index, count in self.left.items():
            short[problem.classes[index].priority] += count
        order = sorted(problem.classes, key=reference_key)
        by_class = tuple(self.left.get(pod_class.index, 0) for pod_class in order)
        return (*(short[priority] for priority in sorted(short, reverse=True)), *by_class)


def pack(
    problem: Problem, strategy: Strategy, run: PackingRun | None = None, hints: Mapping[int, Bools] | None = None
) -> Packing:
    """A packing of all classes; unplaced pods are retried while that places any. `hints` narrow classes' offerings."""
    if not hints:
        return _pack(problem, strategy, run)
    packing = _pack(narrowed(problem, hints), strategy, run)
    cautious = packing.cautious
    return Packing(
        packing.state.bind_to(problem),
        packing.left,
        Packing(cautious.state.bind_to(problem), cautious.left) if cautious is not None else None,
    )


def narrowed(problem: Problem, hints: Mapping[int, Bools]) -> Problem:
    """The problem with the offerings of some classes restricted to `hints`, where that leaves at least one."""
    filters: dict[int, NodeFilter] = {}
    for index, where in hints.items():
        for request in problem.levels_of(problem.classes[index]):
            left = request.offerings & where
            if left.any():
                filters[request.number] = NodeFilter(left, request.mask, request.nodes, request.node_filter.keys)
    return problem.with_node_filters(filters)


def hints_for(problem: Problem, left: Mapping[int, int]) -> dict[int, Bools]:
    """Offerings for the targets of required affinities, so that the unplaced dependent pods can follow them."""
    hints: dict[int, Bools] = {}
    for index in left:
        last = problem.request(problem.classes[index], len(problem.classes[index].levels) - 1)
        groups = {
            counter.group
            for counter in (*last.topology.host_owned, *last.topology.domain_owned)
            if counter.kind == AFFINITY
        }
        for pod_class in problem.classes:
            if pod_class.index != index and groups & pod_class.members:
                cached = hints.get(pod_class.index)
                hints[pod_class.index] = last.offerings if cached is None else cached & last.offerings
    return hints


def is_infeasible(problem: Problem, pod_class: PodClass) -> bool:
    """Whether no existing node and no offering holds a pod of the class, even without other pods on it."""
    if pod_class.error:
        return True
    request = problem.request(pod_class, len(pod_class.levels) - 1)
    there = request.nodes.copy()
    for dim, amount in request.steps:
        there &= problem.free[dim] >= amount
    return not (there.any() or fitting_offerings(problem, request).any())


def fitting_offerings(problem: Problem, request: PlacementRequest) -> Bools:
    """The offerings of the frontier that hold one pod of a request on an empty node."""
    fitting = request.offerings.copy()
    for dim, amount in request.steps:
        fitting &= problem.frontier.capacity[dim] >= amount
    for dim, more in problem.sharing.amounts(request.shared):
        fitting &= problem.frontier.capacity[dim] >= request.amounts[dim] + more
    return fitting


def _pack(problem: Problem, strategy: Strategy, run: PackingRun | None) -> Packing:
    packer = Packer(problem, strategy, PackingState(problem, run))
    order, demand_after, refusing, oversized = _class_order(problem, strategy)
    left: dict[int, int] = {}
    for pod_class, after in zip(order, demand_after, strict=True):
        packer.waiting, packer.pods_refusing_to_share = after, refusing.get(pod_class.index, 0)
        missing = _place_class(packer, pod_class, pod_class.count)
        if missing:
            left[pod_class.index] = missing
    packer.pods_refusing_to_share = 0
    left = _retry_unplaced(packer, order, left)
    if not left:
        return _packing(packer.state, oversized)
    strict = packer.state.clone()
    packer.ignore_counted = True
    ignore_counted = _retry_unplaced(packer, order, left)
    if spreads_hold(packer.state) and hosts_sound(packer.state):
        return _packing(packer.state, ignore_counted | oversized)
    cautious = _packing(strict, left | oversized)
    return _packing(packer.state, ignore_counted | oversized, cautious) if few(problem) else cautious


def _pods_refusing_to_share(problem: Problem, order: list[PodClass]) -> dict[int, int]:
    """For classes with one pod per node: the number of later pods that refuse to share a node with theirs."""
    refusing: dict[int, int] = {}
    waiting: dict[TopologyCounter, int] = {}
    for pod_class in reversed(order):
        for counter in problem.first_requests[pod_class.index].topology.host_self_anti_affinities:
            refusing[pod_class.index] = max(refusing.get(pod_class.index, 0), waiting.get(counter, 0))
            waiting[counter] = waiting.get(counter, 0) + pod_class.count
    return refusing


def _packing(state: PackingState, left: dict[int, int], cautious: Packing | None = None) -> Packing:
    shrink(state)
    return Packing(state, left, cautious)


def _retry_unplaced(packer: Packer, order: list[PodClass], left: dict[int, int]) -> dict[int, int]:
    """Retry unplaced pods while that places any; returns those still unplaced. Counts rise as pods are placed."""
    while left:
        after = {
            pod_class.index: _place_class(packer, pod_class, left[pod_class.index])
            for pod_class in order
            if pod_class.index in left
        }
        after = {index: count for index, count in after.items() if count}
        if after == left:
            break
        left = after
    return left


def demands(problem: Problem) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The total requests of each class; zero for pods larger than any node, because nothing is launched for them."""
    if not problem.classes:
        return np.zeros((0, len(problem.dims)))
    requests = problem.requests.astype(np.float64)
    most = np.maximum(problem.frontier.capacity.max(axis=1, initial=0), problem.free.max(axis=1, initial=0))
    requests[(requests > most).any(axis=1)] = 0.0
    return np.asarray(requests * problem.counts[:, None])


def _place_class(packer: Packer, pod_class: PodClass, count: int) -> int:
    """Place pods of a class at the first relaxation level that admits them; returns the number left unplaced."""
    if pod_class.error:
        return count
    requests = packer.problem.levels_of(pod_class)
    if pod_class.index in packer.strategy.ignored_preferences:
        requests = [requests[index] for index in pod_class.levels_without_preferences]
    for request in requests:
        count -= packer.place(request, count)
        if not count:
            break
    return count


class _ClassOrder(NamedTuple):
    """The classes in the order in which they are placed."""

    classes: list[PodClass]
    demand_after: Sequence[Floats]
    """For each of them, the total requests of the classes after it."""
    refusing: Mapping[int, int]
    """For classes with one pod per node, the number of later pods that refuse to share a node with theirs."""
    oversized: dict[int, int]
    """The number of pods in each class that is too large for any node."""


def _class_order(problem: Problem, strategy: Strategy) -> _ClassOrder:
    """The order of a strategy; strategies that order the classes alike share it."""
    key = (strategy.order, strategy.by_priority, strategy.balance_counted)
    cached: _ClassOrder | None = problem.order_cache.get(key)
    if cached is None:
        cached = problem.order_cache[key] = _compiled_order(problem, strategy)
    return cached


def _compiled_order(problem: Problem, strategy: Strategy) -> _ClassOrder:
    waiting, order = demands(problem), class_order(problem, strategy)
    has_demand: list[bool] = np.any(waiting, axis=1).tolist()
    oversized = {pod_class.index: pod_class.count for pod_class in order if not has_demand[pod_class.index]}
    order = [pod_class for pod_class in order if pod_class.index not in oversized] if oversized else order
    demand = waiting[[pod_class.index for pod_class in order]]
    demand_after = list(demand.sum(axis=0) - demand.cumsum(axis=0))
    return _ClassOrder(order, demand_after, _pods_refusing_to_share(problem, order), oversized)


def class_order(problem: Problem, strategy: Strategy) -> list[PodClass]:
    """The classes in the order in which they are placed."""
    classes = problem.classes
    priority: list[Key] = [[-pod_class.priority for pod_class in classes]] if strategy.by_priority else []
    if strategy.order == "reference":
        keys = [*priority, *zip(*map(reference_key, classes), strict=True)]
    else:
        keys = _order_keys(problem, strategy, priority)
    return [classes[node] for node in np.lexsort([np.asarray(key) for key in reversed(keys)]).tolist()]


def _order_keys(problem: Problem, strategy: Strategy, priority: list[Key]) -> list[Key]:
    """The sort keys of the classes: depth in affinity chains, priority, then how few offerings and domains suit."""
    topology = [problem.constraints[kind][0].topology for kind in problem.kinds]
    keys: list[Key] = [_by_class(problem, _affinity_depths(problem.kinds, topology)), *priority]
    if problem.nodes:
        keys.append(_has_offering(problem))
    if strategy.order == "zones":
        keys.append(_by_class(problem, [not topology_of.domain_owned for topology_of in topology]))
        reference = [reference_key(pod_class) for pod_class in problem.classes]
        return [*keys, [row[0] for row in reference], [row[1] for row in reference]]
    if strategy.balance_counted:
        keys.append(_open_domains(problem))
    keys += [_by_class(problem, [not topology_of.one_per_node for topology_of in topology]), _sizes(problem, strategy)]
    # Pods of equal size come together: the nodes that are too full for them are found once.
    return [*keys, -problem.requests.sum(axis=1)] if strategy.balance_counted else keys


def _by_class(problem: Problem, values: Sequence[int]) -> Ints:
    """A value for each kind, as one for each class."""
    return np.array(values, dtype=np.int64)[problem.kind_at]


def _has_offering(problem: Problem) -> list[bool]:
    """For each class, whether some offering suits it; a class that only existing nodes suit comes first."""
    node_filters = [problem.request(pod_class, -1).node_filter for pod_class in problem.classes]
    suited = {node_filter: bool(node_filter.offerings.any()) for node_filter in dict.fromkeys(node_filters)}
    return [suited[node_filter] for node_filter in node_filters]


def _sizes(problem: Problem, strategy: Strategy) -> Floats:
    """The size of each class's pods as a share of total demand, negated so that the largest come first."""
    shares = problem.requests / (1.0 + demands(problem).sum(axis=0))
    if strategy.order in ("cpu", "memory") and strategy.order in problem.dims:
        share = shares[:, problem.dims.index(strategy.order)]
    else:
        share = shares.max(axis=1) if strategy.order == "max" else shares.sum(axis=1)
    return np.asarray(-share)


def reference_key(pod_class: PodClass) -> tuple[float, ...]:
    """Karpenter's order of pods: most CPU, then most memory. It decides which pods a limit leaves unplaced."""
    return (-pod_class.requests.get("cpu", 0), -pod_class.requests.get("memory", 0), pod_class.index)


def _open_domains(problem: Problem) -> list[int]:
    """The number of domains open to each class that a topology counter counts; classes with fewer come first."""
    node_filters = [request.node_filter for request in problem.first_requests]
    choice = {
        node_filter: _domain_count(problem.frontier, node_filter) if node_filter.keys else 0
        for node_filter in dict.fromkeys(node_filters)
    }
    most = max(choice.values(), default=0)
    return [choice[node_filter] or most for node_filter in node_filters]


def _domain_count(frontier: OfferingFrontier, node_filter: NodeFilter) -> int:
    """The number of domains, over all topology keys, that a node filter leaves."""
    offerings = node_filter.offerings
    key = ("open to", id(offerings))
    return frontier.recall(key, offerings, lambda: sum(len(np.unique(lying[offerings])) for lying in frontier.domains))


def _affinity_depths(kinds: Sequence[ConstraintClass], topology: Sequence[TopologyConstraints]) -> list[int]:
    """The depth of each kind in its chain of affinities: 0 for kinds without one. The chain bound ends cycles."""
    depth = [0] * len(kinds)
    affinities = [
        [
            counter.group
            for counter in (*topology_of.host_owned, *topology_of.domain_owned)
            if counter.kind != SPREAD
            and counter not in topology_of.own
            and (counter.kind == AFFINITY or counter in topology_of.preferences)
        ]
        for topology_of in topology
    ]
    owned_groups = {group for groups in affinities for group in groups}
    for _ in range(_MAX_AFFINITY_CHAIN if owned_groups else 0):
        deepest: dict[TopologyGroup, int] = {}
        for kind, kind_depth in zip(kinds, depth, strict=True):
            for group in owned_groups & kind.members:
                deepest[group] = max(deepest.get(group, 0), kind_depth)
        settled = True
        for index, groups in enumerate(affinities):
            below = max((deepest[group] + 1 for group in groups if group in deepest), default=0)
            if below > depth[index]:
                depth[index], settled = below, False
        if settled:
            break
    return depth


def rebased(packing: Packing, problem: Problem) -> Packing:
    """The same packing for another problem of the same snapshot."""
    state, placement_requests = PackingState(problem, packing.state.run), problem.placement_requests
    for index, contents in enumerate(packing.state.contents):
        if contents:
            place = index if index < state.existing else state.open(int(packing.state.offering[index]))
            for number, count in contents.items():
                state.put(placement_requests[number], place, count)
    cautious = packing.cautious
    return Packing(state, packing.left, rebased(cautious, problem) if cautious is not None else None)


def can_relax(problem: Problem) -> bool:
    """Whether there are enough pods for the LP relaxation to guide the choice of new nodes."""
    return problem.total >= _MIN_RELAXED_PODS


def few(problem: Problem) -> bool:
    """Whether there are so few pods that many packings take milliseconds."""
    return problem.total <= _MAX_FEW_PODS
