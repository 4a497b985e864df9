"""Whatever a seed brings, no invariant is violated and the cluster comes to rest. A failure names the command."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from dovetail.clock import run_virtual
from dovetail.lab.scenario import random_scenarios
from dovetail.lab.scenario.runner import play
from dovetail.lab.scenario.schema import ACTS

#: Seeds looked at every time, and all of them; from a thousand on they draw more kinds of trouble.
FEW, ALL = (*range(24), *range(1000, 1012)), range(1400)
TOGETHER = 20
#: What no seed does: it would be the load, not trouble.
UNDRAWN = {"apply", "evict", "join"}
#: Seeds that have failed once.
ONCE = (59, 136, 194, 211, 302, 323, 707, 756, 1017, 1037, 1063, 1132, 1152, 1157, 1170, 1309, 1317, 1365, 1450)


def failures(numbers: Iterable[int]) -> list[str]:
    found = []
    for seed in numbers:
        outcome = run_virtual(play(random_scenarios.scenario(seed), Path(), lambda line: None))
        if outcome.problems:
            found.append(f"dovetail simulate --random {seed}: {'; '.join(outcome.problems)}")
    return found


@pytest.mark.parametrize("start", FEW[::4])
def test_faults_end_in_rest(start: int) -> None:
    assert failures(range(start, start + 4)) == []


def test_wider_seeds_draw_every_kind_of_trouble() -> None:
    """What the later seeds are for: each of these is in some of a hundred."""
    drawn = [random_scenarios.scenario(seed) for seed in range(1000, 1100)]
    kinds = {each["kind"] for scenario in drawn for each in scenario.manifests if isinstance(each, dict)}
    assert kinds >= {"NodePool", "Deployment", "StatefulSet", "DaemonSet", "PodDisruptionBudget"}
    steps = [step for scenario in drawn for step in scenario.steps]
    assert {name for step in steps for name in ACTS if getattr(step, name) is not None} >= set(ACTS) - UNDRAWN
    assert any(scenario.autoscaler and scenario.autoscaler.reserved for scenario in drawn)


def test_no_seed_lies_twice_about_drift() -> None:
    """A drift reported again a minute later counts as evidence, so a false report must not be repeated."""
    drawn = [random_scenarios.scenario(seed) for seed in range(680, 690)]
    lies = [sum(bool(step.cloud and step.cloud.kind == "false-drift") for step in each.steps) for each in drawn]
    assert max(lies) == 1


@pytest.mark.parametrize("seed", ONCE)
def test_what_failed_once_ends_in_rest(seed: int) -> None:
    assert failures([seed]) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", ALL[::TOGETHER])
def test_every_seed_ends_in_rest(start: int) -> None:
    assert failures(range(start, start + TOGETHER)) == []


def test_a_seed_is_the_same_scenario_every_time() -> None:
    assert random_scenarios.scenario(7) == random_scenarios.scenario(7)
    assert random_scenarios.scenario(7) != random_scenarios.scenario(8)
