"""Wishes: what pods would like and can do without, counted where everybody has ended up.

A wish counts as kept if it holds in the end, whether or not it was given up on the way: preferred node affinity, soft
(anti-)affinity and spreads, and staying off PreferNoSchedule taints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from dovetail.model.labels import ZONE
from dovetail.model.nodes import Taint
from dovetail.model.taints import PREFER_NO_SCHEDULE
from dovetail.planner.cells import Cell
from dovetail.planner.columns import Bools, Ints
from dovetail.planner.groups import ANTI, SPREAD
from dovetail.planner.menu import as_bools
from dovetail.planner.tolerance import bears
from dovetail.planner.yardstick import Lapse, total

if TYPE_CHECKING:
    from dovetail.planner.board import Board
    from dovetail.planner.classes import PodClass
    from dovetail.planner.problem import Problem


#: The share of the price that is paid for a wish; and for one that the yardstick keeps and a packing does not.
_WORTH, _DUE = 0.004, 0.25
#: What a dollar counts that is paid beyond the yardstick's price.
_BEYOND = 50.0


class Wishes(msgspec.Struct, frozen=True):
    """What a pod of a class wishes: how many wishes fail on each column and each machine that is there, and cells."""

    columns: Ints
    nodes: Ints
    cells: tuple[Cell, ...]


def wishes_of(problem: Problem) -> dict[int, Wishes]:
    """The wishes of every class that has some."""
    disliked = {_soft(each) for each in _tainted(problem)} - {()}
    soft = {kind for kind in problem.kinds if disliked or kind.levels[0].soft}
    return {
        one.index: _wishes(problem, one, disliked)
        for one in problem.classes
        if (one.shape.preferred or one.kind in soft) and not one.error
    }


def _tainted(problem: Problem) -> set[tuple[Taint, ...]]:
    return {pool.taints for pool in problem.pools} | problem.tainted


def _wishes(problem: Problem, one: PodClass, disliked: set[tuple[Taint, ...]]) -> Wishes:
    columns: Ints = np.zeros(problem.menu.size, dtype=np.int64)
    nodes: Ints = np.zeros(len(problem.nodes), dtype=np.int64)
    for _, term in one.shape.preferred:
        columns += ~as_bools(problem.columns, problem.menu, problem.columns.term(term))
        nodes += ~problem.passing((term,))
    unborne = {each for each in disliked if not bears(one.shape.tolerations, each, prefer=False)}
    if unborne:
        soft = [_soft(pool.taints) in unborne for pool in problem.pools]
        columns += np.array(soft, dtype=np.int64)[problem.menu.pools]
        nodes += np.array([_soft(each) in unborne for each in problem.taints], dtype=np.int64)[problem.taint_at]
    return Wishes(columns, nodes, tuple(problem.cells[group] for group in one.levels[0].soft))


def _soft(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    return tuple(taint for taint in taints if taint.effect == PREFER_NO_SCHEDULE)


def welcome(problem: Problem) -> dict[int, Bools]:
    """The columns on which most wishes about machines hold, for classes whose ladder does not lead there by itself.

    On each rung only the heaviest wish that is left counts, so a class with several may miss those beside it.
    """
    found: dict[int, Bools] = {}
    for index, wishes in problem.wishes.items():
        rungs = problem.rungs(problem.classes[index])
        first = next((ask.columns for ask in rungs if ask.columns.any()), None)
        if first is not None:
            least = wishes.columns[rungs[-1].columns].min()
            if (wishes.columns[first] > least).any():
                found[index] = wishes.columns <= least
    return found


def weighed(problem: Problem, price: float, lapses: Sequence[Lapse], left: Mapping[int, int]) -> float:
    """A price with what wishes are worth that are not kept, and no wish is worth more than the yardstick costs."""
    yardstick, missed = problem.yardstick, total(lapses)
    if yardstick is None:
        return price * (1 + _WORTH * missed)
    most = yardstick.price(left)
    beyond = max(0.0, price - most) if most is not None else 0.0
    return price * (1 + _WORTH * missed + _DUE * max(0, yardstick.excess(lapses, left))) + _BEYOND * beyond


def unkept(board: Board) -> int:
    """How many wishes do not hold on a board."""
    return total(lapses_on(board))


def lapses_on(board: Board) -> list[Lapse]:
    """The wishes that do not hold on a board, by class and machine."""
    asks, contents = board.asks, board.contents
    return [(asks[number].cls.index, failing, contents[at][number]) for at, number, failing in failing_on(board)
            if failing]  # fmt: skip


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
