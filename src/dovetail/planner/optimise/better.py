"""Tier 2: take the quick answer and better it, as long as there is time or work left.

It is paid in work, so that the same input and seed end at the same place on every machine. A deadline is also kept by
the clock; without one (`clocked=False`) the answer depends on nothing but the input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from dovetail.clock import stopwatch
from dovetail.planner.optimise.bound import relaxed
from dovetail.planner.optimise.rounding import rounded
from dovetail.planner.optimise.search import improve
from dovetail.planner.optimise.squeeze import squeezed
from dovetail.planner.problem import Problem
from dovetail.planner.quick import Packing, few, pourable
from dovetail.planner.soundness import sound
from dovetail.planner.zones import widened

#: Work of the search for each second it is given: clocks differ, work does not. An idle core does about twice this.
_WORK_A_SECOND = 40_000
_FOREVER = 1e9
#: Up to this many classes packing from scratch is quick enough to try many ways.
_ALIKE = 120


class Bettered(msgspec.Struct):
    """The best packing so far, and what no plan can cost less than, where that is known."""

    packing: Packing
    bound: float | None = None


class Optimiser(Protocol):
    """Whoever betters a packing: `better` itself, or somebody who has it done elsewhere.

    `deadline` is what the whole plan may take in seconds, `spent` what of it is gone.
    """

    def __call__(self, problem: Problem, packing: Packing, seed: int, deadline: float, spent: float) -> Bettered: ...


def better(
    problem: Problem, packing: Packing, seed: int, deadline: float, spent: float = 0.0, clocked: bool = True,
    tell: Callable[[Bettered], None] | None = None,
) -> Bettered:  # fmt: skip
    """The best packing found in time; `tell` hears of every step on the way."""
    end = stopwatch() + deadline - spent

    def left() -> float:
        return end - stopwatch() if clocked else _FOREVER

    def said(best: Bettered) -> Bettered:
        if tell is not None:
            tell(best)
        return best

    fluid = relaxed(problem, packing.left, left() / 3)
    bound = fluid.price if fluid is not None else None
    said(Bettered(packing, bound))
    other = _poured(problem, packing, left) if pourable(problem) else None
    if other is not None:
        packing = said(Bettered(min((packing, other), key=lambda each: each.rank), bound)).packing
    budget = int(_WORK_A_SECOND * deadline)
    afresh = other is None or (few(problem) and len(problem.classes) <= _ALIKE)
    found = improve(problem, packing, seed, budget, bound or 0.0, lambda: left() < 0, afresh)
    return said(Bettered(Packing(widened(found.board, found.left), found.left), bound))


def better_by_work(problem: Problem, packing: Packing, seed: int, deadline: float, spent: float) -> Bettered:
    """`better`, blind to the clock: for virtual time, where an answer must never depend on how busy a machine is."""
    return better(problem, packing, seed, deadline, clocked=False)


def _poured(problem: Problem, packing: Packing, left: Callable[[], float]) -> Packing | None:
    """Machines chosen anew along the relaxation's flows, then squeezed; None if that came to nothing."""
    found = rounded(problem, packing, lambda: left() / 3)
    if found is None or not sound(found.board):
        return None
    return Packing(squeezed(found.board, lambda: left() < 0), found.left)
