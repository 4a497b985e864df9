"""A NodePool: what it has, what it may still launch, and how many of its nodes may be disrupted now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dovetail.cluster.state import ClusterState
from dovetail.cluster.state_node import launch_price
from dovetail.cluster.unusable_nodepools import UnusableCause, cause
from dovetail.controllers.disruption.candidates import totals
from dovetail.controllers.explain.answer import (
    Answer,
    Event,
    Unknown,
    about_object,
    dollars,
    event_lines,
    lines,
    safe_mode,
    shortened,
)
from dovetail.controllers.history.decisions import Decision, concerns
from dovetail.language import message, source
from dovetail.model import quantity, reasons, wellknown
from dovetail.model.kinds import budgets
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.meta import stamp

REASONS = ("Empty", "Drifted", "Underutilized", "Unhealthy")


def nodepool(
    cluster_state: ClusterState,
    decisions: Sequence[Decision],
    name: str,
    now: datetime,
    events: Sequence[Event] = (),
) -> Answer:
    pool = cluster_state.pools.store.get(name)
    if pool is None:
        names = ", ".join(sorted(other.name for other in cluster_state.pools.store.all())) or "none"
        raise Unknown(message("nodepool/{name} is not in the cluster; there are: {known}", name=name, known=names))
    claims = cluster_state.claims_of(name)
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in pool.status.conditions)
    bad = None if ready and pool.metadata.deletion_timestamp is None else _cause(cluster_state, pool)
    stopped = safe_mode(decisions)
    full = "" if bad else _used_up(pool)
    code, remedy = (bad.code, bad.remedy) if bad else ("", "")
    line = _summary(claims) + (f"; {bad.why}; {bad.remedy} ({bad.code})" if bad else message("; ready"))
    if full:
        code, remedy = "LIMIT_REACHED", reasons.reason("LIMIT_REACHED").remedy
        line += message("; it launches no more: {full} in use; {remedy} ({code})", full=full, remedy=remedy, code=code)
    line += message("; in safe mode") if stopped else ""
    recent = [decision for decision in decisions if concerns(decision, name)][-10:]
    return Answer(
        subject=f"nodepool/{name}",
        line=line,
        code=code,
        object=bad.object if bad else f"nodepool/{name}" if full else "",
        remedy=remedy,
        details=(*((stopped,) if stopped else ()), *_details(cluster_state, decisions, pool, now)),
        deep=(
            *shortened(_claim_lines(cluster_state, claims), 100),
            *lines(recent),
            *event_lines(about_object(events, "NodePool", name)),
        ),
        facts={
            "nodes": len(claims),
            "ready": bad is None,
            "safeMode": stopped,
            "allowed": {disruption: allowed_now(cluster_state, pool, disruption, now)[0] for disruption in REASONS},
        },
    )


def _details(cluster_state: ClusterState, decisions: Sequence[Decision], pool: NodePool, now: datetime) -> list[str]:
    """What holds the NodePool back now: stopped drift, limits, budgets, conditions, the last pods refused."""
    details: list[str] = []
    drift = next(
        (
            decision
            for decision in reversed(decisions)
            if decision.kind == "drift-stop" and decision.subject == pool.name
        ),
        None,
    )
    if drift is not None and drift.reason:
        details.append(f"{drift.summary} [{drift.id}]")
    details += _limits(pool)
    details += [allowance(cluster_state, pool, disruption, now) for disruption in REASONS]
    details += [
        f"{condition.type}={condition.status} {condition.reason} {condition.message}".strip()
        for condition in pool.status.conditions
    ]
    refused = next((r for decision in reversed(decisions) for r in decision.refusals if pool.name in r.pools), None)
    if refused is not None:
        details.append(
            message(
                "last refusal: {count} pod(s), {message} [{code}]",
                count=refused.count,
                message=refused.message,
                code=refused.code,
            )
        )
    return details


def _cause(cluster_state: ClusterState, pool: NodePool) -> UnusableCause | None:
    classes = [
        str((node_class.get("metadata") or {}).get("name")) for node_class in cluster_state.node_classes.store.all()
    ]
    node_class = cluster_state.node_classes.store.get(pool.spec.template.spec.node_class_ref.name)
    missing = any(condition.reason == "NodeClassNotFound" for condition in pool.status.conditions)
    return cause(pool, node_class, class_required=missing or bool(classes), reconciled=True, classes=classes)


def _summary(claims: Sequence[NodeClaim]) -> str:
    states = (
        (source("{count} drifted"), sum(claim.is_true("Drifted") for claim in claims)),
        (source("{count} not initialized"), sum(not claim.is_true("Initialized") for claim in claims)),
        (source("{count} terminating"), sum(claim.metadata.deletion_timestamp is not None for claim in claims)),
    )
    states_text = ", ".join(message(state, count=count) for state, count in states if count)
    text = _count_and_cost(claims)
    return f"{text} ({states_text})" if states_text else text


def _count_and_cost(claims: Sequence[NodeClaim]) -> str:
    """How many NodeClaims, and what they cost at launch; where a price is unknown, the least that it is."""
    prices = [price for claim in claims if (price := launch_price(claim)) is not None]
    count, cost = len(claims), dollars(sum(prices))
    if not claims:
        return message("{count} node(s)", count=0)
    if not prices:
        return message("{count} node(s), price unknown", count=count)
    if len(prices) < count:
        return message("{count} node(s) for at least {dollars} at launch", count=count, dollars=cost)
    return message("{count} node(s) for {dollars} at launch", count=count, dollars=cost)


def _limits(pool: NodePool) -> list[str]:
    used = pool.status.resources
    return [
        message("limit {name}: {get} of {limit} in use", name=name, get=used.get(name, 0), limit=limit)
        for name, limit in sorted(pool.spec.limits.items())
    ]


def _used_up(pool: NodePool) -> str:
    """The first limit without anything left, as `cpu: 4 of 4`; empty where each has room."""
    used = quantity.resources(pool.status.resources)
    for name, limit in sorted(quantity.resources(pool.spec.limits).items()):
        if used.get(name, 0) >= limit:
            return f"{name}: {pool.status.resources.get(name, 0)} of {pool.spec.limits[name]}"
    return ""


def _claim_lines(cluster_state: ClusterState, claims: Sequence[NodeClaim]) -> list[str]:
    """Each NodeClaim in one line."""
    texts = []
    for claim in sorted(claims, key=lambda node_claim: node_claim.name):
        node = cluster_state.node_for(claim)
        labels = claim.metadata.labels
        pods = len(cluster_state.pods_on(node.metadata.name)) if node is not None else 0
        kind = "  ".join(
            labels.get(key, "-") for key in (wellknown.INSTANCE_TYPE, wellknown.ZONE, wellknown.CAPACITY_TYPE)
        )
        name = node.metadata.name if node is not None else message("no node yet")
        texts.append(
            message("{claim}  {kind}  {name}  {pods} pod(s)", claim=claim.name, kind=kind, name=name, pods=pods)
        )
    return texts


def allowed_now(
    cluster_state: ClusterState, pool: NodePool, reason: str, now: datetime
) -> tuple[int, budgets.Allowance, int, int]:
    """How many nodes may be disrupted now, by which budget, of how many, and how many are disrupting already."""
    counted, consuming = totals(cluster_state, reason).get(pool.name, (0, 0))
    allowed = budgets.allowance(pool.spec.disruption.budgets, reason, counted, now)
    return max(0, allowed.nodes - consuming), allowed, counted, consuming


def allowance(cluster_state: ClusterState, pool: NodePool, reason: str, now: datetime) -> str:
    free, allowed, counted, consuming = allowed_now(cluster_state, pool, reason, now)
    if allowed.problem:
        return message(
            "budget {reason}: 0, because it cannot be read: {problem}", reason=reason, problem=allowed.problem
        )
    if allowed.unlimited:
        return message("budget {reason}: no limit", reason=reason)
    conditions = []
    if allowed.decided_by is not None:
        conditions.append(message("nodes: {nodes}", nodes=allowed.decided_by.nodes))
        if allowed.decided_by.schedule:
            schedule, duration = allowed.decided_by.schedule, allowed.decided_by.duration
            conditions.append(message("schedule {schedule} for {duration}", schedule=schedule, duration=duration))
    if allowed.nodes < 1:
        opens = budgets.opens(pool.spec.disruption.budgets, reason, counted, now)
        conditions += [message("opens {time}", time=stamp(opens))] if opens is not None else []
    conditions += [message("{count} disrupting or not ready", count=consuming)] if consuming else []
    return message(
        "budget {reason}: {count} of {total} may be disrupted now ({conditions})",
        reason=reason,
        count=free,
        total=counted,
        conditions=", ".join(conditions),
    )
