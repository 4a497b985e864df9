"""Whatever a seed brings, no promise is broken and the cluster comes to rest. A failure names the command."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from dovetail.clock import run_virtual
from dovetail.lab.scenario import seeds
from dovetail.lab.scenario.play import play

#: Seeds looked at every time, and all of them.
FEW, ALL = range(24), range(1000)
TOGETHER = 20
#: Seeds that have failed once.
ONCE = (59, 136, 194, 211, 302, 323, 707, 756)


def failures(numbers: Iterable[int]) -> list[str]:
    found = []
    for seed in numbers:
        outcome = run_virtual(play(seeds.scenario(seed), Path(), lambda line: None))
        if outcome.problems:
            found.append(f"dovetail simulate --random {seed}: {'; '.join(outcome.problems)}")
    return found


@pytest.mark.parametrize("start", FEW[::4])
def test_faults_end_in_rest(start: int) -> None:
    assert failures(range(start, start + 4)) == []


@pytest.mark.parametrize("seed", ONCE)
def test_what_failed_once_ends_in_rest(seed: int) -> None:
    assert failures([seed]) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", ALL[::TOGETHER])
def test_a_thousand_seeds_end_in_rest(start: int) -> None:
    assert failures(range(start, start + TOGETHER)) == []


def test_a_seed_is_the_same_scenario_every_time() -> None:
    assert seeds.scenario(7) == seeds.scenario(7)
    assert seeds.scenario(7) != seeds.scenario(8)
