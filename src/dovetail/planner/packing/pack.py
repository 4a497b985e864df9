"""Tier 1: the answer that never makes anybody wait.

Classes go largest first, those that others lean on before those that lean, those that need a machine each before
those that fill the gaps. What finds no place is tried again after everybody else, because counts rise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Floats, Ints
from dovetail.planner.packing.objective import Yardstick, weighed
from dovetail.planner.packing.packer import Packer
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import Board
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.packing.topology_validation import hosts_sound, sound
from dovetail.planner.packing.violated_preferences import lapses_on, total
from dovetail.planner.packing.zone_spread import reach
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.frontier import Menu
from dovetail.planner.problem.pod_classes import Kind, PodClass
from dovetail.planner.problem.request import Ask, Stance, Ties
from dovetail.planner.problem.topology_counters import Cell
from dovetail.planner.problem.topology_groups import AFFINITY, SPREAD, Group

#: Chains of affinity longer than this are cut: whoever is left is tried again at the end anyway.
_LONGEST_CHAIN = 8
_FEW = 500
#: In wishes: what it is to cost twice as much as the yardstick.
_DEAR = 50
#: From this many pods on a relaxation is a guide to which machines to buy.
_POURABLE = 40
#: Something to put classes in order by: a figure for each of them.
Key = Sequence[float] | Ints | Floats


class Packing:
    """A finished board, the pods that found no place, the price, and the wishes given up, or not kept in the end."""

    def __init__(self, board: Board, left: dict[int, int], cautious: Packing | None = None) -> None:
        self.board = board
        self.left = left
        self.cautious = cautious
        """The same without pods for which the order matters in which others arrive."""
        self.cost = board.cost()
        self.lapses = lapses_on(board)
        self.unkept = total(self.lapses)
        given_up = board.problem.given_up
        self.given_up = sum(
            count * given_up.get(number, 0)
            for contents in (board.contents if given_up else ())
            for number, count in contents.items()
        )

    @cached_property
    def steady(self) -> bool:
        """Whether every spread holds whatever the order in which pods arrive."""
        return sound(self.board) and hosts_sound(self.board)

    @property
    def is_free(self) -> bool:
        """Whether all pods have a node at no cost, with all preferences, in any binding order: nothing is better."""
        return not (self.left or self.cost or self.unkept or self.given_up) and self.steady

    @property
    def rank(self) -> tuple[float, ...]:
        """Nobody without a place whom the yardstick places, where there is one, in as many of its ways as possible; and
        steady. Then as little as possible of what a user would miss: wishes that the yardstick keeps, a price beyond
        its price. Then as many pods, as many zones and less money; any other wish that is kept is worth some of that.
        """
        yardstick, left = self.board.problem.yardstick, sum(self.left.values())
        price = weighed(self.board.problem, self.cost, self.lapses, self.left)
        if yardstick is None:
            return (left, self.given_up, price)
        zones = yardstick.zones - reach(self.board, yardstick.zones)
        short, missing = yardstick.short(self.left), yardstick.missing(self.left)
        return (short, missing, not self.steady, self.fault, left, zones, price)

    @property
    def fault(self) -> float:
        """What a user of the reference would miss, in wishes: some that it keeps, and a price within its own."""
        yardstick: Yardstick | None = self.board.problem.yardstick
        if yardstick is None:
            return 0.0
        return max(0, self.excess) + _DEAR * yardstick.beyond(self.left, self.cost)

    @cached_property
    def excess(self) -> int:
        """How many wishes more than in the yardstick are not kept."""
        yardstick = self.board.problem.yardstick
        return yardstick.excess(self.lapses, self.left) if yardstick is not None else self.unkept

    @property
    def lacking(self) -> bool:
        """Whether fewer wishes are kept than by the yardstick, or fewer pods placed."""
        yardstick = self.board.problem.yardstick
        return yardstick is not None and (self.excess > 0 or yardstick.missing(self.left) > 0)

    @property
    def content(self) -> bool:
        """Whether it is steady and lacks nothing that the yardstick has, at no more than its price."""
        yardstick = self.board.problem.yardstick
        if yardstick is None:
            return self.steady and not self.left
        return self.steady and not self.lacking and not yardstick.beyond(self.left, self.cost)

    @property
    def ample(self) -> bool:
        """Whether everybody has a place, and it is content and reaches as many zones as the yardstick."""
        return not self.left and self.wide and self.content

    @property
    def wide(self) -> bool:
        """Whether it reaches as many zones as the yardstick."""
        yardstick = self.board.problem.yardstick
        return yardstick is None or reach(self.board, yardstick.zones) == yardstick.zones

    def missing(self, guide: Packing) -> int:
        """How many go without that another packing places."""
        return sum(max(0, count - guide.left.get(index, 0)) for index, count in self.left.items())

    def shortfall(self, problem: Problem) -> tuple[int, ...]:
        """How many go without, the most important counted first: for choosing when there is not enough for all."""
        short: dict[int, int] = {one.priority: 0 for one in problem.classes}
        for index, count in self.left.items():
            short[problem.classes[index].priority] += count
        order = sorted(problem.classes, key=reference_key)
        by_class = tuple(self.left.get(one.index, 0) for one in order)
        return (*(short[priority] for priority in sorted(short, reverse=True)), *by_class)


def pack(problem: Problem, strategy: Strategy, hints: Mapping[int, Bools] | None = None) -> Packing:
    """One pass over all classes, and as many more as bring something. `hints` narrow where some classes go."""
    with standing_at(narrowed(problem, hints) if hints else ()):
        return _pack(problem, strategy)


def narrowed(problem: Problem, hints: Mapping[int, Bools]) -> list[tuple[Ask, Stance]]:
    """What some classes would accept if only some columns of the menu were there, where that leaves them any."""
    found: list[tuple[Ask, Stance]] = []
    for index, where in hints.items():
        for ask in problem.rungs(problem.classes[index]):
            left = ask.columns & where
            if left.any():
                found.append((ask, Stance(left, ask.mask, ask.nodes, ask.stance.keys)))
    return found


@contextmanager
def standing_at(stances: Sequence[tuple[Ask, Stance]]) -> Iterator[None]:
    """Let asks accept other machines for a while."""
    before = [(ask, ask.stance) for ask, _ in stances]
    for ask, stance in stances:
        ask.stance = stance
    try:
        yield
    finally:
        for ask, stance in before:
            ask.stance = stance


def hints_for(problem: Problem, left: Mapping[int, int]) -> dict[int, Bools]:
    """Where those that others lean on should go, so that the others, who are left over, can follow."""
    found: dict[int, Bools] = {}
    for index in left:
        last = problem.ask(problem.classes[index], len(problem.classes[index].levels) - 1)
        groups = {cell.group for cell in (*last.ties.host_owned, *last.ties.domain_owned) if cell.kind == AFFINITY}
        for one in problem.classes:
            if one.index != index and groups & one.members:
                known = found.get(one.index)
                found[one.index] = last.columns if known is None else known & last.columns
    return found


def hopeless(problem: Problem, one: PodClass) -> bool:
    """Whether no machine, there or for sale, could hold a pod of the class even if it were empty of others."""
    if one.error:
        return True
    ask = problem.ask(one, len(one.levels) - 1)
    there = ask.nodes.copy()
    for dim, amount in ask.steps:
        there &= problem.free[dim] >= amount
    return not (there.any() or fitting_offerings(problem, ask).any())


def fitting_offerings(problem: Problem, ask: Ask) -> Bools:
    """The offerings of the frontier that hold one pod of a request on an empty node."""
    fitting = ask.columns.copy()
    for dim, amount in ask.steps:
        fitting &= problem.menu.capacity[dim] >= amount
    for dim, more in problem.sharing.amounts(ask.shared):
        fitting &= problem.menu.capacity[dim] >= ask.request[dim] + more
    return fitting


def _pack(problem: Problem, strategy: Strategy) -> Packing:
    packer = Packer(problem, strategy)
    order = class_order(problem, strategy)
    waiting = demands(problem)
    wanted: list[bool] = np.any(waiting, axis=1).tolist()
    giants = {one.index: one.count for one in order if not wanted[one.index]} if not all(wanted) else {}
    order = [one for one in order if one.index not in giants] if giants else order
    left: dict[int, int] = {}
    asked = waiting[[one.index for one in order]]
    rivals = _rivals(problem, order)
    for one, after in zip(order, asked.sum(axis=0) - asked.cumsum(axis=0), strict=True):
        packer.waiting, packer.rivals = after, rivals.get(one.index, 0)
        missing = _place_class(packer, one, one.count)
        if missing:
            left[one.index] = missing
    packer.rivals = 0
    left = _again(packer, order, left)
    if not left:
        return _packing(packer.board, giants)
    strict = packer.board.clone()
    packer.lenient = True
    lenient = _again(packer, order, left)
    if sound(packer.board) and hosts_sound(packer.board):
        return _packing(packer.board, lenient | giants)
    cautious = _packing(strict, left | giants)
    return _packing(packer.board, lenient | giants, cautious) if few(problem) else cautious


def _rivals(problem: Problem, order: list[PodClass]) -> dict[int, int]:
    """For classes that want a machine for each pod: how many pods come after them that refuse to share it."""
    found: dict[int, int] = {}
    waiting: dict[Cell, int] = {}
    for one in reversed(order):
        for cell in problem.first_asks[one.index].ties.refused:
            found[one.index] = max(found.get(one.index, 0), waiting.get(cell, 0))
            waiting[cell] = waiting.get(cell, 0) + one.count
    return found


def _packing(board: Board, left: dict[int, int], cautious: Packing | None = None) -> Packing:
    shrink(board)
    return Packing(board, left, cautious)


def _again(packer: Packer, order: list[PodClass], left: dict[int, int]) -> dict[int, int]:
    """Try those left over as long as it brings something: counts rise as others are placed."""
    while left:
        after = {one.index: _place_class(packer, one, left[one.index]) for one in order if one.index in left}
        after = {index: count for index, count in after.items() if count}
        if after == left:
            break
        left = after
    return left


def demands(problem: Problem) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """What each class asks for in all. Pods larger than any machine ask for nothing: nothing is bought for them."""
    if not problem.classes:
        return np.zeros((0, len(problem.dims)))
    requests = problem.requests.astype(np.float64)
    most = np.maximum(problem.menu.capacity.max(axis=1, initial=0), problem.free.max(axis=1, initial=0))
    requests[(requests > most).any(axis=1)] = 0.0
    return np.asarray(requests * problem.counts[:, None])


def _place_class(packer: Packer, one: PodClass, count: int) -> int:
    """Put pods of a class somewhere, on the highest rung that takes them; returns how many found no place."""
    if one.error:
        return count
    for ask in packer.problem.rungs(one):
        count -= packer.place(ask, count)
        if not count:
            break
    return count


def class_order(problem: Problem, strategy: Strategy) -> list[PodClass]:
    """The classes in the order in which they are placed."""
    classes = problem.classes
    priority: list[Key] = [[-one.priority for one in classes]] if strategy.by_priority else []
    if strategy.order == "reference":
        keys = [*priority, *zip(*map(reference_key, classes), strict=True)]
    else:
        keys = _leading(problem, strategy, priority)
    return [classes[at] for at in np.lexsort([np.asarray(key) for key in reversed(keys)]).tolist()]


def _leading(problem: Problem, strategy: Strategy, priority: list[Key]) -> list[Key]:
    """What decides on the order, for each class: who is leaned on, who is important, who has little choice."""
    ties = [problem.ladders[kind][0].ties for kind in problem.kinds]
    found: list[Key] = [_each(problem, _depths(problem.kinds, ties)), *priority]
    if problem.nodes:
        found.append(_unrooted(problem))
    if strategy.order == "zones":
        found.append(_each(problem, [not each.domain_owned for each in ties]))
        reference = [reference_key(one) for one in problem.classes]
        return [*found, [each[0] for each in reference], [each[1] for each in reference]]
    if strategy.level:
        found.append(_openness(problem))
    found += [_each(problem, [not each.lonely for each in ties]), _sizes(problem, strategy)]
    # Pods of one size one after the other: machines that are too full for it are found once.
    return [*found, -problem.requests.sum(axis=1)] if strategy.level else found


def _each(problem: Problem, values: Sequence[int]) -> Ints:
    """What is so for each kind, for each class."""
    return np.array(values, dtype=np.int64)[problem.kind_at]


def _unrooted(problem: Problem) -> list[bool]:
    """For each class, whether a machine for sale would suit it; if not, it must have what room there is for it."""
    stances = [problem.ask(one, -1).stance for one in problem.classes]
    suited = {stance: bool(stance.columns.any()) for stance in dict.fromkeys(stances)}
    return [suited[stance] for stance in stances]


def _sizes(problem: Problem, strategy: Strategy) -> Floats:
    """How large each class's pods are, as shares of what is asked for in all; below zero, so that the largest lead."""
    shares = problem.requests / (1.0 + demands(problem).sum(axis=0))
    if strategy.order in ("cpu", "memory") and strategy.order in problem.dims:
        found = shares[:, problem.dims.index(strategy.order)]
    else:
        found = shares.max(axis=1) if strategy.order == "max" else shares.sum(axis=1)
    return np.asarray(-found)


def reference_key(one: PodClass) -> tuple[float, ...]:
    """The order in which Karpenter takes pods: most CPU, then most memory. It decides who goes short."""
    return (-one.requests.get("cpu", 0), -one.requests.get("memory", 0), one.index)


def _openness(problem: Problem) -> list[int]:
    """How many domains each class may choose among where others look at it: those with little choice go first."""
    stances = [ask.stance for ask in problem.first_asks]
    choice = {stance: _domains(problem.menu, stance) if stance.keys else 0 for stance in dict.fromkeys(stances)}
    most = max(choice.values(), default=0)
    return [choice[stance] or most for stance in stances]


def _domains(menu: Menu, stance: Stance) -> int:
    """How many domains of all axes a stance leaves."""
    columns = stance.columns
    key = ("open to", id(columns))
    return menu.recall(key, columns, lambda: sum(len(np.unique(lying[columns])) for lying in menu.domains))


def _depths(kinds: Sequence[Kind], ties: Sequence[Ties]) -> list[int]:
    """How far down the chain of affinities a kind stands; those it leans on come first. Circles end by themselves."""
    depth = [0] * len(kinds)
    leans = [
        [
            cell.group
            for cell in (*each.host_owned, *each.domain_owned)
            if cell.kind != SPREAD and cell not in each.own and (cell.kind == AFFINITY or cell in each.wishes)
        ]
        for each in ties
    ]
    wanted = {group for groups in leans for group in groups}
    for _ in range(_LONGEST_CHAIN if wanted else 0):
        deepest: dict[Group, int] = {}
        for kind, deep in zip(kinds, depth, strict=True):
            for group in wanted & kind.members:
                deepest[group] = max(deepest.get(group, 0), deep)
        settled = True
        for at, groups in enumerate(leans):
            below = max((deepest[group] + 1 for group in groups if group in deepest), default=0)
            if below > depth[at]:
                depth[at], settled = below, False
        if settled:
            break
    return depth


def carried(packing: Packing, problem: Problem) -> Packing:
    """The same packing on another problem of the same snapshot."""
    board, asks = Board(problem), problem.asks
    for at, contents in enumerate(packing.board.contents):
        if contents:
            place = at if at < board.existing else board.open(int(packing.board.column[at]))
            for number, count in contents.items():
                board.put(asks[number], place, count)
    cautious = packing.cautious
    return Packing(board, packing.left, carried(cautious, problem) if cautious is not None else None)


def pourable(problem: Problem) -> bool:
    """Whether there are so many pods that a relaxation is a guide to which machines to buy."""
    return problem.total >= _POURABLE


def few(problem: Problem) -> bool:
    """Whether there are so few pods that trying many ways still takes milliseconds."""
    return problem.total <= _FEW
