"""Targets: which column to open a machine on.

The target is the column on which the demand still waiting would cost least if nothing else could be bought.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.planner.asks import Ask
from dovetail.planner.columns import Bools, Floats, Ints
from dovetail.planner.problem import UNLIMITED

if TYPE_CHECKING:
    from dovetail.planner.packer import Packer


class Targets:
    """Chooses for one packer."""

    def __init__(self, packer: Packer) -> None:
        self._packer = packer
        pools = packer.problem.pools
        self.ranks = sorted({pool.weight for pool in pools}, reverse=True)
        weights = np.array([pool.weight for pool in pools], dtype=np.int64)
        self.weights: Ints = weights[packer.problem.menu.pools] if len(weights) else np.zeros(0, dtype=np.int64)

    def best(
        self, ask: Ask, count: int, per: int, axis: int | None, domains: Bools | None
    ) -> tuple[int, int] | None:
        """The column to open, and how many pods of the ask go on it."""
        menu = self._packer.problem.menu
        self._packer.problem.work += 2
        ok = self.candidates(ask, axis, domains)
        if not ok.any():
            return None
        if len(self.ranks) > 1:
            ok &= self.weights == self.weights[ok].max()
        at = np.flatnonzero(ok)
        cheap = at[menu.prices[at] <= self._packer.strategy.ceiling]
        at = cheap if len(cheap) else at[:1]
        capacity = menu.capacity[:, at]
        fits = np.full(len(at), min(per, count), dtype=np.int64)
        for dim, amount in ask.steps:
            np.minimum(fits, capacity[dim] // amount, out=fits)
        demand = ask.request * float(count) + self._to_come(ask, axis, domains)
        needed = np.ones(len(at)) if self._packer.strategy.lavish else np.ceil(count / fits)
        if self._packer.strategy.bulk:
            needed = np.maximum(count / fits, 1.0)
        for dim in (int(each) for each in np.flatnonzero(demand)):
            with np.errstate(divide="ignore", invalid="ignore"):
                share = demand[dim] / capacity[dim]
            if dim in ask.dims:
                np.maximum(needed, share, out=needed)
            else:
                np.maximum(needed, np.where(capacity[dim] > 0, share, 0.0), out=needed)
        thrifty = self._packer.strategy.thrift and self._packer.problem.binding
        prices = self._limit_shares(at) if thrifty else menu.prices[at]
        best = int((np.where(np.isfinite(prices), prices, 1e9) * needed).argmin())
        return int(at[best]), int(fits[best])

    def candidates(self, ask: Ask, axis: int | None, domains: Bools | None) -> Bools:
        menu = self._packer.problem.menu
        ok: Bools = ask.columns.copy() if self._packer.only is None else ask.columns & self._packer.only
        for dim, amount in ask.steps:
            ok &= menu.capacity[dim] >= amount
        if axis is not None and domains is not None:
            ok &= domains[menu.domains[axis]]
        for other, chosen in self._packer.extra:
            ok &= chosen[menu.domains[other]]
        if self._packer.problem.binding or self._packer.problem.reservations:
            ok = self._packer.board.affordable(ok)
        if self._packer.strategy.wide:
            ok &= self._widely()
        if self._packer.problem.diversity is not None:
            ok = self._packer.problem.diversity.filtered(ok, [ask])
        return ok

    def _widely(self) -> Bools:
        """The columns within limits if every machine that stands became the largest it may."""
        menu, board = self._packer.problem.menu, self._packer.board
        ok = np.ones(menu.size, dtype=np.bool_)
        for name in self._packer.problem.binding:
            limits = np.array([each.get(name, UNLIMITED) for each in self._packer.problem.limits], dtype=np.int64)
            for at in board.bought():
                pool = int(menu.pools[board.column[at]])
                sizes = menu.limited[name][(menu.pools == pool) & (menu.limited[name] <= limits[pool])]
                limits[pool] -= int(sizes.max()) if len(sizes) else int(menu.limited[name][board.column[at]])
            ok &= menu.limited[name] <= limits[menu.pools]
        return ok

    def _limit_shares(self, at: Ints) -> Floats:
        """What each column takes of its pool's tightest limit."""
        menu = self._packer.problem.menu
        shares = np.full(len(at), 1e-9)
        for name in self._packer.problem.binding:
            left = [float(max(1, each.get(name, UNLIMITED))) for each in self._packer.problem.limits]
            limits = np.array(left)
            np.maximum(shares, menu.limited[name][at] / limits[menu.pools[at]], out=shares)
        return shares

    def _to_come(self, ask: Ask, axis: int | None, domains: Bools | None) -> Floats:
        weight = self._packer.strategy.foresight
        if domains is not None:
            weight *= max(1, int(domains[:-1].sum())) / max(1, len(domains) - 1)
        return np.asarray(self._packer.waiting * weight)
