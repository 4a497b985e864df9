"""The search: better packings within a budget of work, starting from one that holds."""

from __future__ import annotations

import pytest

from dovetail.chance import Chance
from dovetail.planner.optimise import search
from dovetail.planner.problem import Problem
from dovetail.planner.quick import pack
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.strategy import Strategy

from .conftest import HOSTNAME, near, pods, pool


def test_packing_from_scratch_leaves_work_for_the_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much the first tries take, the packing at hand is bettered as well."""
    shy = (pods(6, name, cpu="300m", **near("podAntiAffinity", HOSTNAME, app=name, weight=1)) for name in "abcdef")
    problem = Problem(Snapshot(pools=(pool(),), pending=tuple(pod for each in shy for pod in each)))
    walked: list[float] = []

    def step(self: object, chance: Chance, heat: float) -> None:
        walked.append(heat)
        problem.work += 1

    monkeypatch.setattr(search._Walk, "step", step)
    start = pack(problem, Strategy())
    budget = 10 * problem.work
    search.improve(problem, start, seed=0, budget=budget, enough=0.0, out_of_time=lambda: False)
    assert len(walked) > budget / 3
