"""When a batch closes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

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


def test_a_gap_in_a_burst_does_not_close_the_window_while_an_owner_is_still_creating_pods() -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        made: list[str] = []

        async def still_creating(uids: Iterable[str]) -> bool:
            assert list(uids) == made
            return len(made) < 4

        batcher = Batcher(clock, still_creating=still_creating)
        waiting = asyncio.create_task(batcher.wait())
        for uid in ("a", "b", "c", "d"):
            made.append(uid)
            batcher.trigger(uid)
            await asyncio.sleep(2.5)
        assert await waiting == {"a", "b", "c", "d"}
        assert abs(clock.monotonic() - 2.5 * 4) < 0.01  # closed one idle period after the fourth, long since

    run_virtual(main())


def test_an_owner_that_stopped_creating_pods_extends_the_window_only_shortly() -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        batcher = Batcher(clock, still_creating=_always)
        batcher.trigger("a")
        assert await batcher.wait() == {"a"}
        assert abs(clock.monotonic() - 3.0) < 0.01

    run_virtual(main())


def test_no_owner_holds_a_window_open_beyond_the_longest() -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        batcher = Batcher(clock, idle=1.0, longest=10.0, still_creating=_always)
        waiting = asyncio.create_task(batcher.wait())
        number = 0
        while not waiting.done():
            batcher.trigger(str(number := number + 1))
            await asyncio.sleep(1.9)
        assert 9.9 <= clock.monotonic() <= 12.0

    run_virtual(main())


async def _always(uids: Iterable[str]) -> bool:
    return True
