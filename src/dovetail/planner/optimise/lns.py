"""Large-neighbourhood search: destroy a few nodes, repair by placing their pods again, keep what costs less.

Every step uses the same packing state and the same rules as the first packing, so a better packing is also valid.
The search is bounded by work (queries of the packing state), so that it ends with the same packing on every computer;
the clock only stops it early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from dovetail.chance import Chance
from dovetail.planner.packing.baseline import ViolatedPreference
from dovetail.planner.packing.objective import search_cost
from dovetail.planner.packing.pack import Packing, is_infeasible, narrowed, pack
from dovetail.planner.packing.packer import Packer
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import PackingState
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.packing.topology_validation import has_lost_affinity, lost_affinity, spreads_hold
from dovetail.planner.packing.violated_preferences import preferred_offerings, violated_on
from dovetail.planner.packing.zone_spread import zones_reached
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.topology_groups import AFFINITY

#: Dollars an hour below which two plans cost the same.
EPSILON = 1e-9
#: The initial temperature: a step may raise the cost by up to this share, to leave a local optimum.
_INITIAL_TEMPERATURE = 0.05
#: From this many nodes on, a step changes only a part of the plan, and the temperature is lowered in proportion.
_FULL_TEMPERATURE_MAX_NODES = 10
#: Topology counters and resource dimensions included in the work of a step, and the work of each further dimension.
_FREE_COUNTERS, _FREE_DIMS, _WORK_PER_DIM = 100, 20, 20
#: Share of the steps that also remove pods from existing nodes.
_UNLOAD_SHARE = 0.3
#: Share of the steps that try the preferences again that were relaxed.
_RESTORE_PREFERENCES_SHARE = 0.3
#: Share of the steps that place pods only where all their node preferences hold.
_PREFERRED_SHARE = 0.5
#: The share of the work budget that restarts (packings from scratch) may take; the search has the rest.
_RESTART_WORK_SHARE = 0.4
#: Share of the steps that try to insert an unplaced pod, and the failures in a row after which no more are tried.
_INSERTION_SHARE, _MAX_FAILED_INSERTIONS = 0.5, 60


def improve(
    problem: Problem,
    start: Packing,
    seed: int,
    budget: int,
    enough: float,
    out_of_time: Callable[[], bool],
    afresh: bool = True,
) -> Packing:
    """The best packing found with `budget` work; stops at the cost `enough`, or after many steps without improvement.

    `afresh`: restarts, which are packings from scratch by other strategies, are tried first.
    """
    meter = start.state.meter
    begin = meter.spent
    chance = Chance(seed).child("planner", "search")
    best = start
    for strategy in _restart_strategies(problem, chance) if afresh else ():
        if out_of_time() or meter.spent - begin > budget * _RESTART_WORK_SHARE or _is_optimal(best, enough):
            break
        other = pack(problem, strategy, start.state.run)
        if other.left == best.left:
            best = min(best, other, key=lambda packing: packing.score)
    return _searched(problem, best, chance, budget - (meter.spent - begin), enough, out_of_time)


def _searched(
    problem: Problem, start: Packing, chance: Chance, budget: int, enough: float, out_of_time: Callable[[], bool]
) -> Packing:
    """The best packing that a search from `start` finds."""
    meter = start.state.meter
    begin = meter.spent
    search = _LocalSearch(problem, start)
    max_idle_steps = 200 + 50 * search.nodes * len(problem.classes)
    tries = 0
    while meter.spent - begin < budget and tries < budget and not out_of_time():
        tries += 1
        if search.idle > max_idle_steps or (_is_optimal(search.best, enough) and not search.waiting):
            break
        search.step(chance, 1 - (meter.spent - begin) / budget)
    return search.best


def _is_optimal(packing: Packing, enough: float) -> bool:
    """Whether nothing is left to improve: neither the cost nor preferences nor zones."""
    return packing.cost <= enough + EPSILON and not packing.violated_count and not packing.zones_missed


class _LocalSearch:
    """The current state of the search and the best packing so far. Pods that the start places stay placed."""

    def __init__(self, problem: Problem, start: Packing) -> None:
        self.problem = problem
        self.best = start
        self.current = start.state
        self.cost = self.least = self._search_cost(start.state, start.violated, start.left)
        self.nodes = len(start.state.new_nodes())
        self.temperature = _INITIAL_TEMPERATURE * min(1.0, _FULL_TEMPERATURE_MAX_NODES / max(1, self.nodes))
        self.idle = 0
        self.waiting = [index for index in sorted(start.left) if not is_infeasible(problem, problem.classes[index])]
        """Classes with unplaced pods that a step may try to insert."""
        self.preferred = (
            narrowed(problem, preferred_offerings(problem)) if start.state.run.baseline is not None else problem
        )
        """The problem with node preferences as requirements."""
        self._failed_insertions = 0

    def step(self, chance: Chance, temperature: float) -> None:
        """Make one step; accept it if it costs less, or little more while the temperature is high."""
        self.idle += 1
        inserted = chance.choice(self.waiting) if self.waiting and chance.random() < _INSERTION_SHARE else None
        require_preferences = self.preferred is not self.problem and chance.random() < _PREFERRED_SHARE
        step_ = _step(self.preferred if require_preferences else self.problem, self.current, chance, inserted)
        if step_ is not None:
            step_.bind_to(self.problem)
        if inserted is not None:
            self._accept_insertion(inserted, step_)
            return
        if step_ is None:
            return
        price = self._search_cost(step_, violated_on(step_), self.best.left)
        if price < self.cost * (1 + self.temperature * temperature * chance.random() ** 2) - EPSILON:
            self.current, self.cost = step_, price
            if price < self.least - EPSILON:
                self.best, self.least, self.idle = Packing(step_.clone(), self.best.left), price, 0
        if self.cost > self.least * (1 + 2 * self.temperature):
            self.current, self.cost = self.best.state, self.least

    def _search_cost(
        self, state: PackingState, violated: Sequence[ViolatedPreference], left: Mapping[int, int]
    ) -> float:
        """The search cost: $/h with the bounded price of violated preferences and missed zones."""
        baseline = state.run.baseline
        missed = baseline.zones - zones_reached(state, baseline.zones) if baseline is not None else 0
        return search_cost(state.cost(), violated, left, baseline, missed)

    def _accept_insertion(self, inserted: int, packing_state: PackingState | None) -> None:
        """Accept a step that placed one more pod, whatever it costs; stop inserting after too many failures."""
        left = {index: count - (index == inserted) for index, count in self.best.left.items()}
        left = {index: count for index, count in left.items() if count}
        if packing_state is None:
            self._failed_insertions += 1
            if self._failed_insertions > _MAX_FAILED_INSERTIONS:
                self.waiting.clear()
            return
        self.best = Packing(packing_state.clone(), left)
        self.waiting = [index for index in self.waiting if index in left]
        self.current = packing_state
        self.cost = self.least = self._search_cost(packing_state, self.best.violated, left)
        self.idle = self._failed_insertions = 0


def _restart_strategies(problem: Problem, chance: Chance) -> list[Strategy]:
    """Strategies of the restarts: price ceilings along the frontier, other class orders, other domain rotations."""
    prices = problem.frontier.prices
    shares = (0.1, 0.25, 0.4, 0.6, 0.8) if len(prices) else ()
    ceilings = sorted({float(prices[int(len(prices) * share)]) for share in shares})
    starts = [
        Strategy(existing_first=True),
        Strategy(balance_counted=True),
        Strategy(existing_first=True, prefer_larger_nodes=True, future_demand_weight=0.0),
    ]
    starts += [Strategy(cheapest_domain=True, future_demand_weight=0.0)]
    starts += [
        Strategy(max_node_price=ceiling, future_demand_weight=weight) for ceiling in ceilings for weight in (1.0, 0.2)
    ]
    starts += [
        Strategy(order=order, prefer_larger_nodes=grow) for order in ("sum", "cpu", "memory") for grow in (False, True)
    ]
    starts += [Strategy(domain_rotation=turn, future_demand_weight=0.5) for turn in range(1, 3)]
    starts += [Strategy(future_demand_weight=0.0, full_nodes_first=True, order=order) for order in ("sum", "memory")]
    if problem.weighted:
        starts += [replace(start, pessimistic_limits=True) for start in starts]
    return starts


def _step(problem: Problem, before: PackingState, chance: Chance, inserted: int | None = None) -> PackingState | None:
    """The packing state with some nodes destroyed and their pods, and an `inserted` class's pod, placed again.

    None if a pod cannot be placed or a rule is violated.
    """
    before.meter.spent += 10 + before.size // 5 + _extra_work(problem)
    state = before.clone(problem)
    new_nodes = state.new_nodes()
    if not new_nodes and inserted is None:
        return None
    pods: dict[int, int] = {}
    for node in _destroyed(state, new_nodes, chance) if new_nodes else ():
        _collect(pods, state.clear(node))
    if state.existing and (inserted is not None or chance.random() < _UNLOAD_SHARE):
        _unload(state, pods, chance)
    if _lost_affinity(before, state):
        _remove_pods_without_required_affinity(state, pods)
    packer = Packer(problem, _random_strategy(problem, chance), state)
    restore_preferences = inserted is not None or (
        bool(problem.preferences) and chance.random() < _RESTORE_PREFERENCES_SHARE
    )
    if inserted is not None:
        last = problem.request(problem.classes[inserted], len(problem.classes[inserted].levels) - 1)
        _collect(pods, {last.number: 1})
    for number in pods:
        packer.waiting += state.placement_requests[number].amounts * float(pods[number])
    for number in _shuffled(state, pods, chance):
        request = state.placement_requests[number]
        packer.waiting -= request.amounts * float(pods[number])
        if _placed(packer, request, pods[number], restore_preferences) < pods[number]:
            return None
    state = packer.state
    shrink(state, state.changed(before))
    if not spreads_hold(state) or (state.existing and lost_affinity(state, state.existing)):
        return None
    return state


def _extra_work(problem: Problem) -> int:
    """The extra work of a step where there are many topology counters or resource dimensions."""
    return max(0, len(problem.counters) - _FREE_COUNTERS) // 2 + max(0, len(problem.dims) - _FREE_DIMS) * _WORK_PER_DIM


def _placed(packer: Packer, request: PlacementRequest, count: int, restore_preferences: bool) -> int:
    """Place pods of a request; `climb`: try the less relaxed levels of its class first."""
    levels_of = (
        [packer.problem.request(request.cls, level_index) for level_index in range(request.level.level_index)]
        if restore_preferences
        else []
    )
    placed = 0
    for level in (*levels_of, request):
        placed += packer.place(level, count - placed) if placed < count else 0
    return placed


def _unload(state: PackingState, pods: dict[int, int], chance: Chance) -> None:
    """Remove pods of this plan from a few existing nodes; other pods may use the room better."""
    held = [node for node in range(state.existing) if state.contents[node]]
    chance.shuffle(held)
    for node in held[: chance.choice((1, 2, 4, 8))]:
        for number, count in state.contents[node].items():
            request = state.placement_requests[number]
            if not any(
                counter.kind == AFFINITY
                for counter in (*request.topology.host_members, *request.topology.domain_members)
            ):
                state.put(request, node, -count)
                _collect(pods, {number: count})


def _collect(pods: dict[int, int], more: dict[int, int]) -> None:
    for number, count in more.items():
        pods[number] = pods.get(number, 0) + count


def _destroyed(state: PackingState, new_nodes: list[int], chance: Chance) -> list[int]:
    """The nodes to destroy: a random one and a few others, by shared pod classes, by free resources, or at random."""
    many = chance.random() < 0.03
    count = min(len(new_nodes), chance.choice((9, 14, 20) if many else (1, 2, 2, 3, 3, 4, 5, 6)))
    first = chance.choice(new_nodes)
    kind = chance.random()
    others = [node for node in new_nodes if node != first]
    if kind < 0.4:
        shared = set(state.contents[first])
        others.sort(key=lambda other: (-len(shared & set(state.contents[other])), chance.random()))
    elif kind < 0.6:
        frontier = state.frontier
        waste = {
            other: float((state.free[:, other] / (frontier.capacity[:, state.offering[other]] + 1)).sum())
            for other in others
        }
        others.sort(key=lambda other: -waste[other] - 0.3 * chance.random())
    else:
        chance.shuffle(others)
    return [first, *others[: count - 1]]


def _lost_affinity(before: PackingState, state: PackingState) -> bool:
    """Whether some affinity's count has fallen to zero in a domain or on a node."""
    for counter in state.problem.counters.values():
        if counter.kind == AFFINITY:
            size = state.size
            was = before.host_counts[counter.slot, :size].tolist() if counter.host else before.counts[counter.slot]
            now = state.host_counts[counter.slot, :size].tolist() if counter.host else state.counts[counter.slot]
            if any(pod_class and not other for pod_class, other in zip(was, now, strict=True)):
                return True
    return False


def _remove_pods_without_required_affinity(state: PackingState, pods: dict[int, int]) -> None:
    """Remove the pods whose required affinity no longer holds, with their nodes, and add them to `pods`."""
    while True:
        lost = [node for node in state.new_nodes() if has_lost_affinity(state, node)]
        if not lost:
            return
        for node in lost:
            _collect(pods, state.clear(node))


def _random_strategy(problem: Problem, chance: Chance) -> Strategy:
    prices = problem.frontier.prices
    ceiling = float("inf")
    if chance.random() < 0.5 and len(prices):
        ceiling = float(prices[chance.randrange(len(prices))])
    return Strategy(
        future_demand_weight=chance.choice((0.0, 0.3, 1.0, 1.0)),
        domain_rotation=chance.randrange(3),
        max_node_price=ceiling,
        prefer_larger_nodes=chance.random() < 0.35,
        full_nodes_first=chance.random() < 0.1,
        pessimistic_limits=problem.weighted and chance.random() < 0.5,
        existing_first=chance.random() < 0.3,
    )


def _shuffled(state: PackingState, pods: dict[int, int], chance: Chance) -> list[int]:
    """The requests in the order of placing: targets of affinities first, then the largest, with some noise."""

    def size(number: int) -> float:
        request = state.placement_requests[number]
        return float((request.amounts / (state.frontier.capacity.max(axis=1, initial=0) + 1)).max())

    noise = chance.choice((0.0, 0.3, 1.0))
    keyed = [
        (
            _has_required_affinity(state.placement_requests[number]),
            -size(number) * (1 + noise * chance.uniform(-1, 1)),
            number,
        )
        for number in pods
    ]
    return [number for _, _, number in sorted(keyed)]


def _has_required_affinity(request: PlacementRequest) -> int:
    return int(
        any(
            counter.kind == AFFINITY and counter.group not in request.cls.members
            for counter in (*request.topology.host_owned, *request.topology.domain_owned)
        )
    )
