"""Classes and kinds that are remembered from one snapshot to the next are those that would be found anew."""

from __future__ import annotations

import pytest

from dovetail.model.pods import Pod
from dovetail.planner.cache import PlannerCache
from dovetail.planner.problem.compile import Problem
from dovetail.planner.snapshot import Snapshot
from tests.planner.conftest import HOSTNAME, ZONE, near, pod, pool, spread


def _pods(key: str, app: str) -> tuple[Pod, ...]:
    other = "db" if app == "web" else "web"
    found = [pod(f"{app}-{at}", "100m", labels={"app": app}, **spread(key, 1, app)) for at in range(3)]
    found += [pod(f"{other}-{at}", "100m", labels={"app": other}) for at in range(2)]
    return (*found, pod("loner", "100m", labels={"app": app}, **near("podAntiAffinity", HOSTNAME, app)))


def _classes(memory: PlannerCache, pending: tuple[Pod, ...]) -> list[tuple[object, ...]]:
    problem = Problem(Snapshot(pools=(pool(),), pending=pending, memory=memory))
    return [(one.pods, one.count, one.levels, one.members, one.requests) for one in problem.classes]


def test_kinds_that_are_remembered_follow_the_groups_that_there_are() -> None:
    memory = PlannerCache()
    turns = [_pods(ZONE, "web"), _pods(HOSTNAME, "web"), _pods(ZONE, "db"), _pods(ZONE, "web"), _pods(ZONE, "web")[:4]]
    for pending in turns:
        assert _classes(memory, pending) == _classes(PlannerCache(), pending)


def test_a_plan_made_again_does_not_change_the_classes_of_the_one_before() -> None:
    memory, pending = PlannerCache(), _pods(ZONE, "web")
    first = _classes(memory, pending)
    assert _classes(memory, pending) == first


def test_a_compiled_problem_is_frozen() -> None:
    """What changes while a plan is made is elsewhere: in packing states and in their run."""
    problem = Problem(Snapshot(pools=(pool(),), pending=(pod("a"),)))
    with pytest.raises(AttributeError, match="frozen"):
        problem.total = 3
