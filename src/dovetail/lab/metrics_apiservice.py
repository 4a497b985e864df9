"""The metrics APIs for a real control plane: an endpoint beside it, which its aggregator asks.

For the API server metrics-server runs behind a Service; the Service names this host. The endpoint
listens on the loopback alone and knows nothing but the lab's own load.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists
from dovetail.kube.resources import SERVICES, Resource
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver import tls
from dovetail.lab.apiserver.http import Core, HttpMount
from dovetail.lab.apiserver.responses import JSON_HEADERS
from dovetail.lab.custom_metrics import CUSTOM, EXTERNAL, CustomMetrics, api_services
from dovetail.lab.metrics import APISERVICES, BASE, LABELS, NAME, NAMESPACE, api_service

_VERBS = ["get", "list"]
_SERVED = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": "metrics.k8s.io/v1beta1",
    "resources": [
        {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics", "verbs": _VERBS},
        {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": _VERBS},
    ],
}


class MetricsApi(Protocol):
    """What answers metrics.k8s.io."""

    async def intercept(self, request: Request) -> Response | None:
        """The answer to a request, or None if it is about something else."""


class MetricsApiService:
    """What the aggregator talks to."""

    def __init__(self, metrics: MetricsApi, custom: CustomMetrics | None = None) -> None:
        self.address = ""
        self._metrics = metrics
        self._custom = custom

    async def handle(self, request: Request) -> Response:
        if request.path == BASE:
            return Response(status=200, headers=JSON_HEADERS, body=msgspec.json.encode(_SERVED))
        if self._custom is not None and request.path.split("/")[2:3] in ([CUSTOM], [EXTERNAL]):
            return await self._custom.answer(request)
        answer = await self._metrics.intercept(request)
        return answer or Response(status=404, headers={"content-type": "text/plain"}, body=b"404 page not found\n")


@asynccontextmanager
async def extended(kube: Kube, metrics: MetricsApi, custom: CustomMetrics | None = None) -> AsyncIterator[None]:
    """Serve metrics.k8s.io through the cluster's aggregator while the block lasts; with `custom` all metrics APIs."""
    async with mounted(MetricsApiService(metrics, custom), kube.clock) as port:
        await _register(kube, port, with_custom=custom is not None)
        yield


@asynccontextmanager
async def mounted(core: Core, clock: Clock) -> AsyncIterator[int]:
    """Serve something over HTTPS on the loopback while the block lasts; gives the port."""
    with tempfile.TemporaryDirectory(prefix="dovetail-endpoint-") as folder:
        mount = HttpMount(core, context=tls.make(clock.now()).context(Path(folder)))
        await mount.start()
        try:
            yield mount.port
        finally:
            await mount.stop()


async def _register(kube: Kube, port: int, *, with_custom: bool) -> None:
    service: dict[str, Any] = {
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": LABELS},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port, "name": "https"}]},
    }
    await _put(kube, SERVICES, service)
    behind = {"name": NAME, "namespace": NAMESPACE, "port": port}
    for registration in (api_service(service=behind), *(api_services(service=behind) if with_custom else ())):
        await _put(kube, APISERVICES, registration)


async def _put(kube: Kube, resource: Resource, body: Mapping[str, Any]) -> None:
    """Create it, or make the one of an earlier run like it."""
    try:
        await kube.create(resource, body)
    except AlreadyExists:
        metadata = body["metadata"]
        await kube.patch(resource, metadata["name"], body, metadata.get("namespace"))
