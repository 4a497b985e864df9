"""A command owns its process; here it is embedded, and what it sets for the whole process is put back."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The form and the level of log lines, and how often garbage is looked for."""
    thresholds = gc.get_threshold()
    monkeypatch.setattr("dovetail.kube.log._quiet", False)
    yield
    structlog.reset_defaults()
    gc.set_threshold(*thresholds)
