"""Pod latency: until a decision, until binding, until start.

Only pods that were seen pending count, at the times that the watch reports; a pod that ran before us does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Protocol

from dovetail.clock import Clock
from dovetail.cluster.state import ClusterState
from dovetail.controllers.metrics.definitions import Metrics
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import PODS
from dovetail.model.meta import condition
from dovetail.model.pods import Pod


class PodLatency:
    """Follows the pods of a cluster state, and receives every plan."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._unstarted: dict[str, Pod] = {}
        self._unbound: set[str] = set()
        #: By UID: when a pod was first in a plan's snapshot, and when a plan first placed it.
        self._seen: dict[str, datetime] = {}
        self._decided: set[str] = set()
        self._planned: dict[str, datetime] = {}

    def follow(self, cluster_state: ClusterState) -> None:
        for memory in (self._unstarted, self._unbound, self._seen, self._decided, self._planned):
            memory.clear()
        for pod in cluster_state.pods.store.all():
            self._changed(CacheChange("added", pod.metadata.key, None, pod))
        cluster_state.listen(PODS, self._changed)

    # -- plans

    def planning(self, pods: Iterable[Pod]) -> None:
        """A plan is about to be made for these."""
        now = self._clock.now()
        for pod in pods:
            if not pod.spec.node_name:
                self._seen.setdefault(pod.metadata.uid, now)

    def decided(self, pods: Iterable[Pod], refused: Collection[str]) -> None:
        """A plan was made for these; the `refused`, by key, are unschedulable."""
        now = self._clock.now()
        for pod in pods:
            uid = pod.metadata.uid
            if pod.spec.node_name:
                continue
            if uid not in self._decided:
                self._decided.add(uid)
                self._metrics.pod_decision.observe((now - self._seen.get(uid, now)).total_seconds())
            if pod.metadata.key in refused:
                self._planned.pop(uid, None)
            else:
                self._planned.setdefault(uid, now)

    def _changed(self, change: CacheChange[Pod]) -> None:
        pod, key = change.new, change.key
        if pod is None:
            self._unbound.discard(key)
            self._unstarted.pop(key, None)
            self._forget(change.object)
        elif pod.status.phase in ("Pending", ""):
            self._unstarted[key] = pod
            self._unbound.add(key)
        else:
            if key in self._unbound:
                self._bound(key, pod)
            if key in self._unstarted:
                self._started(key, pod)

    def _bound(self, key: str, pod: Pod) -> None:
        scheduled = condition(pod.status.conditions, "PodScheduled")
        if scheduled is None or scheduled.status != "True":
            return
        self._unbound.discard(key)
        observed, dynamic = scheduled.last_transition_time, is_dynamic(pod)
        _observe(self._metrics.pod_bound.labels(dynamic), pod.metadata.creation_timestamp, observed)
        _observe(self._metrics.pod_provisioning_bound.labels(dynamic), self._planned.get(pod.metadata.uid), observed)

    def _started(self, key: str, pod: Pod) -> None:
        ready = condition(pod.status.conditions, "Ready")
        if ready is not None and ready.status == "True":
            observed = ready.last_transition_time
            _observe(self._metrics.pod_startup, pod.metadata.creation_timestamp, observed)
            _observe(self._metrics.pod_provisioning_startup, self._planned.get(pod.metadata.uid), observed)
        elif not pod.finished:
            self._unstarted[key] = pod
            return
        del self._unstarted[key]
        self._forget(pod)

    def _forget(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._decided.discard(uid)
        self._seen.pop(uid, None)
        self._planned.pop(uid, None)

    # -- ages

    def unstarted(self) -> tuple[Pod, ...]:
        return tuple(self._unstarted.values())

    def since(self, pod: Pod) -> float:
        """Seconds since its creation."""
        return self._age(pod.metadata.creation_timestamp) or 0.0

    def since_plan(self, pod: Pod) -> float | None:
        """Seconds since a plan first placed it."""
        return self._age(self._planned.get(pod.metadata.uid))

    def since_seen(self, pod: Pod) -> float | None:
        """Seconds since it was first in a snapshot, if nothing has been decided yet."""
        return None if pod.metadata.uid in self._decided else self._age(self._seen.get(pod.metadata.uid))

    def _age(self, since: datetime | None) -> float | None:
        return None if since is None else (self._clock.now() - since).total_seconds()


def has(pod: Pod, kind: str) -> bool:
    pod_condition = condition(pod.status.conditions, kind)
    return pod_condition is not None and pod_condition.status == "True"


def is_dynamic(pod: Pod) -> str:
    """Whether a pod uses dynamically allocated resources, as a label's value."""
    return "true" if pod.spec.resource_claims else "false"


class _Observed(Protocol):
    def observe(self, value: float) -> None: ...


def _observe(what: _Observed, since: datetime | None, observed: datetime | None) -> None:
    if since is not None and observed is not None:
        what.observe(max(0.0, (observed - since).total_seconds()))
