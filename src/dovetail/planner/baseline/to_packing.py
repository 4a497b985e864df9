"""The reference's outcome on our own board: a packing to start from, and a yardstick to be measured by.

Pods are put in the order in which the reference placed them, each where it had it, as far as our rules allow; the few
that they do not (it breaks some of its own promises) go wherever there is room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from operator import and_

import numpy as np

from dovetail.planner.baseline.scheduler import Greedy, Outcome, Placed
from dovetail.planner.offerings.alternatives import largest_capacity
from dovetail.planner.offerings.catalog import Bools, Ints, lowest
from dovetail.planner.packing.attachments import load_of
from dovetail.planner.packing.objective import Way, Yardstick
from dovetail.planner.packing.pack import Packing
from dovetail.planner.packing.packer import Packer
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import Board
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.packing.topology_validation import hosts_sound, sound
from dovetail.planner.packing.violated_preferences import lapses_on, unkept
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_classes import PodClass
from dovetail.planner.problem.request import Ask

#: What the reference leaves to chance is decided in as many ways.
_TURNS = 3


def outcomes_of(problem: Problem) -> list[Outcome]:
    """What the reference comes to, once for each way that chance has it; once where nothing is left to chance."""
    first = Greedy(problem)
    outcome = first.run()
    if not first.tally.left_to_chance:
        return [outcome]
    return [outcome, *(Greedy(problem, turn, first).run() for turn in range(1, _TURNS))]


def yardstick_of(problem: Problem, outcomes: Sequence[Outcome]) -> Yardstick:
    """What no packing of the problem may be worse than."""
    return Yardstick(
        ways=tuple(Way(each.left, each.price, _unkept(problem, each), _zones(problem, each)) for each in outcomes),
        names=Counter(name for each in outcomes for name in each.names),
    )


def following(problem: Problem, outcomes: Sequence[Outcome]) -> list[Packing]:
    """Packings that follow the reference, also where the problem is another one of the same snapshot."""
    never = reduce(and_, (Counter(each.left) for each in outcomes)) if outcomes else Counter[int]()
    return [_packing(problem, each, never) for each in outcomes]


def _unkept(problem: Problem, outcome: Outcome) -> int:
    return unkept(_replayed(problem, outcome, None)[0]) if problem.wishes else 0


def _zones(problem: Problem, outcome: Outcome) -> int:
    return len({problem.columns.rows[lowest(mask)].offering.zone for mask in outcome.masks.values()})


def _packing(problem: Problem, outcome: Outcome, never: Counter[int]) -> Packing:
    """A packing that follows the outcome, and one beside it that holds in whatever order pods arrive."""
    loose = _followed(problem, outcome, never, lenient=True)
    if sound(loose.board) and hosts_sound(loose.board):
        return loose
    return Packing(loose.board, loose.left, _followed(problem, outcome, never, lenient=False))


def _followed(problem: Problem, outcome: Outcome, never: Counter[int], lenient: bool) -> Packing:
    """The outcome as far as our rules allow; then those whom another outcome places, and those whom none does as far as
    that costs no wish that the reference keeps."""
    board, refused = _replayed(problem, outcome, lenient)
    left = refused + Counter(outcome.left)
    packer = Packer(problem, Strategy(), board)
    for index, count in sorted((left - never).items()):
        left[index] -= _placed(packer, problem.classes[index], count)
    board = packer.board
    for index in sorted(left & never):
        board = _joined(board, left, index)
    for at in board.bought():
        if not board.contents[at]:
            board.close(at)
    shrink(board)
    return Packing(board, +left)


def _joined(board: Board, left: Counter[int], index: int) -> Board:
    """The board with as many more pods of a class as keep it from falling further behind the yardstick in wishes."""
    one, yardstick = board.problem.classes[index], board.problem.yardstick
    lot = left[index]
    missed = yardstick.excess(lapses_on(board), left) if yardstick is not None else 0
    while lot:
        packer = Packer(board.problem, Strategy(), board.clone())
        found = _placed(packer, one, lot)
        after = left - Counter({index: found})
        if yardstick is not None and yardstick.excess(lapses_on(packer.board), after) > max(0, missed):
            lot //= 2
            continue
        board, left[index] = packer.board, after[index]
        lot = min(lot, left[index]) if found == lot else 0
    return board


def _placed(packer: Packer, one: PodClass, count: int) -> int:
    """How many of some pods of a class find a place, on the highest rung that gives them one."""
    done = 0
    for ask in packer.problem.rungs(one) if not one.error else ():
        done += packer.place(ask, count - done) if done < count else 0
    return done


def _replayed(problem: Problem, outcome: Outcome, lenient: bool | None) -> tuple[Board, Counter[int]]:
    """The board, and how many of each class it would not take where the reference had them.

    `lenient`: those that a spread only counts may come later; None: no rule is asked at all.
    """
    board = Board(problem)
    asks: dict[int, Counter[Ask]] = {place: Counter() for place in outcome.masks}
    for each in outcome.placed:
        if each.place < 0:
            asks[each.place][each.ask] += 1
    choosy = problem.diversity is not None and lenient is not None
    bins = {
        place: _opened(board, mask, asks[place], outcome.wide[place] if choosy else None)
        for place, mask in outcome.masks.items()
    }
    waiting, before = outcome.placed, len(outcome.placed) + 1
    while len(waiting) < before:  # a spread that refuses a pod may take it once others have come
        before, refused = len(waiting), list[Placed]()
        for each in waiting:
            at = each.place if each.place >= 0 else bins[each.place]
            ask = each.ask if lenient is None else _admitted(problem, board, each.ask, at, lenient)
            if at < 0 or ask is None:
                refused.append(each)
            else:
                board.put(ask, at, 1)
        waiting = refused
    return board, Counter(each.ask.cls.index for each in waiting)


def _admitted(problem: Problem, board: Board, ask: Ask, at: int, lenient: bool) -> Ask | None:
    """The ask, or one that gives up more, of which one more pod may go onto a machine."""
    rungs = range(ask.level.rung, len(ask.cls.levels)) if at >= 0 else ()
    found = (problem.ask(ask.cls, rung) for rung in rungs)
    return next((each for each in found if _admits(board, each, at, lenient)), None)


def _opened(board: Board, mask: int, asks: Counter[Ask], wide: int | None) -> int:
    """A machine on the cheapest column of the menu that a claim with these pods may be, charged for no more than it.

    `wide` are the columns that count for variety; None: that is not asked.
    """
    problem = board.problem
    load = load_of(problem, asks)
    ok = problem.columns.bools(mask)[problem.menu.full]
    if not ok.any():
        ok = _as_good(problem, mask, asks, load)
    if problem.diversity is not None and wide is not None and ok.any():
        for name in problem.binding:
            largest = 1 if name == "nodes" else largest_capacity(problem.columns, wide, name)
            ok &= problem.menu.limited[name] <= largest
        ok = problem.diversity.holding(ok, asks, load.tolist())
    return board.open(int(ok.argmax())) if ok.any() else -1


def _as_good(problem: Problem, mask: int, asks: Counter[Ask], load: Ints) -> Bools:
    """The columns in the claim's domains that hold its pods, where the menu has better ones than the claim may be.

    Of several required terms the reference looks at one alone, and may rule out what another would allow.
    """
    menu, chosen = problem.menu, problem.columns.bools(mask)
    ok: Bools = np.isin(menu.pools, [each.pool for each in problem.columns.listed(mask)])
    for ask in asks:
        ok &= ask.columns
    for axis, lying in zip(problem.axes, menu.domains, strict=True):
        ok &= np.isin(lying, axis.columns[chosen])
    ok &= (menu.capacity >= load[:, None]).all(axis=0)
    for name in problem.binding:
        largest = 1 if name == "nodes" else largest_capacity(problem.columns, mask, name)
        ok &= menu.limited[name] <= largest
    return ok


def _admits(board: Board, ask: Ask, at: int, lenient: bool) -> bool:
    """Whether one more pod of the ask may go onto a machine, by every rule."""
    if not board.holds(ask, at, 1):
        return False
    for key in ask.keys:
        axis = board.axis_at[key]
        if board.allowance(ask, axis, lenient)[board.domains[axis][at]] < 1:
            return False
    if not ask.ties.ruled and board.problem.diversity is None:
        return True
    bins, _ = board.shares(ask, np.array([at]), 1, lenient)
    return len(bins) == 1
