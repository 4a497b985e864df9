"""The Kubernetes client: one method a verb, typed by the resource constant and the struct to decode into.

Reading decodes straight from the wire into whatever `type` says (a lean struct, or a dict). Writing is by
patches and apply; `update` exists for the few objects we own whole. Every method raises `ApiError` with the
server's own words, or `Disconnected` when there was no answer.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Generic, Literal

import msgspec
from typing_extensions import TypeVar

from dovetail import __version__
from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.backoff import NEVER, Retries, worth_repeating
from dovetail.kube.decode import AS_DICT, Envelope, Head, decode, key_of_raw, uncollected
from dovetail.kube.errors import ApiError, BadObject, Disconnected, Gone, KubeError, from_response, from_status
from dovetail.kube.read_only import ReadOnly
from dovetail.kube.resources import PODS, Resource
from dovetail.kube.transport import Request, Response, Transport
from dovetail.language import message

# What goes into a request: bodies, patch media types, query parameters and delete options.

Body = Mapping[str, Any] | msgspec.Struct | Sequence[Any] | bytes
Query = tuple[tuple[str, str], ...]
PatchKind = Literal["merge", "json", "strategic", "apply"]

PATCH_TYPES: dict[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


def query_of(**parameters: str | int | None) -> Query:
    return tuple((name, str(value)) for name, value in parameters.items() if value is not None)


def named(resource: Resource, body: Body) -> Body:
    """The body with its apiVersion and kind, which the resource knows."""
    if isinstance(body, Mapping) and "kind" not in body:
        return {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    return body


def namespace_of(body: Body) -> str | None:
    if isinstance(body, Mapping):
        namespace = (body.get("metadata") or {}).get("namespace")
    elif isinstance(body, msgspec.Struct):
        namespace = getattr(getattr(body, "metadata", None), "namespace", None)
    else:
        namespace = None
    return namespace or None


def delete_options(
    uid: str | None, resource_version: str | None, grace: int | None, propagation: str | None
) -> dict[str, Any] | None:
    preconditions = {
        name: value for name, value in (("uid", uid), ("resourceVersion", resource_version)) if value is not None
    }
    options: dict[str, Any] = {}
    if preconditions:
        options["preconditions"] = preconditions
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if propagation is not None:
        options["propagationPolicy"] = propagation
    return {"apiVersion": "v1", "kind": "DeleteOptions", **options} if options else None


# Watch streams cut into lines: chunks come as the network likes, an event ends with a newline.


async def frames(stream: AsyncIterator[bytes], quiet: float | None = None) -> AsyncGenerator[bytes, None]:
    """The lines of `stream`, which is closed in the end. `quiet` seconds without a byte count as a dead peer."""
    rest = b""
    try:
        while True:
            try:
                async with asyncio.timeout(quiet):
                    chunk = await anext(stream)
            except StopAsyncIteration:
                break
            except TimeoutError as problem:
                raise Disconnected(message("nothing heard for {quiet:g} s", quiet=quiet)) from problem
            *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
            for line in lines:
                if line:
                    yield line
        if rest.strip():
            raise Disconnected(message("the stream ended in the middle of an event"))
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


T = TypeVar("T", default=dict[str, Any])


class Listing(msgspec.Struct, Generic[T]):
    """A consistent list: all pages are of one moment, `resource_version`. `bad` did not decode."""

    items: list[T]
    resource_version: str
    bad: list[BadObject] = []


class WatchEvent(msgspec.Struct, Generic[T]):
    """ADDED, MODIFIED, DELETED, or BOOKMARK (whose object has only a resourceVersion)."""

    type: str
    object: T


class RawEvent(msgspec.Struct):
    """An event whose object is still bytes."""

    type: str
    object: msgspec.Raw


#: Called with a request, its status or the error there was instead of one, and the seconds it took.
Observe = Callable[[Request, int | KubeError, float], None]

_EVENT = msgspec.json.Decoder(RawEvent)
_ENVELOPE = msgspec.json.Decoder(Envelope)


class Kube:
    """A client of one API server. `fence`, if set, is asked before every write and raises to stop it."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        chance: Chance | None = None,
        manager: str = "dovetail",
        user_agent: str = f"dovetail/{__version__}",
        retries: Retries | None = None,
        fence: Callable[[], None] | None = None,
        observe: Observe | None = None,
    ) -> None:
        self.observe = observe
        self.transport = transport
        self.clock = clock
        self.manager = manager
        self.fence = fence
        self.chance = chance or Chance(0)
        self._retries = retries or Retries()
        self._headers = {"user-agent": user_agent, "accept": "application/json"}

    async def close(self) -> None:
        await self.transport.close()

    def fenced(self, check: Callable[[], None]) -> Kube:
        """The same client, whose every write asks `check` first."""
        twin = copy.copy(self)
        twin.fence = check
        return twin

    def read_only(self) -> Kube:
        """The same client, none of whose writes is sent: a dry run's."""
        twin = copy.copy(self)
        twin.transport = ReadOnly(self.transport)
        return twin

    def observed(self, observe: Observe) -> Kube:
        """The same client, whose every request is passed to `observe` once it is over."""
        twin = copy.copy(self)
        twin.observe = observe
        return twin

    # Reading

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        type: type[T] = AS_DICT,
    ) -> T:
        response = await self.request("GET", resource.path(namespace, name, subresource))
        return _object(response.body, type)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        type: type[T] = AS_DICT,
        limit: int = 500,
        resource_version: str | None = None,
        trim: Callable[[T], T] | None = None,
    ) -> Listing[T]:
        """All pages. If the server forgets the snapshot between two pages, the list is taken again in one piece.

        `trim` says what is kept of an object: no more than one page is ever in memory untrimmed.
        """
        try:
            return await self._pages(resource, namespace, labels, fields, type, limit, resource_version, trim)
        except Gone:
            return await self._pages(resource, namespace, labels, fields, type, 0, None, trim)

    async def _pages(
        self,
        resource: Resource,
        namespace: str | None,
        labels: str | None,
        fields: str | None,
        type: type[T],
        limit: int,
        resource_version: str | None,
        trim: Callable[[T], T] | None,
    ) -> Listing[T]:
        listing: Listing[T] = Listing([], "", [])
        token = ""
        while True:
            query = query_of(labelSelector=labels, fieldSelector=fields, limit=limit or None)
            query += query_of(**{"continue": token}) if token else query_of(resourceVersion=resource_version)
            response = await self.request("GET", resource.path(namespace), query)
            page = _envelope(response.body, resource.path(namespace))
            with uncollected():
                for raw in page.items or ():
                    try:
                        item = decode(raw, type)
                        listing.items.append(item if trim is None else trim(item))
                    except msgspec.ValidationError as problem:
                        listing.bad.append(BadObject(resource.name, key_of_raw(raw), str(problem)))
            listing.resource_version = page.metadata.resource_version
            # No list: to take it for an empty one would remove all that is known. Lists that are computed for each
            # request (metrics.k8s.io) have items and no resourceVersion.
            if not listing.resource_version and page.items is None:
                raise _no_list(resource.path(namespace))
            token = page.metadata.continue_
            if not token:
                return listing

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str | None = None,
        timeout: int | None = None,
        initial: bool = False,
        type: type[T] = AS_DICT,
    ) -> AsyncIterator[WatchEvent[T]]:
        """Events until the server ends the watch. `initial` asks for the present state first (then a bookmark)."""
        events = self.watch_raw(
            resource,
            namespace,
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            timeout=timeout,
            initial=initial,
        )
        async with aclosing(events):
            async for event in events:
                try:
                    yield WatchEvent(event.type, decode(event.object, type))
                except msgspec.ValidationError as problem:
                    raise BadObject(resource.name, key_of_raw(event.object), str(problem)) from problem

    async def watch_raw(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str | None = None,
        timeout: int | None = None,
        initial: bool = False,
        quiet: float | None = None,
        opened: Callable[[], None] | None = None,
    ) -> AsyncGenerator[RawEvent, None]:
        """Events with undecoded objects. An ERROR event is raised; `quiet` seconds of silence raise `Disconnected`.

        `opened` is called once the server lets us watch: it may have nothing to say for long.
        """
        query: Query = (("watch", "1"), ("allowWatchBookmarks", "true"))
        query += query_of(labelSelector=labels, fieldSelector=fields, timeoutSeconds=timeout)
        if initial:
            query += (("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan"))
        query += query_of(resourceVersion=resource_version)
        response = await self.request("GET", resource.path(namespace), query, retries=NEVER)
        if response.stream is None:
            raise Disconnected(
                message("watch of {resource}: the server answered without a stream", resource=resource.name)
            )
        if opened is not None:
            opened()
        async with aclosing(frames(response.stream, quiet)) as lines:
            async for line in lines:
                event = _EVENT.decode(line)
                if event.type == "ERROR":
                    raise from_status(msgspec.json.decode(event.object, type=dict[str, Any]))
                yield event

    async def log(
        self,
        name: str,
        namespace: str,
        *,
        container: str | None = None,
        tail: int | None = None,
        previous: bool = False,
    ) -> str:
        query = query_of(container=container, tailLines=tail, previous="true" if previous else None)
        response = await self.request("GET", PODS.path(namespace, name, "log"), query)
        return response.body.decode(errors="replace")

    # Writing

    async def create(
        self,
        resource: Resource,
        body: Body,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        type: type[T] = AS_DICT,
    ) -> T:
        body = named(resource, body)
        response = await self.request(
            "POST", resource.path(namespace or namespace_of(body)), self._write_query(None, dry_run), body=body
        )
        return _object(response.body, type)

    async def update(
        self, resource: Resource, body: Body, *, subresource: str | None = None, type: type[T] = AS_DICT
    ) -> T:
        """PUT: only for objects that are wholly ours. The body's resourceVersion is the precondition."""
        body = named(resource, body)
        head = msgspec.json.decode(msgspec.json.encode(body), type=Head)
        path = resource.path(head.metadata.namespace or None, head.metadata.name, subresource)
        response = await self.request("PUT", path, self._write_query(None, False), body=body)
        return _object(response.body, type)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Body,
        namespace: str | None = None,
        *,
        kind: PatchKind = "merge",
        subresource: str | None = None,
        manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        type: type[T] = AS_DICT,
    ) -> T:
        if kind == "apply":
            body = named(resource, body)
        query = self._write_query(manager, dry_run)
        if force:
            query += (("force", "true"),)
        response = await self.request(
            "PATCH",
            resource.path(namespace, name, subresource),
            query,
            body=body,
            content_type=PATCH_TYPES[kind],
            idempotent=kind != "json",
        )
        return _object(response.body, type)

    async def apply(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        manager: str | None = None,
        force: bool = True,
        type: type[T] = AS_DICT,
    ) -> T:
        """Server-side apply: create it, or make the fields of `body` ours and as they are there."""
        metadata = body["metadata"]
        return await self.patch(
            resource,
            metadata["name"],
            body,
            metadata.get("namespace"),
            kind="apply",
            subresource=subresource,
            manager=manager,
            force=force,
            type=type,
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace: int | None = None,
        propagation: Literal["Background", "Foreground", "Orphan"] | None = None,
    ) -> dict[str, Any]:
        """Ask for deletion; the answer is a Status or the object that lingers."""
        options = delete_options(uid, resource_version, grace, propagation)
        response = await self.request("DELETE", resource.path(namespace, name), body=options)
        return decode(response.body, AS_DICT)

    async def evict(self, name: str, namespace: str, uid: str | None = None, grace: int | None = None) -> None:
        """Evict a pod. Raises `TooManyRequests` when a budget protects it: that is an answer, not a hiccup."""
        body: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        options = delete_options(uid, None, grace, None)
        if options:
            body["deleteOptions"] = options
        await self.request("POST", PODS.path(namespace, name, "eviction"), body=body, retries=NEVER)

    async def bind(self, pod: str, namespace: str, node: str, uid: str | None = None) -> None:
        metadata = {"name": pod, "namespace": namespace} | ({"uid": uid} if uid else {})
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.request("POST", PODS.path(namespace, pod, "binding"), body=body)

    # The wire

    async def request(
        self,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: Body | None = None,
        content_type: str = "application/json",
        idempotent: bool | None = None,
        retries: Retries | None = None,
    ) -> Response:
        """Any request, with retries; a failure is raised as the error it stands for."""
        headers = dict(self._headers)
        payload = b""
        if body is not None:
            headers["content-type"] = content_type
            payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        request = Request(method=method, path=path, query=query, headers=headers, body=payload)
        policy = retries or self._retries
        repeatable = method != "POST" if idempotent is None else idempotent
        failures = 0
        while True:
            if self.fence is not None and method != "GET":
                self.fence()
            try:
                return await self._send(request)
            except KubeError as error:
                failures += 1
                if failures >= policy.attempts or not worth_repeating(error, idempotent=repeatable):
                    raise
                retry_after = error.retry_after if isinstance(error, ApiError) else None
                pause = policy.pause(failures, self.chance)
            await asyncio.sleep(pause if retry_after is None else retry_after + 0.1 * pause)

    async def _send(self, request: Request) -> Response:
        response = await self._send_observed(request)
        if response.status < 400:
            if response.stream is None and not response.body.startswith(b"{") and not request.path.endswith("/log"):
                text = response.body[:100].decode(errors="replace")
                raise Disconnected(
                    message(
                        "{method} {path}: the answer is no object: {text!r}",
                        method=request.method,
                        path=request.path,
                        text=text,
                    )
                )
            return response
        error = from_response(response)
        error.request = f"{request.method} {request.path}"
        raise error

    async def _send_observed(self, request: Request) -> Response:
        if self.observe is None:
            return await self.transport.send(request)
        began = self.clock.monotonic()
        try:
            response = await self.transport.send(request)
        except KubeError as problem:
            self.observe(request, problem, self.clock.monotonic() - began)
            raise
        self.observe(request, response.status, self.clock.monotonic() - began)
        return response

    def _write_query(self, manager: str | None, dry_run: bool) -> Query:
        query: Query = (("fieldManager", manager or self.manager),)
        return (*query, ("dryRun", "All")) if dry_run else query


def _envelope(body: bytes, path: str) -> Envelope:
    try:
        return _ENVELOPE.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise _no_list(path) from problem


def _no_list(path: str) -> Disconnected:
    return Disconnected(message("GET {path}: the answer is no list", path=path))


def _object(body: bytes, type: type[T]) -> T:
    """An answer that is an object. One without a name, or that is no JSON, is none, whatever its status said."""
    try:
        answer = decode(body, type)
    except msgspec.ValidationError as problem:
        raise BadObject("answer", key_of_raw(body), str(problem)) from problem
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise _no_object(body) from problem
    if getattr(getattr(answer, "metadata", None), "name", "unknown") == "":
        raise _no_object(body)
    return answer


def _no_object(body: bytes) -> Disconnected:
    return Disconnected(message("the answer is no object: {body!r}", body=body[:100]))
