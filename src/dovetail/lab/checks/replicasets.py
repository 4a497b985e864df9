"""No pod of a Deployment goes missing without a cause, and who went is replaced.

People, evictions, preemption and lost nodes take pods away; the ReplicaSet controller only those that are too many.
Watched on every write: who asked for a deletion, how many are asked for, and since when there are too few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.kube.transport import Request
from dovetail.lab.apiserver.store import Event

Json = dict[str, Any]

CONTROLLERS = "kube-controller-manager"
#: Seconds after a change of the wanted number in which the controller may still act on the one before.
SETTLED = 10.0
#: Seconds in which a missing pod must have been made again.
PATIENCE = 60.0


class _Crew(msgspec.Struct):
    """A ReplicaSet: how many it wants, and since when; who is there; since when somebody is missing."""

    name: str
    wanted: int
    since: float
    alive: dict[str, None]
    short_since: float = math.inf
    excused: bool = False


class Staffing:
    """`restless` says whether something is broken on purpose: then nobody is blamed for being late."""

    def __init__(self, clock: Clock, restless: Callable[[], bool], patience: float = PATIENCE) -> None:
        self._clock = clock
        self._restless = restless
        self._patience = patience
        self._crews: dict[str, _Crew] = {}
        self._owners: dict[str, str] = {}
        self._asked: dict[str, str] = {}
        self._short: dict[str, None] = {}
        self._ending: set[str] = set()

    async def door(self, request: Request) -> None:
        """Before every request: remember who asks for which pod to go."""
        parts = request.path.split("/")
        if request.method == "DELETE" and len(parts) == 7 and parts[5] == "pods":
            self._asked[f"{parts[4]}/{parts[6]}"] = request.headers.get("user-agent", "")

    def written(self, event: Event) -> Iterator[str]:
        if event.table == "/pods":
            yield from self._pod(event)
        elif event.table == "apps/replicasets":
            self._set(event)
        elif event.table == "/namespaces":
            ending = event.record is not None and "deletionTimestamp" in event.record.obj["metadata"]
            (self._ending.add if ending else self._ending.discard)(event.key)
        yield from self.overdue()

    def overdue(self) -> Iterator[str]:
        """Who has been short of pods for too long; each is told once."""
        now = self._clock.monotonic()
        for uid in list(self._short):
            crew = self._crews[uid]
            if now - crew.short_since <= self._patience:
                return  # the others have been short for less
            del self._short[uid]
            namespace = crew.name.partition("/")[0]
            if not crew.excused and namespace not in self._ending and not self._restless():
                missing = crew.wanted - len(crew.alive)
                yield f"replica set {crew.name} is {missing} pod(s) short since {crew.short_since:.3f}, now {now:.3f}"

    def _set(self, event: Event) -> None:
        record = event.record or event.previous
        assert record is not None
        metadata = record.obj["metadata"]
        uid = metadata["uid"]
        if event.record is None:
            self._crews.pop(uid, None)
            self._short.pop(uid, None)
            return
        wanted = record.obj["spec"].get("replicas", 1)
        crew = self._crews.get(uid)
        if crew is None:
            crew = self._crews[uid] = _Crew(event.key, wanted, self._clock.monotonic(), {})
        elif crew.wanted != wanted:
            crew.wanted, crew.since = wanted, self._clock.monotonic()
        conditions = record.obj.get("status", {}).get("conditions", ())
        failing = any(each["type"] == "ReplicaFailure" for each in conditions)
        crew.excused = failing or "deletionTimestamp" in metadata
        self._count(uid, crew)

    def _pod(self, event: Event) -> Iterator[str]:
        pod = event.record.obj if event.record is not None else None
        uid = _owner(pod) if pod is not None else None
        before = self._owners.get(event.key)
        living = pod is not None and uid is not None and _active(pod)
        if before is not None and (not living or before != uid):
            del self._owners[event.key]
            yield from self._left(before, event)
        if living and uid is not None and before != uid:
            self._owners[event.key] = uid
            crew = self._crews.get(uid)
            if crew is not None:
                crew.alive[event.key] = None
                self._count(uid, crew)

    def _left(self, uid: str, event: Event) -> Iterator[str]:
        asked = self._asked.pop(event.key, "")
        crew = self._crews.get(uid)
        if crew is None:
            return
        crew.alive.pop(event.key, None)
        self._count(uid, crew)
        record = event.record or event.previous
        assert record is not None
        needless = len(crew.alive) < crew.wanted and self._clock.monotonic() - crew.since >= SETTLED
        if asked != CONTROLLERS or not needless or crew.excused or self._restless():
            return
        if event.key.partition("/")[0] not in self._ending and not _disrupted(record.obj):
            left = f"{len(crew.alive)} of {crew.wanted} are left"
            yield f"pod {event.key} was deleted by the controllers though nobody was too many: {left}"

    def _count(self, uid: str, crew: _Crew) -> None:
        """Since when somebody is missing."""
        if len(crew.alive) >= crew.wanted:
            crew.short_since = math.inf
            self._short.pop(uid, None)
        elif crew.short_since == math.inf:
            crew.short_since = self._clock.monotonic()
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
    """Whether the pod carries a cause: eviction, preemption, a taint, garbage collection, a finished life."""
    status = pod.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    return any(each["type"] == "DisruptionTarget" for each in status.get("conditions", ()))
