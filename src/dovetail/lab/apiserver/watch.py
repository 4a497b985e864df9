"""Watching: the changes of a kind from some version on, as a stream of frames.

A frame is made once for each form and shared by all watchers of that form. A watcher that falls too far
behind gets 410 and must list again, as does one that asks for a compacted version.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from dovetail.kube.transport import Response
from dovetail.lab.apiserver import get_list, responses, selectors, status_errors, tables
from dovetail.lab.apiserver.negotiation import ResponseForm
from dovetail.lab.apiserver.options import ListOptions, list_options
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.lab.apiserver.store import StoredVersion, StoreEvent
from dovetail.lab.apiserver.webhooks.pending_calls import Answers, PendingCalls

Json = dict[str, Any]
Test = Callable[[Json], bool]
BACKLOG = 100_000
BOOKMARK_SECONDS = 60.0
#: The last bookmark comes this long before the watch ends.
LAST_BOOKMARK = 2.0
#: A watch that began with the present state gets its first one early.
SETTLED = 1.0
INITIAL_END = "k8s.io/initial-events-end"
_STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
_encode = msgspec.json.Encoder().encode


async def watch(call: RequestCall) -> Response:
    options = list_options(call.request)
    form = call.response_form(listing=False)
    if form.yaml:
        raise StatusError(406, "NotAcceptable", "only the following media types are accepted: " + _STREAMS)
    test = selectors.compile(call, options.labels, options.fields)
    if options.version and not (options.version.isascii() and options.version.isdigit()):
        raise status_errors.internal(get_list.bad_version(options.version))
    prefix = f"{call.namespace}/" if call.namespace else ""
    get_list.prepare(call.resource, call.server.store.table(call.table).under(prefix))
    watcher = Watcher(call, options, form, test)
    return Response(status=200, headers=responses.JSON_HEADERS, stream=watcher.frames())


class Watcher:
    """One watch: what it may see, and what it has not sent yet."""

    def __init__(self, call: RequestCall, options: ListOptions, form: ResponseForm, test: Test | None) -> None:
        self.call = call
        self.options = options
        self.wanted = form
        self.test = test
        self.store = call.server.store
        self.rows = self.store.table(call.table)
        self.prefix = f"{call.namespace}/" if call.namespace else ""
        self.pending: deque[StoreEvent] = deque()
        self.waiter: asyncio.Future[None] | None = None
        self.overrun = False
        self.sent = 0
        self.table_options = tables.TableOptions.of(call.request) if form.form == "Table" else tables.TableOptions()
        self.header_sent = False
        resource = call.resource
        self.form = (resource.version, form.form, form.version, self.table_options.include)
        self.start = int(options.version or "0")
        self.rows.watchers[self.notice] = None
        self.first = self.beginning()
        self.timeout = self._timeout()

    def _timeout(self) -> float:
        if self.options.timeout is not None and self.options.timeout > 0:
            return float(self.options.timeout)
        return 1800.0 + self.call.server.chance.random() * 1800.0

    def notice(self, event: StoreEvent) -> None:
        if event.rv <= self.start or (self.prefix and not event.key.startswith(self.prefix)):
            return
        if len(self.pending) >= BACKLOG:
            self.overrun = True
            self.pending.clear()
        self.pending.append(event)
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def beginning(self) -> list[bytes]:
        """What comes before the first change: the present state, or the changes since the version asked for."""
        wants_state = self.options.initial if self.options.initial is not None else self.start == 0
        frames: list[bytes] = []
        if self.start and self.start < self.oldest() and not self.options.initial:
            return [self.error(self.start)]
        if wants_state:
            for record in self.rows.under(self.prefix):
                if self.test is None or self.test(responses.show(record, self.call.resource)):
                    frames.append(self.frame("ADDED", record))
            if self.options.bookmarks:
                frames.append(self.bookmark(self.store.rv, initial_end=True))
            self.sent = self.start = self.store.rv
        elif self.options.initial is False and not self.start:
            self.sent = self.store.rv
        else:
            self.pending.extend(
                event
                for event in self.store.since(self.call.table, self.start)
                if not self.prefix or event.key.startswith(self.prefix)
            )
            self.sent = self.start
        return frames

    def oldest(self) -> int:
        """The version behind which a watch may begin."""
        return max(self.store.compacted, self.store.beginning, self.rows.horizon)

    def error(self, version: int) -> bytes:
        self.overrun = True
        expired = status_errors.expired(f"too old resource version: {version} ({self.oldest()})")
        return _encode({"type": "ERROR", "object": expired.status()}) + b"\n"

    async def frames(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.timeout
        begun = self.sent
        bookmark_at = loop.time() + SETTLED if self.options.initial else next_bookmark(loop.time(), end)
        try:
            for frame in self.first:
                yield frame
            self.first = []
            while not self.overrun:
                while self.pending:
                    event = self.pending.popleft()
                    self.sent = max(self.sent, event.rv)
                    try:
                        made = await self.converted_frame(event)
                    except StatusError as error:
                        yield _encode({"type": "ERROR", "object": error.status()}) + b"\n"
                        return
                    if made is not None:
                        yield made
                now = loop.time()
                if now >= end:
                    return
                if now >= bookmark_at:
                    if self.options.bookmarks and self.rows.rv > begun:
                        yield self.bookmark(self.rows.rv)
                    bookmark_at = next_bookmark(now, end)
                if not self.pending:
                    await self.wait(min(end, bookmark_at) - now if self.options.bookmarks else end - now)
            if self.pending:
                yield self.error(self.sent)
        finally:
            self.rows.watchers.pop(self.notice, None)

    async def wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.waiter = waiter = loop.create_future()
        timer = loop.call_later(max(seconds, 0.001), _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self.waiter = None

    async def converted_frame(self, event: StoreEvent) -> bytes | None:
        """The frame of a change; a webhook may have to convert the object first."""
        while True:
            try:
                return self.event_frame(event)
            except PendingCalls as outstanding:
                await Answers().ask(outstanding.questions)

    def event_frame(self, event: StoreEvent) -> bytes | None:
        """The frame of a change for this watcher; None if it does not concern it."""
        record, previous = event.record, event.previous
        if self.test is None:
            if record is None:
                return self.shared(event, "DELETED", None)
            return self.shared(event, "ADDED" if previous is None else "MODIFIED", record)
        resource = self.call.resource
        now = record is not None and self.test(responses.show(record, resource))
        before = previous is not None and self.test(responses.show(previous, resource))
        if now:
            return self.shared(event, "MODIFIED" if before else "ADDED", record)
        return self.shared(event, "DELETED", None) if before else None

    def shared(self, event: StoreEvent, kind: str, record: StoredVersion | None) -> bytes:
        """The frame, made once for all watchers of a form. What went shows its last state under a new version."""
        if self.wanted.form == "Table" and not self.header_sent:
            return self.frame(kind, record or event.gone)
        key = (kind, self.form)
        frame: bytes | None = event.frames.get(key)
        if frame is None:
            frame = event.frames[key] = self.frame(kind, record or event.gone)
        return frame

    def frame(self, kind: str, record: StoredVersion) -> bytes:
        resource = self.call.resource
        form = self.wanted.form
        if not form and responses.is_stored_so(record, resource):
            return b'{"type":"' + kind.encode() + b'","object":' + record.raw + b"}\n"
        shown = responses.show(record, resource)
        if form == "Table":
            shown = tables.of_objects(self.call, [shown], {}, self.wanted, self.table_options, watch=True)
            shown["metadata"] = {"resourceVersion": str(record.rv)}
            if self.header_sent:
                shown["columnDefinitions"] = None
            self.header_sent = True
        elif form == "PartialObjectMetadata":
            shown = responses.partial(shown, self.wanted.version)
        return _encode({"type": kind, "object": shown}) + b"\n"

    def bookmark(self, version: int, initial_end: bool = False) -> bytes:
        resource = self.call.resource
        metadata: Json = {"resourceVersion": str(version)}
        if not resource.custom:
            metadata = {**self.empty_metadata(), **metadata}
        if initial_end:
            metadata["annotations"] = {INITIAL_END: "true"}
        obj: Json = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        if not resource.custom and not self.wanted.form:
            obj = {**obj, **empty_rest(self.call)}
        if self.wanted.form == "Table":
            shown = self.table_options.include != "None" or initial_end
            obj = tables.bookmark(self.call, obj, self.wanted, header=not self.header_sent, shown=shown)
            self.header_sent = True
        elif self.wanted.form == "PartialObjectMetadata":
            obj = responses.partial(obj, self.wanted.version)
        return _encode({"type": "BOOKMARK", "object": obj}) + b"\n"

    def empty_metadata(self) -> Json:
        return {}


def empty_rest(call: RequestCall) -> Json:
    """A bookmark is an empty object of the kind: the fields that are always printed are there."""
    from dovetail.lab.apiserver.canonicalize import zero

    empty = zero(call.resource.schema)
    return {name: item for name, item in empty.items() if name not in ("kind", "apiVersion", "metadata")}


def next_bookmark(now: float, end: float) -> float:
    """Every minute, and right before the end."""
    last = end - LAST_BOOKMARK
    following = now + BOOKMARK_SECONDS
    return min(following, last) if now < last else following


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
