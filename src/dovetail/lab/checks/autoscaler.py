"""Safety invariants of an autoscaler under faults, checked from outside on every write it makes.

The numbers are those of the field's incidents: I1 futile launches end, I2 no launch burst, I3 no pod gets two
NodeClaims, I4 nothing leaks, I5 no disruption for a drift that is not there, I6 budgets and safe mode hold, I7 the
replacement is ready first, I8 only instances of deleted NodeClaims are terminated, I9 no pod is moved for cost all
the time, I10 the cloud is not flooded, I11 every refused launch is reported, I12 no claim drifts from the NodePool
that it was made from. Each look costs what changed.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec

from dovetail.clock import Clock
from dovetail.controllers.disruption.drift_loops import FROM_OBJECTS
from dovetail.controllers.disruption.queue import COMMAND
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.apiserver.store import StoreEvent
from dovetail.lab.faults.cloud import FALSE_DRIFT, FaultyCloud
from dovetail.language import message
from dovetail.model import wellknown
from dovetail.model.kinds import budgets
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool

CHECK_PERIOD_S, HOUR_S = 60.0, 3600.0
#: NodeClaims for one and the same pod within an hour.
MAX_CLAIMS_PER_POD_HOUR = 8
#: Instances launched within a window of seconds: so many for each pod at its peak, and a few.
LAUNCH_WINDOW_S, MAX_LAUNCHES_PER_POD, EXTRA_LAUNCHES = 600.0, 3, 10
#: Claims of a pool written within this many seconds: one for each pod, and a few.
BURST_WINDOW_S = 60.0
#: Seconds until a NodeClaim must report a refused launch.
REFUSAL_REPORT_S = 60.0
#: Seconds that two NodeClaims may be in launch for one pod, and that an instance or a NodeClaim may lack the other.
DUPLICATE_CLAIM_S, ORPHAN_S = 60.0, 600.0
#: Moves for cost an hour, for each pod of a workload and anyway.
MAX_MOVES_PER_POD_HOUR, EXTRA_MOVES = 3, 3
#: A claim written so many seconds after its NodePool changed was planned from the changed NodePool.
PLANNED_WITHIN_S = 60.0
#: Cloud calls a second, over a minute; without those for single instances, which a real provider batches.
MAX_CALLS_PER_S = 10.0
BATCHED_CALLS = frozenset({"get", "launch", "terminate"})
VOLUNTARY = frozenset({"Empty", "Drifted", "Underutilized"})
#: A repair keeps to budgets as well, but not to the safe mode that many unhealthy nodes cause.
BUDGETED = VOLUNTARY | {"Unhealthy"}


class _Resident(msgspec.Struct, frozen=True):
    node: str
    owner: str


class _BudgetedNodes:
    """Nodes that count for the budgets of their NodePools, and the disrupted ones; updated on every write."""

    def __init__(self) -> None:
        self._there: dict[str, Counter[tuple[str, bool]]] = {}
        self._nodes: set[str] = set()
        self._counts: Counter[tuple[str, bool]] = Counter()

    def of(self, pool: str) -> tuple[int, int]:
        """How many a pool has, and how many of them are disrupted."""
        going = self._counts[pool, True]
        return self._counts[pool, False] + going, going

    def node(self, name: str, there: bool) -> None:
        if there != (name in self._nodes):
            (self._nodes.add if there else self._nodes.discard)(name)
            (self._counts.update if there else self._counts.subtract)(self._there.get(name, ()))

    def claim(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        for claim, by in ((old, -1), (new, 1)):
            if claim is not None and claim.status.node_name and _counts(claim):
                name, kind = claim.status.node_name, (claim.node_pool or "", _reason(claim) in BUDGETED)
                here = self._there.setdefault(name, Counter())
                here[kind] += by
                if not here[kind]:
                    del here[kind]
                if not here:
                    del self._there[name]
                self._counts[kind] += by if name in self._nodes else 0


class AutoscalerInvariants:
    """`violations` are the invariants that did not hold, each reported once."""

    def __init__(
        self,
        server: ApiServer,
        clock: Clock,
        cloud: FaultyCloud,
        safe: Callable[[], bool],
        autoscaler_now: Callable[[], datetime] | None = None,
    ) -> None:
        self.violations: list[str] = []
        self._clock = clock
        self._cloud = cloud
        self._safe = safe
        #: The time as the autoscaler knows it: a wrong clock moves its schedules.
        self._autoscaler_now = autoscaler_now or clock.now
        self._claims: dict[str, NodeClaim] = {}
        self._budgeted_nodes = _BudgetedNodes()
        #: NodeClaims by provider id, and those that are not initialized yet.
        self._owners: dict[str, str] = {}
        self._launching: dict[str, NodeClaim] = {}
        self._pools: dict[str, NodePool] = {}
        #: Since when each NodePool has had its generation, and which generation each claim was surely made from.
        self._demands: dict[str, tuple[int, float]] = {}
        self._made_from: dict[str, int] = {}
        self._pods: dict[str, _Resident] = {}
        self._sizes: Counter[str] = Counter()
        self._busiest: deque[tuple[float, int]] = deque()
        self._launches: deque[float] = deque()
        self._attempts: dict[str, deque[float]] = {}
        self._created: dict[str, deque[float]] = {}
        self._refused: dict[str, str] = {}
        self._moved: dict[str, deque[float]] = {}
        self._doubts: dict[str, float] = {}
        self._calls = 0
        cloud.on_terminate = self._terminated
        cloud.on_refuse = self._refuse
        server.store.observers.append(self._written)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_PERIOD_S)
            self.look()

    def look(self) -> None:
        """What shows with time alone: doubts that last, and calls that add up."""
        now = self._clock.monotonic()
        standing = dict(self._tolerated_for_a_while())
        self._doubts = {what: self._doubts.get(what, now) for what in standing}
        for what, since in self._doubts.items():
            if now - since > standing[what]:
                self._break(what)
        calls = sum(count for name, count in self._cloud.calls.items() if name not in BATCHED_CALLS)
        if calls - self._calls > MAX_CALLS_PER_S * CHECK_PERIOD_S:
            self._break(
                message(
                    "I10: {calls} calls of the cloud within {check_period_s:g} s",
                    calls=calls - self._calls,
                    check_period_s=CHECK_PERIOD_S,
                )
            )
        self._calls = calls

    def _tolerated_for_a_while(self) -> Iterator[tuple[str, float]]:
        """What must not last, and for how long it may."""
        standing = {instance.provider_id for instance in self._cloud.standing()}
        for provider in standing - self._owners.keys():
            yield message("I4: instance {provider} has no claim", provider=provider), ORPHAN_S
        for provider in self._owners.keys() - standing:
            yield message("I4: claim {owners} has no instance", owners=self._owners[provider]), ORPHAN_S
        served: dict[str, str] = {}
        for name, claim in self._launching.items():
            for uid in _pods_of(claim):
                if uid in self._pods and not self._pods[uid].node and served.setdefault(uid, name) != name:
                    yield (
                        message(
                            "I3: {served} and {name} are both launched for pod {uid}",
                            served=served[uid],
                            name=name,
                            uid=uid,
                        ),
                        DUPLICATE_CLAIM_S,
                    )
        yield from self._unanswered()

    def _unanswered(self) -> Iterator[tuple[str, float]]:
        """Launches that the cloud refused and whose claims neither report it nor are deleted."""
        waiting = {claim.metadata.uid: claim for claim in self._claims.values() if self._refused}
        for uid, reason in tuple(self._refused.items()):
            claim = waiting.get(uid)
            launched = claim.condition("Launched") if claim is not None else None
            reported = launched is not None and launched.reason != "AwaitingReconciliation"
            if claim is None or claim.metadata.deletion_timestamp is not None or reported:
                del self._refused[uid]
            else:
                yield (
                    message(
                        "I11: claim {claim} does not report that its launch was refused ({reason})",
                        claim=claim.name,
                        reason=reason,
                    ),
                    REFUSAL_REPORT_S,
                )

    def _break(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)

    # Writes

    def _written(self, event: StoreEvent) -> None:
        if event.table == "/pods":
            self._pod(event)
        elif event.table == "/nodes":
            self._budgeted_nodes.node(event.key, event.record is not None)
        elif event.table == "karpenter.sh/nodepools":
            if event.record is None:
                self._pools.pop(event.key, None)
            else:
                self._pools[event.key] = pool = msgspec.convert(event.record.obj, NodePool, strict=False)
                if self._demands.get(event.key, (None,))[0] != pool.metadata.generation:
                    self._demands[event.key] = (pool.metadata.generation, self._clock.monotonic())
        elif event.table == "karpenter.sh/nodeclaims":
            self._claim(event)

    def _pod(self, event: StoreEvent) -> None:
        if event.record is None:
            if event.previous is not None:
                self._pod_gone(event.previous.obj["metadata"]["uid"])
            return
        metadata = event.record.obj["metadata"]
        owners = metadata.get("ownerReferences") or ()
        if any(owner["kind"] in ("DaemonSet", "Node") for owner in owners):
            return
        owner = next((owner["uid"] for owner in owners if owner.get("controller")), metadata["uid"])
        existing = self._pods.get(metadata["uid"])
        self._sizes[owner] += 1
        if existing is not None:
            self._sizes[existing.owner] -= 1
        else:
            now, count = self._clock.monotonic(), len(self._pods) + 1
            while self._busiest and self._busiest[-1][1] <= count:
                self._busiest.pop()
            self._busiest.append((now, count))
        self._pods[metadata["uid"]] = _Resident(event.record.obj["spec"].get("nodeName", ""), owner)

    def _pod_gone(self, uid: str) -> None:
        self._attempts.pop(uid, None)
        gone = self._pods.pop(uid, None)
        if gone is not None:
            self._sizes[gone.owner] -= 1

    def _claim(self, event: StoreEvent) -> None:
        old = self._claims.pop(event.key, None)
        new = msgspec.convert(event.record.obj, NodeClaim, strict=False) if event.record is not None else None
        self._budgeted_nodes.claim(old, new)
        self._launching.pop(event.key, None)
        if old is not None and self._owners.get(old.status.provider_id) == event.key:
            del self._owners[old.status.provider_id]
        if new is None:
            self._made_from.pop(event.key, None)
            return
        self._claims[event.key] = new
        if new.status.provider_id:
            self._owners[new.status.provider_id] = event.key
        if new.metadata.deletion_timestamp is None and not new.is_true("Initialized"):
            self._launching[event.key] = new
        self._changed(event, old, new)

    def _changed(self, event: StoreEvent, old: NodeClaim | None, new: NodeClaim) -> None:
        if event.previous is None:
            self._creation(new)
            generation, since = self._demands.get(new.node_pool or "", (0, 0.0))
            if generation and self._clock.monotonic() - since >= PLANNED_WITHIN_S:
                self._made_from[event.key] = generation
        if new.status.provider_id and not (old and old.status.provider_id):
            self._purchase(new)
        if new.is_true("Drifted") and not (old and old.is_true("Drifted")):
            self._drift(new)
        if new.is_true("DisruptionReason") and not (old and old.is_true("DisruptionReason")):
            self._disruption(new)
        if new.metadata.deletion_timestamp and not (old and old.metadata.deletion_timestamp):
            self._removal(new)

    def _creation(self, claim: NodeClaim) -> None:
        name = claim.node_pool or ""
        made = len(_recent(self._created.setdefault(name, deque()), self._clock.monotonic(), BURST_WINDOW_S))
        if made > self._demand() + EXTRA_LAUNCHES:
            self._break(
                message(
                    "I2: {made} claims of {name} were written within {burst_window_s:g} s, for at most {self_}",
                    made=made,
                    name=name,
                    burst_window_s=BURST_WINDOW_S,
                    self_=self._demand(),
                )
            )

    def _refuse(self, uid: str, reason: str) -> None:
        """A launch was refused: the claim has cost nothing, and another may take its place."""
        claim = next((claim for claim in self._claims.values() if claim.metadata.uid == uid), None)
        made = self._created.get(claim.node_pool or "") if claim is not None and uid not in self._refused else None
        if made:
            made.popleft()
        self._refused[uid] = reason

    def _demand(self) -> int:
        """The most that instances can have been needed for lately: pods, and the replicas of static NodePools."""
        since = self._clock.monotonic() - LAUNCH_WINDOW_S
        while len(self._busiest) > 1 and self._busiest[1][0] <= since:
            self._busiest.popleft()
        pods = self._busiest[0][1] if self._busiest else 0
        return pods + sum(pool.spec.replicas or 0 for pool in self._pools.values())

    def _purchase(self, claim: NodeClaim) -> None:
        now = self._clock.monotonic()
        for uid in _pods_of(claim):
            if len(_recent(self._attempts.setdefault(uid, deque()), now, HOUR_S)) > MAX_CLAIMS_PER_POD_HOUR:
                self._break(
                    message(
                        "I1: more than {max_claims_per_pod_hour} instances were launched for pod {uid} within an hour",
                        max_claims_per_pod_hour=MAX_CLAIMS_PER_POD_HOUR,
                        uid=uid,
                    )
                )
        launches = len(_recent(self._launches, now, LAUNCH_WINDOW_S))
        if launches > MAX_LAUNCHES_PER_POD * self._demand() + EXTRA_LAUNCHES:
            self._break(
                message(
                    "I1: {launches} instances were launched within {launch_window_s:g} s, for at most {self_}",
                    launches=launches,
                    launch_window_s=LAUNCH_WINDOW_S,
                    self_=self._demand(),
                )
            )

    def _drift(self, claim: NodeClaim) -> None:
        condition, pool = claim.condition("Drifted"), self._pools.get(claim.node_pool or "")
        reason = condition.reason if condition is not None else ""
        if pool is not None and reason in FROM_OBJECTS and self._made_from.get(claim.name) == pool.metadata.generation:
            self._break(
                message(
                    "I12: {claim} drifts ({reason}) from the NodePool {pool} that it was made from",
                    claim=claim.name,
                    reason=reason,
                    pool=pool.name,
                )
            )

    def _disruption(self, claim: NodeClaim) -> None:
        condition = claim.condition("DisruptionReason")
        reason = condition.reason if condition is not None else ""
        pool = self._pools.get(claim.node_pool or "")
        if reason not in BUDGETED or pool is None:
            return
        drifted = claim.condition("Drifted")
        if reason == "Drifted" and drifted is not None and drifted.reason == FALSE_DRIFT:
            self._break(message("I5: {claim} goes for a drift that the cloud only talked of", claim=claim.name))
        if reason in VOLUNTARY and self._safe():
            self._break(message("I6: {claim} is disrupted ({reason}) in safe mode", claim=claim.name, reason=reason))
        total, going = self._budgeted_nodes.of(pool.name)
        allowed = budgets.allowance(pool.spec.disruption.budgets, reason, total, self._autoscaler_now()).nodes
        if going > allowed:
            self._break(
                message(
                    "I6: {going} nodes of {pool} are disrupted at once, {allowed} may be ({reason})",
                    going=going,
                    pool=pool.name,
                    allowed=allowed,
                    reason=reason,
                )
            )
        if reason == "Underutilized":
            self._move(claim)

    def _move(self, claim: NodeClaim) -> None:
        now = self._clock.monotonic()
        for owner in [pod.owner for pod in self._pods.values() if pod.node == claim.status.node_name]:
            moves = len(_recent(self._moved.setdefault(owner, deque()), now, HOUR_S))
            size = self._sizes[owner]
            if moves > MAX_MOVES_PER_POD_HOUR * size + EXTRA_MOVES:
                self._break(
                    message(
                        "I9: the {size} pods of {owner} were moved {moves} times within an hour for cost",
                        size=size,
                        owner=owner,
                        moves=moves,
                    )
                )

    def _removal(self, claim: NodeClaim) -> None:
        if _reason(claim) not in ("Drifted", "Underutilized", "Unhealthy") or self._lost(claim.status.provider_id):
            return
        for launching in self._launching.values():
            if f'"claim":"{claim.name}"' in launching.metadata.annotations.get(COMMAND, ""):
                self._break(
                    message(
                        "I7: {claim} goes before its replacement {name} is ready", claim=claim.name, name=launching.name
                    )
                )

    def _lost(self, provider_id: str) -> bool:
        """Whether an instance ended by itself, or was deleted by others than the autoscaler."""
        standing = (instance.provider_id for instance in self._cloud.standing())
        return provider_id in self._cloud.given_up or provider_id not in standing

    def _terminated(self, provider_id: str) -> None:
        claim = self._claims.get(self._owners.get(provider_id, ""))
        if claim is not None and claim.metadata.deletion_timestamp is None:
            self._break(
                message(
                    "I8: instance {provider_id} is terminated and its claim {claim} is not deleted",
                    provider_id=provider_id,
                    claim=claim.name,
                )
            )


def _counts(claim: NodeClaim) -> bool:
    """Whether a NodeClaim counts for budgets, once it has a node."""
    ready = claim.is_true("Initialized") or claim.is_true("Rebooting")
    return ready and not claim.is_true("InstanceTerminating")


def _reason(claim: NodeClaim) -> str:
    condition = claim.condition("DisruptionReason")
    return condition.reason if condition is not None and condition.status == "True" else ""


def _pods_of(claim: NodeClaim) -> list[str]:
    """The uids of the pods a NodeClaim was launched for."""
    text = claim.metadata.annotations.get(wellknown.PODS, "")
    return [part for part in text.split(",") if part]


def _recent(times: deque[float], now: float, window: float) -> deque[float]:
    """Add a moment and forget those before the window."""
    times.append(now)
    while times[0] <= now - window:
        times.popleft()
    return times
