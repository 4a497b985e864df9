"""Options of the whole suite: how Hypothesis searches, and a slice of the slow tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from dovetail import language
from dovetail.kube import log

settings.register_profile("dovetail", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dovetail"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dovetail")


@pytest.fixture(autouse=True)
def log_configuration() -> Iterator[None]:
    """A command that was run in process has quieted the logs of its process; the next test reads them."""
    yield
    log.silence(False)
    if "structlog" in sys.modules:
        sys.modules["structlog"].reset_defaults()


@pytest.fixture(autouse=True)
def english_reader() -> Iterator[None]:
    """A test may choose a language for its whole process; the next test reads English."""
    yield
    language.use("en")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--first-case",
        action="store_true",
        help="Run the first case of every parametrized test alone (make test-slow-slice).",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--first-case"):
        return
    first: dict[str, pytest.Item] = {}
    for item in items:
        first.setdefault(item.nodeid.partition("[")[0], item)
    left_out = [item for item in items if item not in first.values()]
    config.hook.pytest_deselected(items=left_out)
    items[:] = first.values()
