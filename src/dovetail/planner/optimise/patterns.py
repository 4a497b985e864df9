"""Cutting-stock patterns: a node type with the pods on it, as in an earlier packing, used as often as the LP says.

Where a node holds only a few pods, the LP relaxation fills nodes better than integer pods can, and rounding loses what
it gained. So the LP here may fill only large nodes with divisible pods. Small nodes are columns of whole patterns from
earlier packings, in every domain with enough pods. Pods that the patterns do not cover are rounded and packed as usual,
and the nodes of that packing are patterns for the next round.
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
from dovetail.planner.packing.topology_validation import spreads_hold
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.frontier import OfferingFrontier

#: Nodes that hold at least this many pods of average size are filled by the LP relaxation.
_MIN_PODS_OF_LARGE_NODE = 100
#: A fractional rest of at least this share is rounded up, if there are pods for the pattern.
_MIN_ROUNDED_UP_SHARE = 0.05

#: A domain of each topology key, -1 where the pods do not depend on it.
Place = tuple[int, ...]


class ItemType(NamedTuple):
    """What interchangeable pods of a pattern have in common, whatever their domains."""

    request: bytes
    caps: tuple[tuple[int, int], ...]
    types: bytes
    pinned: tuple[bool, ...]


class Pattern(NamedTuple):
    """A node of a type in any domain, with the number of pods of each item type."""

    type: int
    pods: tuple[tuple[ItemType, int], ...]


class Patterns:
    """The patterns collected so far, and the demands of a packing that they serve."""

    def __init__(self, problem: Problem, start: Packing) -> None:
        self.problem = problem
        self.start = start
        self.seen: dict[Pattern, None] = {}
        self.types, self.catalog = problem.frontier.types(), _by_place(problem.frontier)
        self.rounding_start = Rounding(problem, start, COARSE)
        demands_with_domains = list(zip(self.rounding_start.demands, self.rounding_start.where, strict=True))
        self.item_types = [self._item_type(demand, where) for demand, where in demands_with_domains]
        self.known = {
            (demand.request.number, where): index for index, (demand, where) in enumerate(demands_with_domains)
        }
        self.demands_by_item: dict[tuple[ItemType, Place], list[int]] = {}
        """The indices of the demands by item type and domains."""
        for index, (item_type, where) in enumerate(zip(self.item_types, self.rounding_start.where, strict=True)):
            self.demands_by_item.setdefault((item_type, where), []).append(index)

    def _item_type(self, demand: Demand, where: Place) -> ItemType:
        types = np.unique(self.types[demand.offerings])
        return ItemType(
            demand.request.amounts.tobytes(), demand.caps, types.tobytes(), tuple(column >= 0 for column in where)
        )

    def add_from(self, state: PackingState) -> bool:
        """Add the patterns of a packing state; returns whether any is new."""
        before = len(self.seen)
        for node in state.new_nodes():
            offering, item_types = state.offering_of(node), self._items_on(state, node)
            if item_types is not None and np.isfinite(self.problem.frontier.prices[offering]):
                self.seen[Pattern(int(self.types[offering]), tuple(sorted(item_types.items())))] = None
        return len(self.seen) > before

    def _items_on(self, state: PackingState, node: int) -> Counter[ItemType] | None:
        """The pods on a node by item type; None if some of them are not among the demands."""
        items = Counter[ItemType]()
        for number, count in state.contents[node].items():
            demand = self.known.get((number, where_on(state, node, state.placement_requests[number])))
            if demand is None:
                return None
            items[self.item_types[demand]] += count
        return items

    def packed(self, seconds: Callable[[], float]) -> Packing | None:
        """The packing by the patterns that the LP chooses; None if there is no valid one in time."""
        cuts, rounding = list(self._pattern_uses()), self.rounding_start.copy()
        flow = relaxation(
            self.problem, rounding.demands, seconds(), largest=FINE, only=self._large_offerings(), cuts=cuts
        )
        if flow is None:
            return None
        for cut, times in _rounded_uses(cuts, flow):
            for _ in range(times):
                self._open_pattern_node(cut, rounding)
        state = rounding.run(seconds)
        if state is None or not spreads_hold(state):
            return None
        shrink(state)
        return Packing(state, self.start.left)

    def _pattern_uses(self) -> Iterator[PatternUse]:
        """Every pattern in every combination of domains with pods for it."""
        for pattern in self.seen:
            for place, offering in self.catalog[pattern.type].items():
                demands_by_item = [
                    (self.demands_by_item.get((item_type, _pinned(item_type, place))), count)
                    for item_type, count in pattern.pods
                ]
                if all(demands for demands, _ in demands_by_item):
                    yield PatternUse(offering, {demands[0]: count for demands, count in demands_by_item if demands})

    def _large_offerings(self) -> Bools:
        """The offerings that hold at least `_MIN_PODS_OF_LARGE_NODE` pods of average size."""
        demands = self.rounding_start.demands
        total = np.sum([demand.request.amounts * demand.count for demand in demands], axis=0)
        mean = total / sum(demand.count for demand in demands)
        return np.asarray((self.problem.frontier.capacity >= _MIN_PODS_OF_LARGE_NODE * mean[:, None]).all(axis=0))

    def _open_pattern_node(self, cut: PatternUse, rounding: Rounding) -> None:
        """Open a node of a pattern with as many of its pods as hostname rules allow, if enough pods are left."""
        demands_by_item = [(self._interchangeable_demands(first, rounding), count) for first, count in cut.pods.items()]
        if any(sum(demand.count for demand in demands) < count for demands, count in demands_by_item):
            return
        state = rounding.state
        node = state.open(cut.offering)
        for demands, count in sorted(demands_by_item, key=lambda roll: not roll[0][0].caps):
            for demand in demands:
                count -= _put(state, demand, node, count)
        if not state.contents[node]:
            state.close(node)

    def _interchangeable_demands(self, first: int, rounding: Rounding) -> list[Demand]:
        """The demands whose pods are interchangeable with those of a demand."""
        return [
            rounding.demands[node]
            for node in self.demands_by_item[self.item_types[first], self.rounding_start.where[first]]
        ]


def _put(state: PackingState, demand: Demand, node: int, most: int) -> int:
    """Place up to `most` pods on a node; returns the number placed."""
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
    """For each type, its offerings by domains."""
    types = frontier.types().tolist()
    by_place: list[dict[Place, int]] = [{} for _ in range(max(types, default=-1) + 1)]
    for offering, (type_, place) in enumerate(zip(types, frontier.places, strict=True)):
        by_place[type_].setdefault(place, offering)
    return by_place


def _rounded_uses(cuts: list[PatternUse], flow: Relaxation) -> list[tuple[PatternUse, int]]:
    """How often to use each pattern: the integer parts first, then once more by largest fractional part."""
    whole = [(cut, int(uses + 1e-6)) for cut, uses in zip(cuts, flow.cuts, strict=True)]
    rest = [(uses - times, index) for index, ((_, times), uses) in enumerate(zip(whole, flow.cuts, strict=True))]
    more = [
        (cuts[node], 1)
        for share, node in sorted(rest, key=lambda row: (-row[0], row[1]))
        if share > _MIN_ROUNDED_UP_SHARE
    ]
    return [*sorted(whole, key=lambda row: -row[1]), *more]
