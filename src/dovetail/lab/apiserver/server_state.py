"""What the parts of the API server share: its store, registry, clock, and what happens after a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.lab.apiserver.registry import Cluster, LogSource, Object, Registry
from dovetail.lab.apiserver.store import Store

#: A service in this process: gets a path and a body, answers with a status and a body.
LocalService = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]


class ServerState(Protocol):
    """The API server, as its handlers see it."""

    clock: Clock
    chance: Chance
    registry: Registry
    store: Store
    address: str
    logs: LogSource
    local_services: dict[tuple[str, str], LocalService]

    @property
    def cluster(self) -> Cluster: ...

    def defer(self, action: Callable[[], None]) -> None: ...

    def run_deferred(self) -> None: ...

    def identify(self, token: str) -> Object | None: ...
