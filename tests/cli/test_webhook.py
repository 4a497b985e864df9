"""The conversion webhook: certificates that change, and objects that are no objects."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner

from dovetail.cli.webhook import RELOAD_INTERVAL_S, reload_certificate, webhook
from dovetail.clock import run_virtual
from dovetail.model.kinds.convert import review
from tests.kube.test_strict_tls import pair


class Loads(ssl.SSLContext):
    """A context that counts what is loaded into it."""

    loads = 0

    def load_cert_chain(self, *files: Any, **more: Any) -> None:
        super().load_cert_chain(*files, **more)
        self.loads += 1


def test_a_certificate_is_loaded_again_when_its_file_changes(tmp_path: Path) -> None:
    async def main() -> None:
        _, file = pair(tmp_path, strict=True)
        context = Loads(ssl.PROTOCOL_TLS_SERVER)
        task = asyncio.ensure_future(reload_certificate(context, file, file))
        await asyncio.sleep(3 * RELOAD_INTERVAL_S)
        assert context.loads == 0
        before = file.read_bytes()
        file.write_bytes(b"half a file")
        await asyncio.sleep(2 * RELOAD_INTERVAL_S)
        assert context.loads == 0, "what does not load leaves the old pair in force"
        pair(tmp_path, strict=True)
        assert file.read_bytes() != before
        await asyncio.sleep(2 * RELOAD_INTERVAL_S)
        assert context.loads == 1
        task.cancel()

    run_virtual(main())


def test_the_command_serves_a_changed_certificate_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, file = pair(tmp_path, strict=True)
    loads: list[int] = []

    async def serve(app: web.Application, context: Loads) -> None:
        runner = web.AppRunner(app)
        await runner.setup()
        await asyncio.sleep(2 * RELOAD_INTERVAL_S)
        loads.append(context.loads)
        pair(tmp_path, strict=True)
        await asyncio.sleep(2 * RELOAD_INTERVAL_S)
        loads.append(context.loads)
        await runner.cleanup()

    monkeypatch.setattr(ssl, "create_default_context", lambda _: Loads(ssl.PROTOCOL_TLS_SERVER))
    monkeypatch.setattr(web, "run_app", lambda app, ssl_context, **_: run_virtual(serve(app, ssl_context)))
    result = CliRunner().invoke(webhook, ["--tls-cert", str(file), "--tls-key", str(file)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert loads == [1, 2]


V1BETA1, V1 = "karpenter.sh/v1beta1", "karpenter.sh/v1"


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        ("x", "request.objects[0]: is 'x'"),
        ({"apiVersion": V1, "kind": "NodePool", "metadata": {"name": "p"}, "spec": "x"}, "objects[0] (p).spec: is 'x'"),
        ({"apiVersion": V1, "kind": "NodePool", "metadata": []}, "objects[0].metadata: is []"),
        ({"apiVersion": V1BETA1, "kind": "NodePool", "metadata": {"name": "p"}, "status": 1}, "(p).status: is 1"),
    ],
)
def test_a_malformed_object_fails_the_review_and_is_named(obj: Any, said: str) -> None:
    for desired in (V1, V1BETA1):
        response = review({"request": {"uid": "u", "desiredAPIVersion": desired, "objects": [obj]}})["response"]
        assert response["result"]["status"] == "Failure"
        assert said in response["result"]["message"]
        assert response["convertedObjects"] == []
