"""When a batch closes."""

from __future__ import annotations

import asyncio

from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.controllers.provisioning.batcher import Batcher


def test_a_batch_closes_one_idle_period_after_its_last_new_pod() -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        batcher = Batcher(clock)
        waiting = asyncio.create_task(batcher.wait())
        for uid in ("a", "b", "c"):
            await asyncio.sleep(0.6)
            batcher.trigger(uid)
        assert await waiting == {"a", "b", "c"}
        assert abs(clock.monotonic() - 2.8) < 0.01

    run_virtual(main())


def test_the_same_pod_again_does_not_hold_the_window_open() -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        batcher = Batcher(clock)
        waiting = asyncio.create_task(batcher.wait())
        while not waiting.done():
            batcher.trigger("a")
            await asyncio.sleep(0.25)
        assert clock.monotonic() <= 1.5

    run_virtual(main())


def test_a_stream_of_pods_is_cut_at_the_longest_window() -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        batcher = Batcher(clock, idle=1.0, longest=10.0)
        waiting = asyncio.create_task(batcher.wait())
        number = 0
        while not waiting.done():
            batcher.trigger(str(number := number + 1))
            await asyncio.sleep(0.5)
        assert 9.9 <= clock.monotonic() <= 10.6

    run_virtual(main())


def test_queued_pods_extend_a_window_but_never_open_one() -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        batcher = Batcher(clock)
        waiting = asyncio.create_task(batcher.wait())
        await asyncio.sleep(5)
        batcher.extend("queued")
        await asyncio.sleep(5)
        assert not waiting.done()
        batcher.trigger("marked")
        await asyncio.sleep(0.5)
        batcher.extend("queued")
        await waiting
        assert abs(clock.monotonic() - 11.5) < 0.01

    run_virtual(main())
