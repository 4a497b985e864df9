"""Pods as an LP relaxation: how they would flow onto nodes at the least price.

Pods may be cut into pieces and nodes launched in fractions. Beside the flow, nodes may be offered whole, with the
pods on them (`Cut`): where a node holds but a few pods, an LP relaxation fills it better than pods ever could.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from dovetail.planner.offerings.catalog import Bools, Floats, Ints, Table
from dovetail.planner.optimise.lp import Model, Solved, minimise
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.frontier import undominated
from dovetail.planner.problem.request import PlacementRequest

#: More shares than this and classes are poured together first; it hardly ever costs the bound anything.
_LARGEST = 3000
#: The solver's answer is trusted to this relative precision.
_SAFETY = 1e-6
#: As good as no limit, beside those that are one: the solver takes no numbers as large as that.
_PLENTY = 1e6
#: So many rules on sharing nodes are kept to, those that bind most pods: each is asked of every offering.
_RULES = 32
_NONE, _NO_TABLE = np.zeros(0), np.zeros((0, 0))


class Flow(msgspec.Struct):
    """How many pods of one kind would stand on each offering."""

    demand: Demand
    amounts: dict[int, float]


class Relaxation(msgspec.Struct):
    """`nodes` has the fraction of each offering launched, `slack` what offerings cost too much.

    Where the price is proven, `worth` is what the pods of each flow are worth together on this market, and `rates` what
    a unit of each dimension costs on each of some offerings. `cuts` has how many of each cut that was offered are
    taken.
    """

    price: float
    flows: list[Flow]
    nodes: dict[int, float] = {}
    slack: dict[int, float] = {}
    worth: Floats = _NONE
    rates: Table = _NO_TABLE
    cuts: list[float] = []

    def scaled(self, factor: float) -> Relaxation:
        """The same with everything worth so many times more."""
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
    """`count` pods of a request, to stand on some offerings. `caps` are rules on how many share a node."""

    request: PlacementRequest
    count: float
    offerings: Ints
    caps: tuple[tuple[int, int], ...] = ()


class PatternUse(msgspec.Struct):
    """A node that is offered whole, with the pods on it: how many of each of some demands, by their numbers."""

    offering: int
    pods: dict[int, int]


class _Pool(msgspec.Struct):
    """Demands poured together."""

    members: list[Demand]
    admitted: list[Ints]
    """The offerings of each member; `offerings` are those of any of them."""
    request: Floats
    offerings: Ints
    caps: tuple[tuple[int, int], ...]
    count: float


def relaxation(
    problem: Problem,
    demands: list[Demand],
    seconds: float,
    existing: bool = False,
    largest: int = _LARGEST,
    only: Bools | None = None,
    cuts: Sequence[PatternUse] = (),
    proven: bool = False,
) -> Relaxation | None:
    """The least price at which demands flow onto their offerings (`only` some of them), or are served by `cuts`.

    `standing`: they also flow onto existing nodes. `proven`: the price is what no nodes can cost less than,
    and what pods are worth says why; where there are many, large ones may flow where small ones do.
    """
    if not demands:
        return Relaxation(0.0, [])
    kept = _undominated(problem, demands)
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
            (mark.tobytes(), _open_to(demand, offerings, bool(cuts), proven and fineness is not None), caps)
            for mark, offerings, demand, caps in zip(marks, shown, demands, rules, strict=True)
        ]
        if sum(map(len, dict(zip(keys, shown, strict=True)).values())) <= largest:
            break
    by_key = _rounded(demands, shown, rules, totals, keys)
    number = {key: index for index, key in enumerate(by_key)}
    programme = _Programme(problem, list(by_key.values()), existing and bool(len(problem.nodes)))
    for cut in cuts:
        served = Counter[int]()
        for pod, count in cut.pods.items():
            served[number[keys[pod]]] += count
        programme.offer(float(problem.frontier.prices[cut.offering]), served)
    return programme.minimised(seconds, proven)


def _open_to(demand: Demand, offerings: Ints, whole: bool, loosely: bool) -> object:
    """What demands that are poured together have in common: their offerings, or whatever they ask of any."""
    return demand.request.mask if loosely else (demand.offerings if whole else offerings).tobytes()


def _distinct(demands: list[Demand]) -> dict[bytes, Ints]:
    return {demand.offerings.tobytes(): demand.offerings for demand in demands}


def _undominated(problem: Problem, demands: list[Demand]) -> Bools:
    """Of offerings that every demand sees alike, those that no cheaper one equals or exceeds; others cannot matter."""
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
    """The rules on sharing nodes that each demand is held to."""
    bound = Counter[tuple[int, int]]()
    for demand in demands:
        for rule in demand.caps:
            bound[rule] += int(demand.count)
    if len(bound) <= _RULES:
        return [demand.caps for demand in demands]
    kept = set(sorted(bound, key=lambda rule: (-bound[rule], rule))[:_RULES])
    return [tuple(rule for rule in demand.caps if rule in kept) for demand in demands]


def _rounded(
    demands: list[Demand],
    shown: list[Ints],
    rules: list[tuple[tuple[int, int], ...]],
    totals: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    keys: list[object],
) -> dict[object, _Pool]:
    """Demands with the same key as one. Where their requests differ, that hardly changes what resources are worth."""
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


class _Programme:
    """Shares of pool p on offering t, nodes of offering t, cuts taken: least price with every pool served."""

    def __init__(self, problem: Problem, pools: list[_Pool], existing: bool) -> None:
        self.problem = problem
        self.pools = pools
        self.model = Model()
        counted = [d for d in range(len(problem.dims)) if d not in problem.blurred]
        self.dims = [d for d in counted if any(pool.request[d] > 0 for pool in pools)]
        self.total = np.sum([pool.request for pool in pools], axis=0)[self.dims]
        self.used = np.unique(np.concatenate([pool.offerings for pool in pools])).astype(np.int64)
        self.place = np.full(problem.frontier.size, -1, dtype=np.int64)
        self.place[self.used] = np.arange(len(self.used))
        self._open({rule for pool in pools for rule in pool.caps})
        self.spare: Ints | None = None
        if existing:
            self.existing = np.maximum(problem.free[self.dims], 0).sum(axis=1) / self.total
            self.spare = self.model.rows(len(self.dims), upper=self.existing)
        self.served = self.model.rows(len(pools), lower=1.0)
        self.shares = [self._round(number, pool) for number, pool in enumerate(pools)]
        self.offered: list[Ints] = []

    def _open(self, rules: set[tuple[int, int]]) -> None:
        """Nodes: they have room for what flows there, and for so many of those that refuse each other."""
        model, frontier, high, wide = self.model, self.problem.frontier, len(self.used), len(self.dims)
        room = self.room = np.clip(frontier.capacity[self.dims][:, self.used].T / self.total, 0.0, _PLENTY)
        self.rows = model.rows(high * wide, upper=0.0).reshape(high, wide)
        self.new_nodes = model.columns(frontier.prices[self.used])
        model.entries(self.rows.ravel(), np.repeat(self.new_nodes, wide), -room.ravel())
        self.limits = {rule: model.rows(high, upper=0.0) for rule in sorted(rules)}
        for rule, node in self.limits.items():
            model.entries(node, self.new_nodes, np.full(high, -float(rule[1])))

    def _round(self, number: int, pool: _Pool) -> Ints:
        """The shares of a pool on its offerings, and with them on existing nodes."""
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
        """A node that serves whole pods of some pools, by their numbers."""
        taken = self.model.columns(np.array([price]))
        served = self.served[list(pods)]
        shares = [count / self.pools[number].count for number, count in pods.items()]
        self.model.entries(served, np.repeat(taken, len(served)), np.array(shares))
        self.offered.append(taken)

    def minimised(self, seconds: float, proven: bool) -> Relaxation | None:
        """The least price and how to come by it; None where there was no time."""
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
        return Relaxation(max(0.0, price * (1 - _SAFETY) - 1e-9), flows, nodes, slack, worth, rates, cuts)

    def _proof(self, solved: Solved) -> tuple[float, Floats, Table]:
        """What all demands are worth, each alone at the cheapest offering for it, and the rates that say so.

        Rates at which no node holds more than it costs prove a price, however they were come by: also where
        demands were poured together that are not quite the same.
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
            asked = np.array([member.request.amounts[self.dims] * member.count for member in pool.members]) / self.total
            costs = asked @ rates[places].T
            for rule in pool.caps:
                costs += np.array([[member.count] for member in pool.members]) * (one_per_node[rule] * fair)[places]
            for row, offerings in zip(costs, pool.admitted, strict=True):
                if len(offerings) < len(row):
                    row[~np.isin(pool.offerings, offerings, assume_unique=True)] = np.inf
            cheapest = costs.min(axis=1, initial=np.inf)
            worth.append(cheapest if self.spare is None else np.minimum(cheapest, asked @ there))
        concatenate: Floats = np.concatenate(worth)
        spread = np.zeros((len(self.used), len(self.problem.dims)))
        spread[:, self.dims] = rates / self.total
        return float(concatenate.sum()) - free, concatenate, spread


def _flow(demand: Demand, pool: _Pool, shares: Floats) -> Flow:
    chosen = np.flatnonzero(shares > 1e-7)
    return Flow(demand, {int(pool.offerings[n]): float(shares[n]) * demand.count for n in chosen})
