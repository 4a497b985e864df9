"""Which pods need new nodes, and which of them no plan can place as they are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from dovetail.cluster.pdb import PdbIndex
from dovetail.cluster.state import ClusterState
from dovetail.controllers.node.termination import deadline, drain
from dovetail.model.fit.storage import claim_volumes
from dovetail.model.meta import condition
from dovetail.model.pods import Pod, Volume, owned_by, returning
from dovetail.model.pvc_problems import PvcProblem, bound_trouble, class_name, missing, open_class
from dovetail.model.workloads import PodDisruptionBudget
from dovetail.planner.plan import Unschedulable

#: These pods are never disrupted, so they need no capacity elsewhere.
_FOREVER = "true"
#: How long before pods are forced out a node is launched for their replacements: longer than most take to join.
AHEAD = timedelta(minutes=5)


def provisionable(pod: Pod, nominated_gone: bool = False) -> bool:
    """A pod that the scheduler marked unschedulable, and that is not tied to a node anyway."""
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
    """A pod the scheduler has not tried yet.

    In a burst it marks some fifty pods a second; waiting for it means launching in waves. A plan puts pods on
    existing nodes first, so planning for these as well launches nothing that would not be launched later.
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
    """Pending pods without a nomination: those marked unschedulable, and those still in the scheduler's queue."""
    cluster_state.expire()
    for pod in cluster_state.unbound():
        nominated = pod.status.nominated_node_name
        gone = bool(nominated) and nominated not in cluster_state.nodes.store
        if (provisionable(pod, gone) or queued(pod)) and cluster_state.nominations.of(pod.metadata.uid) is None:
            yield pod


def evictable(cluster_state: ClusterState, now: datetime) -> Iterator[Pod]:
    """Pods on terminating nodes: their replacements will need capacity. Nominated ones are left out.

    Pods that may not be evicted stay, and need no capacity elsewhere until shortly before the node's deadline.
    """
    for node in cluster_state.nodes.store.all():
        claim = cluster_state.claim_for(node)
        if not cluster_state.is_terminating(claim, node):
            continue
        end = deadline.of(claim)
        for pod in cluster_state.pods_on(node.metadata.name):
            if cluster_state.nominations.of(pod.metadata.uid):
                continue
            if _free_to_go(pod, cluster_state.pdbs) or (
                end is not None and returning(pod) and launch_time(pod, end) <= now
            ):
                yield pod


def launch_time(pod: Pod, end: datetime) -> datetime:
    """When a node should be launched for the replacement of a pod that will be forced out: it is ready in time."""
    return (drain.forced_at(pod, end) or end) - AHEAD


def _free_to_go(pod: Pod, pdbs: PdbIndex) -> bool:
    """Whether a pod can be evicted now, or once other evicted pods were replaced."""
    return reschedulable(pod, pdbs) and not any(map(_is_closed, pdbs.of(pod)))


def _is_closed(budget: PodDisruptionBudget) -> bool:
    """A PDB that allows no disruption though no pod is missing: only a larger workload opens it."""
    status = budget.status
    reported = status.observed_generation > 0 and status.expected_pods > 0
    return reported and status.disruptions_allowed < 1 and status.current_healthy >= status.expected_pods


def reschedulable(pod: Pod, pdbs: PdbIndex) -> bool:
    """A pod that will be recreated elsewhere once its node is removed, and that may be evicted."""
    if not returning(pod):
        return False
    if pod.metadata.annotations.get("karpenter.sh/do-not-disrupt") == _FOREVER:
        return False
    pdbs_of_pod = pdbs.of(pod)
    return len(pdbs_of_pod) < 2 and not any(map(_never_opens, pdbs_of_pod))


def _never_opens(budget: PodDisruptionBudget) -> bool:
    return budget.spec.max_unavailable in (0, "0", "0%") or budget.spec.min_available == "100%"


def refusal(cluster_state: ClusterState, pod: Pod) -> Unschedulable | None:
    """Why no plan can consider a pod, or None. Missing volumes are the usual reason."""
    for volume, name in claim_volumes(pod):
        trouble = _pvc_problem(cluster_state, pod, volume, name)
        if trouble is not None:
            return Unschedulable(code=trouble.code, message=f"volume {volume.name!r}: {trouble.text}")
    return None


def _pvc_problem(cluster_state: ClusterState, pod: Pod, volume: Volume, name: str) -> PvcProblem | None:
    """What keeps a PVC from being used. One that is still to be created for an ephemeral volume is no trouble."""
    claim = cluster_state.volume_claims.store.get(f"{pod.metadata.namespace}/{name}")
    if claim is None:
        return missing(name) if volume.ephemeral is None else None
    trouble = bound_trouble(claim, cluster_state.volumes.store.get(claim.spec.volume_name))
    if trouble is not None or claim.spec.volume_name:
        return trouble
    classes = {
        storage_class.metadata.name: storage_class for storage_class in cluster_state.storage_classes.store.all()
    }
    node_class = open_class(name, class_name(claim), classes)
    return node_class if isinstance(node_class, PvcProblem) else None
