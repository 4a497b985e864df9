"""Python's garbage collection runs while no pod waits, and its settings are restored at the end."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from dovetail.clock import run_virtual
from dovetail.controllers import python_gc
from dovetail.controllers.python_gc import INTERVAL_S, collect_when_idle


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each collection was a full one."""
    made: list[bool] = []
    monkeypatch.setattr(python_gc, "settle", lambda thorough: made.append(thorough))
    yield made
    gc.unfreeze()


def test_a_collection_waits_for_a_moment_without_pending_pods(collections: list[bool]) -> None:
    async def scenario() -> None:
        waiting = True
        task = asyncio.create_task(collect_when_idle(lambda: not waiting))
        await asyncio.sleep(INTERVAL_S + 10)
        assert not collections
        waiting = False
        await asyncio.sleep(1.5)
        assert collections == [False]
        task.cancel()

    run_virtual(scenario())


def test_a_collection_is_not_postponed_for_ever(collections: list[bool]) -> None:
    async def scenario() -> None:
        task = asyncio.create_task(collect_when_idle(lambda: False))
        await asyncio.sleep(INTERVAL_S + python_gc.MAX_POSTPONEMENT_S + 1)
        assert collections == [False]
        task.cancel()

    run_virtual(scenario())


def test_collection_thresholds_are_restored_at_the_end(collections: list[bool]) -> None:
    before = gc.get_threshold()

    async def scenario() -> None:
        task = asyncio.create_task(collect_when_idle(lambda: True))
        await asyncio.sleep(1.0)
        assert gc.get_threshold() != before
        task.cancel()
        await asyncio.wait([task])

    run_virtual(scenario())
    assert gc.get_threshold() == before
