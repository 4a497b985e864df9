"""A NodePool: what it has, what it may still launch, and how many of its nodes may be disrupted now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dovetail.cluster.state import ClusterState
from dovetail.cluster.state_node import paid
from dovetail.controllers.disruption.candidates import totals
from dovetail.controllers.explain.answer import Answer, Unknown, dollars, safe_mode, story
from dovetail.controllers.history.decisions import Decision, concerns
from dovetail.model import wellknown
from dovetail.model.kinds import budgets
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.meta import stamp

REASONS = ("Empty", "Drifted", "Underutilized", "Unhealthy")


def nodepool(cluster_state: ClusterState, decisions: Sequence[Decision], name: str, now: datetime) -> Answer:
    found = cluster_state.pools.store.get(name)
    if found is None:
        known = ", ".join(sorted(each.name for each in cluster_state.pools.store.all())) or "none"
        raise Unknown(f"nodepool/{name} is not in the cluster; there are: {known}")
    machines = cluster_state.claims_of(name)
    bad = next((each for each in found.status.conditions if each.type == "Ready" and each.status != "True"), None)
    stopped = safe_mode(decisions)
    line = _summary(machines) + (f"; not ready: {bad.message or bad.reason}" if bad else "; ready")
    line += "; in safe mode" if stopped else ""
    details = [stopped] if stopped else []
    drift = next((each for each in reversed(decisions) if each.kind == "drift-stop" and each.subject == name), None)
    if drift is not None and drift.reason:
        details.append(f"{drift.summary} [{drift.id}]")
    details += _limits(found)
    details += [allowance(cluster_state, found, reason, now) for reason in REASONS]
    details += [f"{each.type}={each.status} {each.reason} {each.message}".strip() for each in found.status.conditions]
    refused = next((r for each in reversed(decisions) for r in each.refusals if name in r.pools), None)
    if refused is not None:
        details.append(f"last refusal: {refused.count} pod(s), {refused.message} [{refused.code}]")
    recent = [each for each in decisions if concerns(each, name)][-10:]
    return Answer(
        subject=f"nodepool/{name}",
        line=line,
        details=tuple(details),
        deep=(*_machines(cluster_state, machines), *story(recent)),
        facts={
            "machines": len(machines),
            "ready": bad is None,
            "safeMode": stopped,
            "allowed": {reason: left(cluster_state, found, reason, now)[0] for reason in REASONS},
        },
    )


def _summary(machines: Sequence[NodeClaim]) -> str:
    cost = sum(paid(each) or 0.0 for each in machines)
    states = {
        "drifted": sum(each.is_true("Drifted") for each in machines),
        "not initialized": sum(not each.is_true("Initialized") for each in machines),
        "terminating": sum(each.metadata.deletion_timestamp is not None for each in machines),
    }
    told = ", ".join(f"{count} {state}" for state, count in states.items() if count)
    text = f"{len(machines)} node(s)" + (f" for {dollars(cost)} at launch" if machines else "")
    return f"{text} ({told})" if told else text


def _limits(pool: NodePool) -> list[str]:
    used = pool.status.resources
    return [f"limit {name}: {used.get(name, 0)} of {limit} in use" for name, limit in sorted(pool.spec.limits.items())]


def _machines(cluster_state: ClusterState, machines: Sequence[NodeClaim]) -> list[str]:
    """Each NodeClaim in one line."""
    found = []
    for claim in sorted(machines, key=lambda each: each.name):
        node = cluster_state.node_for(claim)
        labels = claim.metadata.labels
        pods = len(cluster_state.pods_on(node.metadata.name)) if node is not None else 0
        kind = "  ".join(
            labels.get(key, "-") for key in (wellknown.INSTANCE_TYPE, wellknown.ZONE, wellknown.CAPACITY_TYPE)
        )
        name = node.metadata.name if node is not None else "no node yet"
        found.append(f"{claim.name}  {kind}  {name}  {pods} pod(s)")
    return found


def left(
    cluster_state: ClusterState, pool: NodePool, reason: str, now: datetime
) -> tuple[int, budgets.Allowance, int, int]:
    """How many nodes may be disrupted now, by which budget, of how many, and how many are disrupting already."""
    counted, consuming = totals(cluster_state, reason).get(pool.name, (0, 0))
    found = budgets.allowance(pool.spec.disruption.budgets, reason, counted, now)
    return max(0, found.nodes - consuming), found, counted, consuming


def allowance(cluster_state: ClusterState, pool: NodePool, reason: str, now: datetime) -> str:
    free, found, counted, consuming = left(cluster_state, pool, reason, now)
    if found.problem:
        return f"budget {reason}: 0, because it cannot be read: {found.problem}"
    if found.unlimited:
        return f"budget {reason}: no limit"
    by = f"nodes: {found.decided_by.nodes}" if found.decided_by else ""
    schedule = found.decided_by.schedule if found.decided_by else None
    text = f"budget {reason}: {free} of {counted} may be disrupted now ({by}"
    text += f", schedule {schedule} for {found.decided_by.duration}" if schedule and found.decided_by else ""
    if found.nodes < 1:
        opens = budgets.opens(pool.spec.disruption.budgets, reason, counted, now)
        text += f", opens {stamp(opens)}" if opens is not None else ""
    return text + (f", {consuming} disrupting or not ready)" if consuming else ")")
