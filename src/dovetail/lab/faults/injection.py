"""Fault injection: what goes wrong in clusters, on request. Each fault has a name and ends by itself.

Kubelets and instances are broken through the fleet; the API server through a middleware before it and a wrapper around
its watches. A fault never reaches into a part's insides.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver import routes
from dovetail.lab.apiserver.status_errors import CHANGED, conflict
from dovetail.lab.durations import decode
from dovetail.lab.faults.kinds import KINDS, InjectedFault, UnknownFault, unknown
from dovetail.lab.kubelet.kubelets import Kubelets
from dovetail.language import message, source

#: Where `dovetail fault` knocks.
PATH = "/lab/faults"
_WRITES = ("PUT", "PATCH")
#: Asked for instead of a fault: ends all of them.
MEND = "mend"
#: Seconds after a fault in which parts may still be busy with its aftermath.
RECOVERY = 120.0


#: What the API server does while a fault lasts, by its kind.
_SWITCHED = {
    "api-slow": source("the API server answers {much:g} s late {spell}"),
    "api-down": source("the API server answers every request with 503 {spell}"),
    "conflict-storm": source("the API server refuses {much:.0%} of updates as conflicts {spell}"),
    "api-throttled": source("the API server turns {much:.0%} of requests away as too many {spell}"),
    "watch-twice": source("the API server tells every event twice {spell}"),
    "watch-gulps": source("the API server tells each watch its events every so often, up to {much:g} s late, {spell}"),
}


class Faults:
    """The switchboard. `now` is what is broken at the moment, by the kind and the node it strikes, if any.

    `strikes` are the kinds, to which others may add; each calls `last` with what ends it.
    """

    def __init__(self, fleet: Kubelets, clock: Clock, chance: Chance, *, own_server: bool = True) -> None:
        self._fleet = fleet
        self._clock = clock
        self._chance = chance
        self.now: dict[str, InjectedFault] = {}
        self._ends: dict[str, tuple[float, Callable[[], object]]] = {}
        self._until = -math.inf
        self._streams = 0
        self._cut = asyncio.Event()
        self._expire = asyncio.Event()
        self._flow = asyncio.Event()
        self._flow.set()
        self.handlers: dict[str, Callable[[InjectedFault], str]] = {
            "kubelet-silent": self._silence,
            "instance-gone": self._vanish,
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
        if not own_server:
            self.handlers = {kind: strike for kind, strike in self.handlers.items() if KINDS[kind].node}

    def inject(self, fault: InjectedFault) -> str:
        """Break it; returns what was done, in words."""
        if fault.kind == MEND:
            return self._mend()
        strike = self.handlers.get(fault.kind)
        if strike is None and fault.kind in KINDS:
            raise UnknownFault(
                message(
                    "{fault_kind} breaks the lab's own API server, and this one is Kubernetes'", fault_kind=fault.kind
                )
            )
        if strike is None:
            raise unknown(fault.kind, (*self.handlers, MEND))
        self._until = max(self._until, self._over(fault))
        return strike(fault)

    def _over(self, fault: InjectedFault) -> float:
        """When a fault that strikes now will be over."""
        return self._clock.monotonic() + fault.seconds if fault.seconds > 0 else math.inf

    def last(self, fault: InjectedFault, end: Callable[[], object], node: str = "") -> None:
        """Call it broken until its time is over; a later one of the kind, at the same node, takes its place."""
        name = f"{fault.kind} of {node}" if node else fault.kind
        self.now[name], self._ends[name] = fault, (self._over(fault), end)

        def over() -> None:
            if self.now.get(name) is fault:
                self.end(name)

        if fault.seconds > 0:
            asyncio.get_running_loop().call_later(fault.seconds, over)

    def end(self, name: str) -> None:
        """End what is broken under a name, if anything is."""
        if self.now.pop(name, None) is not None:
            self._ends.pop(name)[1]()

    def _mend(self) -> str:
        broken = self._broken()
        for name in sorted(self.now):
            self.end(name)
        self._until = min(self._until, self._clock.monotonic())
        return message("mended: {faults}", faults=", ".join(broken)) if broken else message("nothing was broken")

    @property
    def is_recovering(self) -> bool:
        """Whether anything is broken, or was a moment ago."""
        return self._clock.monotonic() < self._until + RECOVERY

    def node(self, fault: InjectedFault) -> str:
        """The node by name, the first part of it, or number counted round; else the first."""
        names = sorted(name for name, seat in self._fleet.seats.items() if seat.registered)
        if fault.node in names:
            return fault.node
        if not names:
            raise UnknownFault(message("no instance runs here"))
        if fault.node == "":
            return names[0]
        short = [name for name in names if name.partition(".")[0] == fault.node]
        if len(short) == 1:
            return short[0]
        if fault.node.isdigit():
            return names[int(fault.node) % len(names)]
        raise UnknownFault(
            message("no node {node!r} runs here; there are {names}", node=fault.node, names=", ".join(names[:5]))
        )

    def _silence(self, fault: InjectedFault) -> str:
        """One kubelet, or all of them with the node `*`."""
        every = [name for name, seat in self._fleet.seats.items() if seat.registered]
        nodes = every if fault.node == "*" else [self.node(fault)]
        for node in nodes:
            if self._fleet.seats[node].silent_since is None:
                self._fleet.silence(node)
            self.last(fault, partial(self._wake, node), node)
        whose = message("every kubelet") if fault.node == "*" else message("the kubelet of {nodes}", nodes=nodes[0])
        return message("{whose} is silent {spell}", whose=whose, spell=fault.spell)

    def _wake(self, node: str) -> None:
        if node in self._fleet.seats:
            self._fleet.wake(node)

    def _vanish(self, fault: InjectedFault) -> str:
        node = self.node(fault)
        self._fleet.vanish(node)
        return message("the instance of {node} is gone", node=node)

    def _skew(self, fault: InjectedFault) -> str:
        node = self.node(fault)
        self._fleet.skew(node, fault.much)
        self.last(fault, partial(self._straighten, node), node)
        return message(
            "the clock of {node} is off by {much:g} s {spell}", node=node, much=fault.much, spell=fault.spell
        )

    def _straighten(self, node: str) -> None:
        if node in self._fleet.seats:
            self._fleet.skew(node, 0.0)

    def _switch(self, fault: InjectedFault) -> str:
        self.last(fault, lambda: None)
        return message(_SWITCHED[fault.kind], much=fault.much, spell=fault.spell)

    def _cut_watches(self, fault: InjectedFault) -> str:
        self._cut.set()
        self._cut = asyncio.Event()
        return message("every watch was cut")

    def _hold_watches(self, fault: InjectedFault) -> str:
        self._flow.clear()
        self.last(fault, self._flow.set)
        return message("watches tell nothing {spell}", spell=fault.spell)

    def _drop_events(self, fault: InjectedFault) -> str:
        """Events are lost while it lasts; then every watch learns that it is too old, and lists anew."""
        self.last(fault, self._expire_watches)
        return message("{much:.0%} of the watched events are lost {spell}", much=fault.much, spell=fault.spell)

    def _expire_watches(self) -> None:
        self._expire.set()
        self._expire = asyncio.Event()

    # At the API server

    async def intercept(self, request: Request) -> Response | None:
        if request.path == PATH:
            return self.handle_request(request)
        slow = self.now.get("api-slow")
        if slow is not None:
            await asyncio.sleep(slow.much)
        if "api-down" in self.now:
            return _status(503, "ServiceUnavailable", message("the server is currently unable to handle the request"))
        throttled = self.now.get("api-throttled")
        if throttled is not None and self._chance.random() < throttled.much:
            return _status(
                429, "TooManyRequests", message("the server has received too many requests"), {"retry-after": "1"}
            )
        storm = self.now.get("conflict-storm")
        if storm is not None and request.method in _WRITES and self._chance.random() < storm.much:
            return _status(409, "Conflict", _conflict(request.path))
        return None

    def handle_request(self, request: Request) -> Response:
        """Strike what a request asks for, or tell what is broken."""
        if request.method == "GET":
            return _status(200, "", "\n".join(self._descriptions()) or message("nothing is broken"))
        try:
            fault = msgspec.json.decode(request.body, type=InjectedFault, dec_hook=decode)
            return _status(200, "", self.inject(fault))
        except (msgspec.DecodeError, UnknownFault) as problem:
            return _status(400, "BadRequest", str(problem))

    def _broken(self) -> dict[str, float]:
        """What is broken, and until when; what one strike did to several nodes in one word."""
        struck: dict[int, list[str]] = {}
        for name, fault in sorted(self.now.items()):
            struck.setdefault(id(fault), []).append(name)
        return {
            names[0]
            if len(names) == 1
            else message("{kind} of {count} nodes", kind=self.now[names[0]].kind, count=len(names)): self._ends[
                names[0]
            ][0]
            for names in struck.values()
        }

    def _descriptions(self) -> Iterator[str]:
        now = self._clock.monotonic()
        for name, until in self._broken().items():
            yield (
                message("{name}, for good", name=name)
                if until == math.inf
                else message("{name}, {until:.0f} s more", name=name, until=until - now)
            )

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
            for task in (cut, expired):
                task.cancel()
            if upcoming is not None:
                upcoming.cancel()
                await asyncio.wait((upcoming,))
            close: Any = getattr(frames, "aclose", None)
            if close is not None:
                await close()

    def _until_gulp(self, fault: InjectedFault, pace: float) -> float:
        """Seconds until a watch of this pace tells what has gathered."""
        return -self._clock.monotonic() % (pace * fault.much)

    def _copies(self) -> int:
        """How often an event is delivered now."""
        drop = self.now.get("watch-drop")
        if drop is not None and self._chance.random() < drop.much:
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


_GONE = b'{"type":"ERROR","object":' + _status(410, "Expired", source("too old resource version")).body + b"}\n"
