"""What the parts of the API server share: its store, registry, clock, and what happens after a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

import msgspec

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.lab.apiserver.policies.source import PolicySource
from dovetail.lab.apiserver.registry import LogSource, Object, Registry, StoredObjects
from dovetail.lab.apiserver.store import ObjectStore
from dovetail.lab.apiserver.webhooks.configurations import Configurations


class WebhookAnswer(msgspec.Struct, frozen=True):
    """What came back from a webhook."""

    status: int
    body: bytes
    content_type: str = "application/json"


class Post(Protocol):
    """Sends a body to a URL; `server_name` and `target` are a Service's name and address, `authorities` PEM texts."""

    async def __call__(
        self, url: str, body: bytes, *, authorities: bytes, server_name: str, target: tuple[str, int] | None
    ) -> WebhookAnswer: ...


#: A service in this process: gets a path and a body, answers with a status and a body.
LocalService = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]


class ServerState(Protocol):
    """The API server, as its handlers see it."""

    clock: Clock
    chance: Chance
    registry: Registry
    store: ObjectStore
    address: str
    logs: LogSource
    local_services: dict[tuple[str, str], LocalService]
    local_urls: dict[str, LocalService]
    post: Post
    webhooks: Configurations
    policies: PolicySource

    @property
    def cluster(self) -> StoredObjects: ...

    def defer(self, action: Callable[[], None]) -> None: ...

    def run_deferred(self) -> None: ...

    def identify(self, token: str) -> Object | None: ...

    def issue(self, token: str, namespace: str, account: Object, until: datetime) -> None: ...
