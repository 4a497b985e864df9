"""Webhooks of EKS: they change pods at their creation, and are registered like any other.

They run beside the API server and are called by URL: there is no Service of them in the cluster.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from dovetail.autoscalers.vpa.admission_controller import Review
from dovetail.clock import Clock
from dovetail.kube.certificates import ServingCertificate, make_certificate
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, KubeError
from dovetail.kube.resources import Resource
from dovetail.lab.apiserver.server import ApiServer
from dovetail.runtime.http_log import http_log

Json = dict[str, Any]

RETRY_S = 1.0
WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)


def answer(request: Json, patch: Sequence[Json]) -> tuple[int, bytes]:
    """The answer to an admission review: the object is allowed, with these changes."""
    response: Json = {"uid": request["uid"], "allowed": True}
    if patch:
        encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
        response |= {"patchType": "JSONPatch", "patch": encoded}
    return 200, msgspec.json.encode(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    )


@asynccontextmanager
async def client_config(server: ApiServer | None, port: int, review: Review, clock: Clock) -> AsyncIterator[Json]:
    """The `clientConfig` of a webhook, while it answers at EKS's port for it.

    `server`: the lab's own, which needs no socket to reach it. A real control plane is given a free port.
    """
    if server is None:
        certificate = make_certificate(("localhost",), clock.now())
        async with serve(review, certificate) as free:
            yield {"url": f"https://localhost:{free}/mutate", "caBundle": certificate.bundle}
    else:
        url = f"https://127.0.0.1:{port}/mutate"
        server.local_urls[url] = lambda path, body: review(body, "application/json")
        try:
            yield {"url": url}
        finally:
            del server.local_urls[url]


async def register(kube: Kube, name: str, webhook: Json) -> Json:
    """The configuration with one webhook for the creation of pods; one of an earlier run is changed to this."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    whole = {
        "rules": [rule],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **webhook,
    }
    while True:
        try:
            try:
                return await kube.create(WEBHOOKS, {"metadata": {"name": name}, "webhooks": [whole]})
            except AlreadyExists:
                return await kube.patch(WEBHOOKS, name, {"webhooks": [whole]})
        except KubeError:
            await asyncio.sleep(RETRY_S)


@asynccontextmanager
async def serve(review: Review, certificate: ServingCertificate) -> AsyncIterator[int]:
    """Answer reviews over HTTPS on a port of the loopback address, which is given, while the block runs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.load_into(context)

    async def handle(request: web.Request) -> web.Response:
        status, body = await review(await request.read(), request.content_type)
        return web.Response(status=status, body=body, content_type="application/json")

    app = web.Application(client_max_size=5 * 2**20)
    app.router.add_post("/mutate", handle)
    runner = web.AppRunner(app, access_log=None, logger=http_log)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        assert site._server is not None
        yield site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    finally:
        await runner.cleanup()
