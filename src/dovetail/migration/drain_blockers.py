"""Pods that keep a node from being drained: the reason codes are those of Cluster Autoscaler's drain rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from dovetail.autoscalers.node_groups.annotations import is_daemonset, is_mirror_pod
from dovetail.autoscalers.node_groups.disruption_budgets import RemainingPdbs
from dovetail.autoscalers.node_groups.drain import (
    BlockingReason,
    DrainabilityOutcome,
    DrainContext,
    DrainRules,
    drainability,
)
from dovetail.language import message
from dovetail.model.pods import Pod
from dovetail.model.workloads import PodDisruptionBudget

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
DO_NOT_DISRUPT_CODE = "DoNotDisrupt"


class MoveBlocker(msgspec.Struct, frozen=True, kw_only=True):
    """Why something cannot be moved. `object` is what to change, `remedy` how."""

    code: str
    object: str
    why: str
    remedy: str


class EvictionRules(msgspec.Struct, frozen=True, kw_only=True):
    """What kubectl drain asks for as well: pods without a controller (`force`), and the data of emptyDir volumes."""

    force: bool = False
    delete_emptydir_data: bool = False


def moves(pod: Pod) -> bool:
    """Whether the pod has to be evicted before its node goes."""
    return not (is_mirror_pod(pod) or is_daemonset(pod) or pod.finished)


def blockers(
    pods: Iterable[Pod], pdbs: Sequence[PodDisruptionBudget], rules: EvictionRules, now: datetime
) -> list[MoveBlocker]:
    """Everything that forbids the eviction of these pods for good; a budget that is spent for now does not."""
    budgets = RemainingPdbs(pdbs)
    reasons = (_blocker(pod, budgets, rules, now) for pod in pods if moves(pod) and not pod.terminating)
    return [reason for reason in reasons if reason is not None]


def _blocker(pod: Pod, budgets: RemainingPdbs, rules: EvictionRules, now: datetime) -> MoveBlocker | None:
    drain = DrainRules(
        skip_system_pods=False,
        skip_local_storage=not rules.delete_emptydir_data,
        skip_custom_controller_pods=False,
    )
    verdict = drainability(pod, drain, DrainContext(now, RemainingPdbs()))
    subject = f"pod/{pod.metadata.key}"
    if verdict.outcome is DrainabilityOutcome.BLOCK and verdict.reason is not None:
        forced = verdict.reason is BlockingReason.NOT_REPLICATED and rules.force
        if not forced:
            return MoveBlocker(
                code=verdict.reason.value, object=subject, why=verdict.message, remedy=_remedy(verdict.reason)
            )
    if pod.metadata.annotations.get(DO_NOT_DISRUPT) == "true":
        return MoveBlocker(
            code=DO_NOT_DISRUPT_CODE,
            object=subject,
            why=message("pod {pod} is annotated {annotation}=true", pod=pod.metadata.key, annotation=DO_NOT_DISRUPT),
            remedy=message("remove the annotation, or wait until the pod has ended"),
        )
    for budget in budgets.matching(pod):
        status = budget.pdb.status
        if budget.allowed < 1 and status.current_healthy >= status.expected_pods:
            return MoveBlocker(
                code=BlockingReason.NOT_ENOUGH_PDB.value,
                object=f"poddisruptionbudget/{budget.pdb.metadata.key}",
                why=message(
                    "PodDisruptionBudget {pdb} allows no eviction although all of its {count} pods are healthy",
                    pdb=budget.pdb.metadata.key,
                    count=status.expected_pods,
                ),
                remedy=message("raise maxUnavailable, lower minAvailable, or add replicas"),
            )
    return None


def _remedy(reason: BlockingReason) -> str:
    if reason is BlockingReason.NOT_REPLICATED:
        return message("run it under a controller, delete it, or give --force: it is evicted and does not come back")
    if reason is BlockingReason.LOCAL_STORAGE_REQUESTED:
        return message("give --delete-emptydir-data: what its emptyDir and hostPath volumes hold stays behind")
    return message("remove the annotation cluster-autoscaler.kubernetes.io/safe-to-evict=false")
