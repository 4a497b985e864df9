"""A node: everything that blocks its disruption, the best alternative, and when it will be evaluated again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from dovetail.cluster.state import ClusterState
from dovetail.cluster.state_node import launch_price
from dovetail.controllers.disruption import candidates
from dovetail.controllers.disruption.consolidation import MIN_SAVING_SHARE
from dovetail.controllers.disruption.consolidation_state import REJECTION_TTL_S
from dovetail.controllers.disruption.expiration import date
from dovetail.controllers.explain import nodepools
from dovetail.controllers.explain.answer import (
    Answer,
    Event,
    Unknown,
    about_object,
    dollars,
    event_lines,
    lines,
    others,
    safe_mode,
)
from dovetail.controllers.explain.claims import claim_answer, progress
from dovetail.controllers.history.decisions import Decision, concerns
from dovetail.controllers.node.termination import deadline, drain
from dovetail.controllers.provisioning.provisionable_pods import AHEAD
from dovetail.language import message, source
from dovetail.model import wellknown
from dovetail.model.kinds.conditions import ClaimCondition
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.meta import stamp
from dovetail.model.nodes import Node
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod, returning
from dovetail.model.quantity import resources
from dovetail.model.reasons import REASONS

# A node that is not terminating: whether it stays, why, and when it is evaluated again.

_RECENT_POD_EVENTS = source("stays for now: pods were scheduled or deleted lately")


class ExplainedNode:
    """A node, its NodePool, and what was recorded about it."""

    def __init__(
        self, cluster_state: ClusterState, node: Node, claim: NodeClaim, about: Sequence[Decision], now: datetime
    ) -> None:
        self._cluster_state = cluster_state
        self._claim = claim
        self._now = now
        self._pool: NodePool | None = cluster_state.pools.store.get(claim.node_pool or "")
        self._drifted = claim.condition("Drifted") if claim.is_true("Drifted") else None
        self.empty = not any(map(returning, cluster_state.pods_on(node.metadata.name)))
        self.kept = self._last_evaluation(about)

    @property
    def reason(self) -> str:
        """The reason that it would be disrupted for, as budgets call it."""
        if self._drifted is not None or (self._pool is not None and self._pool.static):
            return "Drifted"
        return "Empty" if self.empty else "Underutilized"

    def _last_evaluation(self, about: Sequence[Decision]) -> Decision | None:
        """The last evaluation, if it still counts: that no budget was left does only while none is."""
        kept = next((decision for decision in reversed(about) if decision.kind == "keep"), None)
        if kept is None or self.empty or self._never_consolidated():
            return None
        return None if kept.reason == "BUDGET" and self._budget_allows("Underutilized") else kept

    def _never_consolidated(self) -> str:
        """Why its NodePool never consolidates a node like this; nothing if it may."""
        pool = self._pool
        if pool is None:
            return message("its NodePool is gone")
        if pool.static:
            return message("its NodePool is static")
        if pool.spec.disruption.consolidate_after == "Never":
            return message("consolidation is off for its NodePool (consolidateAfter: Never)")
        if pool.spec.disruption.consolidation_policy == "WhenEmpty" and not self.empty:
            return message(
                "it is not empty, and its NodePool removes empty nodes only (consolidationPolicy: WhenEmpty)"
            )
        return ""

    def _budget_allows(self, reason: str) -> bool:
        return self._pool is None or nodepools.allowed_now(self._cluster_state, self._pool, reason, self._now)[0] > 0

    def result(self, why: Sequence[candidates.Blocker], stopped: str, repair: str) -> str:
        """What happens to the node, in one line."""
        rebooting, reason = self._claim.condition("Rebooting"), self._claim.condition("DisruptionReason")
        if rebooting is not None and rebooting.status == "True":
            return f"is {rebooting.message}"
        if reason is not None and reason.status == "True":
            return message("will be terminated as soon as its replacement is ready ({reason})", reason=reason.reason)
        if repair:
            return message("is unhealthy: {repair}", repair=repair)
        if why:
            return message("stays: {why}", why=f"{candidates.describe(why[0])}{others(why)}")
        if stopped:
            return message("stays: safe mode. {stopped}", stopped=stopped)
        return self._replacement(self._drifted) if self._drifted is not None else self._cost()

    def _replacement(self, drifted: ClaimCondition) -> str:
        """What happens to a drifted node."""
        if self._pool is not None and not self._budget_allows("Drifted"):
            shut = nodepools.allowance(self._cluster_state, self._pool, "Drifted", self._now)
            return message("has drifted ({reason}) and waits: {shut}", reason=drifted.reason, shut=shut)
        if self._is_without_replacement(drifted):
            return message("has drifted ({reason}) and stays: not all pods would schedule", reason=drifted.reason)
        return message("will be replaced within its budget: {reason}", reason=drifted.reason)

    def _is_without_replacement(self, drifted: ClaimCondition) -> bool:
        """Whether the node was evaluated since it drifted, and its pods had no other place."""
        since = drifted.last_transition_time
        if self.kept is None or self.kept.reason != "PODS_WOULD_NOT_FIT" or since is None:
            return False
        return datetime.fromisoformat(self.kept.time) >= since

    def _cost(self) -> str:
        """What happens to a node that only its cost could be a reason to remove."""
        if self.kept is not None:
            return message(
                "stays: {why} ({code}{saving})",
                why=self.kept.summary,
                code=self.kept.reason,
                saving=saving(self.kept),
            )
        never = self._never_consolidated()
        if never:
            return message("stays: {why}", why=never)
        consolidatable = self._claim.is_true("Consolidatable")
        if not self.empty:
            return (
                message("may be consolidated; nothing cheaper has been found yet")
                if consolidatable
                else _RECENT_POD_EVENTS
            )
        if self._pool is not None and not self._budget_allows("Empty"):
            return message(
                "is empty and waits: {allowance}",
                allowance=nodepools.allowance(self._cluster_state, self._pool, "Empty", self._now),
            )
        moment = self._consolidatable_at()
        return (
            message("is empty and will be removed within seconds")
            if consolidatable or moment is None
            else message("is empty and will be removed at {at:%H:%M:%SZ}", at=moment)
        )

    def drift(self) -> list[str]:
        """That it has drifted, whatever else blocks it."""
        if self._drifted is None:
            return []
        drifted_at = self._drifted.last_transition_time
        since = message(" since {time}", time=stamp(drifted_at)) if drifted_at else ""
        return [message("drifted: {reason}{since}", reason=self._drifted.reason, since=since)]

    def _consolidatable_at(self) -> datetime | None:
        """When its NodePool's consolidateAfter will have passed, if there is no further pod event."""
        after = self._pool.spec.disruption.quiet_time if self._pool is not None else None
        initialized = self._claim.condition("Initialized")
        last = self._claim.status.last_pod_event_time or (initialized.last_transition_time if initialized else None)
        return last + after if last is not None and after is not None else None

    def budget(self) -> list[str]:
        return (
            [nodepools.allowance(self._cluster_state, self._pool, self.reason, self._now)]
            if self._pool is not None
            else []
        )

    def next_evaluation(self, why: Sequence[candidates.Blocker]) -> list[str]:
        """When this node will be evaluated again, and when it expires."""
        expiry = date(self._claim)
        return [
            self._evaluation_line(why),
            *([message("expires {time}", time=stamp(expiry))] if expiry is not None else []),
        ]

    def _evaluation_line(self, why: Sequence[candidates.Blocker]) -> str:
        ends = [blocker.until for blocker in why if blocker.until is not None]
        if why:
            first = message(", the first of them at {stamp}", stamp=stamp(min(ends))) if ends else ""
            return message("evaluated again as soon as its blockers are gone{first}", first=first)
        if self._never_consolidated() or self._pool is None:
            return message("not evaluated for consolidation unless its NodePool or its pods change")
        moment = self._consolidatable_at()
        if moment is not None and moment > self._now:
            text = self._pool.spec.disruption.consolidate_after
            return message(
                "evaluated again at {at:%H:%M:%SZ}: pods were scheduled or deleted lately (consolidateAfter {text})",
                at=moment,
                text=text,
            )
        if self.kept is None:
            return message("evaluated again within seconds")
        again = datetime.fromisoformat(self.kept.time) + timedelta(seconds=REJECTION_TTL_S)
        when = (
            message("at {again:%H:%M:%SZ} at the latest", again=again)
            if again > self._now
            else message("within minutes")
        )
        return message("evaluated again {when}, or as soon as its pods, budgets or prices change", when=when)


def saving(decision: Decision) -> str:
    saved = decision.detail.get("saving")
    return message(", saving {dollars}", dollars=dollars(saved)) if isinstance(saved, float) else ""


# A terminating node: how far its termination is, what it waits for, and until when.


def line(claim: NodeClaim, pods: Sequence[Pod], blockers: Sequence[candidates.Blocker], now: datetime) -> str:
    """`blockers` are those of the pods that cannot be evicted."""
    volumes = claim.condition("VolumesDetached")
    if claim.is_true("InstanceTerminating"):
        return message("is drained; its instance is shutting down")
    if volumes is not None and volumes.status == "Unknown":
        return message("is drained; its volumes are being detached")
    left = len(drain.decide(pods, now, deadline.of(claim)).waiting)
    if not left:
        return message("is drained; its instance is terminated next")
    return message("is being drained: {left} pod(s) left", left=left) + (
        f"; {candidates.describe(blockers[0])}{others(blockers)}" if blockers else ""
    )


def cause(about: Sequence[Decision]) -> list[str]:
    """The decision that deleted it, and when, if one was recorded."""
    last = next((decision for decision in reversed(about) if decision.kind in ("disrupt", "end")), None)
    return (
        [
            message(
                "terminating since {time}: {summary} (decision {id})", time=last.time, summary=last.summary, id=last.id
            )
        ]
        if last is not None
        else []
    )


def deadline_lines(claim: NodeClaim, blockers: Sequence[candidates.Blocker]) -> list[str]:
    """When the wait ends, if there is a deadline."""
    end = deadline.of(claim)
    if end is not None:
        ahead = (
            message(
                "; capacity for the pods that block it is launched {seconds} minutes before",
                seconds=AHEAD.seconds // 60,
            )
            if blockers
            else ""
        )
        return [message("all its pods will be deleted by {stamp}{ahead}", stamp=stamp(end), ahead=ahead)]
    return [message("it has no terminationGracePeriod: it waits for as long as its pods block it")] if blockers else []


# An unhealthy node: its conditions, and when it will be repaired.


def conditions(node: Node) -> list[str]:
    """Conditions that are not True: Ready, or another readiness condition."""
    return [
        message(
            "unhealthy: {condition} ({reason}){since}",
            condition=f"{condition.type}={condition.status}",
            reason=condition.reason,
            since=message(" since {time}", time=stamp(condition.last_transition_time))
            if condition.last_transition_time
            else "",
        )
        for condition in node.status.conditions
        if condition.type.endswith("Ready") and condition.status != "True"
    ]


def repair_outlook(node: Node, about: Sequence[Decision]) -> str:
    """When it will be repaired or what that waits for, as long as it has the recorded condition."""
    last = next((decision for decision in reversed(about) if decision.kind == "unhealthy"), None)
    if last is None:
        return ""
    condition_status = (last.reason, last.detail.get("status"))
    return (
        last.summary
        if any((condition.type, condition.status) == condition_status for condition in node.status.conditions)
        else ""
    )


def node(
    cluster_state: ClusterState,
    decisions: Sequence[Decision],
    name: str,
    now: datetime,
    events: Sequence[Event] = (),
) -> Answer:
    node = cluster_state.nodes.store.get(name)
    if node is None:
        return deleted("node", name, decisions)
    claim = cluster_state.claim_for(node)
    if claim is None:
        return _unmanaged(cluster_state, node, now, events)
    pods = tuple(cluster_state.pods_on(name))
    pod_blockers = candidates.pod_blockers(pods, cluster_state.pdbs, now)
    about = [decision for decision in decisions if concerns(decision, name)]
    details = [_offering_line(node, claim, pods), *conditions(node)]
    if node.metadata.deletion_timestamp is not None or claim.metadata.deletion_timestamp is not None:
        details += [message("blocked: {why}", why=candidates.describe(blocker)) for blocker in pod_blockers]
        return Answer(
            subject=f"node/{name}",
            line=line(claim, pods, pod_blockers, now),
            details=(*cause(about), *details, *deadline_lines(claim, pod_blockers)),
            deep=lines(about[-10:]),
            facts={"blockers": msgspec.to_builtins(pod_blockers)},
        )
    step = progress(cluster_state, decisions, claim, now, events)
    if step.code:
        return msgspec.structs.replace(
            claim_answer(cluster_state, decisions, claim, now, events), subject=f"node/{name}"
        )
    why = candidates.node_blockers(node, claim, terminating=False, nominated=False) + pod_blockers
    outlook = ExplainedNode(cluster_state, node, claim, about, now)
    kept, repair = outlook.kept, repair_outlook(node, about)
    stopped, bound, next_evaluation = safe_mode(decisions), rules(pods), outlook.next_evaluation(why)
    details += [message("repair: {outlook}", outlook=repair)] if repair else []
    details += outlook.drift()
    details += [stopped] if stopped else []
    details += [message("blocked: {why}", why=candidates.describe(blocker)) for blocker in why]
    details += [message("bound: {rule}", rule=rule) for rule in bound]
    details += [*_alternative(kept), *outlook.budget(), *next_evaluation]
    code = why[0].code if why else kept.reason if kept is not None else ""
    return Answer(
        subject=f"node/{name}",
        line=outlook.result(why, stopped, repair),
        code=code,
        object=_to_change(why[0], name) if why else "",
        remedy=REASONS[code].remedy if code in REASONS else "",
        source="history" if kept is not None and not why else "objects",
        details=tuple(details),
        deep=lines(about[-10:]),
        facts={
            "blockers": msgspec.to_builtins(why),
            "rules": bound,
            "keep": msgspec.to_builtins(kept) if kept else None,
            "safeMode": stopped,
            "nextLook": next_evaluation,
            "repair": repair,
        },
    )


def _to_change(blocker: candidates.Blocker, node: str) -> str:
    """The object of a blocker."""
    if blocker.budgets:
        return f"pdb/{blocker.budgets[0]}"
    return f"pod/{blocker.pod}" if blocker.pod else f"node/{node}"


def _unmanaged(cluster_state: ClusterState, node: Node, now: datetime, events: Sequence[Event]) -> Answer:
    """A node of no NodePool: what blocks its drain, and what Cluster Autoscaler says about it."""
    name = node.metadata.name
    pod_blockers = candidates.pod_blockers(cluster_state.pods_on(name), cluster_state.pdbs, now)
    node_events = about_object(events, "Node", name)
    return Answer(
        subject=f"node/{name}",
        line=message("is not managed: no NodeClaim has its provider id"),
        code="NOT_MANAGED",
        remedy=REASONS["NOT_MANAGED"].remedy,
        details=(
            *(message("blocks a drain: {describe}", describe=candidates.describe(blocker)) for blocker in pod_blockers),
            *conditions(node),
        ),
        deep=tuple(event_lines(node_events)),
        facts={"labels": dict(node.metadata.labels)},
    )


def deleted(kind: str, name: str, decisions: Sequence[Decision]) -> Answer:
    """A node that is gone: the last decision about it, if there was one."""
    about = [decision for decision in decisions if concerns(decision, name)]
    if not about:
        raise Unknown(message("{kind}/{name} is not in the cluster", kind=kind, name=name))
    last = about[-1]
    line = message("is gone; last decision {id} at {time}: {summary}", id=last.id, time=last.time, summary=last.summary)
    return Answer(subject=f"{kind}/{name}", line=line, deep=lines(about[-10:]))


def claim(
    cluster_state: ClusterState,
    decisions: Sequence[Decision],
    name: str,
    now: datetime,
    events: Sequence[Event] = (),
) -> Answer:
    """A NodeClaim: its node, or why it has none yet."""
    claim = cluster_state.claims.store.get(name)
    if claim is None:
        return deleted("nodeclaim", name, decisions)
    there = cluster_state.node_for(claim)
    if there is not None:
        return node(cluster_state, decisions, there.metadata.name, now, events)
    if claim.metadata.deletion_timestamp is not None:
        about = [decision for decision in decisions if concerns(decision, name)]
        line, details = message("is terminating; it has no node"), cause(about)
        return Answer(subject=f"nodeclaim/{name}", line=line, details=tuple(details), deep=lines(about[-10:]))
    return claim_answer(cluster_state, decisions, claim, now, events)


def _offering_line(node: Node, claim: NodeClaim, pods: Sequence[Pod]) -> str:
    """Its offering, price and utilization."""
    labels, price = node.metadata.labels, launch_price(claim)
    instance_type, zone, capacity_type = (
        labels.get(key, "?") for key in (wellknown.INSTANCE_TYPE, wellknown.ZONE, wellknown.CAPACITY_TYPE)
    )
    allocatable, pod_requests = resources(node.status.allocatable), [requests(pod) for pod in pods if not pod.finished]
    shares = {
        name: f"{sum(pod.get(name, 0) for pod in pod_requests) / allocatable[name]:.0%}"
        if allocatable.get(name)
        else "?"
        for name in ("cpu", "memory")
    }
    return message(
        "{type}, {zone}, {capacity_type}, {cost}; {count} pod(s) request {cpu} of cpu, {memory} of memory",
        type=instance_type,
        zone=zone,
        capacity_type=capacity_type,
        cost=message("price unknown") if price is None else message("{dollars} at launch", dollars=dollars(price)),
        count=len(pod_requests),
        **shares,
    )


def rules(pods: Iterable[Pod]) -> list[str]:
    """The required constraints of its pods, with how many pods have them."""
    pods_by_rule: dict[str, list[str]] = {}
    for pod in pods:
        if any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references):
            continue
        for rule in _rules(pod):
            pods_by_rule.setdefault(rule, []).append(pod.metadata.key)
    return [
        message(
            "{rule} ({count} pod(s), {who}{value})",
            rule=rule,
            count=len(who),
            who=who[0],
            value=" …" if len(who) > 1 else "",
        )
        for rule, who in pods_by_rule.items()
    ]


def _rules(pod: Pod) -> Iterable[str]:
    for constraint in pod.spec.topology_spread_constraints:
        if constraint.when_unsatisfiable == "DoNotSchedule":
            yield message(
                "spread over {topology_key}, maxSkew {max_skew}",
                topology_key=constraint.topology_key,
                max_skew=constraint.max_skew,
            )
    affinity = pod.spec.affinity
    if affinity is not None and affinity.pod_anti_affinity is not None:
        for term in affinity.pod_anti_affinity.required:
            yield message("anti-affinity by {topology_key}", topology_key=term.topology_key)
    if affinity is not None and affinity.pod_affinity is not None:
        for term in affinity.pod_affinity.required:
            yield message("affinity by {topology_key}", topology_key=term.topology_key)


def _alternative(kept: Decision | None) -> list[str]:
    """The best alternative that was found, and what it would have had to save."""
    if kept is None:
        return []
    threshold = kept.detail.get("needed")
    if threshold is None and kept.before is not None:
        threshold = MIN_SAVING_SHARE * kept.before
    needed = (
        message("; a move must save at least {dollars}", dollars=dollars(threshold)) if threshold is not None else ""
    )
    alternative = "; ".join(filter(None, (kept.detail.get("instead"), kept.summary)))
    template = (
        source("best alternative {time}: {found} [{code}]{saving}{needed}")
        if isinstance(kept.detail.get("saving"), float)
        else source("evaluated {time}: {found} [{code}]{saving}{needed}")
    )
    return [message(template, time=kept.time, found=alternative, code=kept.reason, saving=saving(kept), needed=needed)]
