"""Filling: machines that are there hold what suits the room they have left, by what pods are worth on the market.

Pods that look at nobody are taken up again, and every machine that stands picks among them: the most worth for the
scarcest of what it has left. So none runs out of memory while CPU stands idle. Who is left over is bought for.
"""

from __future__ import annotations

import numpy as np

from dovetail.planner.offerings.catalog import Floats, Ints
from dovetail.planner.optimise.lower_bound import holding
from dovetail.planner.optimise.relaxation import Demand, fluid
from dovetail.planner.packing.pack import Packing
from dovetail.planner.packing.packer import Packer
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import Board
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.request import Ask

#: Of as many pods alike as fit, this part is taken before the next pick.
_PART = 4
#: What a pod is worth beside others if nothing for sale would hold it.
_PRECIOUS = 1e6


def filled(problem: Problem, start: Packing, largest: int) -> Packing | None:
    """The packing with machines that are there filled anew; None if somebody would lose their place by it."""
    board, loose = _loosened(problem, start.board)
    if not loose:
        return None
    asks = list(loose)
    counts = np.array([loose[ask] for ask in asks], dtype=np.int64)
    requests = np.array([ask.request for ask in asks], dtype=np.int64)
    worth = _worth(problem, asks, counts, largest)
    suits = np.array([ask.nodes for ask in asks])
    there = board.free[:, : board.existing]
    roomy = (there / there.max(axis=1, initial=1, keepdims=True)).sum(axis=0)
    for at in np.argsort(-roomy, kind="stable").tolist():
        open_to = np.flatnonzero(suits[:, at] & (counts > 0))
        for place, take in _picked(board.free[:, at].copy(), requests[open_to], counts[open_to], worth[open_to]):
            number = int(open_to[place])
            board.put(asks[number], at, take)
            counts[number] -= take
    return _bought(problem, start, board, asks, counts)


def _picked(free: Ints, requests: Ints, counts: Ints, worth: Floats) -> list[tuple[int, int]]:
    """Which pods a machine takes, and how many: each time those worth most for the largest share of its room."""
    found = list[tuple[int, int]]()
    counts = counts.copy()
    while True:
        able = np.flatnonzero((counts > 0) & (requests <= free).all(axis=1))
        if not len(able):
            return found
        shares = (requests[able] / np.maximum(free, 1)).max(axis=1)
        best = int(able[np.argmax(worth[able] / np.maximum(shares, 1e-9))])
        asked = requests[best] > 0
        most = min(int(counts[best]), int((free[asked] // requests[best][asked]).min(initial=1 << 40)))
        take = max(1, most // _PART)
        free = free - take * requests[best]
        counts[best] -= take
        found.append((best, take))


def _worth(problem: Problem, asks: list[Ask], counts: Ints, largest: int) -> Floats:
    """What a pod of each ask would cost on the market."""
    finite = np.isfinite(problem.menu.prices)
    sold = {}
    for ask, count in zip(asks, counts.tolist(), strict=True):
        columns = np.flatnonzero(holding(problem, ask, problem.blurred) & finite)
        if len(columns):
            sold[ask] = Demand(ask, float(count), columns)
    market = fluid(problem, list(sold.values()), 3600.0, largest=largest, proven=True)
    if market is None:
        return np.ones(len(asks))
    known = {
        flow.demand.ask: float(worth) / flow.demand.count
        for flow, worth in zip(market.flows, market.worth, strict=True)
    }
    return np.array([known.get(ask, _PRECIOUS) for ask in asks])


def _loosened(problem: Problem, before: Board) -> tuple[Board, dict[Ask, int]]:
    """A board with those who are tied to others where they are, and the pods to be placed again."""
    board = Board(problem)
    loose: dict[Ask, int] = {}
    for at, contents in enumerate(before.contents):
        asks = [(before.asks[number], count) for number, count in contents.items()]
        tied = [each for each in asks if _tied(each[0])]
        stays = asks if tied and at >= before.existing else tied
        if stays:
            place = at if at < before.existing else board.open(int(before.column[at]))
            for ask, count in stays:
                board.put(ask, place, count)
        for ask, count in asks if not stays or at < before.existing else ():
            if not _tied(ask):
                board.asks[ask.number] = ask
                loose[ask] = loose.get(ask, 0) + count
    return board, loose


def _tied(ask: Ask) -> bool:
    return bool(ask.shared or ask.ties.ruled or ask.ties.domain_owned or ask.ties.domain_members)


def _bought(problem: Problem, start: Packing, board: Board, asks: list[Ask], counts: Ints) -> Packing | None:
    """The packing with machines bought for whoever is left."""
    packer = Packer(problem, Strategy(), board)
    rest = [(ask, count) for ask, count in zip(asks, counts.tolist(), strict=True) if count]
    largest = problem.menu.capacity.max(axis=1, initial=1)
    rest.sort(key=lambda each: (-float((each[0].request / np.maximum(largest, 1)).max()), each[0].number))
    for ask, count in rest:
        packer.waiting += ask.request * float(count)
    for ask, count in rest:
        packer.waiting -= ask.request * float(count)
        if packer.place(ask, count) < count:
            return None
    shrink(packer.board)
    return Packing(packer.board, start.left)
