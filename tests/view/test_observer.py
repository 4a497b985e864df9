"""The observer: any cluster is shown as far as it can be read, one difference at a time, and a lost server is seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import msgspec

from dovetail.chance import Chance
from dovetail.clock import Clock, run_virtual
from dovetail.controllers.history.decisions import Decision, Refusal
from dovetail.kube.client import Kube
from dovetail.kube.errors import Disconnected
from dovetail.kube.resources import CONFIGMAPS, NAMESPACES, NODES, PODS
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.in_process import InProcess
from dovetail.model.meta import stamp
from dovetail.view import Difference, FleetView
from dovetail.view.observer import PROBE_INTERVAL_S, Observer


class Cable:
    """A transport that can be cut: no answer, and every open stream ends."""

    def __init__(self, inner: InProcess) -> None:
        self._inner = inner
        self.cut = False
        self.requests: list[Request] = []

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        if self.cut:
            raise Disconnected("connection refused")
        response = await self._inner.send(request)
        if response.stream is not None:
            response.stream = self._guarded(response.stream)
        return response

    async def _guarded(self, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        pending = asyncio.ensure_future(anext(stream))
        try:
            while True:
                await asyncio.wait([pending], timeout=0.5)
                if self.cut:
                    raise Disconnected("connection reset")
                if pending.done():
                    yield pending.result()
                    pending = asyncio.ensure_future(anext(stream))
        except StopAsyncIteration:
            return
        finally:
            pending.cancel()

    async def close(self) -> None:
        await self._inner.close()


@asynccontextmanager
async def observed() -> AsyncIterator[tuple[Kube, Observer, Cable]]:
    clock = Clock(asyncio.get_running_loop())
    server = ApiServer(clock, Chance(1))
    admin = Kube(InProcess(server), clock, chance=Chance(2))
    for name in ("shop", "kube-system"):
        with suppress(Exception):
            await admin.create(NAMESPACES, {"metadata": {"name": name}})
    cable = Cable(InProcess(server))
    observer = Observer(Kube(cable, clock, chance=Chance(3)), clock)
    task = asyncio.create_task(observer.run())
    try:
        await observer.ready.wait()
        yield admin, observer, cable
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def story(tale: Callable[[Kube, Observer, Cable], Awaitable[None]]) -> None:
    async def main() -> None:
        async with observed() as (kube, observer, cable):
            await tale(kube, observer, cable)

    run_virtual(main())


async def _pod(kube: Kube, name: str, node: str = "") -> None:
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "250m"}}}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    await kube.create(PODS, {"metadata": {"name": name, "namespace": "shop"}, "spec": spec})


def test_a_cluster_without_our_kinds_is_shown() -> None:
    async def tale(kube: Kube, observer: Observer, cable: Cable) -> None:
        await kube.create(NODES, {"metadata": {"name": "n1"}})
        await _pod(kube, "web-1", "n1")
        await _pod(kube, "web-2")
        await asyncio.sleep(2)
        view = observer.view
        assert view.nodes["node/n1"].requests == {"cpu": 250, "pods": 1}
        assert list(view.pending) == ["shop/web-2"]
        assert view.health.connected
        assert view.health.unread["nodeclaims.karpenter.sh"] == "not served"
        assert view.health.safe_mode == ""  # the history can be read, and has nothing

    story(tale)


def test_changes_within_a_moment_are_one_difference_and_quiet_is_none() -> None:
    async def tale(kube: Kube, observer: Observer, cable: Cable) -> None:
        heard: list[Difference] = []
        await asyncio.sleep(5)
        stop = observer.listen(lambda view, change: heard.append(change))
        for number in range(20):
            await _pod(kube, f"web-{number}")
        await asyncio.sleep(1)
        assert 1 <= len(heard) <= 3
        assert sum(len(change.pending) for change in heard) == 20
        heard.clear()
        await asyncio.sleep(60)
        assert heard == []
        stop()
        await _pod(kube, "more")
        await asyncio.sleep(1)
        assert heard == []

    story(tale)


def test_a_lost_server_is_seen_at_once_and_heals() -> None:
    async def tale(kube: Kube, observer: Observer, cable: Cable) -> None:
        await asyncio.sleep(5)
        seen: list[FleetView] = []
        observer.listen(lambda view, change: seen.append(view))
        cable.cut = True
        await asyncio.sleep(PROBE_INTERVAL_S + 4)
        assert not seen[-1].health.connected and "API server" in seen[-1].health.problems
        cable.cut = False
        await kube.create(NODES, {"metadata": {"name": "meanwhile"}})
        await asyncio.sleep(60)
        assert seen[-1].health.connected and "node/meanwhile" in seen[-1].nodes

    story(tale)


def test_a_refusal_in_the_history_is_the_reason_of_a_pending_pod() -> None:
    async def tale(kube: Kube, observer: Observer, cable: Cable) -> None:
        await _pod(kube, "web-1")
        await asyncio.sleep(1)
        refusal = Refusal(pods=("shop/web-1",), count=1, code="NO_NODEPOOL", message="there is no NodePool")
        decision = Decision(id="d-1", kind="refuse", time=stamp(observer.clock.now()), summary="s", refusals=(refusal,))
        labels = {"dovetail.sh/history": "true"}
        text = msgspec.json.encode(decision).decode() + "\n"
        metadata = {"name": "dovetail-history-1", "namespace": "kube-system", "labels": labels}
        await kube.create(CONFIGMAPS, {"metadata": metadata, "data": {"decisions": text}})
        await asyncio.sleep(1)
        assert observer.view.pending["shop/web-1"].code == "NO_NODEPOOL"

    story(tale)


def test_nothing_is_ever_written() -> None:
    async def tale(kube: Kube, observer: Observer, cable: Cable) -> None:
        await _pod(kube, "web-1")
        await asyncio.sleep(120)
        assert cable.requests
        assert {request.method for request in cable.requests} == {"GET"}
        assert not any("secrets" in request.path for request in cable.requests)

    story(tale)
