"""Profiling, with `--enable-profiling`: what every task waits for, and which lines hold the memory.

Served on the loopback address alone, because a dump shows names of workloads; `kubectl port-forward` reaches it.
Tracing of allocations begins with the first request for memory and costs time from then on until it is stopped.
"""

from __future__ import annotations

import asyncio
import gc
import io
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from dovetail.runtime.http_log import http_log

LOOPBACK = "127.0.0.1"
#: Frames of a task's stack that are shown.
MAX_FRAMES = 12
#: Lines of code and types of objects that are listed.
MAX_ROWS = 40


@asynccontextmanager
async def serving_profiles(port: int) -> AsyncIterator[None]:
    """Serve /debug/tasks and /debug/memory on the loopback address while the block runs."""
    app = web.Application()
    app.add_routes(
        [
            web.get("/debug/tasks", _tasks),
            web.get("/debug/memory", _memory),
            web.post("/debug/memory/stop", _stop_tracing),
        ]
    )
    runner = web.AppRunner(app, access_log=None, logger=http_log)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, port).start()
        yield
    finally:
        await runner.cleanup()


def task_dump(tasks: set[asyncio.Task[object]]) -> str:
    """Every task with its stack, by name."""
    text = io.StringIO()
    text.write(f"{len(tasks)} tasks\n")
    for task in sorted(tasks, key=lambda task: task.get_name()):
        text.write(f"\n{task.get_name()}\n")
        task.print_stack(limit=MAX_FRAMES, file=text)
    return text.getvalue()


def memory_top() -> str:
    """Lines of code by what they allocated since tracing began; on the first call tracing begins."""
    if not tracemalloc.is_tracing():
        tracemalloc.start()
        head = "tracing begins now: ask again in a while for what was allocated since; types of objects alive:"
        return "\n".join((head, *_types()))
    traced, peak = tracemalloc.get_traced_memory()
    lines = tracemalloc.take_snapshot().statistics("lineno")[:MAX_ROWS]
    rows = [f"{line.size / 1024:10.0f} KiB {line.count:9d}  {line.traceback}" for line in lines]
    head = f"traced {traced / 2**20:.1f} MiB, peak {peak / 2**20:.1f} MiB; POST /debug/memory/stop ends tracing"
    return "\n".join((head, *rows, "", "types of objects alive:", *_types()))


def _types() -> list[str]:
    count = Counter(type(thing).__qualname__ for thing in gc.get_objects())
    return [f"{number:9d}  {name}" for name, number in count.most_common(MAX_ROWS)]


async def _tasks(_: web.Request) -> web.Response:
    return web.Response(text=task_dump(asyncio.all_tasks()))


async def _memory(_: web.Request) -> web.Response:
    return web.Response(text=memory_top())


async def _stop_tracing(_: web.Request) -> web.Response:
    tracemalloc.stop()
    return web.Response(text="stopped")
