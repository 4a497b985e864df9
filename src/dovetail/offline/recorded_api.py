"""A recorded cluster behind the Kubernetes interface: reads are answered with what a recording holds at an instant.

What watches a live cluster can so be given a recorded one. A kind of which the recording has no object is not served:
nothing says whether there were none or whether it could not be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from dovetail.kube.decode import decode
from dovetail.kube.resources import NODES, PODS
from dovetail.kube.transport import OnChange, Request, Response, Stop
from dovetail.offline.recorder import KINDS
from dovetail.offline.recording import Measured, ObjectKey, RecordedEvent, Recording, key_of
from dovetail.view.observer import NODE_METRICS

Json = dict[str, Any]
T = TypeVar("T")
#: API version and kind.
Kind = tuple[str, str]

_KIND_OF = {(resource.group, resource.plural): resource.kind for resource in KINDS}
_PLURAL_OF = {(resource.group, resource.kind): resource.plural for resource in KINDS}
_encode = msgspec.json.Encoder().encode


def recorded_kinds(recording: Recording) -> frozenset[Kind]:
    """The kinds of which a recording has an object at any time; nodes and pods always could be read."""
    kinds = {(NODES.api_version, NODES.kind), (PODS.api_version, PODS.kind)}
    kinds.update(_kind(source) for source in recording.objects_at(recording.start))
    for event in recording.events(recording.start, recording.end):
        if event.type == "ADDED":
            kinds.add(_kind(event.object))
    return frozenset(kinds)


class RecordedApi:
    """The API server at an instant: a transport that also delivers the changes that `push` is given."""

    def __init__(
        self, objects: Iterable[Json], usage: Mapping[ObjectKey, Measured], kinds: Collection[Kind] | None = None
    ) -> None:
        self._objects: dict[Kind, dict[tuple[str, str], Json]] = {kind: {} for kind in kinds or ()}
        for source in objects:
            key = key_of(source)
            self._objects.setdefault(_kind(source), {})[key.namespace, key.name] = source
        self._node_usage = {key.name: measured for key, measured in usage.items() if key.kind == NODES.kind}
        self._version = 1
        self._subscribers: dict[tuple[str, str], list[OnChange]] = {}

    async def send(self, request: Request) -> Response:
        if request.method != "GET":
            return _status(405, "MethodNotAllowed", "a recording is read only")
        if request.path == "/version":
            return Response(status=200, body=b"{}")
        api_version, group, plural, namespace, name = _address(request.path)
        if (api_version, plural) == (NODE_METRICS.api_version, NODE_METRICS.plural) and self._node_usage:
            return self._list(api_version, NODE_METRICS.kind, map(_metrics, self._node_usage.items()))
        stored = self._objects.get((api_version, _KIND_OF.get((group, plural), "")))
        if stored is None:
            return _status(404, "NotFound", f"{request.path}: not recorded")
        if name:
            source = stored.get((namespace, name))
            return (
                _status(404, "NotFound", "not found") if source is None else Response(status=200, body=_encode(source))
            )
        if request.parameter("watch"):
            if request.parameter("sendInitialEvents"):
                return _status(400, "BadRequest", "a recording is listed")
            return Response(status=200, stream=_silence())
        chosen = (self._versioned(source) for key, source in stored.items() if namespace in ("", key[0]))
        return self._list(api_version, _KIND_OF[group, plural], chosen)

    async def close(self) -> None:
        """Nothing to close: the objects are in memory."""

    def subscribe(self, group: str, plural: str, on_change: OnChange) -> Stop:
        subscribers = self._subscribers.setdefault((group, plural), [])
        subscribers.append(on_change)
        return lambda: subscribers.remove(on_change)

    def push(self, event: RecordedEvent) -> None:
        """Deliver a change of the recording."""
        key = key_of(event.object)
        self._version += 1
        change = RecordedChange(key, self._version, self._versioned(event.object), event.type == "DELETED")
        for on_change in tuple(self._subscribers.get((key.group, _PLURAL_OF.get((key.group, key.kind), "")), ())):
            on_change(change)

    def _versioned(self, source: Json) -> Json:
        """Resource versions are not recorded; caches tell states apart by them."""
        return {**source, "metadata": {**source["metadata"], "resourceVersion": str(self._version)}}

    def _list(self, api_version: str, kind: str, items: Iterable[Json]) -> Response:
        metadata = {"resourceVersion": str(self._version)}
        body = {"apiVersion": api_version, "kind": f"{kind}List", "metadata": metadata, "items": list(items)}
        return Response(status=200, body=_encode(body))


class RecordedChange:
    """A recorded change, as a cache takes it."""

    def __init__(self, key: ObjectKey, version: int, source: Json, gone: bool) -> None:
        self.key = f"{key.namespace}/{key.name}" if key.namespace else key.name
        self.version = version
        self.gone = gone
        self._source = source

    @property
    def raw(self) -> bytes:
        return _encode(self._source)

    def view(self, type: type[T], held: T | None = None, keep: Callable[[T, T | None], T] | None = None) -> T:
        new = decode(msgspec.Raw(self.raw), type)
        return new if keep is None else keep(new, held)


def _kind(source: Json) -> Kind:
    return source["apiVersion"], source["kind"]


def _address(path: str) -> tuple[str, str, str, str, str]:
    """API version, group, plural, namespace and name of a path; what is not in it is empty."""
    root, *parts = path.strip("/").split("/")
    group = parts.pop(0) if root == "apis" and parts else ""
    version = parts.pop(0) if parts else ""
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name = (*parts, "", "")[:2]
    return (f"{group}/{version}" if group else version), group, plural, namespace, name


def _metrics(entry: tuple[str, Measured]) -> Json:
    name, measured = entry
    return {"metadata": {"name": name}, "usage": {"cpu": f"{measured.cpu}n", "memory": str(measured.memory)}}


def _status(code: int, reason: str, text: str) -> Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": text}
    return Response(status=code, body=_encode(body))


async def _silence() -> AsyncIterator[bytes]:
    """A watch in which nothing happens."""
    await asyncio.Event().wait()
    yield b""
