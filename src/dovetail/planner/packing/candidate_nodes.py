"""Standing: which machines may still take a pod of a kind, as bits of an integer, bit b for machine b.

While a packing grows, room only shrinks and hostname counts only rise. So a machine that was too full for a size of
pod, or closed to it by a hostname rule, stays so; what was found once is kept, and most machines are never looked at
again. Whatever else happens to a board, all of it is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Ints
from dovetail.planner.packing.state import Board, buy
from dovetail.planner.problem.request import Ask, Stance
from dovetail.planner.problem.topology_counters import Cell
from dovetail.planner.problem.topology_groups import ANTI, SPREAD

if TYPE_CHECKING:
    from dovetail.planner.packing.packer import Packer


#: After so many machines that turn out to be full for a size of pod, all are asked again at once.
_STALE = 8


class _Hosts:
    """A hostname cell over all machines: where it counts some, as many as its skew, more, and where it is promised."""

    __slots__ = ("full", "over", "promised", "some")

    def __init__(self, counts: Ints, owners: Ints, skew: int) -> None:
        self.some = bits(counts > 0)
        self.full = bits(counts >= skew) if skew > 0 else -1
        self.over = bits(counts > skew)
        self.promised = bits(owners > 0)


class _Seen:
    """Machines that a question was answered with yes for, of as many as there were when it was last asked."""

    __slots__ = ("size", "yes")

    def __init__(self) -> None:
        self.yes = 0
        self.size = 0

    def extend(self, end: int, yes: bool) -> None:
        """Answer for the next machines, which are all alike."""
        if yes:
            self.yes |= (1 << end) - (1 << self.size)
        self.size = end

    def answer(self, at: int, yes: bool) -> None:
        """Answer anew for a machine that is another now."""
        if at < self.size:
            self.yes = self.yes | 1 << at if yes else self.yes & ~(1 << at)


class Standing:
    """Answers for one packer about the board it has."""

    def __init__(self) -> None:
        self._suiting: dict[Stance, _Seen] = {}
        self._lying: dict[int, tuple[_Seen, int, Bools]] = {}
        self._both: dict[tuple[Stance, int], tuple[int, int]] = {}
        """Machines that suit and lie in some domains, of as many as there were."""
        self._full: dict[int, int] = {}
        self._hosts: dict[int, _Hosts] = {}
        self._runs: dict[int, tuple[int, int]] = {}
        """Machines bought together: from the first to the end, and the column that all of them stand on."""

    def forget(self) -> None:
        """Something other than putting pods and opening machines has happened."""
        self._suiting.clear()
        self._lying.clear()
        self._both.clear()
        self._full.clear()
        self._hosts.clear()
        self._runs.clear()

    def moved(self, board: Board, at: int) -> None:
        """A machine to buy stands on another column, perhaps in domains that did not matter to anybody on it."""
        bit, column = 1 << at, board.column[at]
        self._runs.clear()
        self._both.clear()
        self._full = {size: full & ~bit for size, full in self._full.items()}
        for stance, seen in self._suiting.items():
            seen.answer(at, bool(stance.columns[column]))
        for seen, axis, domains in self._lying.values():
            seen.answer(at, bool(domains[board.lying(axis, at)]))

    def fill(self, packer: Packer, ask: Ask, count: int, axis: int | None, domains: Bools | None) -> int:
        """Put up to `count` pods of the ask on machines that stand, in their order; returns how many."""
        board, problem, size, ruled = packer.board, packer.problem, id(ask.steps), ask.ties.ruled
        full = self._full.get(size)
        if full is None:
            full = self._full[size] = bits(board.cramped(ask))
        left = self.lying(packer, ask, axis, domains) & ~full
        if ruled and left:
            left &= ~self._barred(board, ask, packer.lenient)
        if not left:
            return 0
        problem.work += 1
        got = missed = 0
        while left:
            lowest = left & -left
            at = lowest.bit_length() - 1
            take = board.holds(ask, at, count - got)
            if not take:
                left ^= lowest
                if ask.shared:  # it will have room once somebody else has brought the volumes
                    continue
                full |= lowest
                missed += 1
                if missed == _STALE:
                    full = bits(board.cramped(ask))
                    left &= ~full
                continue
            if take > 1 and ruled:
                take = board.cap(ask, at, take, packer.lenient)
            if problem.diversity is not None:
                take = board.varied(ask, at, take)
            if take:
                board.put(ask, at, take)
                if ruled:
                    self._close(board, ask, at, lowest)
                got += take
                if got == count:
                    break
            left ^= lowest
        if missed:
            self._full[size] = full
        return got

    def lying(self, packer: Packer, ask: Ask, axis: int | None, domains: Bools | None) -> int:
        """The machines that pods of the ask accept, in the domains that they must lie in."""
        known = self._both.get((ask.stance, id(domains)))
        if known is None or known[0] != packer.board.size:
            known = self._look(packer.board, ask, axis, domains)
        left = known[1]
        if packer.extra:
            for other, chosen in packer.extra:
                left &= self._within(packer.board, other, chosen)
        return left

    def _look(self, board: Board, ask: Ask, axis: int | None, domains: Bools | None) -> tuple[int, int]:
        within = self._within(board, axis, domains) if axis is not None and domains is not None else -1
        found = self._both[ask.stance, id(domains)] = (board.size, self._suits(board, ask) & within)
        return found

    def _suits(self, board: Board, ask: Ask) -> int:
        """The machines that pods of the ask accept."""
        seen = self._suiting.get(ask.stance)
        if seen is None:
            seen = self._suiting[ask.stance] = _Seen()
        while (run := self._runs.get(seen.size)) is not None:
            seen.extend(run[0], bool(ask.columns[run[1]]))
        if seen.size < board.size:
            seen.yes |= bits(board.suitable(ask, seen.size, board.size)) << seen.size
            seen.size = board.size
        return seen.yes

    def _within(self, board: Board, axis: int, domains: Bools) -> int:
        """The machines that lie in some domains; a mask is of one axis, and kept so that its id stays its own."""
        known = self._lying.get(id(domains))
        if known is None:
            known = self._lying[id(domains)] = (_Seen(), axis, domains)
        seen = known[0]
        while (run := self._runs.get(seen.size)) is not None:
            seen.extend(run[0], bool(domains[board.menu.places[run[1]][axis]]))
        if seen.size < board.size:
            seen.yes |= bits(domains[board.domains[axis, seen.size : board.size]]) << seen.size
            seen.size = board.size
        return seen.yes

    def _barred(self, board: Board, ask: Ask, lenient: bool) -> int:
        """The machines that hostname rules close to the ask."""
        barred, hosts, ties = 0, self._hosts, ask.ties
        for cell in ties.host_owned:
            known = hosts.get(cell.slot) or self._known(board, cell)
            if cell.kind == SPREAD:
                barred |= known.full if cell in ties.own else known.over
            elif cell.kind == ANTI:
                barred |= known.some
            elif known.some or cell not in ties.own:
                barred |= ~known.some
        for cell in ties.host_members:
            if cell.kind == ANTI:
                barred |= (hosts.get(cell.slot) or self._known(board, cell)).promised
            elif cell.kind == SPREAD and not lenient:
                known = hosts.get(cell.slot) or self._known(board, cell)
                barred |= known.promised & known.full
        return barred

    def _known(self, board: Board, cell: Cell) -> _Hosts:
        known = self._hosts.get(cell.slot)
        if known is None:
            counts, owners = board.host_counts[cell.slot, : board.size], board.host_owners[cell.slot, : board.size]
            known = self._hosts[cell.slot] = _Hosts(counts, owners, cell.skew)
        return known

    def put(self, board: Board, ask: Ask, at: int, count: int) -> None:
        """Put pods of the ask on a machine, and note what that closes."""
        board.put(ask, at, count)
        self._close(board, ask, at, 1 << at)

    def buy(self, board: Board, ask: Ask, column: int, machines: int, count: int) -> None:
        """Open machines with so many pods of the ask on each, and note what that closes."""
        first, again = board.size, bool(board.gone)
        buy(board, ask, column, machines, count)
        if again:  # some of them stand where others stood before
            self.forget()
            return
        self._runs[first] = (board.size, column)
        self._close(board, ask, first, (1 << machines) - 1 << first)

    def _close(self, board: Board, ask: Ask, at: int, bits: int) -> None:
        """Note what pods of the ask close on some machines that have as many of them as one of these has."""
        hosts, ties = self._hosts, ask.ties
        for cell in ties.host_members:
            known = hosts.get(cell.slot)
            if known is not None and not known.over & bits:
                known.some |= bits
                over = board.host_count(cell, at) - cell.skew
                if over >= 0:
                    known.full |= bits
                    if over:
                        known.over |= bits
        for cell in ties.promised_hosts:
            known = hosts.get(cell.slot)
            if known is not None:
                known.promised |= bits

    def nobody(self, board: Board, cell: Cell) -> bool:
        """Whether a hostname cell counts no pod on any machine."""
        return not self._known(board, cell).some


def bits(chosen: Bools) -> int:
    """The places of an array that are true, as an integer."""
    return int.from_bytes(np.packbits(chosen, bitorder="little").tobytes(), "little")
