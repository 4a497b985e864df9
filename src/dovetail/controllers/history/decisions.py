"""Decision history: every decision with its id, what it was based on, what it cost, and why.

An id goes into the log line, the event, the annotation and the metric, so that any of them leads to the
whole record. Recording never waits; a store keeps the decisions for at least seven days across restarts. That a
node stays for the same reason as before is recorded once in a while only: a settled fleet writes next to nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Protocol

import msgspec

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.model.meta import stamp
from dovetail.planner.plan import Funnel

RETENTION = timedelta(days=7)
#: How often it is recorded that a node stays while nothing about it changes.
KEEP_INTERVAL = timedelta(hours=6)
#: Names of pods and nodes shown in one decision; the counts are always exact.
SHOWN = 50
_IN_MEMORY = 5000
#: Decisions that go to the store in one call: after an outage there are many.
SAVE_BATCH_SIZE = 50


class CreatedNodeClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A NodeClaim that a decision creates, with the cheaper offerings that were rejected and why."""

    claim: str
    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float | None
    pods: int
    options: int = 0
    cheaper: tuple[str, ...] = ()


class Refusal(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Unschedulable pods, and the funnel of each NodePool."""

    pods: tuple[str, ...]
    count: int
    code: str
    message: str
    pools: Mapping[str, Funnel] = {}
    object: str = ""
    """What has to be changed, as kind/name; empty where it is the pod."""
    remedy: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """`kind` is provision, refuse, disrupt, undo, end, unhealthy, keep, safe-mode, drift-stop or shadow; of node groups
    it is scale-up, scale-down or refuse.

    `reason` is of its vocabulary; `about` are NodeClaims and NodePools that it concerns beside those it names.
    """

    id: str
    kind: str
    time: str
    summary: str
    reason: str = ""
    view_age: float = 0.0
    cost: float | None = None
    before: float | None = None
    bound: float | None = None
    gap: float | None = None
    bound_of: str = ""
    tier: int = 0
    seconds: float = 0.0
    pods: tuple[str, ...] = ()
    pod_count: int = 0
    node_claims: tuple[CreatedNodeClaim, ...] = ()
    removed: tuple[str, ...] = ()
    evictions: int = 0
    refusals: tuple[Refusal, ...] = ()
    subject: str = ""
    about: tuple[str, ...] = ()
    detail: Mapping[str, Any] = {}


class DecisionStore(Protocol):
    """Where decisions survive the process."""

    async def load(self) -> Iterable[Decision]: ...

    async def append(self, decisions: Iterable[Decision]) -> None: ...

    async def forget(self, before: str) -> None: ...


class DecisionHistory:
    """Decisions in memory, newest last, and on their way to the store."""

    def __init__(self, clock: Clock, chance: Chance, store: DecisionStore | None = None) -> None:
        self._clock = clock
        self._chance = chance
        self._store = store
        self._decisions: deque[Decision] = deque(maxlen=_IN_MEMORY)
        self._unsaved: deque[Decision] = deque(maxlen=_IN_MEMORY)
        self._stays: dict[str, Decision] = {}
        self._recorded = asyncio.Event()
        self._saving = asyncio.Lock()

    def new_id(self) -> str:
        """A short random id."""
        return f"d-{self._chance.suffix(8)}"

    def now(self) -> str:
        return stamp(self._clock.now())

    def record(self, decision: Decision) -> None:
        if decision.kind == "keep":
            last = self._stays.get(decision.subject)
            if last is not None and _same(last, decision):
                return
            self._stays[decision.subject] = decision
        self._decisions.append(decision)
        self._unsaved.append(decision)
        self._recorded.set()

    def decisions(self) -> tuple[Decision, ...]:
        return tuple(self._decisions)

    def about(self, subject: str) -> tuple[Decision, ...]:
        """Decisions that name a pod (`namespace/name`), a node or a NodePool, newest last."""
        return tuple(decision for decision in self._decisions if concerns(decision, subject))

    async def restore(self) -> None:
        """Load what was decided before this process, if there is a store."""
        if self._store is None:
            return
        oldest = self._oldest()
        last = [decision for decision in await self._store.load() if decision.time >= oldest]
        self._decisions.clear()
        self._decisions.extend((*last, *self._unsaved))
        self._stays = {decision.subject: decision for decision in self._decisions if decision.kind == "keep"}

    async def recorded(self) -> None:
        """Returns when something was recorded since it last did."""
        await self._recorded.wait()
        self._recorded.clear()

    async def save(self) -> None:
        """Write what is new to the store; on failure it stays for the next time."""
        async with self._saving:
            while self._store is not None and self._unsaved:
                batch = list(islice(self._unsaved, SAVE_BATCH_SIZE))
                await self._store.append(batch)
                saved = {id(decision) for decision in batch}
                while self._unsaved and id(self._unsaved[0]) in saved:
                    self._unsaved.popleft()

    async def forget(self) -> None:
        """Drop what is older than it must be kept."""
        oldest = self._oldest()
        while self._decisions and self._decisions[0].time < oldest:
            self._decisions.popleft()
        self._stays = {subject: stay for subject, stay in self._stays.items() if stay.time >= oldest}
        if self._store is not None:
            await self._store.forget(oldest)

    def _oldest(self) -> str:
        moment: datetime = self._clock.now() - RETENTION
        return stamp(moment)


def _same(last: Decision, decision: Decision) -> bool:
    """Whether nothing has changed about a node that stays, since it was last recorded."""
    age = datetime.fromisoformat(decision.time) - datetime.fromisoformat(last.time)
    return age < KEEP_INTERVAL and all(
        getattr(last, name) == getattr(decision, name) for name in ("reason", "summary", "before", "detail")
    )


def concerns(decision: Decision, subject: str) -> bool:
    """Whether a decision names a pod, with its namespace or without, a node or a NodePool."""

    def among(pods: Iterable[str]) -> bool:
        return any(pod == subject or pod.endswith(f"/{subject}") for pod in pods)

    return (
        subject == decision.subject
        or among(decision.pods)
        or subject in decision.removed
        or subject in decision.about
        or any(subject in (node_claim.claim, node_claim.pool) for node_claim in decision.node_claims)
        or any(among(refusal.pods) for refusal in decision.refusals)
    )
