"""A pytest plugin: what the controllers ask of Kubernetes and of AWS while tests run, written as JSON.

    DOVETAIL_RECORDING=asked.json python -m pytest -p tests.install.recording tests/controllers/…

Only clients of an `Autoscaler` are recorded, not what the tests and the lab do themselves.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dovetail.cloud.aws.client import Calls
from dovetail.controllers.manager import Autoscaler
from dovetail.kube.client import Kube
from dovetail.kube.transport import Request, Response, Transport
from dovetail.lab.apiserver import routes

#: Test -> requests of it.
KUBERNETES: dict[str, set[tuple[str, str, str, str, str]]] = {}
AWS: dict[str, set[str]] = {}
_current = "outside"


def kubernetes_request(request: Request) -> tuple[str, str, str, str, str] | None:
    """Verb, group, resource with its subresource, namespace and name, as RBAC sees a request; None for no resource."""
    route = routes.parse(request.path)
    if route is None:
        return None
    resource = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
    verb = route.verb(request.method, request.parameter("watch") is not None)
    return verb, route.group, resource, route.namespace, route.name


class Recorder:
    """A transport that notes what passes."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def send(self, request: Request) -> Response:
        asked = kubernetes_request(request)
        response = await self._inner.send(request)
        if asked is not None:
            kept = KUBERNETES.setdefault(_current, set())
            kept.add(asked)
            applied = "apply" in request.headers.get("content-type", "")
            if applied and response.status == 201:
                kept.add(("create", *asked[1:]))
        return response

    async def close(self) -> None:
        await self._inner.close()


def _recorded(kube: Kube | None) -> Kube | None:
    if kube is None:
        return None
    twin = copy.copy(kube)
    twin.transport = Recorder(kube.transport)
    return twin


_start, _once = Autoscaler.__init__, Calls._once


def _start_recorded(self: Autoscaler, kube: Kube, *arguments: Any, **options: Any) -> None:
    if "lease" in options:
        options["lease"] = _recorded(options["lease"])
    _start(self, _recorded(kube), *arguments, **options)


async def _once_recorded(self: Calls, service: str, operation: str, region: str, arguments: Mapping[str, Any]) -> Any:
    text = json.dumps({"service": service, "operation": operation, "arguments": arguments}, default=str, sort_keys=True)
    AWS.setdefault(_current, set()).add(text)
    return await _once(self, service, operation, region, arguments)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    global _current
    _current = item.nodeid
    return (yield)


def pytest_configure() -> None:
    Autoscaler.__init__ = _start_recorded  # type: ignore[method-assign]
    Calls._once = _once_recorded  # type: ignore[method-assign]


def pytest_unconfigure() -> None:
    Autoscaler.__init__, Calls._once = _start, _once  # type: ignore[method-assign]
    if file := os.environ.get("DOVETAIL_RECORDING"):
        Path(file).write_text(
            json.dumps(
                {
                    "kubernetes": {test: sorted(asked) for test, asked in KUBERNETES.items()},
                    "aws": {test: sorted(asked) for test, asked in AWS.items()},
                }
            )
        )
