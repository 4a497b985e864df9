"""Runs a topic's steps against an API server at a transport and writes down the answers."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec

from dovetail.kube.client import frames
from dovetail.kube.errors import Disconnected
from dovetail.kube.transport import Request, Response, Transport
from tests.conformance.normal import Normal
from tests.conformance.scripted_webhooks import ScriptedWebhooks
from tests.conformance.steps import Step

_HOLE = re.compile(r"\{([a-z][a-zA-Z0-9]*)((?:\.[A-Za-z0-9_-]+)*)\}")
#: Seconds between two tries.
_QUIET = 0.7
#: Seconds that a watch may be silent before it has said all: with a conversion webhook each event is a request more.
_SILENCE = 2.5
#: What a server says of a new custom resource until its storage is ready, which takes it a moment of no fixed length.
_NOT_YET = b"storage is (re)initializing"

#: So often it is asked again.
_TRIES = 60


class Run:
    """One topic on one server."""

    def __init__(self, transport: Transport, topic: str, webhooks: ScriptedWebhooks) -> None:
        self._transport = transport
        self._webhooks = webhooks
        self._normal = Normal()
        self._saved: dict[str, Any] = {"ns": f"t-{topic}", **webhooks.saved()}
        self._open: dict[str, tuple[asyncio.Task[None], list[bytes], Response]] = {}

    async def steps(self, steps: list[Step]) -> list[dict[str, Any]]:
        answers = []
        try:
            for step in steps:
                answers.append({"step": step.title, **await self._step(step)})
        finally:
            for task, _, _ in self._open.values():
                task.cancel()
            await asyncio.gather(*(task for task, _, _ in self._open.values()), return_exceptions=True)
        return answers

    async def _step(self, step: Step) -> dict[str, Any]:
        if step.hears:
            return await self._hear(step.hears)
        if step.calls:
            return {"calls": self._normal.value(self._webhooks.take_calls())}
        response = await self._transport.send(self._request(step))
        for _ in range(_TRIES):
            if response.status != 429 or _NOT_YET not in response.body:
                break
            await asyncio.sleep(_QUIET)
            response = await self._transport.send(self._request(step))
        if response.stream is None:
            shown = self._plain(step, response)
            await asyncio.sleep(step.pause)
            return shown
        heard: list[bytes] = []
        listening = asyncio.create_task(_listen(response, heard))
        if step.opens:
            self._open[step.opens] = (listening, heard, response)
            await asyncio.sleep(0.05)
            return {"code": response.status}
        try:
            async with asyncio.timeout(step.listen or 5.0):
                await listening
        except TimeoutError:
            pass
        return {"code": response.status, "events": [self._normal.event(line) for line in heard]}

    async def _hear(self, name: str) -> dict[str, Any]:
        if name not in self._open:
            return {"events": "the watch was refused"}
        task, heard, _ = self._open.pop(name)
        count = -1
        while count != len(heard):
            count = len(heard)
            await asyncio.sleep(_SILENCE)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return {"events": [event for event in map(self._normal.event, heard) if not _reminder(event)]}

    def _plain(self, step: Step, response: Response) -> dict[str, Any]:
        if step.save and response.status < 300:
            self._saved[step.save] = msgspec.json.decode(response.body)
        if step.brief:
            return {"code": response.status}
        return self._normal.answer(response, self._webhooks.hide(response.body))

    def _request(self, step: Step) -> Request:
        headers = {"user-agent": "conformance/1.0", "accept": "application/json", **step.headers}
        if step.anonymous:
            headers["authorization"] = ""
        if step.token:
            headers["authorization"] = f"Bearer {step.token}"
        body = step.body
        if isinstance(body, str):
            payload = self._fill(body).encode()
        elif isinstance(body, bytes):
            payload = body
        else:
            payload = b"" if body is None else self._fill(msgspec.json.encode(body).decode()).encode()
        return Request(
            method=step.method,
            path=self._fill(step.path),
            query=tuple((name, self._fill(value)) for name, value in step.query),
            headers=headers,
            body=payload,
        )

    def _fill(self, text: str) -> str:
        def look_up(found: re.Match[str]) -> str:
            if found.group(1) not in self._saved:
                return found.group()
            value: Any = self._saved[found.group(1)]
            for name in found.group(2).split(".")[1:]:
                value = value[int(name)] if isinstance(value, list) else value[name]
            return str(value)

        return _HOLE.sub(look_up, text)


def _reminder(event: Any) -> bool:
    """A bookmark that only says how far a server has come: it sends one about every minute, when it likes."""
    return event.get("type") == "BOOKMARK" and not event["object"]["metadata"].get("annotations")


async def _listen(response: Response, heard: list[bytes]) -> None:
    assert response.stream is not None
    try:
        async for line in frames(response.stream):
            heard.append(line)
    except Disconnected:
        heard.append(b'{"type": "DISCONNECTED"}')


async def run_topic(
    transport: Transport, topic: str, steps: list[Step], webhooks: ScriptedWebhooks
) -> list[dict[str, Any]]:
    """The answers to a topic's steps; its namespace is made first. `webhooks` are those that the server can call."""
    body = msgspec.json.encode({"metadata": {"name": f"t-{topic}"}})
    headers = {"content-type": "application/json"}
    await transport.send(Request(method="POST", path="/api/v1/namespaces", headers=headers, body=body))
    webhooks.take_calls()
    return await Run(transport, topic, webhooks).steps(steps)
