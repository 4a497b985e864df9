"""The endpoints for monitoring and the kubelet."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest

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


#: No HTTP, a line without end, and bodies that are not what they claim.
HOSTILE = (
    b"\x16\x03\x01\x00\xff hello\r\n\r\n",
    b"G E T / HTTP/1.1\r\n\r\n",
    b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
    b"GET /?\xff\x00 HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"z" * 9000 + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: deflate\r\nContent-Length: 4\r\nConnection: close\r\n\r\nabcd",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
)


def test_requests_that_are_no_http_are_answered_and_write_nothing_into_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Any client that reaches the port could fill the log with tracebacks."""
    metrics_port, health_port = _port(), _port()

    async def send(port: int, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        async with asyncio.timeout(10):
            answer = await reader.read(100)
        writer.close()
        return answer

    async def main() -> list[bytes]:
        metrics = Metrics(Clock(asyncio.get_running_loop(), EPOCH))
        async with serving(metrics, list, metrics_port, health_port):
            return [await send(port, request) for request in HOSTILE for port in (metrics_port, health_port)]

    answers = run_scaled(main())
    assert len(answers) == 2 * len(HOSTILE)
    assert all(answer.split(b" ")[1][:1] == b"4" for answer in answers), answers
    assert [record.getMessage() for record in caplog.records] == []
