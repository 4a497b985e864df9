"""Which pods ask for machines, and which of them no plan can serve as they are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from dovetail.cluster.pdb import PdbIndex
from dovetail.cluster.state import ClusterState
from dovetail.controllers.node.termination import deadline, drain
from dovetail.model.fit.storage import claim_volumes
from dovetail.model.meta import condition
from dovetail.model.pods import Pod, Volume, owned_by, returning
from dovetail.model.pvc_problems import Trouble, bound_trouble, class_name, missing, open_class
from dovetail.model.workloads import PodDisruptionBudget
from dovetail.planner.plan import Unschedulable

#: Nobody may disrupt these, so nobody needs room for them elsewhere.
_FOREVER = "true"
#: How long before pods are made to leave a machine is bought for their successors: longer than most take to join.
AHEAD = timedelta(minutes=5)


def provisionable(pod: Pod, nominated_gone: bool = False) -> bool:
    """A pod that the scheduler has given up on for now, and that is not bound to be somewhere anyway."""
    scheduled = condition(pod.status.conditions, "PodScheduled")
    return (
        not pod.spec.node_name
        and not pod.finished
        and not pod.terminating
        and scheduled is not None
        and scheduled.status == "False"
        and scheduled.reason == "Unschedulable"
        and (not pod.status.nominated_node_name or nominated_gone)
        and not owned_by(pod, "DaemonSet", "Node")
    )


def queued(pod: Pod) -> bool:
    """A pod the scheduler has not looked at yet.

    In a burst it marks some fifty pods a second; whoever waits for its word buys in waves. A plan puts pods on
    what is there first, so planning for these as well buys nothing that the scheduler's word would not.
    """
    return (
        condition(pod.status.conditions, "PodScheduled") is None
        and not pod.spec.node_name
        and not pod.finished
        and not pod.terminating
        and pod.spec.scheduler_name == "default-scheduler"
        and not pod.spec.scheduling_gates
        and not pod.status.nominated_node_name
        and not owned_by(pod, "DaemonSet", "Node")
    )


def waiting(cluster_state: ClusterState) -> Iterator[Pod]:
    """Pods to place that nobody has promised a machine: those given up on, and those still in the queue."""
    cluster_state.expire()
    for pod in cluster_state.unbound():
        nominated = pod.status.nominated_node_name
        gone = bool(nominated) and nominated not in cluster_state.nodes.store
        if (provisionable(pod, gone) or queued(pod)) and cluster_state.reservations.of(pod.metadata.uid) is None:
            yield pod


def leaving(cluster_state: ClusterState, now: datetime) -> Iterator[Pod]:
    """Pods on machines that are going: their successors will need room. Those promised one already are left out.

    Who may not be asked to leave stays, and needs no room elsewhere until shortly before the machine's end has a date.
    """
    for node in cluster_state.nodes.store.all():
        claim = cluster_state.claim_for(node)
        if not cluster_state.going(claim, node):
            continue
        end = deadline.of(claim)
        for pod in cluster_state.pods_on(node.metadata.name):
            if cluster_state.reservations.of(pod.metadata.uid):
                continue
            if _free_to_go(pod, cluster_state.pdbs) or (end is not None and returning(pod) and soon(pod, end) <= now):
                yield pod


def soon(pod: Pod, end: datetime) -> datetime:
    """When a machine should be bought for the successor of a pod that will be made to leave: it is ready in time."""
    return (drain.forced_at(pod, end) or end) - AHEAD


def _free_to_go(pod: Pod, pdbs: PdbIndex) -> bool:
    """Whether a pod will leave as soon as it is asked to, or once others who left have come back."""
    return reschedulable(pod, pdbs) and not any(map(_shut, pdbs.of(pod)))


def _shut(budget: PodDisruptionBudget) -> bool:
    """A budget that allows nobody to leave though nobody is missing: only a larger workload opens it."""
    status = budget.status
    known = status.observed_generation > 0 and status.expected_pods > 0
    return known and status.disruptions_allowed < 1 and status.current_healthy >= status.expected_pods


def reschedulable(pod: Pod, pdbs: PdbIndex) -> bool:
    """A pod that will come back elsewhere once its machine goes, and that may be asked to leave."""
    if not returning(pod):
        return False
    if pod.metadata.annotations.get("karpenter.sh/do-not-disrupt") == _FOREVER:
        return False
    found = pdbs.of(pod)
    return len(found) < 2 and not any(map(_never_opens, found))


def _never_opens(budget: PodDisruptionBudget) -> bool:
    return budget.spec.max_unavailable in (0, "0", "0%") or budget.spec.min_available == "100%"


def refusal(cluster_state: ClusterState, pod: Pod) -> Unschedulable | None:
    """Why no plan can consider a pod, or None. Volumes that are not there (yet) are the usual reason."""
    for volume, name in claim_volumes(pod):
        trouble = _trouble(cluster_state, pod, volume, name)
        if trouble is not None:
            return Unschedulable(code=trouble.code, message=f"volume {volume.name!r}: {trouble.text}")
    return None


def _trouble(cluster_state: ClusterState, pod: Pod, volume: Volume, name: str) -> Trouble | None:
    """What keeps a claim from being used. One that is still to be made for a pod's own volume is none."""
    claim = cluster_state.volume_claims.store.get(f"{pod.metadata.namespace}/{name}")
    if claim is None:
        return missing(name) if volume.ephemeral is None else None
    trouble = bound_trouble(claim, cluster_state.volumes.store.get(claim.spec.volume_name))
    if trouble is not None or claim.spec.volume_name:
        return trouble
    classes = {each.metadata.name: each for each in cluster_state.storage_classes.store.all()}
    found = open_class(name, class_name(claim), classes)
    return found if isinstance(found, Trouble) else None
