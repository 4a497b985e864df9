"""Column generation: the cutting-stock problem of a few pod sizes, solved nearly to the optimum.

Pods of few sizes, without rules about hostnames and without preferences, are packed by patterns (an offering with
integer pods); nodes that hold other pods stay as they are. The LP over the patterns so far gives a dual price for each
pod size; patterns whose pods are worth more than their offering costs are added until there is none. Then the patterns
that are nearly worth their price are used integer times. The work depends on the number of sizes and offerings, hardly
on the number of pods.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Floats, Ints, Table
from dovetail.planner.optimise.lower_bound import holding
from dovetail.planner.optimise.lp import LinearProgram, minimise, minimise_integers
from dovetail.planner.optimise.relaxation import Demand, relaxation, undominated_offerings
from dovetail.planner.optimise.rounding import where_on
from dovetail.planner.packing.pack import Packing
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import PackingState
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.request import PlacementRequest

#: With more pod sizes, the search is better: patterns have at most `_MAX_SIZES_PER_PATTERN` of them.
_MAX_SIZES, _MAX_SIZES_PER_PATTERN = 8, 3
#: A single node is resized to the cheapest offering anyway.
_MIN_NEW_NODES = 2
#: Patterns that are enumerated at most: a bound on the time of the stage (about 0.1 s).
_MAX_ENUMERATED_PATTERNS = 400_000
#: Rounds of column generation, and patterns added for each offering and round.
_MAX_ROUNDS, _ADDED_PER_OFFERING = 20, 3
#: Patterns of the integer programme beside those of the LP: so many by reduced cost, and by its share of their price.
_MAX_INTEGER_PATTERNS = 50
#: Branch-and-bound nodes of the integer programme, and the relative gap at which it ends: bounds on work, not on time.
_MAX_BRANCHES, _MIP_GAP = 100, 5e-4
_TOLERANCE = 1e-7
_NO_DEADLINE_S = 3600.0


class _Patterns(NamedTuple):
    """Patterns: the offering of each, and the number of pods of each size on it."""

    offerings: Ints
    pods: Table

    def at(self, rows: Ints | Bools) -> _Patterns:
        return _Patterns(self.offerings[rows], self.pods[rows])


def packed_by_columns(problem: Problem, start: Packing, seconds: float = _NO_DEADLINE_S) -> Packing | None:
    """The packing with the pods on new nodes packed anew; None where the problem is not of this kind.

    The work is bounded; the clock stops the integer programme early after `seconds`.
    """
    if not _is_supported(problem, start):
        return None
    state, demands, nodes = _emptied(problem, start.state)
    if len(nodes) < _MIN_NEW_NODES or len({demand.request.amounts.tobytes() for demand in demands}) > _MAX_SIZES:
        return None
    sizes = _Sizes(problem, demands, start.cost - state.cost())
    if not 0 < len(sizes.counts) <= _MAX_SIZES:
        return None
    enumerated = sizes.patterns()
    if enumerated is None:
        return None
    patterns = sizes.patterns_of(nodes, enumerated)
    master = _Master(problem, sizes, state)
    own = np.arange(len(nodes))
    uses = master.integer_uses(patterns, own, master.relaxed(patterns, own), seconds)
    if uses is None:
        return None
    if not _open(state, sizes, *uses):
        return None
    shrink(state)
    return Packing(state, start.left)


def _is_supported(problem: Problem, start: Packing) -> bool:
    """Whether patterns describe what a node may hold: nothing is reserved, shared or has to vary."""
    return (
        not problem.reservations
        and problem.diversity is None
        and not problem.sharing.bits
        and len(start.state.new_nodes()) >= _MIN_NEW_NODES
    )


def packs_all(packing: Packing) -> bool:
    """Whether all pods on new nodes are packed by columns."""
    state = packing.state
    return all(_packs(state, node) for node in state.new_nodes())


def _packs(state: PackingState, node: int) -> bool:
    """Whether the pods of a node are packed by columns: they have no rules about hostnames and no preferences.

    Rules about domains are kept because pods stay in theirs.
    """
    requests = [state.placement_requests[number] for number in state.contents[node]]
    return not any(
        request.topology.has_hostname_rules or request.cls.index in state.problem.preferences for request in requests
    )


def _emptied(problem: Problem, before: PackingState) -> tuple[PackingState, list[Demand], list[_NewNode]]:
    """The packing state without the new nodes that are packed anew, their pods with the offerings that they may use,
    and what the nodes were.

    Pods stay in the domains that the packer has chosen.
    """
    state, frontier = PackingState(problem, before.run), problem.frontier
    for node in range(before.existing):
        for number, count in before.contents[node].items():
            state.put(before.placement_requests[number], node, count)
    pods: dict[tuple[PlacementRequest, tuple[int, ...]], int] = {}
    numbers: dict[tuple[PlacementRequest, tuple[int, ...]], int] = {}
    nodes: list[_NewNode] = []
    for node in before.new_nodes():
        if not _packs(before, node):
            kept = state.open(before.offering_of(node))
            for number, count in before.contents[node].items():
                state.put(before.placement_requests[number], kept, count)
            continue
        nodes.append(_NewNode(before.offering_of(node), {}))
        for number, count in before.contents[node].items():
            request = before.placement_requests[number]
            key = (request, where_on(before, node, request))
            pods[key] = pods.get(key, 0) + count
            nodes[-1].pods[numbers.setdefault(key, len(numbers))] = count
    demands = []
    for (request, where), count in pods.items():
        ok = holding(problem, request) & np.isfinite(frontier.prices)
        for topology_key, domain in enumerate(where):
            if domain >= 0:
                ok &= frontier.domains[topology_key] == domain
        demands.append(Demand(request, float(count), np.flatnonzero(ok)))
    return state, demands, nodes


class _NewNode(NamedTuple):
    """The offering of a new node, and its pods by the index of their demand."""

    offering: int
    pods: dict[int, int]


class _Sizes:
    """Pods by size: those with equal requests and offerings are interchangeable."""

    def __init__(self, problem: Problem, demands: list[Demand], cost: float) -> None:
        self.problem = problem
        by_size: dict[tuple[bytes, bytes], list[Demand]] = {}
        for demand in demands:
            by_size.setdefault((demand.request.amounts.tobytes(), demand.offerings.tobytes()), []).append(demand)
        order = sorted(by_size.values(), key=lambda alike: -_share(problem, alike[0]))
        self.demands: list[list[Demand]] = order
        self.size_of = [next(size for size, alike in enumerate(order) if demand in alike) for demand in demands]
        firsts = [alike[0] for alike in order]
        self.counts: Ints = np.array([sum(int(demand.count) for demand in alike) for alike in order], dtype=np.int64)
        self.requests: Table = np.array([demand.request.amounts for demand in firsts], dtype=np.float64)
        merged = [
            Demand(first.request, float(count), first.offerings)
            for first, count in zip(firsts, self.counts, strict=True)
        ]
        weights = np.array([pool.weight for pool in problem.pools], dtype=np.int64)
        self.weights: Ints = weights[problem.frontier.pools]
        self.weight_of = [self._weight(first) for first in firsts]
        """The weight of the heaviest NodePool that serves a size and whose limits do not bind."""
        self.offerings = self._worthwhile(merged, cost)
        self.admitted = np.array([np.isin(self.offerings, first.offerings) for first in firsts], dtype=np.bool_)
        self.exact = self._opening_for_others()

    def _worthwhile(self, demands: list[Demand], cost: float) -> Ints:
        """The offerings that a packing below `cost` may use: not dominated, with a low reduced cost in the LP."""
        if not demands or not all(len(demand.offerings) for demand in demands):
            return np.zeros(0, dtype=np.int64)
        weights = np.unique(self.weights).tolist()
        if len(weights) > 1:
            by_weight = (
                [
                    Demand(demand.request, demand.count, demand.offerings[self.weights[demand.offerings] == weight])
                    for demand in demands
                ]
                for weight in weights
            )
            return np.flatnonzero(np.any([undominated_offerings(self.problem, part) for part in by_weight], axis=0))
        kept = undominated_offerings(self.problem, demands)
        flow = relaxation(self.problem, demands, _NO_DEADLINE_S)
        if flow is not None:
            for offering, slack in flow.slack.items():
                kept[offering] &= slack <= cost - flow.price
        return np.flatnonzero(kept)

    def _weight(self, demand: Demand) -> int:
        """The weight of the heaviest NodePool that a demand may use and whose limits do not bind; -1: there is none."""
        problem = self.problem
        limited = [any(name in problem.binding for name in limits) for limits in problem.limits]
        free = [offering for offering in demand.offerings.tolist() if not limited[problem.frontier.pool_at[offering]]]
        return int(self.weights[free].max()) if free else -1

    def _opening_for_others(self) -> Bools:
        """The sizes for which nodes are opened that others may only join: patterns use no more of them than there are.

        Otherwise some node of such a pattern would have none of their pods.
        """
        opening_for_others = np.zeros(len(self.counts), dtype=np.bool_)
        for weight in np.unique(self.weights[self.offerings]).tolist():
            here = self.admitted[:, self.weights[self.offerings] == weight].any(axis=1)
            opening = here & (np.array(self.weight_of) <= weight)
            if (here & ~opening).any():
                opening_for_others |= opening
        return opening_for_others

    def patterns(self) -> _Patterns | None:
        """All patterns of up to three sizes in which no further pod of the smallest fits; None if they are too many.

        As in a packing, a node of a NodePool is opened only for a pod that no heavier one serves; others may join.
        """
        parts: list[_Patterns] = []
        enumerated = 0
        for place, offering in enumerate(self.offerings.tolist()):
            here = np.flatnonzero(self.admitted[:, place]).tolist()
            width = min(len(here), _MAX_SIZES_PER_PATTERN)
            for chosen in combinations(here, width) if width else ():
                pods = self._fillings(chosen, self.problem.frontier.capacity[:, offering].astype(np.float64))
                enumerated += len(pods)
                opening = [size for size in chosen if self.weight_of[size] <= self.weights[offering]]
                pods = pods[pods[:, opening].any(axis=1)]
                if enumerated > _MAX_ENUMERATED_PATTERNS:
                    return None
                parts.append(_Patterns(np.full(len(pods), offering, dtype=np.int64), pods))
        if not parts:
            return None
        return _Patterns(
            np.concatenate([part.offerings for part in parts]), np.concatenate([part.pods for part in parts])
        )

    def patterns_of(self, nodes: list[_NewNode], more: _Patterns) -> _Patterns:
        """The patterns of some nodes, then others: with the former, limits admit at least one solution."""
        pods = np.zeros((len(nodes), len(self.counts)))
        for row, node in enumerate(nodes):
            for demand, count in node.pods.items():
                pods[row, self.size_of[demand]] += count
        offerings = np.array([node.offering for node in nodes], dtype=np.int64)
        return _Patterns(np.concatenate([offerings, more.offerings]), np.concatenate([pods, more.pods]))

    def _fillings(self, chosen: tuple[int, ...], capacity: Floats) -> Table:
        """The fillings of a node with pods of some sizes: any numbers of all but the last, as many as fit of that."""
        axes = [np.arange(self._most(size, capacity) + 1, dtype=np.float64) for size in chosen[:-1]]
        numbers = (
            np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1) if axes else np.zeros((1, 0))
        )
        free = capacity - numbers @ self.requests[list(chosen[:-1])]
        fits = (free >= 0).all(axis=1)
        numbers, free = numbers[fits], free[fits]
        last = chosen[-1]
        requested_dims = self.requests[last] > 0
        most = np.floor(free[:, requested_dims] / self.requests[last][requested_dims] + 1e-9).min(axis=1)
        pods = np.zeros((len(numbers), len(self.counts)))
        pods[:, list(chosen[:-1])] = numbers
        pods[:, last] = np.minimum(most, self.counts[last])
        free -= pods[:, [last]] * self.requests[last]
        useful = pods.any(axis=1)
        for size in chosen[:-1]:
            if not self.exact[size]:
                useful &= (free < self.requests[size]).any(axis=1) | (pods[:, size] >= self.counts[size])
        return pods[useful]

    def _most(self, size: int, capacity: Floats) -> int:
        requested_dims = self.requests[size] > 0
        return int(min((capacity[requested_dims] // self.requests[size][requested_dims]).min(), self.counts[size]))


def _share(problem: Problem, demand: Demand) -> float:
    return float((demand.request.amounts / (problem.frontier.capacity.max(axis=1, initial=0) + 1)).max())


class _Relaxed(NamedTuple):
    """The optimum of the LP: its price, the patterns that were needed for it, and the reduced cost of all patterns."""

    price: float
    chosen: Ints
    reduced: Floats


class _Master:
    """The programme that chooses patterns: every size is covered, and NodePool limits hold."""

    def __init__(self, problem: Problem, sizes: _Sizes, state: PackingState) -> None:
        self.problem = problem
        self.sizes = sizes
        self.limits = [
            (pool, name, float(left))
            for pool, limits in enumerate(state.left)
            for name, left in limits.items()
            if name in problem.binding
        ]

    def _rows(self, patterns: _Patterns) -> Table:
        """For each size, the share of its pods that a pattern places; for each limit, the share that it takes."""
        frontier, rows = self.problem.frontier, [*(patterns.pods / self.sizes.counts).T]
        for pool, name, left in self.limits:
            charges = frontier.limited[name][patterns.offerings] / max(left, 1.0)
            rows.append(np.where(frontier.pools[patterns.offerings] == pool, charges, 0.0))
        return np.array(rows)

    def _model(self, patterns: _Patterns) -> LinearProgram:
        model, sizes = LinearProgram(), self.sizes
        exactly = np.where(sizes.exact, 1.0 + _TOLERANCE, np.inf)
        numbers = [*model.rows(len(sizes.counts), lower=1.0, upper=exactly), *model.rows(len(self.limits), upper=1.0)]
        columns = model.columns(self.problem.frontier.prices[patterns.offerings])
        for number, row in zip(numbers, self._rows(patterns), strict=True):
            model.entries(np.full(len(columns), number), columns, row)
        return model

    def relaxed(self, patterns: _Patterns, own: Ints) -> _Relaxed:
        """The LP over all patterns, of which those that it needs are added to `own` round by round."""
        prices, rows, chosen = self.problem.frontier.prices[patterns.offerings], self._rows(patterns), own
        price, reduced = 0.0, prices
        for _ in range(_MAX_ROUNDS):
            solved = minimise(self._model(patterns.at(chosen)), _NO_DEADLINE_S)
            if solved is None:
                break
            price, reduced = solved.price, prices - solved.duals @ rows
            added = np.setdiff1d(_best_of_each(patterns.offerings, -reduced - _TOLERANCE * prices), chosen)
            if not len(added):
                break
            chosen = np.concatenate([chosen, added])
        return _Relaxed(price, chosen, reduced)

    def integer_uses(
        self, patterns: _Patterns, own: Ints, relaxed: _Relaxed, seconds: float
    ) -> tuple[_Patterns, Ints] | None:
        """How often each pattern is used: `own`, those of the LP, and those with the lowest reduced cost.

        A pattern whose reduced cost exceeds what the LP saves is in no better solution.
        """
        prices, reduced = self.problem.frontier.prices[patterns.offerings], relaxed.reduced
        near = np.flatnonzero(reduced <= prices[own].sum() - relaxed.price)
        cheap = near[np.argsort(reduced[near], kind="stable")][:_MAX_INTEGER_PATTERNS]
        full = near[np.argsort(reduced[near] / prices[near], kind="stable")][:_MAX_INTEGER_PATTERNS]
        columns = patterns.at(np.unique(np.concatenate([own, relaxed.chosen, cheap, full])))
        values = minimise_integers(self._model(columns), seconds, _MAX_BRANCHES, _MIP_GAP)
        if values is None:
            return None
        used = np.flatnonzero(values)
        return columns.at(used), values[used]


def _best_of_each(offerings: Ints, gain: Floats) -> Ints:
    """For each offering, the patterns with the largest positive gain."""
    positive = np.flatnonzero(gain > 0)
    order = positive[np.lexsort((positive, -gain[positive], offerings[positive]))]
    mine = offerings[order]
    first = np.searchsorted(mine, mine, side="left")
    return np.sort(order[np.arange(len(order)) - first < _ADDED_PER_OFFERING])


def _open(state: PackingState, sizes: _Sizes, patterns: _Patterns, times: Ints) -> bool:
    """Open the nodes of the patterns, those that hold most pods first; returns whether all pods are placed."""
    waiting = [[demand.count for demand in alike] for alike in sizes.demands]
    order = np.argsort(-patterns.pods.sum(axis=1), kind="stable")
    for row in order.tolist():
        for _ in range(int(times[row])):
            node = -1
            for size, pods_left in enumerate(patterns.pods[row].astype(np.int64).tolist()):
                for index, demand in enumerate(sizes.demands[size]):
                    taken = int(min(pods_left, waiting[size][index]))
                    if taken:
                        node = node if node >= 0 else state.open(int(patterns.offerings[row]))
                        state.put(demand.request, node, taken)
                        waiting[size][index] -= taken
                        pods_left -= taken
    return not any(left > 0 for alike in waiting for left in alike)
