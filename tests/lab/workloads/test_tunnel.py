"""How a real API server reaches the lab's simulated kubelets."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from dovetail.clock import Clock
from dovetail.kube.http import Http
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.registry import RequestRefused
from dovetail.lab.kubelet.log_server import KubeletServer
from dovetail.lab.metrics_apiservice import mounted
from dovetail.lab.tunnel import tunnel


class Spoken:
    """Logs of one pod that runs, and of one that does not yet."""

    def read(self, pod: dict[str, Any], container: str, options: dict[str, str]) -> bytes | None:
        name = pod["metadata"]["name"]
        if name == "late":
            raise RequestRefused(
                400, "BadRequest", 'container "c" in pod "late" is waiting to start: ContainerCreating'
            )
        return f"{name} {container} {options.get('tailLines')}\n".encode() if name == "web" else None


def asked(path: str, *query: tuple[str, str]) -> Response:
    endpoint = KubeletServer(Spoken())
    return asyncio.run(endpoint.handle(Request(method="GET", path=path, query=query)))


def test_a_kubelet_shows_the_log_of_a_container() -> None:
    answer = asked("/containerLogs/default/web/app", ("tailLines", "3"))
    assert (answer.status, answer.body) == (200, b"web app 3\n")


def test_a_kubelet_says_why_there_is_no_log_yet() -> None:
    answer = asked("/containerLogs/default/late/c")
    assert answer.status == 400
    assert b"is waiting to start" in answer.body


def test_a_kubelet_serves_only_its_own_pods_and_refuses_exec() -> None:
    assert asked("/containerLogs/default/other/c").status == 404
    assert asked("/exec/default/web/app").status == 501
    assert asked("/metrics").status == 404


def test_a_kubelet_of_the_lab_answers_for_the_lab_too() -> None:
    rooms = {"/lab/faults": lambda request: Response(status=200, body=request.body)}
    endpoint = KubeletServer(Spoken(), rooms)
    answer = asyncio.run(endpoint.handle(Request(method="POST", path="/lab/faults", body=b"struck")))
    assert answer.body == b"struck"


async def through(asked_for: bytes, kubelets: int | None) -> bytes:
    """The first line that the tunnel answers, and what comes after it."""
    async with tunnel() as way:
        way.kubelets = kubelets
        socket = way.flags[0].partition("=")[2].replace("egress.yaml", "cluster.sock")
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(asked_for + b"\r\n\r\n")
        answer = await reader.readuntil(b"\r\n\r\n")
        if b"200" in answer:
            writer.write(b"hello")
            writer.write_eof()
            answer += await reader.read()
        writer.close()
        return answer


def test_what_is_meant_for_any_kubelet_reaches_the_one_endpoint() -> None:
    async def scene() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read())
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await through(b"CONNECT 10.0.0.10:10250 HTTP/1.1", port)

    assert asyncio.run(scene()) == b"HTTP/1.1 200 OK\r\n\r\nhello"


def test_a_call_that_cannot_be_connected_gets_an_error() -> None:
    assert asyncio.run(through(b"nonsense", None)).startswith(b"HTTP/1.1 502")
    assert asyncio.run(through(b"CONNECT 127.0.0.1:1 HTTP/1.1", None)).startswith(b"HTTP/1.1 502")


def test_an_endpoint_is_served_over_https() -> None:
    async def scene() -> tuple[int, bytes]:
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        clock = Clock(asyncio.get_running_loop())
        async with mounted(KubeletServer(Spoken()), clock) as port:
            http = Http(f"https://127.0.0.1:{port}", tls=trusting)
            try:
                answer = await http.send(Request(method="GET", path="/containerLogs/default/web/app"))
            finally:
                await http.close()
        return answer.status, answer.body

    assert asyncio.run(scene()) == (200, b"web app None\n")
