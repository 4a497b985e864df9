"""Patterns: machines as they stood in a packing, bought again as often as is good.

Where a machine holds but a few pods, a fluid fills it better than pods ever could, and what the flows promise does not
come true. So here only large machines are filled by a fluid. Small ones are taken whole from packings that were found
before, wherever there are pods to stand on them the same way; a linear programme says how many of each. What it leaves
over is packed as any rounding is, and its machines are patterns for the next time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from dovetail.planner.offerings.catalog import Bools
from dovetail.planner.optimise.relaxation import Cut, Demand, Fluid, fluid
from dovetail.planner.optimise.rounding import COARSE, FINE, Rounding, where_on
from dovetail.planner.packing.pack import Packing
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import Board
from dovetail.planner.packing.topology_validation import sound
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.frontier import Menu

#: A machine that holds this many pods of the average size is filled by a fluid.
_LARGE = 100
#: A pattern that is wanted by this share of a machine is taken once more, if there are pods for it.
_WORTHWHILE = 0.05

#: Domains of all axes, -1 where it does not matter.
Place = tuple[int, ...]


class Cloth(NamedTuple):
    """What pods have in common that may stand for each other in a pattern, wherever they lie."""

    request: bytes
    caps: tuple[tuple[int, int], ...]
    types: bytes
    pinned: tuple[bool, ...]


class Pattern(NamedTuple):
    """A machine of a type, whatever place it lies in, and how many of each cloth are on it."""

    type: int
    pods: tuple[tuple[Cloth, int], ...]


class Patterns:
    """The patterns seen so far, and the pods of a packing laid out to be cut by them."""

    def __init__(self, problem: Problem, start: Packing) -> None:
        self.problem = problem
        self.start = start
        self.seen: dict[Pattern, None] = {}
        self.types, self.columns = problem.menu.types(), _by_place(problem.menu)
        self.uncut = Rounding(problem, start, COARSE)
        laid = list(zip(self.uncut.demands, self.uncut.where, strict=True))
        self.cloths = [self._cloth(demand, where) for demand, where in laid]
        self.known = {(demand.ask.number, where): at for at, (demand, where) in enumerate(laid)}
        self.rolls: dict[tuple[Cloth, Place], list[int]] = {}
        """Demands of one cloth in one place, by their numbers."""
        for at, (cloth, where) in enumerate(zip(self.cloths, self.uncut.where, strict=True)):
            self.rolls.setdefault((cloth, where), []).append(at)

    def _cloth(self, demand: Demand, where: Place) -> Cloth:
        types = np.unique(self.types[demand.columns])
        return Cloth(demand.ask.request.tobytes(), demand.caps, types.tobytes(), tuple(each >= 0 for each in where))

    def learn(self, board: Board) -> bool:
        """Take up the patterns of a board; says whether any is new."""
        before = len(self.seen)
        for at in board.bought():
            column, cloths = board.standing(at), self._on(board, at)
            if cloths is not None and np.isfinite(self.problem.menu.prices[column]):
                self.seen[Pattern(int(self.types[column]), tuple(sorted(cloths.items())))] = None
        return len(self.seen) > before

    def _on(self, board: Board, at: int) -> Counter[Cloth] | None:
        """What is on a machine; None if some of it is not to be placed anew."""
        found = Counter[Cloth]()
        for number, count in board.contents[at].items():
            demand = self.known.get((number, where_on(board, at, board.asks[number])))
            if demand is None:
                return None
            found[self.cloths[demand]] += count
        return found

    def packed(self, seconds: Callable[[], float]) -> Packing | None:
        """A packing cut by the patterns, as the linear programme has it; None if it came to nothing."""
        cuts, rounding = list(self._cuts()), self.uncut.copy()
        flow = fluid(self.problem, rounding.demands, seconds(), largest=FINE, only=self._large(), cuts=cuts)
        if flow is None:
            return None
        for cut, times in _taken(cuts, flow):
            for _ in range(times):
                self._take(cut, rounding)
        board = rounding.run(seconds)
        if board is None or not sound(board):
            return None
        shrink(board)
        return Packing(board, self.start.left)

    def _cuts(self) -> Iterator[Cut]:
        """Every pattern in every place where there are pods for it."""
        for pattern in self.seen:
            for place, column in self.columns[pattern.type].items():
                rolls = [(self.rolls.get((cloth, _pinned(cloth, place))), count) for cloth, count in pattern.pods]
                if all(roll for roll, _ in rolls):
                    yield Cut(column, {roll[0]: count for roll, count in rolls if roll})

    def _large(self) -> Bools:
        """The columns that hold many pods."""
        demands = self.uncut.demands
        total = np.sum([each.ask.request * each.count for each in demands], axis=0)
        mean = total / sum(each.count for each in demands)
        return np.asarray((self.problem.menu.capacity >= _LARGE * mean[:, None]).all(axis=0))

    def _take(self, cut: Cut, rounding: Rounding) -> None:
        """Buy the machine of a cut with as many of its pods as hostname rules let on it, if there are enough left."""
        rolls = [(self._left(first, rounding), count) for first, count in cut.pods.items()]
        if any(sum(each.count for each in roll) < count for roll, count in rolls):
            return
        board = rounding.board
        machine = board.open(cut.column)
        for roll, count in sorted(rolls, key=lambda each: not each[0][0].caps):
            for demand in roll:
                count -= _put(board, demand, machine, count)
        if not board.contents[machine]:
            board.close(machine)

    def _left(self, first: int, rounding: Rounding) -> list[Demand]:
        """What may stand for a demand."""
        return [rounding.demands[at] for at in self.rolls[self.cloths[first], self.uncut.where[first]]]


def _put(board: Board, demand: Demand, machine: int, most: int) -> int:
    """Put up to `most` pods on a machine; returns how many there was room for."""
    ask, most = demand.ask, min(most, int(demand.count))
    if not most or not ask.columns[board.standing(machine)] or not board.holds(ask, machine, 1):
        return 0
    _, fits = board.shares(ask, np.array([machine]), most, lenient=False)
    taken = int(fits.sum())
    if taken:
        board.put(ask, machine, taken)
        demand.count -= taken
    return taken


def _pinned(cloth: Cloth, place: Place) -> Place:
    return tuple(domain if pinned else -1 for domain, pinned in zip(place, cloth.pinned, strict=True))


def _by_place(menu: Menu) -> list[dict[Place, int]]:
    """The columns of each type by their place."""
    types = menu.types().tolist()
    found: list[dict[Place, int]] = [{} for _ in range(max(types, default=-1) + 1)]
    for column, (type_, place) in enumerate(zip(types, menu.places, strict=True)):
        found[type_].setdefault(place, column)
    return found


def _taken(cuts: list[Cut], flow: Fluid) -> list[tuple[Cut, int]]:
    """How often to take each cut: first all that are wanted whole, then once more what is wanted most."""
    whole = [(cut, int(wanted + 1e-6)) for cut, wanted in zip(cuts, flow.cuts, strict=True)]
    rest = [(wanted - times, at) for at, ((_, times), wanted) in enumerate(zip(whole, flow.cuts, strict=True))]
    more = [(cuts[at], 1) for share, at in sorted(rest, key=lambda each: (-each[0], each[1])) if share > _WORTHWHILE]
    return [*sorted(whole, key=lambda each: -each[1]), *more]
