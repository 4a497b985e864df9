"""Large batches: what holds for a handful of pods holds for thousands, with every constraint of Karpenter's mix."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dovetail.model.pods import Pod
from dovetail.planner.optimise.improve import better_by_work
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import quick_packing
from dovetail.planner.snapshot import Snapshot
from tests.planner.conftest import HOSTNAME, SHOP, ZONE, Solve, kind, pod, pool

LABELS = "abcdefg"
TYPES = (*SHOP, kind("huge", 64, 128, 3.10), kind("vast", 192, 384, 9.50))


def _term(key: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key}


def mixed(count: int, seed: int, pinned: float = 0.0) -> list[Pod]:
    """Karpenter's mix: plain pods, spreads over zones and nodes by any label, affinity and anti-affinity."""
    rng = random.Random(seed)
    found = []
    for at in range(count):
        kind_ = at % 5
        spec: dict[str, Any] = {}
        labels = {"my-label": rng.choice(LABELS)}
        if kind_ in (1, 2):
            term = _term(ZONE if kind_ == 1 else HOSTNAME, {"my-label": rng.choice(LABELS)})
            skew = {"maxSkew": rng.choice((1, 1, 2)), "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [{**skew, **term}]
            if rng.random() < pinned:
                spec["nodeSelector"] = {ZONE: "z1"}
        elif kind_ > 2:
            way, key = ("podAffinity", ZONE) if kind_ == 3 else ("podAntiAffinity", HOSTNAME)
            labels = {"near": rng.choice(LABELS)} if kind_ == 3 else {"app": "nginx"}
            spec["affinity"] = {way: {"requiredDuringSchedulingIgnoredDuringExecution": [_term(key, labels)]}}
        cpu, memory = rng.choice((100, 250, 500, 1000, 1500)), rng.choice((100, 256, 512, 1024, 2048, 4096))
        found.append(pod(f"p{at}", cpu=f"{cpu}m", memory=f"{memory}Mi", labels=labels, **spec))
    return found


@pytest.mark.parametrize(("count", "seed", "pinned"), [(501, 1, 0.0), (600, 2, 0.2), (1000, 3, 0.0), (1500, 4, 0.1)])
def test_no_spread_is_broken_however_many_pods_there_are(solve: Solve, count: int, seed: int, pinned: float) -> None:
    plan = solve(*mixed(count, seed, pinned), pools=(pool(types=TYPES),))
    assert plan.unschedulable == {}


def test_members_of_a_spread_leave_every_zone_open_to_its_owners(solve: Solve) -> None:
    """Plain pods come first and could all go to one zone; owners of a spread over them would then be shut out."""
    plain = [pod(f"a{n}", cpu="1500m", labels={"app": "a"}) for n in range(400)]
    term = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **_term(ZONE, {"app": "a"})}
    owners = [pod(f"b{n}", cpu="100m", labels={"app": "b"}, topologySpreadConstraints=[term]) for n in range(200)]
    plan = solve(*plain, *owners, pools=(pool(types=TYPES),))
    assert plan.unschedulable == {}


def test_improving_a_large_batch_takes_no_more_work_than_it_was_given() -> None:
    """Else a plan that must not depend on the clock would take as long as it likes."""
    problem = Problem(Snapshot(pools=(pool(types=TYPES),), pending=tuple(mixed(600, 5))))
    first = quick_packing(problem)
    before = first.state.meter.spent
    better_by_work(problem, first, 0, 0.05, 0.0)
    assert first.state.meter.spent - before < 3 * 0.05 * 40_000


def test_one_impossible_pod_does_not_make_a_large_batch_be_planned_again(solve: Solve) -> None:
    """Nothing could hold it, so no pod goes short for want of a better packing."""
    from dovetail.planner.problem.compile import Problem
    from dovetail.planner.provision import quick_packing
    from dovetail.planner.snapshot import Snapshot

    pods = mixed(600, 5)
    alone = Problem(Snapshot(pools=(pool(types=TYPES),), pending=tuple(pods)))
    beside = Problem(Snapshot(pools=(pool(types=TYPES),), pending=(*pods, pod("giant", cpu="1000000"))))
    without, with_giant = quick_packing(alone), quick_packing(beside)
    assert sum(without.left.values()) == 0
    assert sum(with_giant.left.values()) == 1
    assert with_giant.state.meter.spent < 1.2 * without.state.meter.spent
