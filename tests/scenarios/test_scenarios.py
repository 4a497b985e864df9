"""Every scenario of a known incident ends as it expects, and no invariant is violated on the way."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.clock import run_virtual
from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.history.store import ConfigMaps
from dovetail.lab.durations import Seconds
from dovetail.lab.scenario.runner import ScenarioOutcome, play
from dovetail.lab.scenario.schema import Expect, ScenarioError, convert, read

FOLDER = Path(__file__).parents[2] / "scenarios"
INCIDENTS = sorted(FOLDER.glob("f[0-9][0-9]-*.yaml"))
OTHERS = (FOLDER / "by-hand.yaml", FOLDER / "repair.yaml", FOLDER / "node-groups-day.yaml")
#: A month takes minutes.
LONG = ("f26-month", "node-groups-day")
#: What the field's incidents ask for, as far as terminations are concerned.
REQUIRED = {*range(1, 15), 19, *range(25, 33), 34}


def run(path: Path) -> tuple[ScenarioOutcome, list[str]]:
    log: list[str] = []
    return run_virtual(play(read(path), FOLDER, log.append)), log


def test_every_incident_has_its_scenario() -> None:
    assert {int(path.name[1:3]) for path in INCIDENTS} >= REQUIRED


def _marked(path: Path) -> Any:
    marks = (pytest.mark.slow, pytest.mark.timeout(1800)) if path.stem in LONG else ()
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", [_marked(path) for path in (*INCIDENTS, *OTHERS)])
def test_the_incident_ends_as_expected(path: Path) -> None:
    outcome, log = run(path)
    assert not outcome.problems, "\n".join([*outcome.problems, *log[-15:]])


def test_the_same_seed_stores_the_same_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long the host took to plan is no part of it."""
    stored: list[list[Decision]] = []
    append = ConfigMaps.append

    async def keep(store: ConfigMaps, decisions: Iterable[Decision]) -> None:
        decisions = list(decisions)
        stored[-1] += decisions
        await append(store, decisions)

    monkeypatch.setattr(ConfigMaps, "append", keep)
    for _ in range(2):
        stored.append([])
        run(FOLDER / "f30-interruptions.yaml")
    assert stored[0] and stored[0] == stored[1]


def test_an_expectation_that_does_not_hold_is_a_problem() -> None:
    scenario = convert({"duration": "10s", "cluster": {"pools": [{"count": 1}]}, "expect": {"nodesAtMost": 0}})
    outcome = run_virtual(play(scenario, FOLDER, lambda line: None))
    assert outcome.problems == ["expected at most 0 nodes, not 1"]


def test_a_step_for_the_autoscaler_needs_one() -> None:
    with pytest.raises(ScenarioError, match=r"steps\[0\].restart: the scenario has no autoscaler"):
        convert({"duration": "10s", "steps": [{"at": 1, "restart": True}]})


def test_node_groups_take_the_place_of_the_autoscaler() -> None:
    """The morning of a day on three groups: they grow with the load, and a lost instance is replaced."""
    day = read(FOLDER / "node-groups-day.yaml")
    morning = msgspec.structs.replace(day, duration=Seconds(6 * 3600), steps=(), expect=Expect(pending=0))
    outcome = run_virtual(play(morning, FOLDER, lambda line: None))
    assert not outcome.problems
    assert outcome.rows[-1].ready == outcome.rows[-1].pods > 10


@pytest.mark.parametrize(("flags", "empty"), [((), 2), (("--scale-down-unneeded-time=1m",), 0)])
def test_flags_of_the_scale_down_reach_the_groups(flags: tuple[str, ...], empty: int) -> None:
    """Of the six nodes that there are, group a has two empty ones; the cluster itself has three."""
    group = {"name": "a", "type": "m5.large", "size": 2, "max": 5, "zones": ["ap-northeast-2a"]}
    other = {"name": "b", "type": "m5.large", "min": 1, "max": 5, "zones": ["ap-northeast-2a"]}
    scenario = convert({"duration": "5m", "nodeGroups": {"groups": [group, other], "flags": list(flags)}})
    outcome = run_virtual(play(scenario, FOLDER, lambda line: None))
    assert not outcome.problems
    assert outcome.rows[-1].nodes == 4 + empty


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"autoscaler": {}}, "either an autoscaler or nodeGroups"),
        ({"nodeGroups": {"groups": [{"name": "a", "type": "m5.large", "min": 3, "max": 1}]}}, "between min and max"),
        ({"nodeGroups": {"groups": [{"name": "a", "typ": "m5.large"}]}}, "typ"),
    ],
)
def test_wrong_node_groups_are_refused(change: dict[str, Any], problem: str) -> None:
    base = {"duration": "10s", "nodeGroups": {"groups": [{"name": "a", "type": "m5.large"}]}}
    with pytest.raises(ScenarioError, match=problem):
        convert({**base, **change})
