"""The packer: puts classes on the board in bulk. Existing machines first, then new ones toward a cheap target.

The target is the column on which the demand still waiting would cost least if nothing else could be bought. A
spread is served by water-filling, a hostname rule by a cap per machine; a machine is only as concrete as the
column it stands on, and is sized down at the end.

Ways: what pods with the same ties look at on one topology key, worked out once for all of them.

Water-filling: pods poured over domains rise evenly, the lowest first, to a top that no domain may pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Floats, Ints
from dovetail.planner.packing.candidate_nodes import Standing
from dovetail.planner.packing.offering_choice import Targets
from dovetail.planner.packing.resize import Growth
from dovetail.planner.packing.state import Board
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.problem.compile import UNLIMITED, Problem
from dovetail.planner.problem.request import Ask, Ties
from dovetail.planner.problem.topology_counters import Cell
from dovetail.planner.problem.topology_groups import AFFINITY, ANTI, SPREAD

#: Of machines for pods that want one each so many are bought in one place, then as many in the next.
_TOGETHER = 16


class _Domains(dict[int, Bools]):
    """Each domain of an axis as a mask of all of them, and of lying nowhere (last); made when it is asked for."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __missing__(self, domain: int) -> Bools:
        only = self[domain] = np.zeros(self._size, dtype=np.bool_)
        only[domain] = True
        return only


class Packer:
    """One packing in the making."""

    def __init__(self, problem: Problem, strategy: Strategy, board: Board | None = None) -> None:
        self.problem = problem
        self.strategy = strategy
        self.board = board or Board(problem)
        self.lenient = False
        self.budget = UNLIMITED
        """Machines that may still be opened."""
        self.waiting: Floats = np.zeros(len(problem.dims))
        self.rivals = 0
        """Pods still to come that will not share a machine with those being placed."""
        self.extra: list[tuple[int, Bools]] = []
        """Domains of further topology keys that a pod must lie in."""
        self.targets = Targets(problem)
        self.standing = Standing()
        self.growth = Growth()
        self._turn = 0
        self._only = [_Domains(len(axis.values) + 1) for axis in problem.axes]
        self._masks: dict[tuple[int, ...], Bools] = {}
        self._ways: dict[Ties, list[Way]] = {}

    # -- placing ------------------------------------------------------------------------------------------------

    def place(self, ask: Ask, count: int) -> int:
        """Put up to `count` pods of the ask somewhere; returns how many found a place."""
        ways = self._ways.get(ask.ties)
        if ways is None:
            ways = self._ways[ask.ties] = [Way(ask.ties, axis, self.strategy) for axis in ask.ties.axes]
        if len(ways) != 1:
            return self._on_axes(ask, count, ways) if ways else self._fill(ask, count, None, None)
        way = ways[0]
        if count == 1 and way.simple is not None:
            return self._lowest(ask, way, way.simple)
        return self._on_axis(ask, count, way)

    def place_at(self, ask: Ask, count: int, where: tuple[int, ...]) -> int:
        """Put up to `count` pods of the ask in one domain of each axis (-1: any), where it is known to be allowed."""
        chosen = [(axis, self._only[axis][domain]) for axis, domain in enumerate(where) if domain >= 0]
        if not chosen:
            return self._fill(ask, count, None, None)
        self.extra = chosen[1:]
        try:
            return self._fill(ask, count, *chosen[0])
        finally:
            self.extra = []

    def _on_axis(self, ask: Ask, count: int, way: Way) -> int:
        settle, slack = self.strategy.settle, self.strategy.slack
        done = self._settled(ask, count, way) if settle else 0
        blocked: set[int] = set()
        while done < count:
            wanted = 1 if settle else count - done
            level = way.balance is not None and not slack and not (way.settling and self._first_of_its_kind(way))
            got = self._level(ask, wanted, way, blocked) if level else 0
            if not got and not (level and way.own):
                got = self._anywhere(ask, wanted, way, blocked)
            if got and settle:
                got += self._settled(ask, count - done - got, way)
            if not got:
                break
            done += got
        return done

    def _lowest(self, ask: Ask, way: Way, cell: Cell) -> int:
        """Put one pod where the only group that has a say counts fewest."""
        domain = lowest(self.board.counts[cell.slot], cell.among)
        got = self._fill(ask, 1, way.axis, self._only[way.axis][domain])
        return got if got or way.own else self._anywhere(ask, 1, way, {domain})

    def _settled(self, ask: Ask, count: int, way: Way) -> int:
        """Fill machines that stand, domain by domain, as far as every rule allows; none is opened."""
        done, axis = 0, way.axis
        while done < count and not self._first_of_its_kind(way):
            allowed = self.board.allowance(ask, axis, self.lenient)
            domains = self._turned([at for at, most in enumerate(allowed[:-1]) if most > 0])
            tries = (self._into(ask, min(count - done, allowed[at]), axis, self._only[axis][at]) for at in domains)
            got = next((each for each in tries if each), 0)
            if not got:
                break
            done += got
        return done

    def _into(self, ask: Ask, count: int, axis: int, domains: Bools) -> int:
        got = self._into_standing(ask, count, axis, domains)
        return got or (self._enlarge(ask, count, axis, domains) if self.strategy.grow else 0)

    def _level(self, ask: Ask, count: int, way: Way, blocked: set[int]) -> int:
        """Fill domains evenly, lowest first, as far as the skew lets them rise."""
        cell, axis = way.balance, way.axis
        assert cell is not None
        counts, universe = self.board.counts[cell.slot], cell.among
        others = self.board.allowance(ask, axis, self.lenient, cell) if way.bound else None
        usable = universe
        if others is not None or blocked:
            usable = [at for at in universe if (others is None or others[at] > 0) and at not in blocked]
        if not usable:
            return 0
        usable = self._turned(usable) if self.strategy.turn else usable
        skew = cell.skew
        top = skew if len(universe) < cell.group.min_domains else UNLIMITED
        if len(usable) < len(universe) and cell.kind == SPREAD:
            top = min(top, skew + min(counts[at] for at in universe if at not in usable))
        if count > 1 and not self._sure(ask, axis, usable):
            least = min([counts[at] for at in usable])
            count = min(count, [counts[at] for at in usable].count(least))
        got = 0
        for domain, quota in quotas(counts, usable, count, top).items():
            wanted = quota if others is None else min(quota, others[domain])
            served = self._fill(ask, wanted, axis, self._only[axis][domain])
            got += served
            if served < wanted:
                blocked.add(domain)
        return got

    def _sure(self, ask: Ask, axis: int, usable: list[int]) -> bool:
        """Whether every domain can be filled as high as wanted; else the water rises one level at a time."""
        if self.problem.binding or self.problem.reservations or self.board.per_new(ask) == 0:
            return False
        if any(cell.kind == AFFINITY for cell in ask.ties.host_owned):
            return False
        return self.targets.domains(self, ask, axis).issuperset(usable)

    def _turned(self, domains: list[int]) -> list[int]:
        turn = self.strategy.turn % len(domains) if domains else 0
        return domains[turn:] + domains[:turn]

    def _chosen(self, axis: int, domains: list[int]) -> Bools:
        """Some domains of an axis as a mask."""
        if len(domains) == 1:
            return self._only[axis][domains[0]]
        chosen = self._masks.get((axis, *domains))
        if chosen is None:
            chosen = self._masks[axis, *domains] = np.zeros(len(self.problem.axes[axis].values) + 1, dtype=np.bool_)
            chosen[domains] = True
        return chosen

    def _anywhere(self, ask: Ask, count: int, way: Way, blocked: set[int]) -> int:
        axis = way.axis
        allowed = self.board.allowance(ask, axis, self.lenient)
        for domain in blocked:
            allowed[domain] = 0
        if self._first_of_its_kind(way):
            return self._found(ask, count, axis, allowed)
        nowhere = len(allowed) - 1
        free = [at for at, most in enumerate(allowed) if most >= count]
        if free:
            got = self._fill(ask, count, axis, self._chosen(axis, free))
            if got:
                return got
            blocked.update(at for at in free if at < nowhere)
        for domain in self._turned([at for at, most in enumerate(allowed) if 0 < most < count]):
            got = self._fill(ask, allowed[domain], axis, self._only[axis][domain])
            if got:
                return got
            if domain < nowhere:
                blocked.add(domain)
        return 0

    def _first_of_its_kind(self, way: Way) -> bool:
        """An affinity to its own kind, of which there is none yet: the first pod settles the domain."""
        return bool(way.settling) and any(not any(self.board.counts[cell.slot]) for cell in way.settling)

    def _found(self, ask: Ask, count: int, axis: int, allowed: list[int]) -> int:
        """Try domains in turn; keep the first that takes everybody, else the one that takes most."""
        best, best_got = -1, 0
        candidates = self._turned([at for at, most in enumerate(allowed[:-1]) if most > 0])
        if candidates and min(allowed[candidates[0]], self.budget) >= count and self._sure(ask, axis, candidates[:1]):
            candidates = candidates[:1]
        before = self.board
        for domain in candidates:
            self.board = before.clone() if len(candidates) > 1 else before
            got = self._fill(ask, min(count, allowed[domain]), axis, self._only[axis][domain])
            if got == count:
                return got
            self._forget()
            if got > best_got:
                best, best_got = domain, got
        if best < 0 or len(candidates) == 1:
            return best_got
        self.board = before
        return self._fill(ask, min(count, allowed[best]), axis, self._only[axis][best])

    def _on_axes(self, ask: Ask, count: int, ways: list[Way]) -> int:
        """Several topology keys at once: pod by pod, lowest counts first."""
        done = 0
        while done < count:
            settled = self.strategy.settle and self._settled_on_axes(ask, ways)
            if not settled and not self._one_on_axes(ask, ways):
                break
            done += 1
        return done

    def _settled_on_axes(self, ask: Ask, ways: list[Way]) -> bool:
        """Put one pod onto a machine that stands wherever every rule allows it; none is opened."""
        if any(self._first_of_its_kind(way) for way in ways):
            return False
        chosen: list[tuple[int, Bools]] = []
        for way in ways:
            allowed = self.board.allowance(ask, way.axis, self.lenient)
            chosen.append((way.axis, self._chosen(way.axis, [at for at, most in enumerate(allowed) if most > 0])))
        self.extra = chosen[1:]
        try:
            return self._into(ask, 1, *chosen[0]) > 0
        finally:
            self.extra = []

    def _one_on_axes(self, ask: Ask, ways: list[Way]) -> bool:
        options: list[tuple[int, tuple[int, ...]]] = [(0, ())]
        for way in ways:
            allowed = self.board.allowance(ask, way.axis, self.lenient)
            heights = self._heights(ask, way)
            domains = self._turned([at for at, most in enumerate(allowed) if most > 0])
            options = [(h + int(heights[at]), (*path, at)) for h, path in options for at in domains]
            options = sorted(options, key=lambda option: option[0])[:512]
        for _, path in options:
            where = dict(zip(ask.ties.axes, path, strict=True))
            if self.place_at(ask, 1, tuple(where.get(axis, -1) for axis in range(len(self.problem.axes)))):
                return True
        return False

    def _heights(self, ask: Ask, way: Way) -> Ints:
        """How many pods count in each domain, for the spreads of the ask and the one that it is levelled for."""
        heights = np.zeros(len(self.problem.axes[way.axis].values) + 1, dtype=np.int64)
        cells = [cell for cell in ask.ties.domain_owned if cell.place == way.axis and cell.kind == SPREAD]
        for cell in (*cells, *([way.balance] if way.balance is not None and not way.own else ())):
            heights[:-1] += np.array(self.board.counts[cell.slot], dtype=np.int64)
        return heights

    # -- filling ------------------------------------------------------------------------------------------------

    def _fill(self, ask: Ask, count: int, axis: int | None, domains: Bools | None) -> int:
        """Fill machines that stand, then open new ones, then enlarge, within the domains."""
        if ask.ties.companions:
            got = self._into_standing(ask, count, axis, domains)
        else:
            got = self.standing.fill(self, ask, count, axis, domains)
        if got == count:
            return got
        grow = self.strategy.grow
        if grow:
            got += self._enlarge(ask, count - got, axis, domains)
        opened = self._open(ask, count - got, axis, domains) if got < count else 0
        got += opened
        if got < count and (opened or not grow):
            got += self._enlarge(ask, count - got, axis, domains)
        return got

    def _into_standing(self, ask: Ask, count: int, axis: int | None, domains: Bools | None) -> int:
        """Fill machines that stand, in their order."""
        if ask.ties.companions and self._alone(ask):
            return self._onto_one(ask, count, self.board.domains[axis] if axis is not None else None, domains)
        return self.standing.fill(self, ask, count, axis, domains)

    def _onto_one(self, ask: Ask, count: int, lying: Ints | None, domains: Bools | None) -> int:
        """Put as many as go onto the machine that takes most."""
        if self.strategy.lavish and not self._room_for_all(ask):
            return 0
        bins = self._inside(self.board.fitting(ask, 0, lying, domains))
        bins, room = self.board.shares(ask, bins, count, self.lenient)
        if not len(bins):
            return 0
        best = int(room.argmax())
        self.standing.put(self.board, ask, int(bins[best]), int(room[best]))
        return int(room[best])

    def _inside(self, bins: Ints) -> Ints:
        for other, chosen in self.extra:
            bins = bins[chosen[self.board.domains[other][bins]]]
        return bins

    def _room_for_all(self, ask: Ask) -> bool:
        """Whether a standing machine holds the whole class; else one of its own may take more of it."""
        need = ask.request[:, None] * ask.cls.count
        return bool((self.board.free[:, : self.board.size] >= need).all(axis=0).any())

    def _alone(self, ask: Ask) -> bool:
        """A hostname affinity to its own kind, of which there is none yet: all go to one machine."""
        return any(self.standing.nobody(self.board, cell) for cell in ask.ties.companions)

    def _open(self, ask: Ask, count: int, axis: int | None, domains: Bools | None) -> int:
        per = self.board.per_new(ask)
        got = 0
        while got < count and per > 0 and self.budget > 0:
            chosen = self.targets.best(self, ask, count - got, per, axis, domains)
            if chosen is None:
                break
            column, fits = chosen
            alone = self._alone(ask)
            watched = self.problem.binding or self.problem.reservations
            machines = 1 if watched else max(1, (count - got) // fits)
            if self.board.gone:
                self._forget()
            machines, take = 1 if alone else min(machines, self.budget), min(fits, count - got)
            if axis is None and ask.ties.refused and not watched:
                twins = self.targets.twins(ask, column)
                column, machines = twins[self._turn % len(twins)], min(machines, _TOGETHER)
                self._turn += 1
            self.standing.buy(self.board, ask, column, machines, take)
            self.budget -= machines
            got += machines * take
            if alone:
                got += self._into_standing(ask, count - got, axis, domains) if got < count else 0
                break
        return got

    def _forget(self) -> None:
        self.standing.forget()
        self.growth.forget()

    # -- enlarging ----------------------------------------------------------------------------------------------

    def _enlarge(self, ask: Ask, count: int, axis: int | None, domains: Bools | None) -> int:
        """Let machines to buy stand on larger columns to take more pods, least extra price first."""
        got = 0
        while got < count:
            found = self.growth.best(self, ask, axis, domains) if self.board.size > self.board.existing else None
            if found is None:
                break
            at, column = found
            if self.board.move(at, column):
                self.growth.forget()
            self.standing.moved(self.board, at)
            self.standing.put(self.board, ask, at, 1)
            got += 1
        return got


class Way:
    """The spread that pods fill up on an axis, if there is one, whether it is their own, and what else is asked."""

    __slots__ = ("axis", "balance", "bound", "own", "settling", "simple")

    def __init__(self, ties: Ties, axis: int, strategy: Strategy) -> None:
        owned, counting, self.settling = ties.domain_owned, ties.domain_members, ties.settling
        if len(ties.axes) > 1:
            owned, counting, self.settling = (
                [cell for cell in cells if cell.place == axis] for cells in (owned, counting, self.settling)
            )
        counting = [cell for cell in counting if cell not in owned]
        self.axis = axis
        self.balance = next((cell for cell in owned if cell.kind == SPREAD and cell in ties.own), None)
        self.own = self.balance is not None
        if not self.own and strategy.level:
            self.balance = _widest(counting)
        self.bound = len(owned) + len(counting) > (self.balance is not None)
        """Whether any group beside that spread has a say."""
        open_ended = self.balance is not None and self.balance.among and self.balance.open_ended
        plain = not (strategy.settle or strategy.slack or strategy.turn)
        self.simple = self.balance if plain and open_ended and not self.bound else None
        """That spread, if nothing but it says where the next pod goes: where there are fewest."""


def _widest(counting: list[Cell]) -> Cell | None:
    """Where pods are to be levelled and have no spread of their own: the widest that counts them."""
    widest: Cell | None = None
    for cell in counting:
        if cell.kind != ANTI and (widest is None or _width(cell) > _width(widest)):
            widest = cell
    return widest


def _width(cell: Cell) -> tuple[int, int]:
    return (len(cell.among), -cell.skew)


def lowest(counts: Sequence[int], domains: Sequence[int]) -> int:
    """The domain with the smallest count; of equal ones the one named first."""
    found = domains[0]
    for at in domains:
        if counts[at] < counts[found]:
            found = at
    return found


def quotas(counts: Sequence[int], domains: Sequence[int], count: int, top: int) -> dict[int, int]:
    """How many of `count` pods each of some domains gets; of equal ones those named first are served first."""
    if count == 1:
        at = lowest(counts, domains)
        return {at: 1} if counts[at] < top else {}
    rising = sorted(domains, key=counts.__getitem__)
    while rising and counts[rising[-1]] >= top:
        rising.pop()
    reached = below = 0
    for at in rising:
        if counts[at] * reached - below >= count:
            break
        reached += 1
        below += counts[at]
    if not reached:
        return {}
    level, over = divmod(count + below, reached)
    if level >= top:
        level, over = top, 0
    found: dict[int, int] = {}
    for place, at in enumerate(rising[:reached]):
        more = level + (place < over) - counts[at]
        if more:
            found[at] = more
    return found
