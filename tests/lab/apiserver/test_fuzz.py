"""Whatever comes in, a Status goes out: no crash, no damage to the store."""

from __future__ import annotations

import pytest

from dovetail.clock import run_virtual
from tests.lab.apiserver.fuzzing import run


@pytest.mark.parametrize("seed", [1, 2])
def test_a_spoilt_request_gets_a_status_and_changes_nothing(seed: int) -> None:
    assert dict(run_virtual(run(seed, 4_000))) == {}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(10, 15))
def test_a_hundred_thousand_spoilt_requests_change_nothing(seed: int) -> None:
    assert dict(run_virtual(run(seed, 20_000))) == {}
