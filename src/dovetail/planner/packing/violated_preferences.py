"""Preferences that a packing violates, counted where its pods have ended up.

A preference counts as kept if it holds in the end, whether or not it was relaxed on the way: preferred node affinity,
soft (anti-)affinity and spreads, and staying off PreferNoSchedule taints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dovetail.model.labels import ZONE
from dovetail.planner.packing.state import Board
from dovetail.planner.problem.pod_classes import PodClass
from dovetail.planner.problem.preferences import Wishes
from dovetail.planner.problem.topology_counters import Cell
from dovetail.planner.problem.topology_groups import ANTI, SPREAD

#: Wishes that are not kept: of which class, how many of each pod, and of how many pods.
Lapse = tuple[int, int, int]


def total(lapses: Iterable[Lapse]) -> int:
    return sum([failing * count for _, failing, count in lapses])


def unkept(board: Board) -> int:
    """How many wishes do not hold on a board."""
    return total(lapses_on(board))


def lapses_on(board: Board) -> list[Lapse]:
    """The wishes that do not hold on a board, by class and machine."""
    asks, contents = board.asks, board.contents
    return [
        (asks[number].cls.index, failing, contents[at][number]) for at, number, failing in failing_on(board) if failing
    ]


def failing_on(board: Board) -> Iterator[tuple[int, int, int]]:
    """How many wishes fail for each pod of an ask on a machine: machine, number of the ask, and wishes."""
    known: Mapping[int, Wishes] = board.problem.wishes
    if not known:
        return
    counts, least = _over_domains(board)
    for at in range(board.size):
        for number in board.contents[at]:
            one = board.asks[number].cls
            wishes = known.get(one.index)
            if wishes is not None:
                failing = int(wishes.nodes[at] if at < board.existing else wishes.columns[board.column[at]])
                yield at, number, failing + sum(not _kept(board, cell, one, at, counts, least) for cell in wishes.cells)


def held_by(board: Board) -> dict[int, set[tuple[str, str]]]:
    """The wishes about other pods that hold where machines to buy stand: of which kind, and over which label."""
    known: Mapping[int, Wishes] = board.problem.wishes
    counts, least = _over_domains(board)
    found: dict[int, set[tuple[str, str]]] = {}
    for at in board.bought() if counts else ():
        for one in {board.asks[number].cls for number in board.contents[at]}:
            for cell in known[one.index].cells if one.index in known else ():
                if not cell.host and _kept(board, cell, one, at, counts, least):
                    found.setdefault(at, set()).add((cell.kind, cell.group.key))
    return found


def _over_domains(board: Board) -> tuple[dict[int, Sequence[int]], dict[int, int]]:
    """What cells count that somebody has a wish about, in each domain, and the least that soft spreads see."""
    known: Mapping[int, Wishes] = board.problem.wishes
    cells = {cell.index: cell for wishes in known.values() for cell in wishes.cells if not cell.host}
    counts: dict[int, Sequence[int]] = {index: _counts(board, cell) for index, cell in cells.items()}
    least = {index: _lowest(board, cell, counts[index]) for index, cell in cells.items() if cell.kind == SPREAD}
    return counts, least


def _counts(board: Board, cell: Cell) -> list[int]:
    """The pods in each domain that a cell selects, with those whom it does not count while they are placed."""
    counts = board.counts[cell.slot]
    if cell.group not in board.problem.uncounted:
        return counts
    counts = list(counts)
    for at, contents in enumerate(board.contents):
        domain = board.domain(cell, at)
        for number, count in contents.items() if domain >= 0 and board.counted(cell, at) else ():
            ask = board.asks[number]
            if cell.group in ask.cls.members and cell not in ask.ties.domain_members:
                counts[domain] += count
    return counts


def _lowest(board: Board, cell: Cell, counts: Sequence[int]) -> int:
    """The smallest count that a soft spread sees: over all zones there could be, and other domains that it sees."""
    used = _used(board, cell) if cell.group.key != ZONE else cell.among
    return min((counts[at] for at in cell.among if at in used), default=0)


def _used(board: Board, cell: Cell) -> frozenset[int]:
    """The domains of the machines that a spread looks at."""
    bought = board.domains[cell.place][board.existing : board.size]
    if cell.counted_columns is not None:
        bought = bought[cell.counted_columns[board.menu.full[board.column[board.existing : board.size]]]]
    return cell.there.union(bought.tolist())


def _kept(
    board: Board, cell: Cell, one: PodClass, at: int, counts: Mapping[int, Sequence[int]], least: Mapping[int, int]
) -> bool:
    domain = at if cell.host else board.domain(cell, at)
    if domain < 0:
        return cell.kind == ANTI
    here = board.host_count(cell, at) if cell.host else counts[cell.index][domain]
    if cell.kind == SPREAD:
        return here - least.get(cell.index, 0) <= cell.skew
    others = here - (cell.group in one.members)
    return others <= 0 if cell.kind == ANTI else others > 0
