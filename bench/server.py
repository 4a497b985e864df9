"""The embedded API server: creates, gets, watchers, memory; beside kube-apiserver where that is built.

In process means a function call; over HTTP means aiohttp on the loopback with the client in the same process, which
costs the server half of the figure. The real server is asked the same over HTTPS.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench.synthetic_pods import plain, pod
from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.http import Http
from dovetail.kube.resources import NAMESPACES, PODS
from dovetail.kube.transport import Request, Transport
from dovetail.lab.apiserver.http import HttpMount
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.in_process import InProcess
from dovetail.lab.real_control_plane import RealControlPlane, binary

CREATES, GETS, WATCHERS, EVENTS = 10_000, 10_000, 200, 200
Make = Callable[[int, str], dict[str, Any]]


def say(name: str, figure: str, target: str = "") -> None:
    print(f"{name:44} {figure:>14}   {target}", flush=True)


def resident() -> int:
    """Bytes of this process in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def creates(transport: Transport, count: int, workers: int, make: Make = plain) -> float:
    """Creates a second, the bodies ready beforehand."""
    headers = {"content-type": "application/json", "user-agent": "bench"}
    path = PODS.path("bench")
    requests = [
        Request(method="POST", path=path, headers=headers, body=msgspec.json.encode(make(number, "bench")))
        for number in range(count)
    ]
    return await _rate(requests, transport, workers)


async def gets(transport: Transport, count: int, workers: int) -> float:
    requests = [
        Request(method="GET", path=PODS.path("bench", plain(number % 1000)["metadata"]["name"]))
        for number in range(count)
    ]
    return await _rate(requests, transport, workers)


async def creates_more(kube: Kube, first: int, last: int) -> None:
    for number in range(first, last):
        await kube.create(PODS, plain(number, "bench"))


async def _rate(requests: list[Request], transport: Transport, workers: int) -> float:
    waiting = iter(requests)

    async def work() -> None:
        for request in waiting:
            response = await transport.send(request)
            assert response.status < 300, response.body

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(workers)))
    return len(requests) / (time.perf_counter() - began)


async def watchers(kube: Kube, count: int, events: int) -> float:
    """Deliveries a second: every watcher gets every event, in order."""
    await kube.create(NAMESPACES, {"metadata": {"name": "watched"}})
    ready = asyncio.Semaphore(0)

    async def follow() -> list[str]:
        versions: list[str] = []
        start = (await kube.list(PODS, "watched")).resource_version
        ready.release()
        async for event in kube.watch(PODS, "watched", resource_version=start):
            if event.type != "BOOKMARK":
                versions.append(event.object["metadata"]["resourceVersion"])
            if len(versions) == events:
                return versions
        return versions

    tasks = [asyncio.create_task(follow()) for _ in range(count)]
    for _ in tasks:
        await ready.acquire()
    await asyncio.sleep(0.5)
    began = time.perf_counter()
    for number in range(events):
        await kube.create(PODS, plain(number, "watched"))
    seen = await asyncio.gather(*tasks)
    seconds = time.perf_counter() - began
    assert all(one == seen[0] and sorted(one, key=int) == one and len(one) == events for one in seen)
    return count * events / seconds


async def embedded() -> tuple[float, float]:
    loop = asyncio.get_running_loop()
    server = ApiServer(clock=Clock(loop), chance=Chance(1))
    inside = Kube(InProcess(server), Clock(loop))
    await inside.create(NAMESPACES, {"metadata": {"name": "bench"}})
    gc.collect()
    before = resident()
    busy = time.process_time()
    rate = await creates(inside.transport, CREATES, 1)
    busy = time.process_time() - busy
    say("creates in process", f"{rate:,.0f}/s", f"target 5,000/s; {CREATES / busy:,.0f} per second of processor")
    await creates_more(inside, CREATES, 3 * CREATES)
    gc.collect()
    say(
        f"memory per idle pod, of {3 * CREATES:,}",
        f"{(resident() - before) / CREATES / 3 / 1024:.1f} KB",
        "target 6 KB",
    )
    await inside.create(NAMESPACES, {"metadata": {"name": "rich"}})
    began = time.perf_counter()
    for number in range(1000):
        await inside.create(PODS, pod(number, "rich"))
    say("creates in process, pods of 4 kB", f"{1000 / (time.perf_counter() - began):,.0f}/s")
    say("gets in process", f"{await gets(inside.transport, GETS, 1):,.0f}/s")
    began = time.perf_counter()
    listed = await inside.list(PODS)
    say(f"list of {len(listed.items):,} pods in process", f"{time.perf_counter() - began:.2f} s")
    mount = HttpMount(server)
    await mount.start()
    outside = Kube(Http(f"http://127.0.0.1:{mount.port}", connections=500), Clock(loop))
    got = await gets(outside.transport, GETS, 16)
    say("gets over HTTP", f"{got:,.0f}/s", "target 3,000/s")
    say(f"{WATCHERS} watchers over HTTP", f"{await watchers(outside, WATCHERS, EVENTS):,.0f} events/s", "all, in order")
    made = await over(outside, "bench2")
    await outside.close()
    await mount.stop()
    return got, made


async def over(kube: Kube, namespace: str) -> float:
    """Creates over HTTP, for comparison."""
    await kube.create(NAMESPACES, {"metadata": {"name": namespace}})
    headers = {"content-type": "application/json", "user-agent": "bench"}
    requests = [
        Request(
            method="POST", path=PODS.path(namespace), headers=headers, body=msgspec.json.encode(plain(n, namespace))
        )
        for n in range(2000)
    ]
    rate = await _rate(requests, kube.transport, 16)
    say("creates over HTTP", f"{rate:,.0f}/s")
    return rate


async def real(got: float, made: float) -> None:
    """The same from kube-apiserver, and the ratio."""
    if not binary().exists():
        say("kube-apiserver", "not built", "make kubernetes")
        return
    async with RealControlPlane() as plane:
        kube = Kube(plane.transport(), Clock(asyncio.get_running_loop()))
        await kube.create(NAMESPACES, {"metadata": {"name": "bench"}})
        await creates(kube.transport, 1000, 16)
        theirs = await gets(kube.transport, 5000, 16)
        say("kube-apiserver: gets over HTTPS", f"{theirs:,.0f}/s", f"embedded: {got / theirs:.2f} times that")
        rate = await over(kube, "bench2")
        say("kube-apiserver: creates over HTTPS", f"{rate:,.0f}/s", f"embedded: {made / rate:.2f} times that")
        await kube.close()


async def kubectl(count: int = 30_000) -> None:
    """The real kubectl lists every pod of a big cluster, over TLS.

    kubectl asks for pages of 500 and allows itself ten requests at once and five a second after that: sixty pages would
    take it ten seconds, so the server answers such a Table whole. Beside the time: what either side computed, since
    kubectl's own share is the larger one.
    """
    from dovetail.lab.apiserver_only import ApiServerOnly

    program = Path(sys.executable).parent / "kubectl"
    if not program.exists():
        say("kubectl", "not installed")
        return
    loop = asyncio.get_running_loop()
    bare = ApiServerOnly(Clock(loop), Chance(1), 0, "bench-token")
    await bare.start()
    inside = Kube(InProcess(bare.server, {"authorization": "Bearer bench-token"}), Clock(loop))
    await inside.create(NAMESPACES, {"metadata": {"name": "bench"}})
    await creates(inside.transport, count, 1)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "kubeconfig"
        config.write_text(bare.kubeconfig())
        command = [str(program), "get", "pods", "-A", "--kubeconfig", str(config)]
        busy, theirs = time.process_time(), _children()
        best = await _best(command, count)
        busy, theirs = (time.process_time() - busy) / 2, (_children() - theirs) / 2
    say(
        f"kubectl get pods -A of {count:,}",
        f"{best:.2f} s",
        f"target 3 s; of processor: {busy:.2f} s in the server, {theirs:.2f} s in kubectl",
    )
    await bare.stop()


def _children() -> float:
    """Seconds of processor that ended child processes took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _best(command: list[str], count: int) -> float:
    times = []
    for _ in range(2):
        began = time.perf_counter()
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        times.append(time.perf_counter() - began)
        assert len(done.stdout.splitlines()) == count + 1
    return min(times)


def main() -> None:
    got, made = asyncio.run(embedded())
    asyncio.run(real(got, made))
    asyncio.run(kubectl())


if __name__ == "__main__":
    main()
