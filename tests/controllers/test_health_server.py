"""The endpoints for monitoring and the kubelet."""

from __future__ import annotations

import asyncio
import socket

import aiohttp

from dovetail.clock import EPOCH, Clock, run_scaled
from dovetail.controllers.health_server import serving
from dovetail.controllers.metrics.definitions import Metrics


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def test_alive_is_not_ready() -> None:
    problems: list[str] = []
    metrics_port, health_port = _port(), _port()

    async def main() -> None:
        metrics = Metrics(Clock(asyncio.get_running_loop(), EPOCH))
        async with serving(metrics, lambda: problems, metrics_port, health_port), aiohttp.ClientSession() as session:

            async def ask(port: int, path: str) -> tuple[int, str]:
                async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                    return answer.status, await answer.text()

            assert await ask(health_port, "/healthz") == (200, "ok")
            assert await ask(health_port, "/readyz") == (200, "ok")
            problems.append("launches-fail: the last 5 launches failed")
            assert await ask(health_port, "/readyz") == (503, problems[0])
            assert await ask(health_port, "/healthz") == (200, "ok")
            status, text = await ask(metrics_port, "/metrics")
            assert status == 200
            assert "karpenter_build_info" in text
        await asyncio.sleep(0)

    run_scaled(main())


def test_probes_reach_the_endpoints_over_ipv4_and_ipv6() -> None:
    """A kubelet probes the address of the pod, which is an IPv6 one in an IPv6 cluster."""
    metrics_port, health_port = _port(), _port()

    async def main() -> None:
        metrics = Metrics(Clock(asyncio.get_running_loop(), EPOCH))
        async with serving(metrics, list, metrics_port, health_port), aiohttp.ClientSession() as session:
            for host in ("127.0.0.1", "[::1]"):
                for port, path in ((health_port, "/healthz"), (metrics_port, "/metrics")):
                    async with session.get(f"http://{host}:{port}{path}") as answer:
                        assert answer.status == 200

    run_scaled(main())
