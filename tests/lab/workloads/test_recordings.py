"""The lab ends where a real control plane ended, and says what it said; the recordings are in tests/data/living."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail.clock import run_virtual
from dovetail.lab.cluster import Lab, LabParts
from tests.lab.workloads.workload_runs import RECORDED, WORKLOAD_RUNS, play


@pytest.fixture(scope="module", params=sorted(WORKLOAD_RUNS))
def both(request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was recorded, and what the lab comes to."""

    async def lived() -> dict[str, Any]:
        async with Lab.embedded(1, LabParts(storage=False)) as lab:
            return await play(lab, request.param)

    return json.loads((RECORDED / f"{request.param}.json").read_text()), run_virtual(lived())


def test_the_lab_ends_in_the_statuses_that_the_real_controllers_wrote(both: Any) -> None:
    recorded, ours = both
    for name, status in recorded["statuses"].items():
        assert {name: ours["statuses"].get(name)} == {name: status}


def test_the_lab_reports_what_the_real_controllers_reported(both: Any) -> None:
    recorded, ours = (set(each["events"]) for each in both)
    assert sorted(recorded - ours) == []
    assert sorted(ours - recorded) == []
