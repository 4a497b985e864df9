"""A PodDisruptionBudget: how many evictions it allows now, why not more, and which nodes it keeps."""

from __future__ import annotations

from datetime import datetime

from dovetail.cluster.pdb import PdbIndex
from dovetail.cluster.state import ClusterState
from dovetail.controllers.explain.answer import Answer, Unknown, shortened
from dovetail.model.reasons import REASONS


def pdb(cluster_state: ClusterState, key: str, now: datetime) -> Answer:
    """`key` is namespace/name."""
    disruption_budget = next(
        (budget for budget in cluster_state.budgets.store.all() if budget.metadata.key == key), None
    )
    subject = f"pdb/{key}"
    if disruption_budget is None:
        names = sorted(budget.metadata.key for budget in cluster_state.budgets.store.all())
        raise Unknown(f"{subject} is not in the cluster; there are: {', '.join(shortened(names, 5)) or 'none'}")
    index = PdbIndex([disruption_budget])
    pods = [
        pod
        for pod in cluster_state.pods.store.all()
        if pod.metadata.namespace == disruption_budget.metadata.namespace and not pod.finished and index.of(pod)
    ]
    others = sorted({other.metadata.key for pod in pods for other in cluster_state.pdbs.of(pod)} - {key})
    nodes = sorted({pod.spec.node_name for pod in pods if pod.spec.node_name})
    status, spec = disruption_budget.status, disruption_budget.spec
    rule = (
        f"maxUnavailable {spec.max_unavailable}"
        if spec.max_unavailable is not None
        else f"minAvailable {spec.min_available}"
    )
    code = ""
    if not pods:
        line = f"selects no pod ({rule})"
    elif others:
        code = "MANY_BUDGETS"
        line = (
            f"blocks every eviction: its pods are selected by {', '.join(others)} too; {REASONS[code].remedy} ({code})"
        )
    elif status.observed_generation == 0:
        line = "has not been counted yet: the disruption controller has written no status"
    elif status.disruptions_allowed > 0:
        healthy = _healthy(status.current_healthy, status.expected_pods)
        line = f"allows {status.disruptions_allowed} eviction(s) now: {healthy}"
    else:
        code = "PDB"
        why = _why(status.current_healthy, status.desired_healthy, status.expected_pods)
        line = f"allows no eviction ({rule}): {why}; {REASONS[code].remedy} ({code})"
    return Answer(
        subject=subject,
        line=line,
        code=code,
        object=subject if code else "",
        remedy=REASONS[code].remedy if code else "",
        details=(
            f"{rule}; {_why(status.current_healthy, status.desired_healthy, status.expected_pods)}",
            *(f"on node {name}" for name in shortened(nodes)),
            *shortened([f"selects pod {pod.metadata.key}" for pod in pods]),
        ),
        facts={
            "allowed": status.disruptions_allowed,
            "pods": len(pods),
            "nodes": nodes,
            "otherBudgets": others,
        },
    )


def _healthy(current: int, expected: int) -> str:
    return f"{current} of {expected} pod(s) are healthy"


def _why(current: int, desired: int, expected: int) -> str:
    if current < desired:
        return f"{_healthy(current, expected)}, {desired} must be"
    return (
        f"all {expected} pod(s) must stay"
        if desired >= expected
        else f"{_healthy(current, expected)}, {desired} must be"
    )
