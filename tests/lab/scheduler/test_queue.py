"""Who is next: importance, age, back-off, and events that help."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.lab.scheduler.queue import SchedulingQueue
from dovetail.model.fit import PodInfo, pod_info
from dovetail.model.meta import view
from dovetail.model.pods import Pod


def pod(name: str, priority: int = 0, **spec: Any) -> PodInfo:
    manifest = {"metadata": {"name": name, "uid": name}, "spec": {"priority": priority, **spec}}
    return pod_info(view(manifest, Pod))


def queue() -> SchedulingQueue:
    return SchedulingQueue(Clock(asyncio.get_running_loop(), EPOCH))


def test_important_pods_go_first_then_older_ones() -> None:
    async def main() -> list[str]:
        waiting = queue()
        for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5)):
            waiting.put(pod(name, priority))
        return [entry.key for _ in range(4) if (entry := waiting.pop()) is not None]

    assert run_virtual(main()) == ["b", "d", "a", "c"]


def test_a_failed_pod_waits_for_an_event_that_helps_it() -> None:
    async def main() -> None:
        waiting = queue()
        waiting.put(pod("a"))
        entry = waiting.pop()
        assert entry is not None
        waiting.failed(entry, frozenset({"NodeResourcesFit"}))
        assert waiting.pop() is None
        waiting.wake(frozenset({"InterPodAffinity"}), lambda _: True)
        assert waiting.pop() is None
        waiting.wake(frozenset({"NodeResourcesFit"}), lambda _: True)
        assert waiting.pop() is entry

    run_virtual(main())


def test_a_pod_that_nothing_helps_is_tried_again_after_five_minutes() -> None:
    async def main() -> float:
        waiting = queue()
        waiting.put(pod("a"))
        entry = waiting.pop()
        assert entry is not None
        waiting.failed(entry, frozenset({"NodeAffinity"}))
        while waiting.pop() is None:
            await waiting.wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 300.0


def test_an_error_is_tried_again_after_a_growing_while() -> None:
    async def main() -> list[float]:
        waiting, times = queue(), [0.0]
        waiting.put(pod("a"))
        while len(times) < 6:
            entry = waiting.pop()
            if entry is None:
                await waiting.wait()
                continue
            times.append(asyncio.get_running_loop().time())
            waiting.again(entry)
        return [later - earlier for earlier, later in pairwise(times[1:])]

    assert run_virtual(main()) == [1.0, 2.0, 4.0, 8.0]


def test_a_gated_pod_is_not_tried() -> None:
    async def main() -> None:
        waiting = queue()
        waiting.put(pod("a", schedulingGates=[{"name": "g"}]))
        assert waiting.pop() is None
        waiting.put(pod("a"))
        assert waiting.pop() is not None

    run_virtual(main())


def test_a_pod_that_is_gone_is_not_tried() -> None:
    async def main() -> None:
        waiting = queue()
        waiting.put(pod("a"))
        waiting.drop("a")
        assert waiting.pop() is None
        assert len(waiting) == 0

    run_virtual(main())
