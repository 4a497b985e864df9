"""Targets: which column to open a machine on.

The target is the column on which the demand still waiting would cost least if nothing else could be bought.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Floats, Ints
from dovetail.planner.problem.compile import UNLIMITED, Problem
from dovetail.planner.problem.frontier import Menu
from dovetail.planner.problem.request import Ask

if TYPE_CHECKING:
    from dovetail.planner.packing.packer import Packer
    from dovetail.planner.packing.state import Board

_Steps = tuple[tuple[int, int], ...]


class _Shelf:
    """Columns that hold a pod of some kind: how many, at what price, and with how much room of each dimension."""

    __slots__ = ("columns", "fits", "part", "prices", "room")

    def __init__(
        self, ask: Ask, columns: Ints, menu: Menu, prices: Floats, domains: Bools | None, brought: _Steps
    ) -> None:
        self.columns = columns
        self.fits: Ints = np.full(len(columns), UNLIMITED, dtype=np.int64)
        for dim, amount in ask.steps:
            np.minimum(self.fits, menu.capacity[dim][columns] // amount, out=self.fits)
        for dim, more in brought:
            if ask.request[dim]:
                np.minimum(self.fits, (menu.capacity[dim][columns] - more) // ask.request[dim], out=self.fits)
        self.room = [room[columns] for room in menu.room]
        self.prices = prices
        self.part = 1.0 if domains is None else max(1, int(domains[:-1].sum())) / max(1, len(domains) - 1)
        """Which part of all domains they lie in: as much of what is to come may come here."""


class Targets:
    """Chooses for one packer."""

    def __init__(self, problem: Problem) -> None:
        pools = problem.pools
        self.menu = problem.menu
        self._sharing = problem.sharing
        self._stamp: object = None
        self._shelves: dict[object, _Shelf | None] = {}
        self._domains: dict[object, frozenset[int]] = {}
        self.ranks = sorted({pool.weight for pool in pools}, reverse=True)
        weights = np.array([pool.weight for pool in pools], dtype=np.int64)
        self.weights: Ints = weights[problem.menu.pools] if len(weights) else np.zeros(0, dtype=np.int64)

    def best(
        self, packer: Packer, ask: Ask, count: int, per: int, axis: int | None, domains: Bools | None
    ) -> tuple[int, int] | None:
        """The column to open, and how many pods of the ask go on it."""
        strategy = packer.strategy
        packer.problem.work += 2
        shelf = self._shelf(packer, ask, axis, domains)
        if shelf is None:
            return None
        per, apart = min(per, count), count + packer.rivals
        if strategy.lavish or apart == 1:
            needed: Floats = np.ones(len(shelf.fits))
        elif per == 1:
            needed = np.full(len(shelf.fits), float(apart))
        else:
            machines = apart / np.minimum(shelf.fits, per)
            needed = np.maximum(machines, 1.0) if strategy.bulk else np.ceil(machines)
        coming, share = packer.waiting.tolist(), strategy.foresight * shelf.part
        if packer.rivals:
            coming = [max(0.0, more - spare) for more, spare in zip(coming, _spare(packer.board), strict=True)]
        for amount, more, room in zip(ask.request.tolist(), coming, shelf.room, strict=True):
            demand = amount * float(count) + more * share
            if demand:
                np.maximum(needed, demand / room, out=needed)
        needed *= shelf.prices
        best = int(needed.argmin())
        column, most, diversity = int(shelf.columns[best]), min(per, int(shelf.fits[best])), packer.problem.diversity
        if diversity is None:
            return column, most
        return column, diversity.most(column, [ask], self._loaded(ask, [0] * len(ask.request)), ask, most)

    def domains(self, packer: Packer, ask: Ask, axis: int) -> frozenset[int]:
        """The domains of an axis in which a machine for a pod is for sale, where nothing that is for sale runs out."""
        menu = packer.problem.menu

        def found() -> frozenset[int]:
            return frozenset(menu.domains[axis][self.candidates(packer, ask, None, None)].tolist())

        if packer.problem.diversity is not None or packer.extra or packer.strategy.wide:
            return found()
        key = (ask.stance, id(ask.steps), axis)
        known = self._domains.get(key)
        if known is None:
            lasting = ("domains", id(ask.columns), axis, *ask.steps, self._brought(ask))
            known = self._domains[key] = menu.recall(lasting, ask.columns, found)
        return known

    def twins(self, ask: Ask, column: int) -> list[int]:
        """The columns that differ from one in their place alone, as far as a pod of the ask accepts them."""
        types = self.menu.types()

        def found() -> list[int]:
            return np.flatnonzero(ask.columns & (types == types[column])).tolist()

        return self.menu.recall(("twins", id(ask.columns), column), ask.columns, found)

    def _shelf(self, packer: Packer, ask: Ask, axis: int | None, domains: Bools | None) -> _Shelf | None:
        """The columns to choose from; remembered where they do not depend on what was bought before."""
        problem = packer.problem
        watched = problem.binding or problem.reservations or problem.diversity is not None
        if watched or packer.extra or packer.strategy.wide:
            return self._until_bought(packer, ask, axis, domains)
        where = (axis, domains.tobytes()) if domains is not None else None
        kind = (id(ask.columns), where, *ask.steps, self._brought(ask), packer.strategy.ceiling)
        return problem.menu.recall(kind, ask.columns, lambda: self._stocked(packer, ask, axis, domains))

    def _until_bought(self, packer: Packer, ask: Ask, axis: int | None, domains: Bools | None) -> _Shelf | None:
        """The same, remembered until some machine is bought or becomes another."""
        if packer.board.stamp is not self._stamp:
            self._stamp = packer.board.stamp
            self._shelves.clear()
        key = (ask.stance, id(ask.steps), id(domains), *[id(chosen) for _, chosen in packer.extra])
        if key not in self._shelves:
            self._shelves[key] = self._stocked(packer, ask, axis, domains)
        return self._shelves[key]

    def _stocked(self, packer: Packer, ask: Ask, axis: int | None, domains: Bools | None) -> _Shelf | None:
        menu, strategy = packer.problem.menu, packer.strategy
        packer.problem.work += 3 + menu.size // 200
        ok = self.candidates(packer, ask, axis, domains)
        if not ok.any():
            return None
        if len(self.ranks) > 1:
            ok &= self.weights == self.weights[ok].max()
        at = np.flatnonzero(ok)
        cheap = at[menu.prices[at] <= strategy.ceiling]
        at = cheap if len(cheap) else at[:1]
        if strategy.thrift and packer.problem.binding:
            prices = self._limit_shares(packer, at)
        else:
            at = _distinct(menu, at)
            prices = menu.finite[at]
        return _Shelf(ask, at, menu, prices, domains, self._brought(ask))

    def _brought(self, ask: Ask) -> _Steps:
        """What the first pod of the ask takes of a machine beside its own."""
        return self._sharing.amounts(ask.shared) if ask.shared else ()

    def _loaded(self, ask: Ask, load: list[int]) -> list[int]:
        for dim, more in self._brought(ask):
            load[dim] += more
        return load

    def candidates(self, packer: Packer, ask: Ask, axis: int | None, domains: Bools | None) -> Bools:
        menu = packer.problem.menu
        ok: Bools = ask.columns.copy()
        for dim, amount in ask.steps:
            ok &= menu.capacity[dim] >= amount
        for dim, more in self._brought(ask):
            ok &= menu.capacity[dim] >= ask.request[dim] + more
        if axis is not None and domains is not None:
            ok &= domains[menu.domains[axis]]
        for other, chosen in packer.extra:
            ok &= chosen[menu.domains[other]]
        if packer.problem.binding or packer.problem.reservations:
            ok &= packer.board.open_to()
        if packer.strategy.wide:
            ok &= self._widely(packer)
        diversity = packer.problem.diversity
        if diversity is not None:
            brimming = ok & diversity.brimming(ask)
            load = self._loaded(ask, ask.request.tolist())
            ok = brimming if brimming.any() else diversity.holding(ok, [ask], load)
        return ok

    def _widely(self, packer: Packer) -> Bools:
        """The columns within limits if every machine that stands became the largest it may."""
        menu, board = packer.problem.menu, packer.board
        ok = np.ones(menu.size, dtype=np.bool_)
        standing = [board.standing(at) for at in board.bought()]
        for name in packer.problem.binding:
            limits = [each.get(name, UNLIMITED) for each in packer.problem.limits]
            charges = menu.charges(name)
            for column in standing:
                pool = menu.pool_at[column]
                within = bisect_right(charges[pool], limits[pool])
                limits[pool] -= charges[pool][within - 1] if within else int(menu.limited[name][column])
            ok &= menu.limited[name] <= np.array(limits, dtype=np.int64)[menu.pools]
        return ok

    def _limit_shares(self, packer: Packer, at: Ints) -> Floats:
        """What each column takes of its pool's tightest limit."""
        menu = packer.problem.menu
        shares = np.full(len(at), 1e-9)
        for name in packer.problem.binding:
            left = [float(max(1, each.get(name, UNLIMITED))) for each in packer.problem.limits]
            limits = np.array(left)
            np.maximum(shares, menu.limited[name][at] / limits[menu.pools[at]], out=shares)
        return shares


def _spare(board: Board) -> list[int]:
    """The room that is left on the machines to buy."""
    left: list[int] = np.add.reduce(board.free[:, board.existing : board.size], axis=1).tolist()
    return left


def _distinct(menu: Menu, columns: Ints) -> Ints:
    """Of columns in a row that cost and hold the same, as the zones of a type do, the first: no other is chosen."""
    prices, sizes = menu.finite[columns], menu.capacity[:, columns]
    first: Bools = np.ones(len(columns), dtype=np.bool_)
    first[1:] = (prices[1:] != prices[:-1]) | (sizes[:, 1:] != sizes[:, :-1]).any(axis=0)
    return columns[first]
