"""The board: machines with what is on them, and every count that a constraint looks at.

Machines that are there come first, machines to buy after them; a machine to buy stands on a concrete column of
the menu and may change to another one that holds it. All counts are kept as pods are put and taken, so asking
who has room is a handful of array operations whatever the number of machines. Single figures are read and written
through views of the same arrays, which costs a fraction of indexing them.

Bulk: what happens to many machines of a board at once, in a few array operations.
"""

from __future__ import annotations

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Ints
from dovetail.planner.packing.attachments import attach, attachable, brought, keep_attachable
from dovetail.planner.packing.price_index import Stairs
from dovetail.planner.packing.topology_rules import allow_member, allow_owner, cap_member, cap_owner
from dovetail.planner.problem.compile import UNLIMITED, Problem
from dovetail.planner.problem.request import Ask
from dovetail.planner.problem.topology_counters import Cell
from dovetail.planner.problem.topology_groups import AFFINITY, ANTI, SPREAD

_NOTHING: dict[int, int] = {}


class Board:
    """Mutable. `contents[b]` maps an ask's number to how many of its pods are on machine b.

    Those mappings are replaced, never changed, so that a clone may share them.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.menu = problem.menu
        existing = len(problem.nodes)
        self.existing = existing
        self.size = existing
        room = max(64, existing + 64)
        self.free = np.zeros((len(problem.dims), room), dtype=np.int64)
        self.free[:, :existing] = problem.free
        self.column: Ints = np.full(room, -1, dtype=np.int64)
        self.domains = np.full((len(problem.axes), room), -1, dtype=np.int64)
        for lying, axis in zip(self.domains, problem.axes, strict=True):
            lying[:existing] = axis.nodes
        self.axis_at = {axis.key: index for index, axis in enumerate(problem.axes)}
        hosts = [cell for cell in problem.cells.values() if cell.host]
        self.host_counts = np.zeros((len(hosts), room), dtype=np.int64)
        self.host_owners = np.zeros((len(hosts), room), dtype=np.int64)
        for cell in hosts:
            self.host_counts[cell.slot, :existing] = cell.counts
            self.host_owners[cell.slot, :existing] = cell.owners
        others = [cell for cell in problem.cells.values() if not cell.host]
        self.choosy = any(cell.counted_columns is not None for cell in others)
        """Whether a spread counts pods on some columns only."""
        self.counts: list[list[int]] = [cell.counts.tolist() for cell in others]
        self.owners: list[list[int]] = [cell.owners.tolist() for cell in others]
        self.contents: list[dict[int, int]] = [_NOTHING] * existing
        self.attached = dict(problem.attached)
        """The shared volumes that machines have attached, where there are any."""
        self.asks = problem.asks
        self.left = [dict(each) for each in problem.limits]
        self._watched = [[name for name in each if name in self.menu.limited] for each in self.left]
        self.reserved: dict[str, int] = {}
        self.gone: list[int] = []
        self.stamp = object()
        """Another one whenever a machine is bought, given up or moved."""
        self._look()

    def _look(self) -> None:
        """Views for single figures: of few rows each, of many by row and machine."""
        self._free = [row.data for row in self.free]
        self._lying = [row.data for row in self.domains]
        self._column = self.column.data
        self._members = self.host_counts.data
        self._promised = self.host_owners.data

    def clone(self) -> Board:
        twin = object.__new__(Board)
        twin.problem, twin.menu, twin.existing, twin.size = self.problem, self.menu, self.existing, self.size
        twin.free, twin.column, twin.domains = self.free.copy(), self.column.copy(), self.domains.copy()
        twin.axis_at, twin.choosy = self.axis_at, self.choosy
        twin.host_counts, twin.host_owners = self.host_counts.copy(), self.host_owners.copy()
        twin.counts = [each.copy() for each in self.counts]
        twin.owners = [each.copy() for each in self.owners]
        twin.contents, twin.attached = list(self.contents), dict(self.attached)
        twin.asks = self.asks
        twin.left = [dict(each) for each in self.left]
        twin._watched = self._watched
        twin.reserved, twin.gone, twin.stamp = dict(self.reserved), list(self.gone), self.stamp
        twin._look()
        return twin

    # -- who has room -------------------------------------------------------------------------------------------

    def room(self, ask: Ask, most: int, lenient: bool = False, start: int = 0) -> tuple[Ints, Ints]:
        """The machines from `start` on that could take pods of the ask, and how many each, up to `most`."""
        return self.shares(ask, self.fitting(ask, start), most, lenient)

    def fitting(self, ask: Ask, start: int, lying: Ints | None = None, domains: Bools | None = None) -> Ints:
        """The machines from `start` on that suit the ask and hold a pod of it, whatever hostname rules say.

        `domains` narrows to machines that lie in some domains of an axis (`lying`).
        """
        end = self.size
        ok = self.suitable(ask, start, end)
        if lying is not None and domains is not None:
            ok &= domains[lying[start:end]]
        for dim, amount in ask.steps:
            ok &= self.free[dim, start:end] >= amount
        if ask.shared:
            keep_attachable(self, ask, ok, start)
        bins: Ints = ok.nonzero()[0]
        bins += start
        return bins

    def shares(self, ask: Ask, bins: Ints, most: int, lenient: bool) -> tuple[Ints, Ints]:
        """Of machines that hold a pod of the ask, those that hostname rules let take some, and how many each."""
        self.problem.work += 1
        if not len(bins):
            return bins, bins
        fits = np.full(len(bins), most, dtype=np.int64)
        if most > 1:
            for dim, amount in ask.steps:
                np.minimum(fits, self.free[dim].take(bins) // amount, out=fits)
            if ask.shared:
                fits[:] = [attachable(self, ask, at, fit) for at, fit in zip(bins.tolist(), fits.tolist(), strict=True)]
        for cell in ask.ties.host_owned:
            cap_owner(cell, cell in ask.ties.own, self.host_counts[cell.slot, : self.size], bins, fits)
        for cell in ask.ties.host_members:
            if not (lenient and cell.kind == SPREAD):
                cap_member(cell, self.host_counts[cell.slot], self.host_owners[cell.slot], bins, fits)
        if self.problem.diversity is not None:
            fits[:] = [self.varied(ask, at, fit) for at, fit in zip(bins.tolist(), fits.tolist(), strict=True)]
        if fits.all():
            return bins, fits
        some = fits.nonzero()[0]
        return bins[some], fits[some]

    def holds(self, ask: Ask, at: int, most: int) -> int:
        """How many pods of the ask, up to `most`, a machine that suits it has room for."""
        free = self._free
        if ask.shared:
            most = attachable(self, ask, at, most)
        for dim, amount in ask.steps:
            left = free[dim][at]
            if left < amount * most:
                most = left // amount
                if most <= 0:
                    return 0
        return most

    def cap(self, ask: Ask, at: int, most: int, lenient: bool) -> int:
        """How many of `most` pods hostname rules let onto a machine that they do not bar."""
        for cell in ask.ties.host_owned:
            if cell in ask.ties.own and cell.kind != AFFINITY:
                most = min(most, cell.skew - self._members[cell.slot, at] if cell.kind == SPREAD else 1)
        for cell in ask.ties.host_members:
            if cell.kind == SPREAD and not lenient and self._promised[cell.slot, at]:
                most = min(most, cell.skew - self._members[cell.slot, at])
        return most

    def cramped(self, ask: Ask) -> Bools:
        """The machines that have no room for a pod of the ask, whether or not they suit it."""
        found: Bools = np.zeros(self.size, dtype=np.bool_)
        for dim, amount in ask.steps:
            found |= self.free[dim, : self.size] < amount
        return found

    def suitable(self, ask: Ask, start: int, end: int) -> Bools:
        """Which of some machines, in their order, the ask accepts."""
        first = self.existing
        if end <= first:
            return ask.nodes[start:end].copy()
        standing = self.column[max(first, start) : end]
        bought = ask.columns[standing] & (standing >= 0)
        return bought if start >= first else np.concatenate([ask.nodes[start:first], bought])

    def varied(self, ask: Ask, at: int, most: int) -> int:
        """How many pods of the ask, up to `most`, leave a machine enough types to choose from."""
        diversity = self.problem.diversity
        if diversity is None or at < self.existing:
            return most
        held, load = [self.asks[number] for number in self.contents[at]], self.used(at)
        for dim, more in brought(self, ask, at):
            load[dim] += more
        return diversity.most(int(self.column[at]), [*held, ask], load, ask, most)

    def per_new(self, ask: Ask) -> int:
        """How many pods of the ask one fresh machine may take by hostname rules alone."""
        most = UNLIMITED
        for cell in ask.ties.host_owned:
            mine = cell in ask.ties.own
            if cell.kind == SPREAD and mine:
                most = min(most, cell.skew)
            elif cell.kind == ANTI and mine:
                most = min(most, 1)
            elif cell.kind == AFFINITY:
                somewhere = bool((self.host_counts[cell.slot, : self.size] > 0).any())
                if somewhere or not mine:
                    return 0
        return most

    # -- domains ------------------------------------------------------------------------------------------------

    def allowance(self, ask: Ask, axis: int, lenient: bool = False, but: Cell | None = None) -> list[int]:
        """How many more pods each domain of an axis, and lying nowhere (last), may take by all cells `but` one."""
        allowed = [UNLIMITED] * (len(self.problem.axes[axis].values) + 1)
        for cell in ask.ties.domain_owned:
            if cell.place == axis and cell is not but:
                allow_owner(ask, cell, self.counts[cell.slot], allowed)
        for cell in ask.ties.domain_members:
            if cell.place == axis and cell is not but and not (lenient and cell.kind == SPREAD):
                allow_member(cell, self.counts[cell.slot], self.owners[cell.slot], allowed)
        return allowed

    # -- putting and taking -------------------------------------------------------------------------------------

    def put(self, ask: Ask, bin_: int, count: int) -> None:
        """Put `count` pods of the ask on a machine (a negative count takes them away)."""
        number, held = ask.number, self.contents[bin_]
        total = held.get(number, 0) + count
        self.contents[bin_] = held = {**held, number: total}
        if not total:
            del held[number]
        free, lying, ties = self._free, self._lying, ask.ties
        for dim, amount in ask.steps:
            free[dim][bin_] -= amount * count
        if ask.shared:
            attach(self, bin_)
        for cell in ties.host_members:
            self._members[cell.slot, bin_] += count
        for cell in ties.promised_hosts:
            self._promised[cell.slot, bin_] += count
        for cell in ties.domain_members:
            at = lying[cell.place][bin_]
            if at >= 0 and (cell.everywhere or self.counted(cell, bin_)):
                self.counts[cell.slot][at] += count
        for cell in ties.promised_domains:
            at = lying[cell.place][bin_]
            if at >= 0:
                self.owners[cell.slot][at] += count

    def host_count(self, cell: Cell, bin_: int) -> int:
        return self._members[cell.slot, bin_]

    def domain(self, cell: Cell, bin_: int) -> int:
        return self._lying[cell.place][bin_]

    def counted(self, cell: Cell, bin_: int) -> bool:
        """Whether a cell counts pods on a machine."""
        if bin_ < self.existing:
            return cell.counted_nodes is None or bool(cell.counted_nodes[bin_])
        if cell.counted_columns is None:
            return True
        return bool(cell.counted_columns[self.menu.full[self.column[bin_]]])

    # -- machines to buy ----------------------------------------------------------------------------------------

    def open(self, column: int) -> int:
        """A fresh machine on a column of the menu."""
        reused = bool(self.gone)
        if reused:
            at = self.gone.pop()
        else:
            at = self.size
            if at == self.free.shape[1]:
                self._grow()
            self.size += 1
            self.contents.append(_NOTHING)
        for free, amount in zip(self._free, self.menu.sizes[column], strict=True):
            free[at] = amount
        if reused:
            self.host_counts[:, at] = 0
            self.host_owners[:, at] = 0
        self._charge(column, 1)
        self._stand(at, column)
        return at

    def open_alike(self, column: int, machines: int) -> None:
        """Several fresh machines on a column of the menu, behind all others."""
        first, end = self.size, self.size + machines
        while end > self.free.shape[1]:
            self._grow()
        self.free[:, first:end] = self.menu.capacity[:, column, None]
        self.column[first:end] = column
        for lying, where in zip(self.domains, self.menu.places[column], strict=True):
            lying[first:end] = where
        self.contents += [_NOTHING] * machines
        self.size = end
        self._charge(column, machines)

    def _charge(self, column: int, machines: int) -> None:
        """Count machines on a column against limits and reservations (or no longer)."""
        menu = self.menu
        self.stamp = object()
        pool = menu.pool_at[column]
        for name in self._watched[pool]:
            self.left[pool][name] -= machines * int(menu.limited[name][column])
        reservation = menu.reservations[column]
        if reservation is not None:
            self.reserved[reservation] = self.reserved.get(reservation, 0) + machines

    def _stand(self, at: int, column: int) -> None:
        self._column[at] = column
        for lying, where in zip(self._lying, self.menu.places[column], strict=True):
            lying[at] = where

    def move(self, at: int, column: int) -> bool:
        """Let a machine stand on another column; says whether anything that is limited was given back by it."""
        menu, before = self.menu, self._column[at]
        for free, now, was in zip(self._free, menu.sizes[column], menu.sizes[before], strict=True):
            free[at] += now - was
        self._charge(before, -1)
        self._charge(column, 1)
        self._stand(at, column)
        self.recount(at, before, column)
        if menu.reservations[before] not in (None, menu.reservations[column]):
            return True
        charges = [menu.limited[name] for name in self.problem.binding]
        return any(charge[column] < charge[before] for charge in charges)

    def recount(self, at: int, before: int, column: int) -> None:
        """A machine stands on another column: a spread may count pods there now, or no longer."""
        full = self.menu.full
        for number, count in self.contents[at].items() if self.choosy else ():
            for cell in self.asks[number].ties.domain_members:
                counted, domain = cell.counted_columns, self.domain(cell, at)
                if counted is not None and domain >= 0:
                    self.counts[cell.slot][domain] += count * (int(counted[full[column]]) - int(counted[full[before]]))

    def close(self, at: int) -> None:
        """Give up an empty machine to buy."""
        self._charge(self._column[at], -1)
        self.column[at] = -1
        self.domains[:, at] = -1
        self.free[:, at] = 0
        self.gone.append(at)

    def clear(self, at: int) -> dict[int, int]:
        """Take everything off a machine to buy and give it up; returns what was on it."""
        held = dict(self.contents[at])
        for number, count in held.items():
            self.put(self.asks[number], at, -count)
        self.close(at)
        return held

    def open_to(self, at: int | None = None) -> Bools:
        """The columns that limits and reservations still allow (for a machine that stands at `at`)."""
        menu = self.menu
        ok: Bools = np.ones(menu.size, dtype=np.bool_)
        before = int(self.column[at]) if at is not None else -1
        for name in self.problem.binding:
            limits = np.array([left.get(name, UNLIMITED) for left in self.left], dtype=np.int64)
            if before >= 0 and name in self.left[int(menu.pools[before])]:
                limits[menu.pools[before]] += menu.limited[name][before]
            ok &= menu.limited[name] <= limits[menu.pools]
        for name, most in self.problem.reservations.items():
            held = self.reserved.get(name, 0) - (before >= 0 and menu.reservations[before] == name)
            if held >= most:
                ok[menu.reserved(name)] = False
        return ok

    def _grow(self) -> None:
        more = self.free.shape[1]
        self.free = np.concatenate([self.free, np.zeros((self.free.shape[0], more), dtype=np.int64)], axis=1)
        self.column = np.concatenate([self.column, np.full(more, -1, dtype=np.int64)])
        nowhere = np.full((self.domains.shape[0], more), -1, dtype=np.int64)
        self.domains = np.concatenate([self.domains, nowhere], axis=1)
        blank = np.zeros((self.host_counts.shape[0], more), dtype=np.int64)
        self.host_counts = np.concatenate([self.host_counts, blank], axis=1)
        self.host_owners = np.concatenate([self.host_owners, blank], axis=1)
        self._look()

    # -- sizing -------------------------------------------------------------------------------------------------

    def bought(self) -> list[int]:
        """The machines to buy that stand."""
        first = self.existing
        return [at for at, column in enumerate(self.column[first : self.size].tolist(), first) if column >= 0]

    def changed(self, before: Board) -> list[int]:
        """The machines to buy on which something is other than on the board this one was cloned from."""
        held = before.contents
        return [at for at in self.bought() if at >= before.size or self.contents[at] is not held[at]]

    def standing(self, at: int) -> int:
        """The column that a machine to buy stands on."""
        return self._column[at]

    def lying(self, axis: int, at: int) -> int:
        """The domain of an axis that a machine lies in."""
        return self._lying[axis][at]

    def used(self, at: int) -> list[int]:
        """What the pods on a machine to buy take of it."""
        return [size - free[at] for size, free in zip(self.menu.sizes[self._column[at]], self._free, strict=True)]

    def cost(self) -> float:
        standing = self.column[self.existing : self.size]
        return float(self.menu.prices[standing[standing >= 0]].sum())


#: For fewer machines than this it is quicker one by one.
_SEVERAL = 3


def buy(board: Board, ask: Ask, column: int, machines: int, count: int) -> None:
    """Open machines on a column of the menu, with so many pods of the ask on each of them."""
    if machines < _SEVERAL or board.gone or ask.shared:
        for _ in range(machines):
            board.put(ask, board.open(column), count)
        return
    first = board.size
    board.open_alike(column, machines)
    fresh = slice(first, board.size)
    board.free[:, fresh] -= count * ask.request[:, None]
    for cell in ask.ties.host_members:
        board.host_counts[cell.slot, fresh] = count
    for cell in ask.ties.promised_hosts:
        board.host_owners[cell.slot, fresh] = count
    _count(board, ask, first, machines * count)
    board.contents[fresh] = [{ask.number: count}] * machines


def put_all(board: Board, ask: Ask, bins: Ints, counts: Ints) -> None:
    """Put pods of the ask on machines to buy that lie together; their contents are the caller's to note."""
    board.free[:, bins] -= ask.request[:, None] * counts
    for cell in ask.ties.host_members:
        board.host_counts[cell.slot, bins] += counts
    for cell in ask.ties.promised_hosts:
        board.host_owners[cell.slot, bins] += counts
    _count(board, ask, int(bins[0]), int(counts.sum()))


def move_all(board: Board, machines: Ints, stairs: Stairs) -> None:
    """Let machines to buy stand on the cheapest step of their stairs that holds them, where nothing is limited."""
    capacity, standing = board.menu.capacity, board.column[machines]
    used = capacity[:, standing] - board.free[:, machines]
    best = stairs.firsts(used)
    moving = (best >= 0) & (best != standing)
    machines, best, standing = machines[moving], best[moving], standing[moving]
    board.free[:, machines] += capacity[:, best] - capacity[:, standing]
    if board.choosy:
        for at, before, column in zip(machines.tolist(), standing.tolist(), best.tolist(), strict=True):
            board.recount(at, before, column)
    board.column[machines] = best
    for lying, where in zip(board.domains, board.menu.domains, strict=True):
        lying[machines] = where[best]
    board.stamp = object()


def used_by_all(board: Board) -> list[list[int]]:
    """What the pods on each of the machines to buy take of it."""
    bought = slice(board.existing, board.size)
    used: list[list[int]] = (board.menu.capacity[:, board.column[bought]] - board.free[:, bought]).T.tolist()
    return used


def _count(board: Board, ask: Ask, at: int, total: int) -> None:
    """Count pods where a machine lies."""
    for cell in ask.ties.domain_members:
        domain = board.domain(cell, at)
        if domain >= 0 and board.counted(cell, at):
            board.counts[cell.slot][domain] += total
    for cell in ask.ties.promised_domains:
        domain = board.domain(cell, at)
        if domain >= 0:
            board.owners[cell.slot][domain] += total
