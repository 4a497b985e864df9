"""Leader election on a Lease, with fencing.

Another candidate may take the lease `duration` after it last saw it renewed. We stop sooner: from the moment
a renewal was *sent* we count `deadline` seconds on our own monotonic clock, and past that `check` raises.
A client fenced with it (`kube.fenced(leadership.check)`) cannot write on behalf of a leadership that may be
another process's by now, however long a task was asleep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from dovetail.kube.backoff import NEVER
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from dovetail.kube.events import InvolvedObject, reference
from dovetail.kube.log import Log
from dovetail.kube.resources import LEASES
from dovetail.model.meta import micro

log = Log(__name__)


class LeadershipLost(KubeError):
    """Another process may be the leader now; nothing may be written."""


class LeaseTimes(msgspec.Struct, frozen=True):
    """Seconds. `duration` > `deadline` > `retry`, as Kubernetes' own controllers have them."""

    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration > self.deadline > self.retry > 0:
            raise ValueError(f"a lease needs duration > deadline > retry > 0, not {self}")


class LeaderElection:
    """`await election.run(lead)` waits to be the leader, runs `lead`, and raises `LeadershipLost` if that ends."""

    def __init__(self, kube: Kube, name: str, namespace: str, identity: str, times: LeaseTimes | None = None) -> None:
        self._kube = kube
        self._name = name
        self._namespace = namespace
        self.identity = identity
        self._times = times or LeaseTimes()
        self._until = float("-inf")
        self._seen: tuple[str, str] = ("", "")
        self._seen_at = float("-inf")
        self._lease: dict[str, Any] = {}
        self.token = 0
        #: Called when a renewal has to read the lease first, because it was not as we had left it.
        self.on_slow_path: Callable[[], None] | None = None
        #: Why the last try came to nothing, unless another process holds the lease.
        self.failure: KubeError | None = None

    @property
    def leading(self) -> bool:
        return self._kube.clock.monotonic() < self._until

    @property
    def holder(self) -> str:
        """Who holds the lease, as far as we know."""
        return str((self._lease.get("spec") or {}).get("holderIdentity") or "")

    @property
    def about(self) -> InvolvedObject:
        """The lease as events name it."""
        return reference(LEASES, self._lease)

    def check(self) -> None:
        """The fence: raises unless we surely are the leader."""
        if not self.leading:
            raise LeadershipLost(
                f"lease {self._namespace}/{self._name}: {self.identity} is not the leader"
                + (f" ({self.holder} is)" if self.holder not in ("", self.identity) else "")
            )

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        await self.acquire()
        leading = asyncio.ensure_future(lead())
        renewing = asyncio.ensure_future(self._renew())
        try:
            await asyncio.wait((leading, renewing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leading, renewing):
                task.cancel()
            await asyncio.gather(leading, renewing, return_exceptions=True)
            await self.release()
        if not leading.cancelled():
            leading.result()
        elif not renewing.cancelled():
            renewing.result()

    async def acquire(self) -> None:
        while True:
            if await self._attempt():
                break
            await asyncio.sleep(self._times.retry * (1.0 + 0.2 * self._kube.chance.random()))
        log.info("became the leader", lease=f"{self._namespace}/{self._name}", identity=self.identity, token=self.token)

    async def release(self) -> None:
        """Let the next one in at once, if the lease is still ours."""
        if not self.leading:
            return
        self._until = float("-inf")
        spec = {**self._lease.get("spec", {}), "holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            await self._write({**self._lease, "spec": spec})
        except KubeError as problem:
            log.info("lease not released", lease=f"{self._namespace}/{self._name}", problem=str(problem))

    async def _renew(self) -> None:
        """Renew until that fails for too long."""
        while True:
            await asyncio.sleep(self._times.retry)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._left())):
                    await self._attempt()
            if not self.leading or self.holder not in ("", self.identity):
                self._until = float("-inf")
                raise LeadershipLost(
                    f"lease {self._namespace}/{self._name}: {self.identity} could not renew it in time"
                )

    def _left(self) -> float:
        return self._until - self._kube.clock.monotonic()

    async def _attempt(self) -> bool:
        """One try to take or renew the lease. Failures are logged: the deadline decides, not they."""
        sent = self._kube.clock.monotonic()
        self.failure = None
        try:
            won = await self._take()
        except (Conflict, AlreadyExists):
            return False
        except KubeError as problem:
            self.failure = problem
            log.warning("lease not reached", lease=f"{self._namespace}/{self._name}", problem=str(problem))
            return False
        if won:
            self._until = sent + self._times.deadline
        return won

    async def _take(self) -> bool:
        now = self._kube.clock.now()
        if self.leading and self.holder == self.identity:
            with suppress(
                Conflict, NotFound
            ):  # another process wrote or deleted it: then it is read first, as any other
                self._lease = await self._write({**self._lease, "spec": self._spec(self._lease["spec"], now)})
                return True
            if self.on_slow_path is not None:
                self.on_slow_path()
        try:
            self._lease = await self._read()
        except NotFound:
            body = {"metadata": {"name": self._name, "namespace": self._namespace}, "spec": self._spec({}, now)}
            self._lease = await self._kube.create(LEASES, body)
            self.token = 0
            return True
        spec = self._lease.get("spec") or {}
        if self._is_held_by_other(spec):
            return False
        self._lease = await self._write({**self._lease, "spec": self._spec(spec, now)})
        self.token = int(self._lease["spec"].get("leaseTransitions") or 0)
        return True

    def _is_held_by_other(self, spec: dict[str, Any]) -> bool:
        """Whether another process holds it and has renewed it within its lease duration."""
        holder = spec.get("holderIdentity") or ""
        seen = (holder, str(spec.get("renewTime")))
        monotonic = self._kube.clock.monotonic()
        if seen != self._seen:
            self._seen, self._seen_at = seen, monotonic
        lease_duration = float(spec.get("leaseDurationSeconds") or self._times.duration)
        return holder not in ("", self.identity) and monotonic < self._seen_at + lease_duration

    def _spec(self, old: dict[str, Any], now: datetime) -> dict[str, Any]:
        ours = old.get("holderIdentity") == self.identity
        transitions = int(old.get("leaseTransitions") or 0)
        stamp = micro(now)
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._times.duration)),
            "acquireTime": old.get("acquireTime") if ours and old.get("acquireTime") else stamp,
            "renewTime": stamp,
            "leaseTransitions": transitions if ours or not old else transitions + 1,
        }

    async def _read(self) -> dict[str, Any]:
        path = LEASES.path(self._namespace, self._name)
        response = await self._kube.request("GET", path, retries=NEVER)
        return msgspec.json.decode(response.body, type=dict[str, Any])

    async def _write(self, lease: dict[str, Any]) -> dict[str, Any]:
        path = LEASES.path(self._namespace, self._name)
        response = await self._kube.request("PUT", path, body=lease, retries=NEVER)
        return msgspec.json.decode(response.body, type=dict[str, Any])
