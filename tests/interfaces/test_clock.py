"""The time interface: virtual days, scaled seconds, and deadlocks that speak."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from dovetail.clock import EPOCH, Clock, Deadlock, ScaledLoop, VirtualLoop, run_scaled, run_virtual

#: More turns of an event loop than it needs to wait once, and far fewer than one that spins makes in a moment.
FEW = 50
#: Far less than the minute, or the day, that passes in the test, and far more than a busy node needs.
MOMENT = 30


def turns(loop: asyncio.AbstractEventLoop) -> Callable[[], int]:
    """How often a loop has turned since."""
    selector = loop._selector  # type: ignore[attr-defined]
    select, count = selector.select, itertools.count()

    def counted(timeout: float | None = None) -> object:
        next(count)
        return select(timeout)

    selector.select = counted
    return lambda: next(count)


def test_a_virtual_day_takes_no_time() -> None:
    async def main() -> datetime:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        await asyncio.sleep(86_400)
        return clock.now()

    began = time.monotonic()
    assert run_virtual(main()) == EPOCH + timedelta(days=1)
    assert time.monotonic() - began < MOMENT


def test_a_thousand_timers_over_a_day_are_fast() -> None:
    async def main() -> int:
        await asyncio.gather(*(asyncio.sleep(86_400 * n / 1000) for n in range(1000)))
        return 1

    began = time.monotonic()
    run_virtual(main())
    assert time.monotonic() - began < MOMENT


def test_timers_due_at_the_same_instant_fire_in_the_order_they_were_set() -> None:
    async def main() -> list[int]:
        fired: list[int] = []
        loop = asyncio.get_running_loop()
        for n in range(200):
            loop.call_at(10.0, fired.append, n)
        await asyncio.sleep(10.0)
        return fired

    assert run_virtual(main()) == list(range(200))


def test_a_cancelled_timer_does_not_move_time() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(500, lambda: None).cancel()
        await asyncio.sleep(1)
        return loop.time()

    assert run_virtual(main()) == pytest.approx(1.0)


def test_timeouts_and_cancellation_work_in_virtual_time() -> None:
    async def main() -> tuple[float, bool]:
        cleaned = False

        async def worker() -> None:
            nonlocal cleaned
            try:
                await asyncio.sleep(1e6)
            finally:
                cleaned = True

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await worker()
        return asyncio.get_running_loop().time(), cleaned

    assert run_virtual(main()) == (pytest.approx(30.0), True)


def test_a_deadlock_raises_and_names_every_task_and_what_they_wait_for() -> None:
    async def forever(event: asyncio.Event) -> None:
        await event.wait()

    async def main() -> None:
        event = asyncio.Event()
        task = asyncio.create_task(forever(event), name="the reflector of pods")
        await task

    with pytest.raises(Deadlock) as caught:
        run_virtual(main())
    assert "the reflector of pods: " in str(caught.value)
    assert "forever line" in str(caught.value)
    assert "Event.wait line" in str(caught.value)


def test_a_deadlock_still_cleans_up_the_tasks() -> None:
    cleaned: list[str] = []

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("main")

    with pytest.raises(Deadlock):
        run_virtual(main())
    assert cleaned == ["main"]


def test_threads_of_the_loop_pin_time_until_they_return() -> None:
    async def main() -> tuple[str, float]:
        late = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(3600, late.set_result, None)
        answer = await asyncio.to_thread(lambda: threading.Event().wait(0.05) or "done")
        return str(answer), asyncio.get_running_loop().time()

    assert run_virtual(main()) == ("done", 0.0)


def test_pinned_time_waits_for_a_foreign_thread_without_spinning() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        woken = asyncio.Event()
        loop.call_later(60, lambda: None)
        thread = threading.Timer(0.2, lambda: loop.call_soon_threadsafe(woken.set))
        turned = turns(loop)
        with loop.pinned():
            thread.start()
            await woken.wait()
        thread.join()
        assert turned() < FEW
        return loop.time()

    assert run_virtual(main()) == 0.0


def test_a_socket_wakes_a_virtual_loop_that_has_no_timers() -> None:
    async def main() -> bytes:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        line = await reader.readline()
        writer.close()
        server.close()
        return line

    assert run_virtual(main()) == b"hello\n"


TRACE = """
import asyncio, hashlib
from dovetail.chance import Chance
from dovetail.clock import run_virtual
async def main():
    trace = []
    async def producer(name, chance):
        for step in range(20):
            await asyncio.sleep(chance.choice([1, 1, 2, 5]))
            trace.append(f"{name}:{step}:{asyncio.get_running_loop().time()}")
    root = Chance(7)
    names = {f"p{n}" for n in range(50)}
    await asyncio.gather(*(producer(name, root.child(name)) for name in sorted(names)))
    return hashlib.sha256("\\n".join(trace).encode()).hexdigest()
print(run_virtual(main()))
"""


def test_a_trace_is_the_same_for_every_hash_seed() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", TRACE], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
    assert len(digests.pop().strip()) == hashlib.sha256().digest_size * 2


def test_a_scaled_loop_runs_faster_than_the_wall() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(60)
        return loop.time() - began

    began = time.monotonic()
    assert run_scaled(main(), speed=600) >= 60
    assert 0.09 < time.monotonic() - began < MOMENT


def test_work_on_a_scaled_loop_is_not_hastened() -> None:
    """Deadlines mean what they say even where the node is too slow for the speed that was asked for."""

    async def main() -> tuple[float, float]:
        await asyncio.sleep(1)
        loop, began = asyncio.get_running_loop(), time.monotonic()
        before = loop.time()
        while time.monotonic() - began < 0.02:
            pass
        return loop.time() - before, time.monotonic() - began

    counted, worked = run_scaled(main(), speed=1000)
    assert 0.01 < counted <= worked


def test_a_scaled_loop_keeps_time_continuous_when_its_speed_changes() -> None:
    loop = ScaledLoop(100)
    try:
        before = loop.time()
        loop.speed = 1000
        assert loop.time() >= before
        assert loop.time() - before < 100
    finally:
        loop.close()


@pytest.mark.parametrize("speed", [0, -1, float("nan")])
def test_a_speed_that_makes_no_sense_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="speed must be above 0"):
        ScaledLoop(speed)


def test_an_idle_scaled_loop_does_not_spin() -> None:
    async def main() -> int:
        turned = turns(asyncio.get_running_loop())
        await asyncio.sleep(30)
        return turned()

    assert run_scaled(main(), speed=100) < FEW


def test_sockets_work_on_a_scaled_loop() -> None:
    async def main() -> bytes:
        server = await asyncio.start_server(_greet, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        line = await reader.readline()
        writer.close()
        server.close()
        return line

    async def _greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hi\n")
        await writer.drain()
        writer.close()

    assert run_scaled(main(), speed=300) == b"hi\n"


def test_the_clock_of_an_ordinary_loop_is_the_wall_clock() -> None:
    async def main() -> timedelta:
        return abs(Clock(asyncio.get_running_loop()).now() - datetime.now(UTC))

    assert asyncio.run(main()) < timedelta(seconds=1)
