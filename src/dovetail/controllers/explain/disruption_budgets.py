"""A PodDisruptionBudget: how many evictions it allows now, why not more, and which nodes it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dovetail.cluster.pdb import PdbIndex
from dovetail.cluster.state import ClusterState
from dovetail.controllers.explain.answer import Answer, Unknown, shortened
from dovetail.language import message
from dovetail.model.pods import Pod
from dovetail.model.reasons import REASONS
from dovetail.model.workloads import PodDisruptionBudget


def pdb(cluster_state: ClusterState, key: str, now: datetime) -> Answer:
    """`key` is namespace/name."""
    pdb = next((candidate for candidate in cluster_state.budgets.store.all() if candidate.metadata.key == key), None)
    subject = f"pdb/{key}"
    if pdb is None:
        names = sorted(candidate.metadata.key for candidate in cluster_state.budgets.store.all())
        raise Unknown(
            message(
                "{subject} is not in the cluster; there are: {shortened}",
                subject=subject,
                shortened=", ".join(shortened(names, 5)) or "none",
            )
        )
    index = PdbIndex([pdb])
    pods = [
        pod
        for pod in cluster_state.pods.store.all()
        if pod.metadata.namespace == pdb.metadata.namespace and not pod.finished and index.of(pod)
    ]
    others = sorted({other.metadata.key for pod in pods for other in cluster_state.pdbs.of(pod)} - {key})
    nodes = sorted({pod.spec.node_name for pod in pods if pod.spec.node_name})
    status, spec = pdb.status, pdb.spec
    rule = (
        f"maxUnavailable {spec.max_unavailable}"
        if spec.max_unavailable is not None
        else f"minAvailable {spec.min_available}"
    )
    line, code = _allowance(pdb, rule, pods, others)
    return Answer(
        subject=subject,
        line=line,
        code=code,
        object=subject if code else "",
        remedy=REASONS[code].remedy if code else "",
        details=(
            f"{rule}; {_why(status.current_healthy, status.desired_healthy, status.expected_pods)}",
            *(message("on node {name}", name=name) for name in shortened(nodes)),
            *shortened([message("selects pod {pod}", pod=pod.metadata.key) for pod in pods]),
        ),
        facts={
            "allowed": status.disruptions_allowed,
            "pods": len(pods),
            "nodes": nodes,
            "otherBudgets": others,
        },
    )


def _allowance(pdb: PodDisruptionBudget, rule: str, pods: Sequence[Pod], others: Sequence[str]) -> tuple[str, str]:
    """How many evictions a PodDisruptionBudget allows now, and the reason code where it allows none."""
    status = pdb.status
    code = ""
    if not pods:
        line = message("selects no pod ({rule})", rule=rule)
    elif others:
        code = "MANY_BUDGETS"
        line = message(
            "blocks every eviction: its pods are selected by {others} too; {remedy} ({code})",
            others=", ".join(others),
            remedy=REASONS[code].remedy,
            code=code,
        )
    elif status.observed_generation == 0:
        line = message("has not been counted yet: the disruption controller has written no status")
    elif status.disruptions_allowed > 0:
        healthy = _healthy(status.current_healthy, status.expected_pods)
        line = message(
            "allows {disruptions_allowed} eviction(s) now: {healthy}",
            disruptions_allowed=status.disruptions_allowed,
            healthy=healthy,
        )
    else:
        code = "PDB"
        why = _why(status.current_healthy, status.desired_healthy, status.expected_pods)
        line = message(
            "allows no eviction ({rule}): {why}; {remedy} ({code})",
            rule=rule,
            why=why,
            remedy=REASONS[code].remedy,
            code=code,
        )
    return line, code


def _healthy(current: int, expected: int) -> str:
    return message("{current} of {expected} pod(s) are healthy", current=current, expected=expected)


def _why(current: int, desired: int, expected: int) -> str:
    if current < desired:
        return message("{healthy}, {desired} must be", healthy=_healthy(current, expected), desired=desired)
    return (
        message("all {expected} pod(s) must stay", expected=expected)
        if desired >= expected
        else message("{healthy}, {desired} must be", healthy=_healthy(current, expected), desired=desired)
    )
