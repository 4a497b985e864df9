"""Tier 2: improve the tier-1 packing within a budget of work and a deadline.

The budget is counted in work, so that the same input and seed give the same plan on every computer. A deadline stops
the optimiser by the clock as well. A caller whose plans must not depend on the load of the computer sets a clock slack
above 1, or no clock at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from dovetail.clock import stopwatch
from dovetail.planner.optimise.column_generation import packed_by_columns, packs_all
from dovetail.planner.optimise.fill_existing import filled
from dovetail.planner.optimise.lns import improve
from dovetail.planner.optimise.lower_bound import proven
from dovetail.planner.optimise.patterns import Patterns
from dovetail.planner.optimise.rounding import COARSE, FINE, rounded
from dovetail.planner.packing.pack import Packing, can_relax, few
from dovetail.planner.packing.topology_validation import spreads_hold
from dovetail.planner.packing.zone_spread import widened
from dovetail.planner.problem.compile import Problem

#: Work units of the search for each second of its deadline. An idle core does up to twice as many.
_WORK_PER_S = 40_000
#: Where plans should not depend on the clock, it stops the optimiser only after this multiple of the deadline.
CLOCK_SLACK = 4.0
#: The deadline of a plan for which none is asked, by its number of pods.
MIN_DEFAULT_DEADLINE_S, MAX_DEFAULT_DEADLINE_S, _DEFAULT_DEADLINE_S_PER_POD = 0.5, 2.5, 0.01
#: Up to this many pods, the work budget bounds the time well enough that no clock is needed.
_MAX_PODS_WITHOUT_CLOCK = 500
#: Seconds left where no clock stops the optimiser.
_NO_DEADLINE_S = 1e9
#: Up to this many pod classes, packing from scratch is fast enough for restarts with many strategies.
_MAX_RESTART_CLASSES = 120
#: Patterns are used from this many new nodes on, where nodes hold fewer pods than this on average.
_MIN_PATTERN_NODES, _MAX_PATTERN_PODS_PER_NODE = 20, 12
#: With fewer pods, patterns take more time than they save money: at 100 pods of Karpenter's mix the search alone ends
#: 0.1 points lower; with 253 pods (seed 1000 of `bench.scenarios`) patterns save 6 %, at 2,000 of the mix 2.6 points.
_MIN_PATTERN_PODS = 200
#: With patterns and more pods than this, the LP relaxation is coarse: the patterns need the time.
_COARSE_PATTERN_MIN_PODS = 2000
#: Where pods are many, all stages together may spend this multiple of the search's work.
_MAX_TOTAL_WORK_FACTOR = 2
#: Rounds of packing by patterns; between them a search with 1/2 of the work budget finds new patterns.
_PATTERN_ROUNDS, _PATTERN_SEARCH_DIVISOR = 2, 2
#: After column generation the search has 1/2 of the work budget: it has less to find, and the time is spent.
_COLUMN_SEARCH_DIVISOR = 2


class Improvement(msgspec.Struct):
    """The best packing so far, and the lower bound of the cost of any plan, where it is known."""

    packing: Packing
    bound: float | None = None


class Optimiser(Protocol):
    """A function that improves a packing: `better`, a variant of it, or `OptimiserProcess`, which runs it in a child.

    `deadline` is the time of the whole plan in seconds, `spent` the part of it that has passed.
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
    """The best packing found in time; `on_improvement` is called after every stage.

    The clock stops it after the deadline times `clock_slack`; None: only the work budget stops it.
    """
    end = stopwatch() + deadline * clock_slack - spent if clock_slack is not None else None
    return _Attempt(problem, packing, seed, int(_WORK_PER_S * deadline), end, on_improvement).run()


def along_relaxation(problem: Problem, packing: Packing, seed: int, deadline: float, spent: float) -> Improvement:
    """The shortest improvement: fill existing nodes, then round the LP relaxation; no search."""
    return _Attempt(problem, packing, seed, 0, None, None).along()


def better_by_work(problem: Problem, packing: Packing, seed: int, deadline: float, spent: float) -> Improvement:
    """`better` without a clock: for virtual time, where a plan must not depend on the load of the computer."""
    return better(problem, packing, seed, deadline, clock_slack=None)


def better_with_clock_slack(
    problem: Problem, packing: Packing, seed: int, deadline: float, spent: float
) -> Improvement:
    """`better` bounded by work; the clock stops it only at `CLOCK_SLACK` times the deadline."""
    return better(problem, packing, seed, deadline, spent, CLOCK_SLACK)


def default_deadline(pods: int) -> float:
    """The seconds that improving a plan may take where none are asked for."""
    return min(MAX_DEFAULT_DEADLINE_S, MIN_DEFAULT_DEADLINE_S + _DEFAULT_DEADLINE_S_PER_POD * pods)


def default_optimiser(pods: int) -> Optimiser:
    """The optimiser of a plan for which no deadline is asked: it gives the same plan however busy the host is."""
    return better_by_work if pods <= _MAX_PODS_WITHOUT_CLOCK else better_with_clock_slack


class _Attempt:
    """One run of the optimiser: the best packing so far, and what is left of time and work."""

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
        self.most = None if few(problem) else start.state.meter.spent + _MAX_TOTAL_WORK_FACTOR * budget
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
        by_columns = self._pack_by_columns()
        only_columns = by_columns and packs_all(self.best)
        self._report()
        self._search(
            0,
            self.budget // _COLUMN_SEARCH_DIVISOR if only_columns else self.budget,
            afresh=not along_relaxation or (few(problem) and len(problem.classes) <= _MAX_RESTART_CLASSES),
        )
        if by_columns:
            self._pack_by_columns()
        self.best = Packing(widened(self.best.state, self.best.left), self.best.left)
        self._report()
        return Improvement(self.best, self.bound)

    def along(self) -> Improvement:
        """Fill existing nodes and round the LP relaxation, without a search."""
        if can_relax(self.problem):
            self._fill()
            packing = rounded(self.problem, self.best, self.left, COARSE)
            if packing is not None and spreads_hold(packing.state):
                self._try(packing)
        return Improvement(self.best)

    def _fill(self) -> None:
        """Fill existing nodes again, if there are any and new nodes as well."""
        if self.problem.nodes and self.best.state.new_nodes():
            packing = filled(self.problem, self.best, COARSE)
            if packing is not None:
                self._try(packing)

    def left(self) -> float:
        """The seconds left."""
        return self.end - stopwatch() if self.end is not None else _NO_DEADLINE_S

    def over(self) -> bool:
        return self.left() < 0 or (self.most is not None and self.best.state.meter.spent > self.most)

    def _report(self) -> None:
        if self.on_improvement is not None:
            self.on_improvement(Improvement(self.best, self.bound))

    def _try(self, packing: Packing) -> None:
        self.best = min(self.best, packing, key=lambda packing_: packing_.score)

    def _search(self, turn: int, budget: int, afresh: bool) -> None:
        self.best = improve(self.problem, self.best, self.seed + turn, budget, self.bound or 0.0, self.over, afresh)

    def _pack_by_columns(self) -> bool:
        """Pack the new nodes anew by column generation, where pods have few sizes; returns whether that is so."""
        packing = packed_by_columns(self.problem, self.best, self.left() / 3) if not self.over() else None
        if packing is None or not spreads_hold(packing.state):
            return False
        self._try(packing)
        return True

    def _round(self) -> bool:
        """Choose new nodes by rounding the LP relaxation; returns whether that gave a valid packing."""
        nodes = len(self.best.state.new_nodes())
        enough_pods = self.problem.total >= _MIN_PATTERN_PODS
        use_patterns = (
            enough_pods and nodes >= _MIN_PATTERN_NODES and self.problem.total < _MAX_PATTERN_PODS_PER_NODE * nodes
        )
        lp_size = FINE if not use_patterns or self.problem.total <= _COARSE_PATTERN_MIN_PODS else COARSE
        packing = rounded(self.problem, self.best, lambda: self.left() / 3, lp_size)
        if packing is None or not spreads_hold(packing.state):
            return False
        if use_patterns:
            self._pack_by_patterns(packing)
        else:
            self._try(packing)
        return True

    def _pack_by_patterns(self, packing: Packing) -> None:
        """Pack by patterns where there are many nodes with few pods each, while new patterns are found."""
        patterns = Patterns(self.problem, packing)
        self._try(packing)
        for turn in range(1, _PATTERN_ROUNDS + 1):
            if self.over() or not any([patterns.add_from(packing.state), patterns.add_from(self.best.state)]):
                return
            cut = patterns.packed(self.left)
            if cut is None:
                return
            packing = cut
            self._try(packing)
            self._search(turn, self.budget // _PATTERN_SEARCH_DIVISOR, afresh=False)
            self._report()
