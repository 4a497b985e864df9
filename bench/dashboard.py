"""The page of `dovetail dashboard` over 1,000 nodes and 30,000 pods, in a real browser.

First paint, delay of an update, bytes, memory of server and page, processor while nothing happens, frames while
scrolling, and 100 viewers at once. `NODES`, `PODS` and `VIEWERS` in the environment choose another size.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from playwright.sync_api import Page, sync_playwright

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.resources import NAMESPACES, NODES, PODS
from dovetail.lab.apiserver.auth import ADMIN
from dovetail.lab.apiserver.http import HttpMount
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.apiserver_only import kubeconfig
from dovetail.lab.in_process import InProcess

T = TypeVar("T")
NODE_COUNT, POD_COUNT = int(os.environ.get("NODES", "1000")), int(os.environ.get("PODS", "30000"))
VIEWERS = int(os.environ.get("VIEWERS", "100"))
NAMESPACE_COUNT = 12
TOKEN = "a-token-for-the-benchmark"
API_TOKEN = "administrator"
IDLE_SECONDS, SCROLL_SECONDS, UPDATES = 20.0, 4.0, 10
SIZES = (("m5.large", 2), ("m5.xlarge", 4), ("m5.2xlarge", 8), ("m5.4xlarge", 16))


class Cluster:
    """The API server, in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.do(self._start())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(600)

    async def _start(self) -> None:
        clock = Clock(asyncio.get_running_loop())
        server = ApiServer(clock, Chance(1), tokens={API_TOKEN: ADMIN})
        self.kube = Kube(InProcess(server, {"authorization": f"Bearer {API_TOKEN}"}), clock, chance=Chance(2))
        self.mount = HttpMount(server)
        await self.mount.start()
        for number in range(NAMESPACE_COUNT):
            await self.kube.create(NAMESPACES, {"metadata": {"name": f"team-{number}"}})
        for number in range(NODE_COUNT):
            await self.kube.create(NODES, node(number))
        for number in range(POD_COUNT):
            await self.kube.create(PODS, pod(number))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.mount.port}"


def node(number: int) -> dict[str, Any]:
    name, cpu = SIZES[number % len(SIZES)]
    zone = f"us-east-1{'abc'[number % 3]}"
    amounts = {"cpu": str(cpu), "memory": f"{cpu * 4}Gi", "pods": "110"}
    labels = {
        "node.kubernetes.io/instance-type": name,
        "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": zone,
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/nodepool": f"pool-{number % 5}",
    }
    return {
        "metadata": {"name": f"ip-10-{number // 250}-{number % 250}-7.ec2.internal", "labels": labels},
        "spec": {"providerID": f"aws:///{zone}/i-{number:017x}"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod(number: int, prefix: str = "app") -> dict[str, Any]:
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "90m", "memory": "300Mi"}}}
    place = number % NODE_COUNT
    return {
        "metadata": {"name": f"{prefix}-{number}", "namespace": f"team-{number * 7 % NAMESPACE_COUNT}"},
        "spec": {"containers": [container], "nodeName": f"ip-10-{place // 250}-{place % 250}-7.ec2.internal"},
    }


def serve(folder: Path, cluster: Cluster) -> tuple[subprocess.Popen[str], str]:
    config = folder / "kubeconfig"
    config.write_text(kubeconfig(cluster.url, None, API_TOKEN))
    command = [sys.executable, "-m", "dovetail.cli", "dashboard", "--kubeconfig", str(config), "--port", "0"]
    process = subprocess.Popen([*command, "--token", TOKEN], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[1].partition("?")[0].rstrip("/")


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def report(name: str, value: str) -> None:
    print(f"{name:<46} {value}", flush=True)


def look(page: Page, base: str) -> None:
    page.goto(f"{base}/?token={TOKEN}")  # the first request waits for the first sync of the server
    page.goto(base)
    page.wait_for_selector("body[data-stream_open]")
    timing = page.evaluate(
        """() => { const entry = performance.getEntriesByType("navigation")[0];
        return { paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
                 answer: entry.responseEnd, loaded: entry.loadEventEnd,
                 wire: entry.transferSize, size: entry.decodedBodySize }; }"""
    )
    report("first contentful paint", f"{timing['paint']:.0f} ms (answer complete {timing['answer']:.0f} ms)")
    report("loaded", f"{timing['loaded']:.0f} ms")
    report("page", f"{timing['size'] / 1024:.0f} KiB, {timing['wire'] / 1024:.0f} KiB on the wire")
    report("elements", f"{page.evaluate('document.querySelectorAll(`*`).length'):,}")
    report("blocks", f"{page.locator('a.n').count():,}")
    memory = page.evaluate("performance.memory.usedJSHeapSize") / 2**20
    report("memory of the page (script heap)", f"{memory:.1f} MiB")


def delays(page: Page, cluster: Cluster) -> list[float]:
    """Seconds from the write to the block that shows it."""
    found = []
    for number in range(UPDATES):
        fresh = pod(number * 37, "late")
        key = f"node/{fresh['spec']['nodeName']}"
        page.evaluate(
            """(id) => { window.seen = new Promise((done) => new MutationObserver((_, self) => {
              if (document.getElementById(id) !== window.old) { self.disconnect(); done(Date.now()); } })
              .observe(document.getElementById("picture"), {childList: true, subtree: true}));
              window.old = document.getElementById(id); }""",
            key,
        )
        began = time.time()
        cluster.do(cluster.kube.create(PODS, fresh))
        found.append(page.evaluate("window.seen") / 1000 - began)
    return found


def frames(page: Page) -> tuple[float, float]:
    """Frames a second while scrolling through the page, and the longest in milliseconds."""
    times = page.evaluate(
        """(seconds) => new Promise((done) => { const times = [], began = performance.now();
        const height = document.documentElement.scrollHeight - innerHeight;
        const step = (now) => { times.push(now); const part = (now - began) / (seconds * 1000);
          scrollTo(0, height * Math.abs(1 - 2 * (part % 1)));
          if (part < 1) requestAnimationFrame(step); else done(times); };
        requestAnimationFrame(step); })""",
        SCROLL_SECONDS,
    )
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return 1000 * len(gaps) / sum(gaps), max(gaps)


async def viewers(base: str, cluster: Cluster) -> tuple[list[float], int]:
    """Delays to the last of many viewers, and the bytes that one of them gets for an update."""
    heard: asyncio.Queue[tuple[float, int]] = asyncio.Queue()
    ready = asyncio.Semaphore(0)

    async def view(session: aiohttp.ClientSession) -> None:
        async with session.get(f"{base}/events?zoom=xs&token={TOKEN}") as stream:
            ready.release()
            rest = b""
            async for chunk in stream.content.iter_any():
                *messages, rest = (rest + chunk).split(b"\n\n")
                for message in messages:
                    if message.startswith(b"event: update"):
                        await heard.put((time.time(), len(message)))

    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        tasks = [asyncio.create_task(view(session)) for _ in range(VIEWERS)]
        for _ in tasks:
            await ready.acquire()
        await asyncio.sleep(2)
        last, size = [], 0
        for number in range(UPDATES):
            while not heard.empty():
                heard.get_nowait()
            began = time.time()
            await asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(cluster.kube.create(PODS, pod(number * 41, "many")), cluster._loop)
            )
            arrivals = [await heard.get() for _ in tasks]
            last.append(max(moment for moment, _ in arrivals) - began)
            size = arrivals[0][1]
            await asyncio.sleep(0.6)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return last, size


def main() -> None:
    program = os.environ.get("DOVETAIL_CHROMIUM") or shutil.which("chromium")
    if not program:
        print("no browser: apt-get install chromium, or set DOVETAIL_CHROMIUM", file=sys.stderr)
        sys.exit(1)
    report("cluster", f"{NODE_COUNT:,} nodes, {POD_COUNT:,} pods")
    cluster = Cluster()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        began = time.time()
        server, base = serve(Path(folder), cluster)
        try:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1600, "height": 1000})
            page.set_default_timeout(120_000)
            page.goto(f"{base}/?token={TOKEN}")
            report("start of the server to its first page", f"{time.time() - began:.1f} s")
            look(page, base)
            report("memory of the server", f"{resident_mib(server.pid):.0f} MiB")
            found = delays(page, cluster)
            report("update seen after", f"median {statistics.median(found):.2f} s, worst {max(found):.2f} s")
            rate, longest = frames(page)
            report("scrolling", f"{rate:.0f} frames/s, longest frame {longest:.0f} ms")
            page.evaluate("scrollTo(0, 0)")
            before = processor_seconds(server.pid)
            page.wait_for_timeout(IDLE_SECONDS * 1000)
            share = (processor_seconds(server.pid) - before) / IDLE_SECONDS
            report("processor of the server, nothing happening", f"{share:.1%} of a core")
            browser.close()
            before = processor_seconds(server.pid)
            result: list[tuple[list[float], int]] = []
            thread = threading.Thread(target=lambda: result.append(asyncio.run(viewers(base, cluster))))
            thread.start()
            thread.join()
            last, size = result[0]
            text = f"median {statistics.median(last):.2f} s, worst {max(last):.2f} s, {size:,} B each"
            report(f"update seen by the last of {VIEWERS} viewers", text)
            report("processor of the server meanwhile", f"{processor_seconds(server.pid) - before:.1f} s")
            report("memory of the server in the end", f"{resident_mib(server.pid):.0f} MiB")
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
