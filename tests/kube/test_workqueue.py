"""The work queue: one worker a key, no news lost, none worked on twice."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.clock import run_virtual
from dovetail.kube.backoff import Retries
from dovetail.kube.workqueue import Closed, WorkQueue


def test_a_key_added_often_is_worked_on_once() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for _ in range(5):
            queue.add("a")
        queue.add("b")
        assert [await queue.get(), await queue.get()] == ["a", "b"]
        assert len(queue) == 0

    run_virtual(main())


def test_news_during_work_bring_the_key_again_and_not_beside() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        assert await queue.get() == "a"
        queue.add("a")
        assert len(queue) == 0
        queue.done("a")
        assert await queue.get() == "a"
        queue.done("a")
        assert queue.idle

    run_virtual(main())


def test_a_failed_key_returns_after_growing_pauses_up_to_a_cap() -> None:
    async def main() -> list[float]:
        queue: WorkQueue[str] = WorkQueue(Retries(base=1, cap=60))
        pauses: list[float] = []
        for _ in range(12):
            pauses.append(queue.retry("a"))
            assert await queue.get() == "a"
            queue.done("a")
        return pauses

    pauses = run_virtual(main())
    assert pauses[0] <= 1.5
    assert 30 <= pauses[-1] <= 90


def test_an_added_key_does_not_wait_for_its_delay_and_comes_once() -> None:
    async def main() -> float:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 600)
        queue.add("a")
        assert await queue.get() == "a"
        came = asyncio.get_running_loop().time()
        queue.done("a")
        await asyncio.sleep(1000)
        assert queue.idle, "the delayed key does not come again"
        return came

    assert run_virtual(main()) == 0.0


def test_the_earliest_of_several_returns_counts() -> None:
    async def main() -> float:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 600)
        queue.add_after("a", 5)
        queue.add_after("a", 50)
        await queue.get()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(5)


def test_a_cancelled_worker_leaves_its_wake_up_to_the_next() -> None:
    async def main() -> str:
        queue: WorkQueue[str] = WorkQueue()
        first = asyncio.create_task(queue.get())
        second = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
        first.cancel()
        return await second

    assert run_virtual(main()) == "a"


def test_a_closed_queue_ends_its_workers_after_what_waits() -> None:
    async def main() -> list[str]:
        queue: WorkQueue[str] = WorkQueue()
        handled: list[str] = []

        async def handle(key: str) -> None:
            await asyncio.sleep(1)
            handled.append(key)

        queue.add("a")
        queue.add("b")
        asyncio.get_running_loop().call_later(0.5, queue.close)
        await queue.work(handle, failed=lambda *_: None, workers=2)
        with pytest.raises(Closed):
            await queue.get()
        return handled

    assert run_virtual(main()) == ["a", "b"]


def test_a_failing_key_does_not_stop_the_others_and_is_tried_again() -> None:
    async def main() -> tuple[list[str], list[str]]:
        queue: WorkQueue[str] = WorkQueue()
        handled: list[str] = []
        failed: list[str] = []

        async def handle(key: str) -> None:
            if key == "bad" and not failed:
                raise ValueError("no")
            handled.append(key)
            if len(handled) == 2:
                queue.close()

        queue.add("bad")
        queue.add("good")
        await queue.work(handle, failed=lambda key, problem, _: failed.append(f"{key} {problem}"))
        assert queue.failures("bad") == 0
        return handled, failed

    assert run_virtual(main()) == (["good", "bad"], ["bad no"])
