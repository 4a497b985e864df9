"""Webhooks of programs that run in the lab's own process: their Service leads to a function, not to a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from dovetail.autoscalers.vpa.admission_controller import Review, Serve
from dovetail.kube.certificates import ServingCertificate
from dovetail.lab.apiserver.gocompat.gotime import stamp
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.apiserver.server_state import LocalService
from dovetail.lab.apiserver.webhooks.connection import EXPIRED, Unreachable

#: A certificate that no connection asks for.
NO_CERTIFICATE = ServingCertificate(authorities=b"", certificate=b"", key=b"")


def in_process(server: ApiServer, namespace: str, service: str) -> Serve:
    """Reachable for this API server as the Service, while the program runs."""

    @asynccontextmanager
    async def serve(
        review: Review, certificate: ServingCertificate
    ) -> AsyncIterator[Callable[[ServingCertificate], None]]:
        served = certificate

        def renew(fresh: ServingCertificate) -> None:
            nonlocal served
            served = fresh

        async def answer(path: str, body: bytes) -> tuple[int, bytes]:
            now = server.clock.now()
            if served.is_expired(now):
                problem = f"current time {stamp(now)} is after {stamp(served.expires())}"
                raise Unreachable(f"tls: failed to verify certificate: {EXPIRED}: {problem}")
            return await review(body, "application/json")

        with joined(server, namespace, service, answer):
            yield renew

    return serve


class _Replicas:
    """The programs behind one Service: the last that came answers."""

    def __init__(self) -> None:
        self.answers: list[LocalService] = []

    async def __call__(self, path: str, body: bytes) -> tuple[int, bytes]:
        return await self.answers[-1](path, body)


@contextmanager
def joined(server: ApiServer, namespace: str, service: str, answer: LocalService) -> Iterator[None]:
    """One more program behind a Service, until the block ends."""
    replicas = server.local_services.get((namespace, service))
    if not isinstance(replicas, _Replicas):
        replicas = server.local_services[namespace, service] = _Replicas()
    replicas.answers.append(answer)
    try:
        yield
    finally:
        replicas.answers.remove(answer)
        if not replicas.answers and server.local_services.get((namespace, service)) is replicas:
            del server.local_services[namespace, service]
