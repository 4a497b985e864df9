"""The client against the official one: 10,000 pods listed, decoded and indexed, over HTTP.

Each client runs in a process of its own against a server that only hands out bytes; the figures are seconds for
the whole list and the memory of the process afterwards.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time

import msgspec

from bench.synthetic_pods import served

COUNT = 10_000


def serve() -> None:
    """Hand out the list, whole or in pages."""
    from aiohttp import web

    items = [msgspec.json.encode(served(number)) for number in range(COUNT)]

    async def pods(request: web.Request) -> web.Response:
        limit = int(request.query.get("limit", "0")) or COUNT
        first = int(request.query.get("continue", "0"))
        last = min(first + limit, COUNT)
        token = f',"continue":"{last}"' if last < COUNT else ""
        head = f'{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"99999"{token}}},"items":['
        body = head.encode() + b",".join(items[first:last]) + b"]}"
        return web.Response(body=body, content_type="application/json")

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/api/v1/pods", pods)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())


def ours(port: int) -> None:
    from dovetail.clock import Clock
    from dovetail.kube.client import Kube
    from dovetail.kube.http import Http
    from dovetail.kube.resources import PODS
    from dovetail.kube.store import Store, key_of
    from dovetail.model.pods import Pod

    async def main() -> None:
        kube = Kube(Http(f"http://127.0.0.1:{port}"), Clock(asyncio.get_running_loop()))
        began = time.perf_counter()
        listing = await kube.list(PODS, type=Pod)
        store: Store[Pod] = Store(
            {"node": lambda one: [one.spec.node_name], "app": lambda one: [one.metadata.labels.get("app")]}
        )
        for one in listing.items:
            store.put(key_of(one), one)
        report(time.perf_counter() - began, len(store.by("node", "node-7")))
        await kube.close()

    asyncio.run(main())


def official(port: int) -> None:
    import kubernetes

    configuration = kubernetes.client.Configuration()
    configuration.host = f"http://127.0.0.1:{port}"
    api = kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(configuration))
    began = time.perf_counter()
    by_node: dict[str, list[object]] = {}
    for one in api.list_pod_for_all_namespaces().items:
        by_node.setdefault(one.spec.node_name, []).append(one)
    report(time.perf_counter() - began, len(by_node["node-7"]))


def report(seconds: float, found: int) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"seconds": seconds, "megabytes": peak, "found": found}))


def measure(role: str, port: str, runs: int) -> dict[str, float]:
    """The best of some runs."""
    command = [sys.executable, "-m", "bench.client"]
    environ = {**os.environ, "BENCH_ROLE": role, "BENCH_PORT": port}
    results = []
    for _ in range(runs):
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        results.append(json.loads(done.stdout))
    return min(results, key=lambda one: one["seconds"])


def compare() -> None:
    environ = {**os.environ, "BENCH_ROLE": "serve"}
    server = subprocess.Popen([sys.executable, "-m", "bench.client"], env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        mine, theirs = measure("ours", port, 3), measure("official", port, 1)
    finally:
        server.terminate()
        server.wait()
    for name, one in (("dovetail.kube", mine), ("kubernetes (official)", theirs)):
        print(f"{name:24} {COUNT} pods in {one['seconds']:6.2f} s, process {one['megabytes']:.0f} MB")
    print(f"{'ratio':24} {theirs['seconds'] / mine['seconds']:.1f} times faster")


def main() -> None:
    role = os.environ.get("BENCH_ROLE", "")
    if role == "serve":
        serve()
    elif role:
        {"ours": ours, "official": official}[role](int(os.environ["BENCH_PORT"]))
    else:
        compare()


if __name__ == "__main__":
    main()
