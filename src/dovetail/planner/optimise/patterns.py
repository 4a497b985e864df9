"""Patterns: nodes as they stood in a packing, launched again as often as is good.

Where a node holds but a few pods, an LP relaxation fills it better than pods ever could, and what the flows
requirement does not
come true. So here only large nodes are filled by an LP relaxation. Small ones are taken whole from packings that were
found
before, wherever there are pods to stand on them the same way; a linear programme says how many of each. What it leaves
over is packed as any rounding is, and its nodes are patterns for the next time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from dovetail.planner.offerings.catalog import Bools
from dovetail.planner.optimise.relaxation import Demand, PatternUse, Relaxation, relaxation
from dovetail.planner.optimise.rounding import COARSE, FINE, Rounding, where_on
from dovetail.planner.packing.pack import Packing
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import PackingState
from dovetail.planner.packing.topology_validation import sound
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.frontier import OfferingFrontier

#: A node that holds this many pods of the average size is filled by an LP relaxation.
_LARGE = 100
#: A pattern that is wanted by this share of a node is taken once more, if there are pods for it.
_WORTHWHILE = 0.05

#: Domains of all topology keys, -1 where it does not matter.
Place = tuple[int, ...]


class ItemType(NamedTuple):
    """What pods have in common that may stand for each other in a pattern, wherever they lie."""

    request: bytes
    caps: tuple[tuple[int, int], ...]
    types: bytes
    pinned: tuple[bool, ...]


class Pattern(NamedTuple):
    """A node of a type, whatever place it lies in, and how many of each cloth are on it."""

    type: int
    pods: tuple[tuple[ItemType, int], ...]


class Patterns:
    """The patterns seen so far, and the pods of a packing laid out to be cut by them."""

    def __init__(self, problem: Problem, start: Packing) -> None:
        self.problem = problem
        self.start = start
        self.seen: dict[Pattern, None] = {}
        self.types, self.catalog = problem.frontier.types(), _by_place(problem.frontier)
        self.uncut = Rounding(problem, start, COARSE)
        laid = list(zip(self.uncut.demands, self.uncut.where, strict=True))
        self.cloths = [self._item_type(demand, where) for demand, where in laid]
        self.known = {(demand.request.number, where): index for index, (demand, where) in enumerate(laid)}
        self.rolls: dict[tuple[ItemType, Place], list[int]] = {}
        """Demands of one cloth in one place, by their numbers."""
        for index, (item_type, where) in enumerate(zip(self.cloths, self.uncut.where, strict=True)):
            self.rolls.setdefault((item_type, where), []).append(index)

    def _item_type(self, demand: Demand, where: Place) -> ItemType:
        types = np.unique(self.types[demand.offerings])
        return ItemType(
            demand.request.amounts.tobytes(), demand.caps, types.tobytes(), tuple(column >= 0 for column in where)
        )

    def learn(self, state: PackingState) -> bool:
        """Take up the patterns of a packing state; says whether any is new."""
        before = len(self.seen)
        for node in state.new_nodes():
            offering, cloths = state.offering_of(node), self._on(state, node)
            if cloths is not None and np.isfinite(self.problem.frontier.prices[offering]):
                self.seen[Pattern(int(self.types[offering]), tuple(sorted(cloths.items())))] = None
        return len(self.seen) > before

    def _on(self, state: PackingState, node: int) -> Counter[ItemType] | None:
        """What is on a node; None if some of it is not to be placed anew."""
        items = Counter[ItemType]()
        for number, count in state.contents[node].items():
            demand = self.known.get((number, where_on(state, node, state.placement_requests[number])))
            if demand is None:
                return None
            items[self.cloths[demand]] += count
        return items

    def packed(self, seconds: Callable[[], float]) -> Packing | None:
        """A packing cut by the patterns, as the linear programme has it; None if it came to nothing."""
        cuts, rounding = list(self._cuts()), self.uncut.copy()
        flow = relaxation(self.problem, rounding.demands, seconds(), largest=FINE, only=self._large(), cuts=cuts)
        if flow is None:
            return None
        for cut, times in _taken(cuts, flow):
            for _ in range(times):
                self._take(cut, rounding)
        state = rounding.run(seconds)
        if state is None or not sound(state):
            return None
        shrink(state)
        return Packing(state, self.start.left)

    def _cuts(self) -> Iterator[PatternUse]:
        """Every pattern in every place where there are pods for it."""
        for pattern in self.seen:
            for place, offering in self.catalog[pattern.type].items():
                rolls = [
                    (self.rolls.get((item_type, _pinned(item_type, place))), count) for item_type, count in pattern.pods
                ]
                if all(demands for demands, _ in rolls):
                    yield PatternUse(offering, {demands[0]: count for demands, count in rolls if demands})

    def _large(self) -> Bools:
        """The offerings that hold many pods."""
        demands = self.uncut.demands
        total = np.sum([demand.request.amounts * demand.count for demand in demands], axis=0)
        mean = total / sum(demand.count for demand in demands)
        return np.asarray((self.problem.frontier.capacity >= _LARGE * mean[:, None]).all(axis=0))

    def _take(self, cut: PatternUse, rounding: Rounding) -> None:
        """Open the node of a cut with as many of its pods as hostname rules let on it, if there are enough left."""
        rolls = [(self._left(first, rounding), count) for first, count in cut.pods.items()]
        if any(sum(demand.count for demand in demands) < count for demands, count in rolls):
            return
        state = rounding.state
        node = state.open(cut.offering)
        for demands, count in sorted(rolls, key=lambda roll: not roll[0][0].caps):
            for demand in demands:
                count -= _put(state, demand, node, count)
        if not state.contents[node]:
            state.close(node)

    def _left(self, first: int, rounding: Rounding) -> list[Demand]:
        """What may stand for a demand."""
        return [rounding.demands[node] for node in self.rolls[self.cloths[first], self.uncut.where[first]]]


def _put(state: PackingState, demand: Demand, node: int, most: int) -> int:
    """Put up to `most` pods on a node; returns how many there was room for."""
    request, most = demand.request, min(most, int(demand.count))
    if not most or not request.offerings[state.offering_of(node)] or not state.holds(request, node, 1):
        return 0
    _, fits = state.shares(request, np.array([node]), most, ignore_counted=False)
    taken = int(fits.sum())
    if taken:
        state.put(request, node, taken)
        demand.count -= taken
    return taken


def _pinned(item_type: ItemType, place: Place) -> Place:
    return tuple(domain if pinned else -1 for domain, pinned in zip(place, item_type.pinned, strict=True))


def _by_place(frontier: OfferingFrontier) -> list[dict[Place, int]]:
    """The offerings of each type by their place."""
    types = frontier.types().tolist()
    by_place: list[dict[Place, int]] = [{} for _ in range(max(types, default=-1) + 1)]
    for offering, (type_, place) in enumerate(zip(types, frontier.places, strict=True)):
        by_place[type_].setdefault(place, offering)
    return by_place


def _taken(cuts: list[PatternUse], flow: Relaxation) -> list[tuple[PatternUse, int]]:
    """How often to take each cut: first all that are wanted whole, then once more what is wanted most."""
    whole = [(cut, int(wanted + 1e-6)) for cut, wanted in zip(cuts, flow.cuts, strict=True)]
    rest = [(wanted - times, index) for index, ((_, times), wanted) in enumerate(zip(whole, flow.cuts, strict=True))]
    more = [(cuts[node], 1) for share, node in sorted(rest, key=lambda row: (-row[0], row[1])) if share > _WORTHWHILE]
    return [*sorted(whole, key=lambda row: -row[1]), *more]
