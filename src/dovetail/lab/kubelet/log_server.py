"""What a kubelet answers when the API server calls it: logs. One endpoint serves every node of the lab.

The path names the pod, and a pod is on one node only, so it does not matter which kubelet was called. Around a
real control plane it is also where `dovetail fault` knocks, by way of any node: only the lab knows such a path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.registry import RequestRefused
from dovetail.lab.apiserver.streams import unavailable
from dovetail.lab.kubelet.logs import Logs

_TEXT = {"content-type": "text/plain"}
#: The first step of a path, and what the API server calls that stream.
_STREAMS = {"exec": "exec", "attach": "attach", "portForward": "portforward"}


class KubeletServer:
    """`/containerLogs/NAMESPACE/POD/CONTAINER`; streams into a container are refused. `rooms` answer other paths."""

    def __init__(self, logs: Logs, rooms: Mapping[str, Callable[[Request], Response]] | None = None) -> None:
        self.address = ""
        self._logs = logs
        self._rooms = rooms or {}

    async def handle(self, request: Request) -> Response:
        if request.path in self._rooms:
            return self._rooms[request.path](request)
        kind, *rest = request.path.strip("/").split("/")
        if kind in _STREAMS:
            return _said(501, unavailable(_STREAMS[kind]))
        if kind != "containerLogs" or len(rest) != 3:
            return _said(404, "404 page not found")
        namespace, pod, container = rest
        return self._log(namespace, pod, container, dict(request.query))

    def _log(self, namespace: str, pod: str, container: str, options: dict[str, str]) -> Response:
        try:
            content = self._logs.read({"metadata": {"namespace": namespace, "name": pod}}, container, options)
        except RequestRefused as refusal:
            return _said(refusal.code, refusal.message)
        if content is None:
            return _said(404, f'pod "{pod}" not found')
        if isinstance(content, bytes):
            return Response(status=200, headers=_TEXT, body=content)
        return Response(status=200, headers=_TEXT, stream=content)


def _said(status: int, text: str) -> Response:
    return Response(status=status, headers=_TEXT, body=f"{text}\n".encode())
