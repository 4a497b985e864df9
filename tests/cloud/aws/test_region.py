"""The region: as it is set, or that of the instance, by its metadata service."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dovetail.cloud.aws.region import find_region


class _Metadata(BaseHTTPRequestHandler):
    """IMDSv2: a token first, then the zone."""

    def do_PUT(self) -> None:
        self._answer("token")

    def do_GET(self) -> None:
        self._answer("eu-west-1b" if self.headers.get("x-aws-ec2-metadata-token") == "token" else "")

    def _answer(self, text: str) -> None:
        self.send_response(200 if text else 401)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Metadata)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
    yield
    server.shutdown()
    thread.join()
    server.server_close()


def test_flag_before_variables_before_the_metadata_service(metadata: None) -> None:
    variables = {"AWS_REGION": "us-west-2", "AWS_DEFAULT_REGION": "us-east-2"}
    assert asyncio.run(find_region("us-east-1", variables)) == "us-east-1"
    assert asyncio.run(find_region(None, variables)) == "us-west-2"
    assert asyncio.run(find_region("", {"AWS_REGION": "", "AWS_DEFAULT_REGION": "us-east-2"})) == "us-east-2"
    assert asyncio.run(find_region(None, {})) == "eu-west-1"


def test_no_region_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert asyncio.run(find_region(None, {})) == ""
