"""The drain, as a pure decision: which pods are evicted now, which wait, which are forced.

Pods leave in four tiers, each done before the next begins: ordinary pods, ordinary daemons, critical pods,
critical daemons. With a deadline, a pod whose own grace period would run past it is deleted in time,
whatever its tier and whatever protects it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from dovetail.controllers.node.termination import do_not_disrupt
from dovetail.model import wellknown
from dovetail.model.pods import Pod
from dovetail.model.taints import tolerates

#: A pod that should have ended this long ago is stuck: the drain does not wait for it.
STUCK = timedelta(minutes=1)
CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})


class Forced(msgspec.Struct, frozen=True):
    """A pod to be deleted without eviction, with the seconds it still gets until the deadline."""

    pod: Pod
    grace: int
    end: datetime


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now. `waiting` are the pods that the node still waits for; none left means drained."""

    evict: tuple[Pod, ...] = ()
    force: tuple[Forced, ...] = ()
    protected: tuple[Pod, ...] = ()
    waiting: tuple[Pod, ...] = ()

    @property
    def done(self) -> bool:
        return not self.waiting


def decide(pods: Iterable[Pod], now: datetime, end: datetime | None) -> Drain:
    """`end` is the deadline; None does not bound the drain."""
    leaving = [pod for pod in pods if drainable(pod) and not is_stuck(pod, now)]
    forced = [Forced(pod, _grace(end, now), end) for pod in leaving if end and _overdue(pod, end, now)]
    forced_uids = {eviction.pod.metadata.uid for eviction in forced}
    unforced = [pod for pod in leaving if pod.metadata.uid not in forced_uids]
    tier = min((tier_of(pod) for pod in unforced), default=0)
    due = [pod for pod in unforced if tier_of(pod) == tier and not pod.terminating]
    protected = tuple(pod for pod in due if do_not_disrupt.of(pod).holds(now))
    return Drain(
        evict=tuple(pod for pod in due if pod not in protected),
        force=tuple(forced),
        protected=protected,
        waiting=tuple(leaving),
    )


def drainable(pod: Pod) -> bool:
    """A pod that must be drained: running, not a mirror pod, and without a toleration of the disrupted taint."""
    stays = any(tolerates(toleration, wellknown.DISRUPTED_TAINT) for toleration in pod.spec.tolerations)
    return not pod.finished and not mirror_pod(pod) and not stays


def mirror_pod(pod: Pod) -> bool:
    return any(owner.kind == "Node" for owner in pod.metadata.owner_references)


def is_stuck(pod: Pod, now: datetime) -> bool:
    end = pod.metadata.deletion_timestamp
    return end is not None and now > end + STUCK


def tier_of(pod: Pod) -> int:
    critical = pod.spec.priority_class_name in CRITICAL
    daemon = any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
    return 2 * critical + daemon


def _overdue(pod: Pod, end: datetime, now: datetime) -> bool:
    """Whether the pod must be deleted now to be gone by the deadline."""
    if pod.terminating:
        return pod.metadata.deletion_timestamp is not None and pod.metadata.deletion_timestamp > end
    when = forced_at(pod, end)
    return when is not None and now > when


def forced_at(pod: Pod, end: datetime) -> datetime | None:
    """When a pod is deleted so that it is gone by the deadline, whatever protects it."""
    grace = pod.spec.termination_grace_period_seconds
    return None if grace is None else end - timedelta(seconds=grace)


def _grace(end: datetime, now: datetime) -> int:
    return max(1, int((end - now).total_seconds()))
