"""A small way to ask a server things in tests: method, path, body in; code and document out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.server import ApiServer

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Api:
    """Asks one server in process."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    async def raw(self, method: str, url: str, body: Any = None, **headers: str) -> Response:
        parts = urlsplit(url)
        sent = {"user-agent": "test/1", **{name.replace("_", "-"): value for name, value in headers.items()}}
        data = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        query = tuple(parse_qsl(parts.query, keep_blank_values=True))
        request = Request(method=method, path=unquote(parts.path), query=query, headers=sent, body=data)
        return await self.server.handle(request)

    async def __call__(self, method: str, url: str, body: Any = None, **headers: str) -> tuple[int, Json]:
        response = await self.raw(method, url, body, **headers)
        return response.status, msgspec.json.decode(response.body)

    async def ok(self, method: str, url: str, body: Any = None, **headers: str) -> Json:
        code, document = await self(method, url, body, **headers)
        assert code in (200, 201), document
        return document

    async def watch(self, url: str) -> AsyncIterator[Json]:
        response = await self.raw("GET", url)
        assert response.stream is not None, response.body
        async for frame in response.stream:
            yield msgspec.json.decode(frame)


def server() -> ApiServer:
    return ApiServer(Clock(asyncio.get_running_loop(), EPOCH), Chance(7))


def ask(scenario: Callable[[Api], Awaitable[None]]) -> None:
    """Run a scenario against a fresh server, in virtual time."""

    async def main() -> None:
        await scenario(Api(server()))

    run_virtual(main())


CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def configmap(name: str, data: Json | None = None, **metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data or {}}


def pod(name: str, **spec: Any) -> Json:
    containers = [{"name": "c", "image": "nginx:1"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def deployment(name: str, **spec: Any) -> Json:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}}
    base = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {**base, **spec}}
