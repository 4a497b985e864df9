"""A pod: why it is pending, or where it runs and which decision placed it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dovetail.cluster.state import ClusterState
from dovetail.cluster.state_node import launch_price
from dovetail.controllers.disruption import candidates
from dovetail.controllers.explain.answer import Answer, Unknown, dollars, lines, since
from dovetail.controllers.history.decisions import Decision, Refusal, concerns
from dovetail.model.meta import condition
from dovetail.model.pods import Pod
from dovetail.model.reasons import REASONS


def pod(cluster_state: ClusterState, decisions: Sequence[Decision], key: str, now: datetime) -> Answer:
    """`key` is namespace/name."""
    found = cluster_state.pods.store.get(key)
    if found is None:
        raise Unknown(f"pod/{key} is not in the cluster; name it as NAMESPACE/NAME or with -n")
    born = found.metadata.creation_timestamp
    since_creation = (
        since(decisions, now, now - born) if born is not None else decisions
    )  # its name may be an earlier pod's too
    about = [each for each in since_creation if concerns(each, key)]
    if found.spec.node_name:
        return _running(cluster_state, decisions, about, found, now)
    refusal = _refusal(cluster_state, since_creation, found)
    nominated_pods = cluster_state.nominations.of(found.metadata.uid)
    if nominated_pods is not None:
        line = f"waits for {nominated_pods.kind} {nominated_pods.name}, which is starting"
        return Answer(subject=f"pod/{key}", line=line, deep=lines(about[-5:]))
    if refusal is not None:
        return _refused(key, refusal, about)
    launched = next((decision for decision in reversed(about) if decision.node_claims), None)
    if launched is not None:
        claims = ", ".join(each.claim for each in launched.node_claims[:3])
        return Answer(subject=f"pod/{key}", line=f"waits for {claims} (decision {launched.id})", deep=lines(about[-5:]))
    scheduled = condition(found.status.conditions, "PodScheduled")
    reason_text = "kube-scheduler has not tried it yet" if scheduled is None else "it has not been planned for yet"
    if found.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in found.spec.scheduling_gates)
        reason_text = f"its scheduling gates hold it: {gates}"
    return Answer(subject=f"pod/{key}", line=f"pending: {reason_text}")


def _refusal(cluster_state: ClusterState, decisions: Sequence[Decision], pod: Pod) -> Refusal | None:
    """The newest refusal that names the pod; or one of its owner's pods, where not all were named."""
    newest = [refusal for decision in reversed(decisions) for refusal in decision.refusals]
    key, owner = pod.metadata.key, pod.metadata.controller
    for refusal in newest:
        if key in refusal.pods:
            return refusal
    alike = {each.metadata.key for each in cluster_state.unbound() if owner and each.metadata.controller == owner}
    return next((r for r in newest if r.count > len(r.pods) and not alike.isdisjoint(r.pods)), None)


def _refused(key: str, refusal: Refusal, about: Sequence[Decision]) -> Answer:
    details, deep = [], []
    for name, funnel in refusal.pools.items():
        details.append(_funnel(name, funnel))
        steps = funnel.get("steps") or ()
        deep += [f"{name}: {step['left']:>6} left after {step['clause']}{_turned_away(step)}" for step in steps]
    blamed: dict[str, Any] = next(iter(refusal.pools.values()), {})
    if refusal.code in REASONS:
        details.append(f"remedy: {blamed.get('remedy') or REASONS[refusal.code].remedy}")
    return Answer(
        subject=f"pod/{key}",
        line=f"pending: {refusal.message} ({refusal.code})",
        details=tuple(details),
        deep=(*deep, *lines(about[-5:])),
        facts=msgspec.to_builtins(refusal),
    )


def _turned_away(step: dict[str, Any]) -> str:
    types = step.get("turned_away") or ()
    return f"; rejected: {', '.join(types)}" if types else ""


def _funnel(pool: str, funnel: dict[str, Any]) -> str:
    text = f"nodepool {pool}: {funnel.get('start', 0)} candidates; emptied by {funnel.get('emptied_by', '')}"
    nearest = funnel.get("nearest")
    if nearest:
        price = nearest.get("price")
        cost = f" at {dollars(price)}" if price is not None else ""
        lacks = funnel.get("nearest_lacks")
        text += f"; nearest {nearest['instance_type']} in {nearest['zone']}{cost}{f', lacks {lacks}' if lacks else ''}"
    return text


def _running(
    cluster_state: ClusterState, decisions: Sequence[Decision], about: Sequence[Decision], found: Pod, now: datetime
) -> Answer:
    """Where it runs, how it blocks its node's disruption, and why this node was launched."""
    name = found.spec.node_name
    node = cluster_state.nodes.store.get(name)
    claim = cluster_state.claim_for(node) if node else None
    price = launch_price(claim) if claim else None
    cost = "" if price is None else f" ({dollars(price)} at launch)"
    held = candidates.pod_blockers((found,), cluster_state.pdbs, now)
    launched = [
        decision for decision in decisions if claim and any(made.claim == claim.name for made in decision.node_claims)
    ]
    created = [made for each in launched for made in each.node_claims if claim and made.claim == claim.name]
    return Answer(
        subject=f"pod/{found.metadata.key}",
        line=f"runs on {name}{cost}",
        details=(
            *(f"blocks its node: {candidates.describe(blocker)}" for blocker in held),
            *lines(sorted({each.id: each for each in (*about[-5:], *launched)}.values(), key=lambda each: each.time)),
        ),
        deep=tuple(f"cheaper, but {lost}" for made in created for lost in made.cheaper),
        facts={"node": name, "blockers": msgspec.to_builtins(held), "decisions": [each.id for each in launched]},
    )
