"""Python's garbage collection runs while no pod waits, and its settings are restored at the end."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from dovetail.clock import run_virtual
from dovetail.controllers import python_gc
from dovetail.controllers.python_gc import EVERY, tidy


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each collection was a full one."""
    made: list[bool] = []
    monkeypatch.setattr(python_gc, "settle", lambda thorough: made.append(thorough))
    yield made
    gc.unfreeze()


def test_a_collection_waits_for_a_moment_without_pending_pods(looks: list[bool]) -> None:
    async def story() -> None:
        waiting = True
        task = asyncio.create_task(tidy(lambda: not waiting))
        await asyncio.sleep(EVERY + 10)
        assert not looks
        waiting = False
        await asyncio.sleep(1.5)
        assert looks == [False]
        task.cancel()

    run_virtual(story())


def test_a_collection_is_not_postponed_for_ever(looks: list[bool]) -> None:
    async def story() -> None:
        task = asyncio.create_task(tidy(lambda: False))
        await asyncio.sleep(EVERY + python_gc.PATIENCE + 1)
        assert looks == [False]
        task.cancel()

    run_virtual(story())


def test_collection_thresholds_are_restored_at_the_end(looks: list[bool]) -> None:
    before = gc.get_threshold()

    async def story() -> None:
        task = asyncio.create_task(tidy(lambda: True))
        await asyncio.sleep(1.0)
        assert gc.get_threshold() != before
        task.cancel()
        await asyncio.wait([task])

    run_virtual(story())
    assert gc.get_threshold() == before
