"""A server that answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError
from dovetail.kube.transport import Request, Response
from dovetail.lab.in_process import InProcess

Answer = Response | KubeError | Callable[[Request], Response]


def ok(body: Any, **headers: str) -> Response:
    return Response(status=200, headers=headers, body=msgspec.json.encode(body))


def status(
    code: int, reason: str, message: str = "no", headers: dict[str, str] | None = None, **details: Any
) -> Response:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    if details:
        body["details"] = details
    return Response(status=code, headers=headers or {}, body=msgspec.json.encode(body))


def stream(*events: Any, forever: bool = False, pause: float = 0.0) -> Response:
    """A watch: dicts are events, bytes are raw chunks, an exception breaks the connection."""

    async def chunks() -> AsyncIterator[bytes]:
        for event in events:
            await asyncio.sleep(pause)
            if isinstance(event, Exception):
                raise event
            yield event if isinstance(event, bytes) else msgspec.json.encode(event) + b"\n"
        if forever:
            await asyncio.sleep(1e9)

    return Response(status=200, stream=chunks())


def pod(name: str, version: int, uid: str = "", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, **more}


def event(kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": obj}


def listing(version: int, *items: Any, token: str = "") -> Response:
    metadata = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
    return ok({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": list(items)})


class Script:
    """Answers in order; after the last one it stays silent for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.times: list[float] = []

    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        self.times.append(asyncio.get_running_loop().time())
        if not self.answers:
            await asyncio.sleep(1e9)
        answer = self.answers.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return answer if isinstance(answer, Response) else answer(request)

    def kube(self, **options: Any) -> Kube:
        return Kube(InProcess(self), Clock(asyncio.get_running_loop(), EPOCH), chance=Chance(1), **options)

    def asked(self) -> list[str]:
        return [f"{r.method} {r.path}" for r in self.requests]
