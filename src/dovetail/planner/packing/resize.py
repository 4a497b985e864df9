"""Sizing: the columns on which a machine could stand with what is on it, and the cheapest of them.

Machines with the same company in the same domains climb the same stairs; they are built once.

Growth: which machine to buy should rather be larger, so that it takes one more pod.

While a packing grows, machines only fill up and limits only run out. So one that no larger column would help stays so,
and what its columns are with one more pod is found anew only when something was put on it. Where a limit is given back
after all, or the board is another one, all of it is forgotten.

Company: the pods that share a machine, as far as the machine's own choice goes.

Pods of one stance ask the same of a machine, however many and however large they are. So a machine is known by the few
stances on it, and what they leave of the columns is worked out once for all machines that have the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_, attrgetter
from typing import TYPE_CHECKING

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Ints
from dovetail.planner.packing.attachments import brought
from dovetail.planner.packing.price_index import Stairs
from dovetail.planner.packing.state import Board, move_all
from dovetail.planner.problem.frontier import Menu
from dovetail.planner.problem.request import Ask, Stance

if TYPE_CHECKING:
    from dovetail.planner.packing.packer import Packer


#: For fewer machines than this it is quicker one by one.
_SEVERAL = 6


def shrink(board: Board, machines: Iterable[int] | None = None) -> None:
    """Let machines to buy (all, or some) stand on the cheapest column that holds them."""
    problem = board.problem
    chosen = board.bought() if machines is None else machines
    limited = bool(problem.binding or problem.reservations)
    if not limited and problem.diversity is None:
        _shrink_freely(board, chosen)
        return
    for at in chosen:
        problem.work += 1
        best = cheapest(board, at, open_to=board.open_to(at) if limited else None)
        if best is not None and best != board.standing(at):
            board.move(at, best)


def _shrink_freely(board: Board, machines: Iterable[int]) -> None:
    """Where nothing is limited machines do not see each other, and all that climb the same stairs do it together."""
    climbing: dict[Stairs, list[int]] = {}
    for at in machines:
        board.problem.work += 1
        these = company(board, at)
        climbing.setdefault(these.stairs(board.menu, *_standing(board, at, these)), []).append(at)
    for stairs, here in climbing.items():
        if len(here) >= _SEVERAL:
            move_all(board, np.array(here, dtype=np.int64), stairs)
            continue
        for at in here:
            best = stairs.first(board.used(at))
            if best is not None and best != board.standing(at):
                board.move(at, best)


def cheapest(board: Board, at: int, ask: Ask | None = None, open_to: Bools | None = None) -> int | None:
    """The cheapest column, of those that are open, for a machine with what is on it (and one more pod, of an ask)."""
    these, load, diversity = company(board, at, ask), board.used(at), board.problem.diversity
    for dim, amount in ask.steps if ask is not None else ():
        load[dim] += amount
    for dim, amount in brought(board, ask, at) if ask is not None and ask.shared else ():
        load[dim] += amount
    columns = these.stairs(board.menu, *_standing(board, at, these)).holding(load)
    if open_to is not None:
        columns = (column for column in columns if open_to[column])
    if diversity is not None:
        held = [board.asks[number] for number in board.contents[at]]
        columns = diversity.among(columns, [*held, ask] if ask is not None else held, load)
    return next(columns, None)


def _standing(board: Board, at: int, these: Company) -> tuple[int, list[int]]:
    """What a machine stays whatever its size: its kind, and where it lies on the axes that matter to its company."""
    return board.menu.kind_at[board.standing(at)], [board.lying(axis, at) for axis in these.axes]


#: So many machines are looked at for one pod.
_MOST = 64
_Size = tuple[Stance, int]


class Growth:
    """Answers for one packer about the board it has."""

    def __init__(self) -> None:
        self._never: dict[_Size, int] = {}
        self._held: dict[tuple[int, _Size], tuple[object, int, int | None]] = {}

    def forget(self) -> None:
        """Something other than putting pods, opening machines and enlarging them has happened."""
        self._never.clear()
        self._held.clear()

    def best(self, packer: Packer, ask: Ask, axis: int | None, domains: Bools | None) -> tuple[int, int] | None:
        """The machine that takes one more pod of the ask for the least extra price, and the column it goes to."""
        board, menu = packer.board, packer.problem.menu
        watched = bool(packer.problem.binding or packer.problem.reservations)
        best: tuple[int, int] | None = None
        least = float("inf")
        open_to: dict[int, Bools] = {}
        for at in self._admitted(packer, ask, axis, domains)[:_MOST].tolist():
            column = self._cheapest(packer, ask, at)
            before = board.standing(at)
            if watched and column is not None:
                if before not in open_to:
                    open_to[before] = board.open_to(at)
                if not open_to[before][column]:
                    column = cheapest(board, at, ask, open_to[before])
            if column is None and ask.shared:  # until somebody else has brought the volumes
                continue
            if column is None:
                self._never[ask.stance, id(ask.steps)] |= 1 << at
                continue
            price, extra = menu.prices[column], float(menu.prices[column] - menu.prices[before])
            if extra < least and price <= max(packer.strategy.ceiling, menu.prices[before]):
                best, least = (at, column), extra
        return best

    def _admitted(self, packer: Packer, ask: Ask, axis: int | None, domains: Bools | None) -> Ints:
        """Machines to buy in some domains that hostname rules admit, whatever their room, and that could still grow."""
        board = packer.board
        never = self._never.setdefault((ask.stance, id(ask.steps)), 0)
        left = packer.standing.lying(packer, ask, axis, domains) & ~never
        left = left >> board.existing << board.existing
        if not left:
            return np.zeros(0, dtype=np.int64)
        steps, shared, ask.steps, ask.shared = ask.steps, ask.shared, [], 0
        bins, _ = board.shares(ask, np.array(_places(left), dtype=np.int64), 2, packer.lenient)
        ask.steps, ask.shared = steps, shared
        return bins

    def _cheapest(self, packer: Packer, ask: Ask, at: int) -> int | None:
        """The cheapest column for a machine with one more pod of the ask on it, whatever limits say, or None."""
        packer.problem.work += 1
        board, key = packer.board, (at, (ask.stance, id(ask.steps)))
        contents, column = board.contents[at], board.standing(at)
        known = self._held.get(key)
        if known is None or known[0] is not contents or known[1] != column:
            known = self._held[key] = (contents, column, cheapest(board, at, ask))
        return known[2]


def _places(bits: int) -> list[int]:
    """The numbers of the bits that are set."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found


_stance = attrgetter("stance")


class Company:
    """What pods of some stances accept together: columns of the menu and of all, and the axes that pin a machine."""

    __slots__ = ("_accepted", "_stairs", "axes", "keys", "mask")

    def __init__(self, stances: frozenset[Stance], board: Board) -> None:
        self._accepted = {id(each.columns): each.columns for each in stances}
        self._stairs: dict[tuple[int, ...], Stairs] = {}
        self.mask = reduce(and_, [each.mask for each in stances], -1)
        self.axes = sorted({board.axis_at[key] for each in stances for key in each.keys})
        self.keys = [board.problem.axes[axis].key for axis in self.axes]

    def alike(self, menu: Menu, kind: int, places: list[int]) -> Bools:
        """The columns of a kind, in some domain of every axis that matters, that differ in size and price alone."""
        ok: Bools = menu.kinds == kind
        for columns in self._accepted.values():
            ok &= columns
        for axis, place in zip(self.axes, places, strict=True):
            ok &= menu.domains[axis] == place
        return ok

    def stairs(self, menu: Menu, kind: int, places: list[int]) -> Stairs:
        """The same in the order of price; a menu outlives a plan, and so do they."""
        known = self._stairs.get((kind, *places))
        if known is None:
            key = (kind, frozenset(self._accepted), *zip(self.axes, places, strict=True))
            known = menu.recall(key, self._accepted, lambda: Stairs(menu, self.alike(menu, kind, places)))
            self._stairs[kind, *places] = known
        return known


def company(board: Board, at: int, ask: Ask | None = None) -> Company:
    """The company on a machine (and a pod of one more ask)."""
    held = map(_stance, map(board.asks.__getitem__, board.contents[at]))
    key: frozenset[Stance] = frozenset(held) if ask is None else frozenset((*held, ask.stance))
    known: dict[frozenset[Stance], Company] = board.problem.companies
    found = known.get(key)
    if found is None:
        found = known[key] = Company(key, board)
    return found
