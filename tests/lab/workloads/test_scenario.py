"""Scenario files: checked with a hint, and played the same every time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.clock import run_virtual
from dovetail.lab.durations import seconds
from dovetail.lab.scenario.runner import ScenarioOutcome, play
from dovetail.lab.scenario.schema import ScenarioError, convert, read

SCENARIOS = Path(__file__).parents[3] / "scenarios"


def run(document: dict[str, Any], lines: list[str] | None = None) -> ScenarioOutcome:
    return run_virtual(play(convert(document), Path(), (lines if lines is not None else []).append))


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), (90, 90), ("2h30m", 9000), ("1d", 86400)])
def test_durations_are_read_in_every_spelling(text: object, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"duration": "1h", "stesp": []}, "the file: unknown field `stesp`; did you mean `steps`?"),
        (
            {"duration": "1h", "steps": [{"at": "1m", "scal": {}}]},
            "steps[0]: unknown field `scal`; did you mean `scale`?",
        ),
        ({"duration": "1h", "cluster": {"pool": []}}, "cluster: unknown field `pool`; did you mean `pools`?"),
        ({"duration": "soon"}, "duration: 'soon' is not a duration; write 90s, 5m, 2h30m or 1d"),
        ({"duration": "1h", "steps": [{"at": "1m"}]}, "steps[0]: exactly one of"),
    ],
)
def test_a_wrong_field_is_named_with_the_one_that_was_meant(document: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        convert(document)
    assert words in str(raised.value)


def test_every_scenario_of_the_repository_is_well_formed() -> None:
    files = sorted(SCENARIOS.glob("*.yaml"))
    assert files
    for file in files:
        read(file)


def test_every_example_of_the_documentation_is_well_formed() -> None:
    text = (SCENARIOS.parent / "docs" / "scenarios.md").read_text()
    examples = re.findall(r"```yaml scenario\n(.*?)```", text, re.DOTALL)
    assert len(examples) > 1
    scenarios = [yaml.safe_load(example) for example in examples]
    for scenario in scenarios:
        if "nodeGroups" not in scenario:
            scenario.setdefault("autoscaler", {})
        assert convert({"duration": "10m", **scenario}).duration
    assert any(convert({"duration": "10m", **scenario}).steps for scenario in scenarios)


def test_a_scenario_is_played_the_same_every_time() -> None:
    scenario = read(SCENARIOS / "rolling-update.yaml")
    first: list[str] = []
    second: list[str] = []
    outcome = run_virtual(play(scenario, SCENARIOS, first.append))
    run_virtual(play(scenario, SCENARIOS, second.append))
    assert first == second
    assert outcome.problems == []
    assert outcome.rows[-1].ready == 10


def test_a_curve_drives_replicas_over_the_day() -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "pause"}]}}
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    outcome = run(
        {
            "duration": "24h",
            "cluster": {"events": "warnings", "detail": "low"},
            "manifests": [web],
            "curves": [{"name": "web", "points": {"0h": 2, "12h": 20}, "every": "30m"}],
            "report": {"every": "6h"},
        }
    )
    assert outcome.rows[2].ready >= 19
    assert outcome.rows[-1].ready in (2, 3)


def test_a_step_that_cannot_be_done_is_a_problem_not_a_crash() -> None:
    outcome = run({"duration": "1m", "steps": [{"at": "10s", "scale": {"name": "none", "replicas": 2}}]})
    assert outcome.problems == ['step at 10 s: deployments.apps "none" not found']
