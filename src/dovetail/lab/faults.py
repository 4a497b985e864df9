"""Faults: what goes wrong in clusters, on request. Each has a name, ends by itself, and is told in one line.

Kubelets and machines are broken through the fleet; the API server through a door before it and a wrapper around
its watches. A fault never reaches into a part's insides.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver import routes
from dovetail.lab.apiserver.status import CHANGED, conflict
from dovetail.lab.kubelet.fleet import Fleet

#: Where `dovetail fault` knocks.
PATH = "/lab/faults"
_WRITES = ("PUT", "PATCH")
#: Seconds by which a clock is wrong unless told otherwise.
_SKEW = 300.0
#: Seconds after a fault in which parts may still be busy with its aftermath.
RECOVERY = 120.0


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"seconds": "for"}):
    """A fault as asked for: its kind, the node it strikes, how long, and how much."""

    kind: str
    node: str = ""
    seconds: float = 60.0
    amount: float = 0.0


class UnknownFault(ValueError):
    """No such fault, or no such node."""


class Faults:
    """The switchboard. `now` is what is broken at the moment."""

    def __init__(self, fleet: Fleet, clock: Clock, chance: Chance) -> None:
        self._fleet = fleet
        self._clock = clock
        self._chance = chance
        self.now: dict[str, Fault] = {}
        self._until = -math.inf
        self._streams = 0
        self._cut = asyncio.Event()
        self._expire = asyncio.Event()
        self._flow = asyncio.Event()
        self._flow.set()
        self._strikes: dict[str, Callable[[Fault], str]] = {
            "kubelet-silent": self._silence,
            "machine-gone": self._vanish,
            "clock-skew": self._skew,
            "api-slow": self._switch,
            "api-down": self._switch,
            "api-throttled": self._switch,
            "conflict-storm": self._switch,
            "watch-cut": self._cut_watches,
            "watch-stale": self._hold_watches,
            "watch-drop": self._drop_events,
            "watch-twice": self._switch,
            "watch-gulps": self._switch,
        }

    @property
    def kinds(self) -> list[str]:
        return sorted(self._strikes)

    def strike(self, fault: Fault) -> str:
        """Break it; returns what was done, in words."""
        strike = self._strikes.get(fault.kind)
        if strike is None:
            raise UnknownFault(f"no fault {fault.kind!r}; there are {', '.join(self.kinds)}")
        ends = self._clock.monotonic() + fault.seconds if fault.seconds > 0 else math.inf
        self._until = max(self._until, ends)
        return strike(fault)

    @property
    def restless(self) -> bool:
        """Whether anything is broken, or was a moment ago."""
        return self._clock.monotonic() < self._until + RECOVERY

    def _later(self, seconds: float, mend: Callable[[], None]) -> None:
        if seconds > 0:
            asyncio.get_running_loop().call_later(seconds, mend)

    def _node(self, fault: Fault) -> str:
        """The node by name, the first part of it, or number counted round; else the first."""
        names = sorted(name for name, seat in self._fleet.seats.items() if seat.registered)
        if fault.node in names:
            return fault.node
        if not names:
            raise UnknownFault("no machine runs here")
        if fault.node == "":
            return names[0]
        short = [name for name in names if name.partition(".")[0] == fault.node]
        if len(short) == 1:
            return short[0]
        if fault.node.isdigit():
            return names[int(fault.node) % len(names)]
        raise UnknownFault(f"no machine {fault.node!r} runs here; there are {', '.join(names[:5])}")

    def _silence(self, fault: Fault) -> str:
        """One kubelet, or all of them with the node `*`."""
        every = [name for name, seat in self._fleet.seats.items() if seat.registered]
        nodes = every if fault.node == "*" else [self._node(fault)]
        for node in nodes:
            self._fleet.silence(node)

        def mend() -> None:
            for node in nodes:
                if node in self._fleet.seats:
                    self._fleet.wake(node)

        self._later(fault.seconds, mend)
        whose = "every kubelet" if fault.node == "*" else f"the kubelet of {nodes[0]}"
        return f"{whose} is silent for {fault.seconds:g} s"

    def _vanish(self, fault: Fault) -> str:
        node = self._node(fault)
        self._fleet.vanish(node)
        return f"the machine of {node} is gone"

    def _skew(self, fault: Fault) -> str:
        node = self._node(fault)
        off = fault.amount or _SKEW
        self._fleet.skew(node, off)

        def mend() -> None:
            if node in self._fleet.seats:
                self._fleet.skew(node, 0.0)

        self._later(fault.seconds, mend)
        return f"the clock of {node} is off by {off:g} s for {fault.seconds:g} s"

    def _switch(self, fault: Fault) -> str:
        self.now[fault.kind] = fault

        def mend() -> None:
            if self.now.get(fault.kind) is fault:
                del self.now[fault.kind]

        self._later(fault.seconds, mend)
        much = {
            "api-slow": f"answers {fault.amount or 1:g} s late",
            "api-down": "does not answer",
            "conflict-storm": f"refuses {fault.amount or 0.5:.0%} of updates as conflicts",
            "api-throttled": f"turns {fault.amount or 0.5:.0%} of requests away as too many",
            "watch-twice": "tells every event twice",
            "watch-gulps": f"tells each watch its events every so often, up to {fault.amount or 5:g} s late,",
        }
        return f"the API server {much[fault.kind]} for {fault.seconds:g} s"

    def _cut_watches(self, fault: Fault) -> str:
        self._cut.set()
        self._cut = asyncio.Event()
        return "every watch was cut"

    def _hold_watches(self, fault: Fault) -> str:
        self._flow.clear()
        self._later(fault.seconds, self._flow.set)
        return f"watches are {fault.seconds:g} s behind"

    def _drop_events(self, fault: Fault) -> str:
        """Events are lost while it lasts; then every watch learns that it is too old, and lists anew."""
        self.now[fault.kind] = fault

        def mend() -> None:
            if self.now.get(fault.kind) is fault:
                del self.now[fault.kind]
                self._expire.set()
                self._expire = asyncio.Event()

        self._later(fault.seconds, mend)
        return f"{fault.amount or 0.2:.0%} of the watched events are lost for {fault.seconds:g} s"

    # At the API server

    async def door(self, request: Request) -> Response | None:
        if request.path == PATH:
            return self._knock(request)
        slow = self.now.get("api-slow")
        if slow is not None:
            await asyncio.sleep(slow.amount or 1.0)
        if "api-down" in self.now:
            return _status(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        throttled = self.now.get("api-throttled")
        if throttled is not None and self._chance.random() < (throttled.amount or 0.5):
            return _status(429, "TooManyRequests", "the server has received too many requests", {"retry-after": "1"})
        storm = self.now.get("conflict-storm")
        if storm is not None and request.method in _WRITES and self._chance.random() < (storm.amount or 0.5):
            return _status(409, "Conflict", _conflict(request.path))
        return None

    def _knock(self, request: Request) -> Response:
        try:
            fault = msgspec.json.decode(request.body, type=Fault)
            return _status(200, "", self.strike(fault))
        except (msgspec.DecodeError, UnknownFault) as problem:
            return _status(400, "BadRequest", str(problem))

    async def stream(self, frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A watch that can be cut, held back, thinned out and repeated."""
        cut, expired = asyncio.ensure_future(self._cut.wait()), asyncio.ensure_future(self._expire.wait())
        upcoming: asyncio.Future[bytes] | None = None
        self._streams += 1
        pace = self._chance.child("pace", str(self._streams)).uniform(0.2, 1.0)
        try:
            while True:
                upcoming = asyncio.ensure_future(anext(frames))
                await asyncio.wait((upcoming, cut, expired), return_when=asyncio.FIRST_COMPLETED)
                if expired.done():
                    yield _GONE
                if cut.done() or expired.done() or isinstance(upcoming.exception(), StopAsyncIteration):
                    return
                frame = upcoming.result()
                await self._flow.wait()
                if "watch-gulps" in self.now:
                    await asyncio.sleep(self._until_gulp(self.now["watch-gulps"], pace))
                for _ in range(self._copies()):
                    yield frame
        finally:
            for each in (cut, expired):
                each.cancel()
            if upcoming is not None:
                upcoming.cancel()
                await asyncio.wait((upcoming,))
            close: Any = getattr(frames, "aclose", None)
            if close is not None:
                await close()

    def _until_gulp(self, fault: Fault, pace: float) -> float:
        """Seconds until a watch of this pace tells what has gathered."""
        return -self._clock.monotonic() % (pace * (fault.amount or 5.0))

    def _copies(self) -> int:
        """How often an event is told now."""
        drop = self.now.get("watch-drop")
        if drop is not None and self._chance.random() < (drop.amount or 0.2):
            return 0
        return 2 if "watch-twice" in self.now else 1


def _conflict(path: str) -> str:
    route = routes.parse(path)
    return conflict(route.group, route.plural, route.name).message if route is not None else CHANGED


def _status(code: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" if code < 400 else "Failure"}
    body |= {"message": message, "reason": reason, "code": code}  # type: ignore[dict-item]
    headers = {"content-type": "application/json", **(headers or {})}
    return Response(status=code, headers=headers, body=msgspec.json.encode(body))


_GONE = b'{"type":"ERROR","object":' + _status(410, "Expired", "too old resource version").body + b"}\n"
