"""Which failures of `make test` are retried."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.retry_real_time import LAST_FAILED, MAX_RETRIED, REAL_TIME, main, refusal

PAGE = "tests/docs/test_code_blocks.py::test_commands_print_what_the_page_shows[tutorials/first-steps.md]"


def test_a_few_failures_in_real_time_are_retried() -> None:
    assert refusal([PAGE, "tests/web/test_stream.py::test_updates"]) is None


def test_a_failure_in_virtual_time_is_final() -> None:
    virtual = "tests/controllers/test_static.py::test_replicas"
    assert refusal([PAGE, virtual]) == f"{virtual} runs in virtual time"


def test_many_failures_are_final() -> None:
    assert refusal([f"{PAGE}{number}" for number in range(MAX_RETRIED + 1)]) is not None


def test_a_run_that_recorded_no_failure_is_final() -> None:
    """pytest ended before it ran a test: a retry of nothing would pass."""
    assert refusal([]) is not None


def test_every_folder_in_real_time_exists() -> None:
    root = Path(__file__).parents[2]
    assert [folder for folder in REAL_TIME if not (root / folder).is_dir()] == []


@pytest.mark.parametrize(("body", "status"), [("assert True", 0), ("assert False", 1)])
def test_the_second_run_decides(tmp_path: Path, body: str, status: int) -> None:
    test = tmp_path / "tests/docs/test_page.py"
    test.parent.mkdir(parents=True)
    test.write_text(f"def test_page() -> None:\n    {body}\n")
    recorded = tmp_path / LAST_FAILED
    recorded.parent.mkdir(parents=True)
    recorded.write_text(json.dumps({"tests/docs/test_page.py::test_page": True}))
    assert main(tmp_path) == status
