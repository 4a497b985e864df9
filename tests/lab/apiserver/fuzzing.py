"""Requests that make no sense, made from requests that do: each takes one of the corpus and spoils it somewhere.

`python -m tests.lab.apiserver.fuzzing 100000` runs many and prints what went wrong.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.server import ApiServer
from tests.conformance.corpus import topics
from tests.conformance.steps import Step

NAMESPACE = "fuzz"
_BATCH = 2_000
_LEAVES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 1.5, 1e300),
    *("", "x", "-", "a b", "é\u2028", "\x00", "9" * 40, "1Gi", "50%", "2020-01-01T00:00:00Z"),
    *([], {}, [None], [[]], [{}], {"": ""}, {"a": None}, [1, "a"], {"matchLabels": {"a": "b"}}),
]
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "FROB", "")
_CONTENT = (
    *("application/json", "application/yaml", "application/merge-patch+json", "application/json-patch+json"),
    *("application/strategic-merge-patch+json", "application/apply-patch+yaml"),
    *("application/vnd.kubernetes.protobuf", "text/plain", "", ";;", "application/json;charset=nope"),
)
_ACCEPT = (
    *("application/json", "*/*", "", "application/yaml", "text/html", "application/json;as=Table;v=v1;g=meta.k8s.io"),
    *("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=Nope", ",;=", "a/b;q=x"),
)
_PARAMETERS = (
    *("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "dryRun"),
    *("fieldManager", "fieldValidation", "force", "gracePeriodSeconds", "propagationPolicy", "timeoutSeconds", "watch"),
    *("sendInitialEvents", "allowWatchBookmarks", "includeObject", "orphanDependents", "container", "pretty"),
)
_TEXTS = (
    *("", "x", "true", "All", "0", "1", "-1", "99999999999999999999", "a=b", "a in (b,c)", "!a", "a,,b", "=", "("),
    *("\\", "metadata.name=a", "spec.nodeName=x", "Background", "NotOlderThan", "Exact", "Strict", "é", "%", "a" * 300),
)


class Fuzz:
    """A seeded stream of spoilt requests."""

    def __init__(self, seed: int) -> None:
        self.chance = Chance(seed)
        self.steps = [step for steps in topics().values() for step in steps if not (step.opens or step.hears)]

    def requests(self) -> Iterator[Request]:
        ways: list[Callable[[dict[str, Any]], None]] = [self._body] * 8 + [self._query, self._headers]
        ways += [self._bytes, self._method, self._path]
        while True:
            parts = _parts(self.chance.choice(self.steps))
            for _ in range(self.chance.choice((0, 1, 1, 1, 2, 3))):
                self.chance.choice(ways)(parts)
            body = parts["body"]
            if not isinstance(body, bytes):
                body = b"" if body is None else msgspec.json.encode(body).replace(b"{ns}", NAMESPACE.encode())
            yield Request(
                method=parts["method"],
                path=parts["path"].replace("{ns}", NAMESPACE),
                query=tuple(parts["query"]),
                headers=parts["headers"],
                body=body,
            )

    def _body(self, parts: dict[str, Any]) -> None:
        if isinstance(parts["body"], dict | list):
            parts["body"] = self._spoilt(parts["body"])

    def _spoilt(self, value: Any) -> Any:
        """The same document with one place changed: deeper places as likely as shallow ones."""
        if isinstance(value, dict) and value:
            key = self.chance.choice(list(value))
            if isinstance(value[key], dict | list) and self.chance.random() < 0.8:
                return {**value, key: self._spoilt(value[key])}
            way = self.chance.random()
            if way < 0.15:
                return {name: item for name, item in value.items() if name != key}
            if way < 0.25:
                return {**value, self.chance.choice(("x", "", "$patch", key + "s", key.upper())): value[key]}
            return {**value, key: self.chance.choice(_LEAVES)}
        if isinstance(value, list) and value:
            index = self.chance.randrange(len(value))
            if isinstance(value[index], dict | list) and self.chance.random() < 0.8:
                return [*value[:index], self._spoilt(value[index]), *value[index + 1 :]]
            if self.chance.random() < 0.3:
                return value + value
            return [*value[:index], self.chance.choice(_LEAVES), *value[index + 1 :]]
        return self.chance.choice(_LEAVES)

    def _bytes(self, parts: dict[str, Any]) -> None:
        text = parts["body"] if isinstance(parts["body"], bytes) else msgspec.json.encode(parts["body"])
        at = self.chance.randrange(len(text) + 1)
        noise = bytes(self.chance.randrange(256) for _ in range(self.chance.randrange(4)))
        parts["body"] = text[:at] + noise + text[at + self.chance.randrange(6) :]

    def _query(self, parts: dict[str, Any]) -> None:
        parts["query"].append((self.chance.choice(_PARAMETERS), self.chance.choice(_TEXTS)))

    def _headers(self, parts: dict[str, Any]) -> None:
        name, values = self.chance.choice((("content-type", _CONTENT), ("accept", _ACCEPT), ("user-agent", _TEXTS)))
        parts["headers"][name] = self.chance.choice(values)

    def _method(self, parts: dict[str, Any]) -> None:
        parts["method"] = self.chance.choice(_METHODS)

    def _path(self, parts: dict[str, Any]) -> None:
        segments = parts["path"].split("/")
        words = ("", "x", "..", "status", "pods", "é", "%2f")
        segments[self.chance.randrange(len(segments))] = self.chance.choice(words)
        parts["path"] = "/".join(segments)


def _parts(step: Step) -> dict[str, Any]:
    body = step.body.encode() if isinstance(step.body, str) else step.body
    query = [(name, "1" if name == "timeoutSeconds" else value) for name, value in step.query]
    headers = {"user-agent": "fuzz/1", "accept": "application/json", **step.headers}
    return {"method": step.method, "path": step.path, "query": query, "headers": headers, "body": body}


async def fresh() -> ApiServer:
    server = ApiServer(Clock(asyncio.get_running_loop(), EPOCH), Chance(3))
    body = msgspec.json.encode({"metadata": {"name": NAMESPACE}})
    headers = {"content-type": "application/json"}
    await server.handle(Request(method="POST", path="/api/v1/namespaces", headers=headers, body=body))
    return server


def may_change(request: Request, response: Response) -> bool:
    """Refusals that come too late, on the real server as here: a collection goes one by one, and an eviction is
    charged to the budget and noted on the pod before its preconditions are looked at."""
    if request.path.endswith("/eviction"):
        return response.status == 409
    return (request.method, response.status) == ("DELETE", 403)


def complaint(request: Request, response: Response, before: int, after: int) -> str:
    """What is wrong with an answer; "" if nothing."""
    if response.stream is not None:
        return ""
    if not 200 <= response.status < 600:
        return f"code {response.status}"
    if response.status < 400:
        return ""
    if after != before and not may_change(request, response):
        return f"{response.status} changed the store"
    if request.method == "HEAD" or not response.headers.get("content-type", "").startswith("application/json"):
        return ""
    body = msgspec.json.decode(response.body)
    if body.get("kind") != "Status" or body.get("status") != "Failure" or not body.get("message"):
        return f"{response.status} without a Status"
    return ""


async def run(seed: int, count: int) -> Counter[str]:
    """The complaints about `count` requests, by what they say."""
    requests = Fuzz(seed).requests()
    found: Counter[str] = Counter()
    server = await fresh()
    for number in range(count):
        if number % _BATCH == _BATCH - 1:
            sound(server)
            server = await fresh()
        request = next(requests)
        before = server.store.rv
        try:
            response = await asyncio.wait_for(server.handle(request), 60)
        except Exception as error:  # whatever it is, it is what this run looks for
            found[f"{type(error).__name__}: {error} at {_where(error)} by {_shown(request)}"] += 1
            continue
        text = complaint(request, response, before, server.store.rv)
        if text:
            found[f"{text} by {_shown(request)}"] += 1
    sound(server)
    return found


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}" if trace is not None else ""


def _shown(request: Request) -> str:
    return f"{request.method} {request.path} {dict(request.query)} {dict(request.headers)} {request.body[:300]!r}"


def sound(server: ApiServer) -> None:
    """What the store holds is what it says it holds."""
    for table in server.store.tables.values():
        assert table.keys == sorted(table.records)
        for record in table.records.values():
            obj: dict[str, Any] = msgspec.json.decode(record.raw)
            assert obj["metadata"]["resourceVersion"] == str(record.rv)


def main(arguments: list[str]) -> None:
    count = int(arguments[0]) if arguments else 10_000
    found = run_virtual(run(int(arguments[1]) if len(arguments) > 1 else 1, count))
    for text, times in found.most_common(60):
        print(times, text)
    print(f"{count} requests, {found.total()} complaints")


if __name__ == "__main__":
    main(sys.argv[1:])
