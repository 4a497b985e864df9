"""The lab's API server: the plain one, with middleware before it for what is computed (metrics) or broken (faults)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.kinds.builtin import builtin
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.apiserver.status_errors import StatusError

#: Answers a request, or lets it pass with None.
Middleware = Callable[[Request], Awaitable[Response | None]]


class LabServer(ApiServer):
    """`middleware` is tried in order before the server itself; `stream` is put around every watch."""

    def __init__(self, *args: Any, **options: Any) -> None:
        registry = options.setdefault("registry", builtin(metrics=True))
        for name in ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"):
            registry.converters[name] = _converted
        super().__init__(*args, **options)
        self.middleware: list[Middleware] = []
        self.stream: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]] | None = None

    async def handle(self, request: Request) -> Response:
        if self.middleware and self._known(request):
            for intercept in self.middleware:
                response = await intercept(request)
                if response is not None:
                    return response
        response = await super().handle(request)
        if response.stream is not None and self.stream is not None and not request.path.endswith("/log"):
            response.stream = self.stream(response.stream)
        return response

    def _known(self, request: Request) -> bool:
        """Only authenticated users reach the middleware; others get the server's own answer."""
        try:
            user = self.authenticated(request)
        except StatusError:
            return False
        return user.name != "system:anonymous"


def _converted(obj: dict[str, Any], version: str) -> dict[str, Any]:
    """An object of ours in another API version: what a conversion webhook does on a real cluster."""
    from dovetail.model.kinds.convert import from_v1, to_v1  # a lab without our kinds need not know them

    converted = to_v1(obj)
    return converted if version == "v1" else from_v1(converted, version)
