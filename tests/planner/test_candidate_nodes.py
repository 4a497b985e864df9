"""Machines remembered as bits are those that somebody looking at all of them would find."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model.pods import Pod
from dovetail.planner.offerings.catalog import Bools
from dovetail.planner.packing.candidate_nodes import Standing
from dovetail.planner.packing.pack import class_order, demands
from dovetail.planner.packing.packer import Packer
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import Board
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.request import Ask
from dovetail.planner.snapshot import Snapshot
from tests.planner.conftest import HOSTNAME, ZONE, near, node, pod, pool, spread

APPS = ("web", "db", "cache")


class Watched(Standing):
    """Looks at every machine before it is asked, and insists that the answer is the same."""

    def fill(self, packer: Packer, ask: Ask, count: int, axis: int | None, domains: Bools | None) -> int:
        board = packer.board
        bins = board.fitting(ask, 0, board.domains[axis] if axis is not None else None, domains)
        for other, chosen in packer.extra:
            bins = bins[chosen[board.domains[other][bins]]]
        expected: dict[int, int] = {}
        for at, fits in zip(*(each.tolist() for each in board.shares(ask, bins, count, packer.lenient)), strict=True):
            take = min(fits, count - sum(expected.values()))
            expected |= {at: take} if take else {}
        before = [dict(each) for each in board.contents]
        got = super().fill(packer, ask, count, axis, domains)
        changes = {
            at: each.get(ask.number, 0) - before[at].get(ask.number, 0)
            for at, each in enumerate(board.contents)
            if each != before[at]
        }
        assert changes == expected
        assert got == sum(expected.values())
        return got


@st.composite
def workloads(draw: st.DrawFn) -> list[Pod]:
    found: list[Pod] = []
    for number in range(draw(st.integers(1, 8))):
        key, other = draw(st.sampled_from((ZONE, HOSTNAME))), draw(st.sampled_from(APPS))
        ways: tuple[dict[str, Any], ...] = (
            {},
            spread(key, draw(st.integers(1, 3)), other),
            near("podAntiAffinity", key, other),
            near("podAffinity", key, other),
            {"nodeSelector": {ZONE: "z1"}},
        )
        asked, labels = draw(st.sampled_from(ways)), {"app": draw(st.sampled_from(APPS))}
        cpu = draw(st.sampled_from(("100m", "700m", "1500m")))
        found += [pod(f"w{number}-{at}", cpu, labels=labels, **asked) for at in range(draw(st.integers(1, 6)))]
    return found


@given(workloads(), st.booleans(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_what_is_remembered_of_machines_is_what_looking_again_would_find(
    pending: list[Pod], level: bool, lenient: bool
) -> None:
    standing = tuple(node(f"n{at}", f"z{at % 3 + 1}", cpu="2") for at in range(4))
    problem = Problem(Snapshot(pools=(pool(),), nodes=standing, pending=tuple(pending)))
    strategy = Strategy(level=level)
    packer = Packer(problem, strategy)
    packer.standing, packer.lenient = Watched(), lenient
    packer.waiting = demands(problem).sum(axis=0)
    for one in class_order(problem, strategy):
        packer.place(problem.ask(one, 0), one.count)
    board = packer.board
    expected = {at: _cheapest(board, at) for at in board.bought()}
    shrink(board)
    assert {at: int(board.column[at]) for at in board.bought()} == expected


def _cheapest(board: Board, at: int) -> int:
    """The first column of all that is of the machine's kind and place, is accepted by its pods and holds them."""
    menu, held = board.menu, [board.asks[number] for number in board.contents[at]]
    ok = menu.kinds == menu.kinds[board.column[at]]
    for ask in held:
        ok &= ask.columns
        for axis in ask.ties.axes:
            ok &= menu.domains[axis] == board.domains[axis, at]
    load = sum(ask.request * board.contents[at][ask.number] for ask in held)
    return int((ok & (load <= menu.capacity.T).all(axis=1)).argmax())


def test_a_machine_bought_where_another_stood_is_found_like_any_other() -> None:
    """Its place is not behind the others, and asking about it ends."""
    problem = Problem(Snapshot(pools=(pool(),), pending=tuple(pod(f"web-{at}") for at in range(3))))
    packer = Packer(problem, Strategy(ceiling=0.1))
    (ask,) = problem.rungs(problem.classes[0])
    assert packer.place(ask, 1) == 1
    packer.board.clear(packer.board.bought()[0])
    assert [packer.place(ask, 1) for _ in range(2)] == [1, 1]
    assert [sum(held.values()) for held in packer.board.contents] == [2]
