"""A recording of a fleet that grows and shrinks, and the page over it in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp

from dovetail.offline.growing_recording import GrowingRecording
from dovetail.offline.recording import Writer, key_of
from dovetail.web.run import ServeOptions, recorded_dashboard
from tests.offline.recording.small import IDENTITY, START, later, pod

T = TypeVar("T")
TOKEN = "a-token-for-the-tests"


def node(name: str) -> dict[str, Any]:
    """An on-demand m5.xlarge of us-east-1, whose list price is packaged."""
    labels = {
        "node.kubernetes.io/instance-type": "m5.xlarge",
        "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": "us-east-1a",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/nodepool": "default",
    }
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "58"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"providerID": f"aws:///us-east-1a/{name}"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def write(path: Path) -> Path:
    """Ten minutes: two nodes come after 100 s and 200 s, the latter goes after 400 s; pods wait between."""
    with Writer.create(path, START, "shop-cluster", IDENTITY) as writer:
        writer.put(START, node("first"))
        writer.put(START, pod("web-0", "first", "Running"))
        writer.begin()
        for number in range(1, 6):
            writer.put(later(50), pod(f"web-{number}"))
        writer.put(later(100), node("second"))
        for number in range(1, 4):
            writer.put(later(110), pod(f"web-{number}", "second", "Running"))
        writer.usage(later(120), {key_of(node("first")): (500_000_000, 1 << 30)})
        writer.put(later(200), node("third"))
        for number in range(4, 6):
            writer.put(later(210), pod(f"web-{number}", "third", "Running"))
        for number in range(4, 6):
            writer.delete(later(390), key_of(pod(f"web-{number}")))
        writer.delete(later(400), key_of(node("third")))
        writer.close(later(600))
    return path


class RecordedPage:
    """`with RecordedPage(path) as page`; `page.get(address)` asks with the token's cookie.

    With `is_written` the recording is followed while that says so.
    """

    def __init__(self, path: Path, is_written: Callable[[], bool] = lambda: False) -> None:
        self._path = path
        self._is_written = is_written
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recorded page", daemon=True)
        self._stack = AsyncExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.do(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _start(self) -> None:
        recorded = await GrowingRecording.opened(self._path, self._is_written)
        assert recorded is not None
        following = asyncio.create_task(recorded.follow(self._is_written))
        self._stack.callback(following.cancel)
        options = ServeOptions(port=0, token=TOKEN, title=self._path.name)
        self.url, _ = await self._stack.enter_async_context(recorded_dashboard(recorded, options))
        jar = aiohttp.CookieJar(unsafe=True)
        self._session = await self._stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
        async with self._session.get(self.url) as response:
            assert response.status == 200

    @property
    def base(self) -> str:
        return self.url.partition("?")[0].rstrip("/")

    def get(self, address: str, status: int = 200) -> str:
        """The text of a page; of a redirect, where it leads."""

        async def ask() -> str:
            async with self._session.get(self.base + address, allow_redirects=False) as response:
                assert response.status == status, await response.text()
                return response.headers["Location"] if status == 302 else await response.text()

        return self.do(ask())
