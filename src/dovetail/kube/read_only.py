"""A transport that carries no write: what a dry run is given, so that no defect of ours can change a cluster."""

from __future__ import annotations

from dovetail.kube.errors import KubeError
from dovetail.kube.transport import Request, Response, Transport
from dovetail.language import message

READS = frozenset({"GET", "HEAD"})


class WriteRefused(KubeError):
    """A dry run was about to write; the request was not sent."""


class ReadOnly:
    """Carries reads to `inner` and refuses every other method before it is sent."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def send(self, request: Request) -> Response:
        if request.method not in READS:
            raise WriteRefused(
                message("{method} {path}: not sent, a dry run writes nothing", method=request.method, path=request.path)
            )
        return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()
