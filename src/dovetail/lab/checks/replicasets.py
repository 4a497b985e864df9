"""Check: no pod of a ReplicaSet is deleted without a cause, and missing ones are replaced.

People, evictions, preemption and lost nodes take pods away; the ReplicaSet controller only those that are too many.
Checked on every write: the client that deleted, the desired replicas, and since when there are too few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.kube.transport import Request
from dovetail.lab.apiserver.store import StoreEvent
from dovetail.language import message

Json = dict[str, Any]

CONTROLLERS = "kube-controller-manager"
#: Seconds after a change of the wanted number in which the controller may still act on the one before.
SCALE_SETTLE_S = 10.0
#: Seconds in which a missing pod must have been made again.
SHORTFALL_GRACE_S = 60.0


class _ReplicaSetState(msgspec.Struct):
    """A ReplicaSet: desired replicas, and since when; its active pods; since when one is missing."""

    name: str
    wanted: int
    since: float
    alive: dict[str, None]
    short_since: float = math.inf
    excused: bool = False


class ReplicaSetCheck:
    """`recovering` is true while a fault is injected: then a late replacement is no violation."""

    def __init__(self, clock: Clock, recovering: Callable[[], bool], grace_s: float = SHORTFALL_GRACE_S) -> None:
        self._clock = clock
        self._recovering = recovering
        self._grace_s = grace_s
        self._replica_sets: dict[str, _ReplicaSetState] = {}
        self._owners: dict[str, str] = {}
        self._delete_clients: dict[str, str] = {}
        self._short: dict[str, None] = {}
        self._ending: set[str] = set()

    async def intercept(self, request: Request) -> None:
        """Before every request: remember the client that deletes a pod."""
        parts = request.path.split("/")
        if request.method == "DELETE" and len(parts) == 7 and parts[5] == "pods":
            self._delete_clients[f"{parts[4]}/{parts[6]}"] = request.headers.get("user-agent", "")

    def written(self, event: StoreEvent) -> Iterator[str]:
        if event.table == "/pods":
            yield from self._pod(event)
        elif event.table == "apps/replicasets":
            self._set(event)
        elif event.table == "/namespaces":
            ending = event.record is not None and "deletionTimestamp" in event.record.obj["metadata"]
            (self._ending.add if ending else self._ending.discard)(event.key)
        yield from self.overdue()

    def overdue(self) -> Iterator[str]:
        """ReplicaSets short of pods for too long; each is reported once."""
        now = self._clock.monotonic()
        for uid in list(self._short):
            replica_set = self._replica_sets[uid]
            if now - replica_set.short_since <= self._grace_s:
                return  # the others have been short for less
            del self._short[uid]
            namespace = replica_set.name.partition("/")[0]
            if not replica_set.excused and namespace not in self._ending and not self._recovering():
                missing = replica_set.wanted - len(replica_set.alive)
                since = message("since {short_since:.3f}, now {now:.3f}", short_since=replica_set.short_since, now=now)
                yield message(
                    "replica set {replica_set} is {missing} pod(s) short {since}",
                    replica_set=replica_set.name,
                    missing=missing,
                    since=since,
                )

    def _set(self, event: StoreEvent) -> None:
        record = event.record or event.previous
        assert record is not None
        metadata = record.obj["metadata"]
        uid = metadata["uid"]
        if event.record is None:
            self._replica_sets.pop(uid, None)
            self._short.pop(uid, None)
            return
        replicas = record.obj["spec"].get("replicas", 1)
        replica_set = self._replica_sets.get(uid)
        if replica_set is None:
            replica_set = self._replica_sets[uid] = _ReplicaSetState(event.key, replicas, self._clock.monotonic(), {})
        elif replica_set.wanted != replicas:
            replica_set.wanted, replica_set.since = replicas, self._clock.monotonic()
        conditions = record.obj.get("status", {}).get("conditions", ())
        failing = any(condition["type"] == "ReplicaFailure" for condition in conditions)
        replica_set.excused = failing or "deletionTimestamp" in metadata
        self._count(uid, replica_set)

    def _pod(self, event: StoreEvent) -> Iterator[str]:
        pod = event.record.obj if event.record is not None else None
        uid = _owner(pod) if pod is not None else None
        before = self._owners.get(event.key)
        active = pod is not None and uid is not None and _active(pod)
        if before is not None and (not active or before != uid):
            del self._owners[event.key]
            yield from self._left(before, event)
        if active and uid is not None and before != uid:
            self._owners[event.key] = uid
            replica_set = self._replica_sets.get(uid)
            if replica_set is not None:
                replica_set.alive[event.key] = None
                self._count(uid, replica_set)

    def _left(self, uid: str, event: StoreEvent) -> Iterator[str]:
        client = self._delete_clients.pop(event.key, "")
        replica_set = self._replica_sets.get(uid)
        if replica_set is None:
            return
        replica_set.alive.pop(event.key, None)
        self._count(uid, replica_set)
        record = event.record or event.previous
        assert record is not None
        needless = (
            len(replica_set.alive) < replica_set.wanted
            and self._clock.monotonic() - replica_set.since >= SCALE_SETTLE_S
        )
        if client != CONTROLLERS or not needless or replica_set.excused or self._recovering():
            return
        if event.key.partition("/")[0] not in self._ending and not _disrupted(record.obj):
            left = message("{count} of {wanted} are left", count=len(replica_set.alive), wanted=replica_set.wanted)
            yield message(
                "pod {event} was deleted by the controllers though the ReplicaSet had no surplus: {left}",
                event=event.key,
                left=left,
            )

    def _count(self, uid: str, replica_set: _ReplicaSetState) -> None:
        """Since when a pod is missing."""
        if len(replica_set.alive) >= replica_set.wanted:
            replica_set.short_since = math.inf
            self._short.pop(uid, None)
        elif replica_set.short_since == math.inf:
            replica_set.short_since = self._clock.monotonic()
            self._short[uid] = None


def _owner(pod: Json) -> str | None:
    """The uid of the ReplicaSet that a pod belongs to."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner["kind"] == "ReplicaSet":
            return str(owner["uid"])
    return None


def _active(pod: Json) -> bool:
    phase = pod.get("status", {}).get("phase")
    return "deletionTimestamp" not in pod["metadata"] and phase not in ("Succeeded", "Failed")


def _disrupted(pod: Json) -> bool:
    """Whether the pod carries a cause: eviction, preemption, a taint, garbage collection, completion."""
    status = pod.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    return any(condition["type"] == "DisruptionTarget" for condition in status.get("conditions", ()))
