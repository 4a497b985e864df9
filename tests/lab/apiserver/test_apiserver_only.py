"""The bare server over TLS: authentication, the files it writes, and its message when it cannot start."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import ssl
import stat
from pathlib import Path

import aiohttp
import pytest

from dovetail.chance import Chance
from dovetail.clock import Clock, run_scaled
from dovetail.lab.apiserver_only import ApiServerOnly, StartError, serve, write_private
from dovetail.runfile import RunningLab, find


def _bare(port: int = 0) -> ApiServerOnly:
    return ApiServerOnly(Clock(asyncio.get_running_loop()), Chance(1), port, "secret")


async def _get(bare: ApiServerOnly, path: str, token: str | None) -> tuple[int, str]:
    trust = ssl.create_default_context(cadata=bare.identity.authority.decode())
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connector = aiohttp.TCPConnector(ssl=trust)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(bare.url + path, headers=headers) as got,
    ):
        return got.status, await got.text()


def test_only_the_token_authenticates() -> None:
    async def main() -> None:
        bare = _bare()
        await bare.start()
        try:
            assert (await _get(bare, "/api/v1/namespaces", "secret"))[0] == 200
            assert (await _get(bare, "/api/v1/namespaces", "wrong"))[0] == 401
            code, text = await _get(bare, "/api/v1/namespaces", None)
            assert code == 403 and "system:anonymous" in text
            assert await _get(bare, "/readyz", None) == (200, "ok")
        finally:
            await bare.stop()

    run_scaled(main())


def test_a_body_beyond_the_limit_is_refused_in_the_server_s_words() -> None:
    async def main() -> None:
        bare = _bare()
        await bare.start()
        try:
            trust = ssl.create_default_context(cadata=bare.identity.authority.decode())
            url = f"{bare.url}/api/v1/namespaces/default/configmaps"
            headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
                body = b'{"data":{"a":"' + b"x" * 3_200_000 + b'"}}'
                async with session.post(url, data=io.BytesIO(body), headers=headers) as got:
                    answer = await got.json()
            assert (got.status, answer["message"]) == (413, "Request entity too large: limit is 3145728")
        finally:
            await bare.stop()

    run_scaled(main())


def test_what_is_no_http_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Any local process can send it, and would fill the lab's terminal."""

    async def main() -> None:
        bare = _bare()
        await bare.start()
        try:
            trust = ssl.create_default_context(cadata=bare.identity.authority.decode())
            for line in (b"FROBNICATE /api HTTP/1.1", b"\x01\x02 / HTTP/9.9", b"GET /\xff HTTP/1.1\r\nA\x00: b"):
                reader, writer = await asyncio.open_connection("127.0.0.1", bare.mount.port, ssl=trust)
                writer.write(line + b"\r\nHost: a\r\n\r\n")
                answered = await reader.read(12)
                assert answered[9:10] == b"4", answered
                writer.close()
        finally:
            await bare.stop()

    run_scaled(main())
    assert [record.getMessage() for record in caplog.records] == []


def test_a_control_character_in_an_unknown_field_is_answered() -> None:
    """The header that warns of the field could not be sent: the connection was dropped with the object written."""

    async def main() -> None:
        bare = _bare()
        await bare.start()
        try:
            trust = ssl.create_default_context(cadata=bare.identity.authority.decode())
            headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
            url = f"{bare.url}/api/v1/namespaces/default/configmaps?fieldValidation=Warn"
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
                fields = ("a\\u0001b", "a\\r\\nSet-Cookie: x", "\\u007f\\u0085", "\\ud800", "é\\t")
                for number, field in enumerate(fields):
                    body = f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c{number}"}},"{field}":1}}'
                    async with session.post(url, data=body.encode(), headers=headers) as got:
                        assert got.status == 201
                        assert "unknown field" in got.headers["Warning"] and "Set-Cookie" not in got.headers
        finally:
            await bare.stop()

    run_scaled(main())


def test_in_the_background_it_can_be_found_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found: list[RunningLab | None] = []

    def write_line(line: str) -> None:
        found.append(find())
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)

    run_scaled(serve(0, tmp_path / "config", None, None, write_line, log="lab.log"))
    assert found[0] is not None and found[0].kubeconfig == str(tmp_path / "config")
    assert find() is None


def test_a_restart_on_the_same_folder_is_trusted_by_the_same_clients(tmp_path: Path) -> None:
    """A client that runs does not read its kubeconfig again: it needs the same authority and the same token."""

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop())
        first = ApiServerOnly(clock, Chance(1), 0, None, tmp_path)
        await first.start()
        await first.stop()
        second = ApiServerOnly(clock, Chance(2), 0, None, tmp_path)
        await second.start()
        try:
            assert (second.identity.authority, second.token) == (first.identity.authority, first.token)
            assert second.identity.key != first.identity.key
            assert (await _get(second, "/api/v1/namespaces", first.token))[0] == 200
        finally:
            await second.stop()
        assert stat.S_IMODE((tmp_path / "identity").stat().st_mode) == 0o600
        third = ApiServerOnly(clock, Chance(3), 0, "chosen", tmp_path)
        await third.stop()
        assert (third.identity.authority, third.token) == (first.identity.authority, "chosen")

    run_scaled(main())


def test_an_identity_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "identity").write_text("my passport")
        with pytest.raises(StartError, match="identity cannot be read as a lab's identity; remove it"):
            ApiServerOnly(Clock(asyncio.get_running_loop()), Chance(1), 0, None, tmp_path)
        assert (tmp_path / "identity").read_text() == "my passport"

    run_scaled(main())


def test_a_busy_port_is_reported_in_one_line() -> None:
    async def main() -> None:
        first = _bare()
        await first.start()
        second = _bare(first.mount.port)
        with pytest.raises(StartError, match=f"port {first.mount.port}: it is in use; choose another --port"):
            await second.start()
        await second.stop()
        await first.stop()

    run_scaled(main())


def test_the_kubeconfig_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config"
    write_private(path, "text")
    assert path.read_text() == "text"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StartError, match="choose another --kubeconfig"):
        write_private(blocked / "config", "text")


async def _raw(bare: ApiServerOnly, request: bytes) -> bytes:
    trust = ssl.create_default_context(cadata=bare.identity.authority.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", int(bare.url.rpartition(":")[2]), ssl=trust)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.readuntil(b"\r\n"), 10)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        (b"Content-Encoding: gzip\r\n", b"{}", b"400"),
        (b"Content-Encoding: deflate\r\n", b"\xff" * 9, b"400"),
        (b"Impersonate-User: \xff\xfe\r\n", b"{}", b"4"),
        (b"X: \xff\r\nContent-Type: \xff\r\n", b"{}", b"4"),
    ],
    ids=["gzip", "deflate", "user", "type"],
)
def test_a_body_or_a_header_that_cannot_be_read_is_the_client_s_mistake(
    headers: bytes, body: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It was answered by 500, with a traceback in the lab's terminal."""

    async def main() -> None:
        bare = _bare()
        await bare.start()
        try:
            head = b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\n"
            answer = await _raw(bare, head + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert answer.startswith(b"HTTP/1.1 " + status), answer
        finally:
            await bare.stop()

    run_scaled(main())
    assert "Traceback" not in caplog.text
