"""Ages in a lab whose time runs faster than the reader's clock.

The server prints the ages of `kubectl get` itself, by the lab's clock. `kubectl describe` and `kubectl events` count
them from timestamps, by the wall clock, for which the lab's timestamps lie in the future. So these two commands, which
identify themselves in a header, get timestamps as far back on the wall clock as they are in the lab. Other clients
read the lab's own; a header of ours has the lab's time. The header `Date` has the wall clock: kubectl's discovery
cache compares with it, and would hide definitions that are newer than its copy.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

from dovetail.clock import Clock, wall
from dovetail.kube.transport import LAB_TIME, Request, Response
from dovetail.lab.apiserver.http import Core

COUNTING = frozenset(("kubectl describe", "kubectl events"))
_INSTANT = re.compile(
    rb'("(?:[a-zA-Z]*(?:Time|Timestamp)|startedAt|finishedAt|time)":")(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)((?:\.\d+)?Z")'
)
#: What is written at the moment it names.
_WRITTEN = re.compile(rb'"(?:creationTimestamp|renewTime)":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)')


def resumed(folder: Path, now: datetime) -> datetime:
    """When a lab that kept its data goes on: not before the last instant that was written there."""
    files = [path.read_bytes() for path in (folder / "snapshot", folder / "log") if path.is_file()]
    last = max((match[1] for text in files for match in _WRITTEN.finditer(text)), default=b"")
    return max(now, datetime.fromisoformat(f"{last.decode()}Z")) if last else now


class WallClockAges:
    """A core whose answers to commands that count ages are moved onto the clock on the wall."""

    def __init__(self, core: Core, clock: Clock, reader: Callable[[], datetime] = wall) -> None:
        self._core = core
        self._clock = clock
        self._reader = reader

    @property
    def address(self) -> str:
        return self._core.address

    @address.setter
    def address(self, address: str) -> None:
        self._core.address = address

    async def handle(self, request: Request) -> Response:
        response = await self._core.handle(request)
        response.headers = {
            **response.headers,
            "date": format_datetime(self._reader(), usegmt=True),
            LAB_TIME: format_datetime(self._clock.now(), usegmt=True),
        }
        if request.headers.get("kubectl-command") in COUNTING:
            response.body = self._moved(response.body)
            if response.stream is not None:
                response.stream = self._frames(response.stream)
        return response

    async def _frames(self, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for frame in stream:
            yield self._moved(frame)

    def _moved(self, text: bytes) -> bytes:
        ahead = timedelta(seconds=round((self._clock.now() - self._reader()).total_seconds()))

        def earlier(match: re.Match[bytes]) -> bytes:
            instant = datetime.fromisoformat(match[2].decode()) - ahead
            return match[1] + instant.isoformat().encode() + match[3]

        return _INSTANT.sub(earlier, text)
