"""Tier 2: take the quick answer and better it, as long as there is time or work left.

It is paid in work, so that the same input and seed end at the same place on every node. Who must keep a deadline has
the clock stop it as well; who wants the same plan however busy a node is gives the clock some clock slack, or has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from dovetail.clock import stopwatch
from dovetail.planner.optimise.fill_existing import filled
from dovetail.planner.optimise.lns import improve
from dovetail.planner.optimise.lower_bound import proven
from dovetail.planner.optimise.patterns import Patterns
from dovetail.planner.optimise.rounding import COARSE, FINE, rounded
from dovetail.planner.packing.pack import Packing, can_relax, few
from dovetail.planner.packing.topology_validation import sound
from dovetail.planner.packing.zone_spread import widened
from dovetail.planner.problem.compile import Problem

#: Work of the search for each second it is given: clocks differ, work does not. An idle core does up to twice this.
_WORK_A_SECOND = 40_000
#: Where plans should not depend on the clock, it stops what takes so many times as long as it should.
CLOCK_SLACK = 4.0
_FOREVER = 1e9
#: Up to this many classes packing from scratch is quick enough to try many ways.
_ALIKE = 120
#: From this many nodes on patterns repeat themselves; they help where nodes hold fewer pods than this.
_MANY, _ROOMY = 20, 12
#: Below so many pods patterns cost more time than they save money: at 100 pods of Karpenter's mix the search alone ends
#: 0.1 points lower; with 253 pods (seed 1000 of `bench.scenarios`) patterns save 6 %, at 2,000 of the mix 2.6 points.
_MIN_PATTERN_PODS = 200
#: Of more pods than this, to go on small nodes, flows are listed apart less finely: patterns need the time.
_HORDE = 2000
#: Of many pods, all steps together may take so many times the work of a search.
_TIMES = 2
#: How often nodes are cut anew, and which part of the search looks for patterns in between.
_ROUNDS, _STROLL = 2, 2


class Improvement(msgspec.Struct):
    """The best packing so far, and what no plan can cost less than, where that is known."""

    packing: Packing
    bound: float | None = None


class Optimiser(Protocol):
    """A pod that betters a packing: `better` itself, or a pod who has it done elsewhere.

    `deadline` is what the whole plan may take in seconds, `spent` what of it is gone.
    """

    def __call__(self, problem: Problem, packing: Packing, seed: int, deadline: float, spent: float) -> Improvement: ...


def better(
    problem: Problem,
    packing: Packing,
    seed: int,
    deadline: float,
    spent: float = 0.0,
    clock_slack: float | None = 1.0,
    on_improvement: Callable[[Improvement], None] | None = None,
) -> Improvement:
    """The best packing found in time; `tell` hears of every step on the way.

    The clock stops it after the deadline times `clock slack`, or not at all.
    """
    end = stopwatch() + deadline * clock_slack - spent if clock_slack is not None else None
    return _Attempt(problem, packing, seed, int(_WORK_A_SECOND * deadline), end, on_improvement).run()


def along_relaxation(problem: Problem, packing: Packing, seed: int, deadline: float, spent: float) -> Improvement:
    """The least of betterment: room that is there and new nodes filled along the relaxation, and no search."""
    return _Attempt(problem, packing, seed, 0, None, None).along()


def better_by_work(problem: Problem, packing: Packing, seed: int, deadline: float, spent: float) -> Improvement:
    """`better`, blind to the clock: for virtual time, where an answer must never depend on how busy a node is."""
    return better(problem, packing, seed, deadline, clock_slack=None)


def better_with_clock_slack(
    problem: Problem, packing: Packing, seed: int, deadline: float, spent: float
) -> Improvement:
    """`better`, with the clock as the last resort against what no pod reckoned with."""
    return better(problem, packing, seed, deadline, spent, CLOCK_SLACK)


class _Attempt:
    """One attempt to better a packing: the best one so far, and what is left of time and work."""

    def __init__(
        self,
        problem: Problem,
        start: Packing,
        seed: int,
        budget: int,
        end: float | None,
        on_improvement: Callable[[Improvement], None] | None,
    ) -> None:
        self.problem = problem
        self.best = start
        self.seed = seed
        self.budget = budget
        self.most = None if few(problem) else start.state.meter.spent + _TIMES * budget
        self.end = end
        self.on_improvement = on_improvement
        self.bound: float | None = None

    def run(self) -> Improvement:
        problem = self.problem
        self.bound = proven(problem, self.best.left, self.left() / 3)
        self._report()
        if can_relax(problem):
            self._fill()
        along_relaxation = can_relax(problem) and self._round()
        self._report()
        self._search(0, self.budget, afresh=not along_relaxation or (few(problem) and len(problem.classes) <= _ALIKE))
        self.best = Packing(widened(self.best.state, self.best.left), self.best.left)
        self._report()
        return Improvement(self.best, self.bound)

    def along(self) -> Improvement:
        """The packing along the relaxation alone."""
        if can_relax(self.problem):
            self._fill()
            packing = rounded(self.problem, self.best, self.left, COARSE)
            if packing is not None and sound(packing.state):
                self._try(packing)
        return Improvement(self.best)

    def _fill(self) -> None:
        """Fill existing nodes anew, where something is launched beside them."""
        if self.problem.nodes and self.best.state.new_nodes():
            packing = filled(self.problem, self.best, COARSE)
            if packing is not None:
                self._try(packing)

    def left(self) -> float:
        """How many seconds are left."""
        return self.end - stopwatch() if self.end is not None else _FOREVER

    def over(self) -> bool:
        return self.left() < 0 or (self.most is not None and self.best.state.meter.spent > self.most)

    def _report(self) -> None:
        if self.on_improvement is not None:
            self.on_improvement(Improvement(self.best, self.bound))

    def _try(self, packing: Packing) -> None:
        self.best = min(self.best, packing, key=lambda packing_: packing_.score)

    def _search(self, turn: int, budget: int, afresh: bool) -> None:
        self.best = improve(self.problem, self.best, self.seed + turn, budget, self.bound or 0.0, self.over, afresh)

    def _round(self) -> bool:
        """Choose nodes anew along the relaxation's flows; False if that came to nothing."""
        nodes = len(self.best.state.new_nodes())
        patterned = self.problem.total >= _MIN_PATTERN_PODS
        small = patterned and nodes >= _MANY and self.problem.total < _ROOMY * nodes
        finely = FINE if not small or self.problem.total <= _HORDE else COARSE
        packing = rounded(self.problem, self.best, lambda: self.left() / 3, finely)
        if packing is None or not sound(packing.state):
            return False
        if small:
            self._cut(packing)
        else:
            self._try(packing)
        return True

    def _cut(self, packing: Packing) -> None:
        """Many nodes with few pods each: cut them by patterns, while new ones are found on the way."""
        patterns = Patterns(self.problem, packing)
        self._try(packing)
        for turn in range(1, _ROUNDS + 1):
            if self.over() or not any([patterns.learn(packing.state), patterns.learn(self.best.state)]):
                return
            cut = patterns.packed(self.left)
            if cut is None:
                return
            packing = cut
            self._try(packing)
            self._search(turn, self.budget // _STROLL, afresh=False)
            self._report()
