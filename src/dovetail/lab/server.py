"""The lab's API server: the plain one, with doors before it for what is computed (metrics) or broken (faults)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.registry import builtin
from dovetail.lab.apiserver.server import ApiServer

#: Answers a request, or lets it pass with None.
Door = Callable[[Request], Awaitable[Response | None]]


class LabServer(ApiServer):
    """`doors` are asked in order before the server itself."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("registry", builtin(metrics=True))
        super().__init__(*args, **options)
        self.doors: list[Door] = []

    async def handle(self, request: Request) -> Response:
        for door in self.doors:
            response = await door(request)
            if response is not None:
                return response
        return await super().handle(request)
