"""An API server in process, asked synchronously."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.transport import Request
from dovetail.lab.apiserver.server import ApiServer

Answer = tuple[int, Any, list[str]]


class Api:
    """`api("POST", path, body)` answers (code, body, warnings)."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.server = ApiServer(Clock(self.loop, datetime(2026, 11, 16, tzinfo=UTC)), Chance(7))

    def __call__(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Answer:
        parts = urlsplit(path)
        request = Request(
            method=method,
            path=parts.path,
            query=tuple(parse_qsl(parts.query, keep_blank_values=True)),
            headers={"content-type": content, "accept": "application/json", "user-agent": "test/1"},
            body=b"" if body is None else json.dumps(body).encode(),
        )
        response = self.loop.run_until_complete(self.server.handle(request))
        warnings = response.headers.get("warning", "")
        try:
            answer = json.loads(response.body)
        except ValueError:
            answer = response.body.decode()
        return response.status, answer, sorted(warnings.split("\n")) if warnings else []

    def close(self) -> None:
        self.loop.close()


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.close()
