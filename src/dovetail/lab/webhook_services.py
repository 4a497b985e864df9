"""Webhooks of programs that run in the lab's own process: their Service leads to a function, not to a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from dovetail.autoscalers.vpa.admission_controller import Review, Serve
from dovetail.kube.certificates import ServingCertificate
from dovetail.lab.apiserver.server import ApiServer

#: A certificate that no connection asks for.
NO_CERTIFICATE = ServingCertificate(authorities=b"", certificate=b"", key=b"")


def in_process(server: ApiServer, namespace: str, service: str) -> Serve:
    """Reachable for this API server as the Service, while the program runs; the last of several programs answers."""

    @asynccontextmanager
    async def serve(
        review: Review, certificate: ServingCertificate
    ) -> AsyncIterator[Callable[[ServingCertificate], None]]:
        async def answer(path: str, body: bytes) -> tuple[int, bytes]:
            return await review(body, "application/json")

        key = (namespace, service)
        server.local_services[key] = answer
        try:
            yield lambda fresh: None
        finally:
            if server.local_services.get(key) is answer:
                del server.local_services[key]

    return serve
