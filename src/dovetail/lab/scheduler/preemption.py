"""Preemption: which pods of lower priority to evict for a pending pod. Pure.

On every node where evictions could help, the fewest pods of lowest priority are chosen that free enough capacity,
those whose disruption budget would be broken last. Then the node that hurts least is picked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from dovetail.lab.scheduler.messages import NO_VICTIMS, preemption_message
from dovetail.lab.scheduler.schedule_one import Nominated, SchedulingDecision, passes
from dovetail.model.fit import ClusterNodes, Fit, NodeInfo, PodInfo, Rejection
from dovetail.model.meta import condition
from dovetail.model.workloads import PodDisruptionBudget

_FAR = datetime(9999, 1, 1, tzinfo=UTC)
_BY_SCHEDULER = "PreemptionByScheduler"
_NO_LOWER_PRIORITY = Rejection("DefaultPreemption", (NO_VICTIMS,))


class Victims(msgspec.Struct, frozen=True):
    """The pods that go, the most important first, and how many of them break a budget."""

    node: str
    pods: tuple[PodInfo, ...]
    broken: int


class PreemptionOutcome(msgspec.Struct, frozen=True):
    """Either `victims`, or the words for why there are none."""

    victims: Victims | None
    words: str = ""


def preempt(
    pod: PodInfo,
    cluster: ClusterNodes,
    decision: SchedulingDecision,
    budgets: Sequence[PodDisruptionBudget],
    nominated: Nominated,
) -> PreemptionOutcome:
    """Victims for a pod that fits on no node now."""
    refusal = _ineligible(pod, cluster, decision)
    if refusal:
        return PreemptionOutcome(None, refusal)
    if cluster.lowest >= pod.priority:
        resolvable_nodes = sum(
            times for rejection, times in decision.rejection_counts().items() if rejection.resolvable
        )
        tally = {_NO_LOWER_PRIORITY: resolvable_nodes} if resolvable_nodes else {}
        return PreemptionOutcome(None, preemption_message(decision.total, tally))
    resolvable = [name for name, rejection in decision.rejections.items() if rejection.resolvable]
    fit = Fit(pod, cluster)
    victimses: list[Victims] = []
    failed: dict[str, Rejection] = {}
    for name in resolvable:
        answer = _victims_on(fit, cluster.nodes[name], budgets, nominated)
        if isinstance(answer, Victims):
            victimses.append(answer)
        else:
            failed[name] = answer
    if not victimses:
        return PreemptionOutcome(None, preemption_message(decision.total, Counter(failed.values())))
    return PreemptionOutcome(min(victimses, key=_preemption_cost))


def _ineligible(pod: PodInfo, cluster: ClusterNodes, decision: SchedulingDecision) -> str | None:
    if pod.pod.spec.preemption_policy == "Never":
        return "not eligible due to preemptionPolicy=Never."
    nominated_node = pod.pod.status.nominated_node_name
    node = cluster.nodes.get(nominated_node)
    rejection = decision.rejections.get(nominated_node)
    if node is None or (rejection is not None and not rejection.resolvable):
        return None
    if any(other.priority < pod.priority and _being_preempted(other) for other in node.pods.values()):
        return "not eligible due to a terminating pod on the nominated node."
    return None


def _being_preempted(info: PodInfo) -> bool:
    if info.pod.metadata.deletion_timestamp is None:
        return False
    target = condition(info.pod.status.conditions, "DisruptionTarget")
    return target is not None and target.status == "True" and target.reason == _BY_SCHEDULER


def _victims_on(
    fit: Fit, info: NodeInfo, budgets: Sequence[PodDisruptionBudget], nominated: Nominated
) -> Victims | Rejection:
    lower = [other for other in info.pods.values() if other.priority < fit.pod.priority]
    if not lower:
        return _NO_LOWER_PRIORITY
    node, question = info.copy(), fit.copy()
    for other in lower:
        node.remove(other.key)
        question.move(other, node, -1)
    rejection = passes(question, node, nominated)
    if rejection is not None:
        return rejection
    lower.sort(key=importance)
    breaking, harmless = _by_budget(lower, budgets)
    victims: list[PodInfo] = []
    broken = 0
    for other in (*breaking, *harmless):
        node.add(other)
        question.move(other, node, 1)
        if passes(question, node, nominated) is None:
            continue
        node.remove(other.key)
        question.move(other, node, -1)
        victims.append(other)
        broken += other in breaking
    return Victims(info.name, tuple(sorted(victims, key=importance)), broken)


def importance(info: PodInfo) -> tuple[int, datetime]:
    """Sorts the most important pod first: by priority, then the one that has run longest."""
    return -info.priority, info.pod.status.start_time or _FAR


def _by_budget(pods: Sequence[PodInfo], budgets: Sequence[PodDisruptionBudget]) -> tuple[list[PodInfo], list[PodInfo]]:
    """Those whose eviction breaks a budget, and the others, going through them in order."""
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    breaking: list[PodInfo] = []
    harmless: list[PodInfo] = []
    for info in pods:
        breaks = False
        for index, budget in enumerate(budgets):
            if _covers(budget, info):
                allowed[index] -= 1
                breaks = breaks or allowed[index] < 0
        (breaking if breaks else harmless).append(info)
    return breaking, harmless


def _covers(budget: PodDisruptionBudget, info: PodInfo) -> bool:
    selector = budget.spec.selector
    labels: Mapping[str, str] = info.shape.labels
    if not labels or budget.metadata.namespace != info.shape.namespace or selector is None or selector.empty:
        return False
    return selector.matches(labels) and info.pod.metadata.name not in budget.status.disrupted_pods


def _preemption_cost(victims: Victims) -> tuple[int, int, int, int, float, str]:
    """Least: budgets broken, importance lost, sum of it, number; then the youngest; then the name."""
    top = victims.pods[0].priority
    longest = min(pod.pod.status.start_time or _FAR for pod in victims.pods if pod.priority == top)
    return (
        victims.broken,
        top,
        sum(pod.priority + (1 << 31) for pod in victims.pods),
        len(victims.pods),
        -longest.timestamp(),
        victims.node,
    )
