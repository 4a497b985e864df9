"""The LP relaxation: the least cost of placing divisible pods on divisible nodes.

A flow is the amount of a demand on each offering. Besides flows, the LP may use whole patterns (`PatternUse`, a node
with integer pods): where a node holds only a few pods, the flows fill it better than integer pods can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from dovetail.planner.offerings.catalog import Bools, Floats, Ints, Table
from dovetail.planner.optimise.lp import LinearProgram, LpSolution, minimise
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.frontier import undominated
from dovetail.planner.problem.request import PlacementRequest

#: With more LP variables than this, demands are merged first; that hardly ever weakens the bound.
_MAX_VARIABLES = 3000
#: Relative tolerance of the solver's answers.
_TOLERANCE = 1e-6
#: Upper limit of LP coefficients (capacity over total demand): it does not bind, and the solver needs moderate numbers.
_MAX_COEFFICIENT = 1e6
#: Rules on pods per node in the LP, those that bind most pods first: each is a row for every offering.
_MAX_SHARING_RULES = 32
_NONE, _NO_TABLE = np.zeros(0), np.zeros((0, 0))


class Flow(msgspec.Struct):
    """The amount of a demand on each offering, in pods."""

    demand: Demand
    amounts: dict[int, float]


class Relaxation(msgspec.Struct):
    """An LP solution: `nodes` of each offering (fractional), `slack` its reduced cost, `cuts` uses of each pattern.

    Where the price is a proven bound, `worth` is the total dual price of each flow's pods, and `rates` the dual price
    of a unit of each dimension on each offering.
    """

    price: float
    flows: list[Flow]
    nodes: dict[int, float] = {}
    slack: dict[int, float] = {}
    worth: Floats = _NONE
    rates: Table = _NO_TABLE
    cuts: list[float] = []

    def scaled(self, factor: float) -> Relaxation:
        """The same solution with the price and all dual prices multiplied by `factor`."""
        return Relaxation(
            self.price * factor,
            self.flows,
            self.nodes,
            self.slack,
            self.worth * factor,
            self.rates * factor,
            self.cuts,
        )


class Demand(msgspec.Struct, eq=False):
    """`count` pods of a request that may use `offerings`. `caps` are rules on the pods of a node."""

    request: PlacementRequest
    count: float
    offerings: Ints
    caps: tuple[tuple[int, int], ...] = ()


class PatternUse(msgspec.Struct):
    """A pattern in some domains: a node of an offering with integer pods, by index of the demand."""

    offering: int
    pods: dict[int, int]


class _Pool(msgspec.Struct):
    """Merged demands."""

    members: list[Demand]
    admitted: list[Ints]
    """The offerings of each member; `offerings` are the union of them."""
    request: Floats
    offerings: Ints
    caps: tuple[tuple[int, int], ...]
    count: float


def relaxation(
    problem: Problem,
    demands: list[Demand],
    seconds: float,
    existing: bool = False,
    largest: int = _MAX_VARIABLES,
    only: Bools | None = None,
    cuts: Sequence[PatternUse] = (),
    proven: bool = False,
) -> Relaxation | None:
    """The least cost of serving the demands by flows onto their offerings (within `only`) or by patterns (`cuts`).

    `existing`: flows may also use existing nodes. `proven`: the price is a lower bound with dual prices that prove it;
    where there are many variables, merged demands may use the offerings of all their members.
    """
    if not demands:
        return Relaxation(0.0, [])
    kept = undominated_offerings(problem, demands)
    if only is not None:
        kept &= only
    narrowed = {raw: offerings[kept[offerings]] for raw, offerings in _distinct(demands).items()}
    shown = [narrowed[demand.offerings.tobytes()] for demand in demands]
    requests = np.array([demand.request.amounts for demand in demands], dtype=np.float64)
    totals = requests * np.array([[demand.count] for demand in demands])
    shares = np.log2(np.maximum(totals, 1.0) / np.maximum(totals.max(axis=1, keepdims=True), 1.0))
    rules = _rules(demands)
    keys: list[object] = []
    for fineness in (None, 8.0, 4.0, 2.0, 1.0, 0.0):
        marks = requests if fineness is None else np.round(shares * fineness)
        keys = [
            (mark.tobytes(), _merge_key(demand, offerings, bool(cuts), proven and fineness is not None), caps)
            for mark, offerings, demand, caps in zip(marks, shown, demands, rules, strict=True)
        ]
        if sum(map(len, dict(zip(keys, shown, strict=True)).values())) <= largest:
            break
    by_key = _merged(demands, shown, rules, totals, keys)
    number = {key: index for index, key in enumerate(by_key)}
    programme = _LinearProgram(problem, list(by_key.values()), existing and bool(len(problem.nodes)))
    for cut in cuts:
        served = Counter[int]()
        for pod, count in cut.pods.items():
            served[number[keys[pod]]] += count
        programme.offer(float(problem.frontier.prices[cut.offering]), served)
    return programme.minimised(seconds, proven)


def _merge_key(demand: Demand, offerings: Ints, whole: bool, loosely: bool) -> object:
    """The key by which demands are merged: their offerings, or (`loosely`) the offerings that their filter admits."""
    return demand.request.mask if loosely else (demand.offerings if whole else offerings).tobytes()


def _distinct(demands: list[Demand]) -> dict[bytes, Ints]:
    return {demand.offerings.tobytes(): demand.offerings for demand in demands}


def undominated_offerings(problem: Problem, demands: list[Demand]) -> Bools:
    """Of the offerings admitted by the same demands, those that no cheaper one equals or exceeds in capacity."""
    frontier = problem.frontier
    seen = _distinct(demands)
    admitted = np.zeros((len(seen), frontier.size), dtype=np.bool_)
    for row, offerings in enumerate(seen.values()):
        admitted[row, offerings] = True
    _, family = np.unique(np.packbits(admitted, axis=0), axis=1, return_inverse=True)
    kept = np.zeros(frontier.size, dtype=np.bool_)
    for member in np.unique(family):
        kept[undominated(np.flatnonzero(family.ravel() == member), frontier.capacity)] = True
    return kept


def _rules(demands: list[Demand]) -> list[tuple[tuple[int, int], ...]]:
    """The rules on pods per node of each demand; at most `_MAX_SHARING_RULES` over all demands."""
    bound = Counter[tuple[int, int]]()
    for demand in demands:
        for rule in demand.caps:
            bound[rule] += int(demand.count)
    if len(bound) <= _MAX_SHARING_RULES:
        return [demand.caps for demand in demands]
    kept = set(sorted(bound, key=lambda rule: (-bound[rule], rule))[:_MAX_SHARING_RULES])
    return [tuple(rule for rule in demand.caps if rule in kept) for demand in demands]


def _merged(
    demands: list[Demand],
    shown: list[Ints],
    rules: list[tuple[tuple[int, int], ...]],
    totals: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    keys: list[object],
) -> dict[object, _Pool]:
    """Demands merged by key. Their requests may differ, which hardly changes the dual prices."""
    pools: dict[object, _Pool] = {}
    for demand, offerings, caps, total, key in zip(demands, shown, rules, totals, keys, strict=True):
        cached = pools.get(key)
        if cached is None:
            pools[key] = _Pool([demand], [offerings], total.copy(), offerings, caps, demand.count)
        else:
            cached.members.append(demand)
            cached.admitted.append(offerings)
            if len(offerings) != len(cached.offerings) or (offerings != cached.offerings).any():
                cached.offerings = np.union1d(cached.offerings, offerings)
            cached.request += total
            cached.count += demand.count
    return pools


class _LinearProgram:
    """The LP: variables are shares of pool p on offering t, nodes of offering t and uses of patterns; minimise cost."""

    def __init__(self, problem: Problem, pools: list[_Pool], existing: bool) -> None:
        self.problem = problem
        self.pools = pools
        self.model = LinearProgram()
        counted = [d for d in range(len(problem.dims)) if d not in problem.shared_dims]
        self.dims = [d for d in counted if any(pool.request[d] > 0 for pool in pools)]
        self.total = np.sum([pool.request for pool in pools], axis=0)[self.dims]
        self.used = np.unique(np.concatenate([pool.offerings for pool in pools])).astype(np.int64)
        self.place = np.full(problem.frontier.size, -1, dtype=np.int64)
        self.place[self.used] = np.arange(len(self.used))
        self._add_nodes({rule for pool in pools for rule in pool.caps})
        self.spare: Ints | None = None
        if existing:
            self.existing = np.maximum(problem.free[self.dims], 0).sum(axis=1) / self.total
            self.spare = self.model.rows(len(self.dims), upper=self.existing)
        self.served = self.model.rows(len(pools), lower=1.0)
        self.shares = [self._add_pool(number, pool) for number, pool in enumerate(pools)]
        self.offered: list[Ints] = []

    def _add_nodes(self, rules: set[tuple[int, int]]) -> None:
        """Add the node variables, with rows for capacity and for the rules on pods per node."""
        model, frontier, high, wide = self.model, self.problem.frontier, len(self.used), len(self.dims)
        room = self.room = np.clip(frontier.capacity[self.dims][:, self.used].T / self.total, 0.0, _MAX_COEFFICIENT)
        self.rows = model.rows(high * wide, upper=0.0).reshape(high, wide)
        self.new_nodes = model.columns(frontier.prices[self.used])
        model.entries(self.rows.ravel(), np.repeat(self.new_nodes, wide), -room.ravel())
        self.limits = {rule: model.rows(high, upper=0.0) for rule in sorted(rules)}
        for rule, node in self.limits.items():
            model.entries(node, self.new_nodes, np.full(high, -float(rule[1])))

    def _add_pool(self, number: int, pool: _Pool) -> Ints:
        """Add the variables of a pool's shares on its offerings and on existing nodes; returns those on offerings."""
        model, width, wide = self.model, len(pool.offerings), len(self.dims)
        places, request = self.place[pool.offerings], pool.request[self.dims] / self.total
        mine = model.columns(np.zeros(width + (self.spare is not None)))
        model.entries(self.rows[places].ravel(), np.repeat(mine[:width], wide), np.tile(request, width))
        if self.spare is not None:
            model.entries(self.spare, np.repeat(mine[width:], wide), request)
        for rule in pool.caps:
            model.entries(self.limits[rule][places], mine[:width], np.full(width, pool.count))
        model.entries(np.repeat(self.served[number], len(mine)), mine, np.ones(len(mine)))
        return mine[:width]

    def offer(self, price: float, pods: Counter[int]) -> None:
        """Add a pattern: a node that serves integer pods of some pools, by index."""
        taken = self.model.columns(np.array([price]))
        served = self.served[list(pods)]
        shares = [count / self.pools[number].count for number, count in pods.items()]
        self.model.entries(served, np.repeat(taken, len(served)), np.array(shares))
        self.offered.append(taken)

    def minimised(self, seconds: float, proven: bool) -> Relaxation | None:
        """The solution; None if it was not found in `seconds`."""
        solved = minimise(self.model, seconds)
        if solved is None:
            return None
        values = solved.values
        nodes = {int(node): float(n) for node, n in zip(self.used, values[self.new_nodes], strict=True) if n > 1e-9}
        slack = dict(zip(self.used.tolist(), solved.reduced[self.new_nodes].tolist(), strict=True))
        flows = [
            _flow(member, pool, values[mine])
            for pool, mine in zip(self.pools, self.shares, strict=True)
            for member in pool.members
        ]
        cuts = [float(values[node][0]) for node in self.offered]
        price, worth, rates = self._proof(solved) if proven else (solved.price, _NONE, _NO_TABLE)
        return Relaxation(max(0.0, price * (1 - _TOLERANCE) - 1e-9), flows, nodes, slack, worth, rates, cuts)

    def _proof(self, solved: LpSolution) -> tuple[float, Floats, Table]:
        """The lower bound, the dual price of each demand at its cheapest offering, and the rates that prove it.

        Rates at which no full node is worth more than it costs prove a lower bound whatever their origin, so the bound
        also holds where different demands were merged.
        """
        frontier, free = self.problem.frontier, 0.0
        rates = np.maximum(-solved.duals[self.rows], 0.0)
        one_per_node = {rule: np.maximum(-solved.duals[node], 0.0) for rule, node in self.limits.items()}
        held = (rates * self.room).sum(axis=1) + sum((rule[1] * value for rule, value in one_per_node.items()), 0.0)
        fair = np.minimum(1.0, frontier.prices[self.used] / np.maximum(held, 1e-12))
        rates *= fair[:, None]
        there = _NONE
        if self.spare is not None:
            there = np.maximum(-solved.duals[self.spare], 0.0)
            free = float((there * self.existing).sum())
        worth = []
        for pool in self.pools:
            places = self.place[pool.offerings]
            requests = (
                np.array([member.request.amounts[self.dims] * member.count for member in pool.members]) / self.total
            )
            costs = requests @ rates[places].T
            for rule in pool.caps:
                costs += np.array([[member.count] for member in pool.members]) * (one_per_node[rule] * fair)[places]
            for row, offerings in zip(costs, pool.admitted, strict=True):
                if len(offerings) < len(row):
                    row[~np.isin(pool.offerings, offerings, assume_unique=True)] = np.inf
            cheapest = costs.min(axis=1, initial=np.inf)
            worth.append(cheapest if self.spare is None else np.minimum(cheapest, requests @ there))
        concatenate: Floats = np.concatenate(worth)
        spread = np.zeros((len(self.used), len(self.problem.dims)))
        spread[:, self.dims] = rates / self.total
        return float(concatenate.sum()) - free, concatenate, spread


def _flow(demand: Demand, pool: _Pool, shares: Floats) -> Flow:
    chosen = np.flatnonzero(shares > 1e-7)
    return Flow(demand, {int(pool.offerings[n]): float(shares[n]) * demand.count for n in chosen})
