"""A pod: why it is pending, or where it runs and which decision placed it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from dovetail.cluster.state import ClusterState
from dovetail.cluster.state_node import launch_price
from dovetail.controllers.disruption import candidates
from dovetail.controllers.explain import claims
from dovetail.controllers.explain.answer import (
    Answer,
    Event,
    Unknown,
    about_object,
    age,
    dollars,
    event_lines,
    lines,
    shortened,
    since,
)
from dovetail.controllers.explain.daemonset_pods import daemonset_pod
from dovetail.controllers.explain.node_groups import refused_by_groups, scale_up, waits_for_group
from dovetail.controllers.history.decisions import Decision, Refusal, concerns
from dovetail.controllers.provisioning.node_group_scale_ups import NOT_TRIGGERED
from dovetail.language import message
from dovetail.language.recognition import recognized
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import condition
from dovetail.model.pods import Pod, owned_by
from dovetail.model.reasons import REASONS, reason
from dovetail.planner.plan import Funnel, FunnelStep

_NOMINATED = re.compile(r"nodeclaim/([a-z0-9.-]+)")


def pod(
    cluster_state: ClusterState,
    decisions: Sequence[Decision],
    key: str,
    now: datetime,
    events: Sequence[Event] = (),
) -> Answer:
    """`key` is namespace/name."""
    pod = cluster_state.pods.store.get(key)
    if pod is None:
        raise Unknown(
            message("pod/{key} is not in the cluster{elsewhere}", key=key, elsewhere=_elsewhere(cluster_state, key))
        )
    born = pod.metadata.creation_timestamp
    since_creation = (
        since(decisions, now, now - born) if born is not None else decisions
    )  # its name may be an earlier pod's too
    about = [decision for decision in since_creation if concerns(decision, key)]
    if pod.spec.node_name:
        return _running(cluster_state, decisions, about, pod, now)
    return _held_back(cluster_state, pod) or _pending(cluster_state, since_creation, about, pod, now, events)


def _elsewhere(cluster_state: ClusterState, key: str) -> str:
    """Where a pod of that name is, or pods whose names begin so."""
    name = key.rpartition("/")[2]
    everywhere = [pod.metadata.key for pod in cluster_state.pods.store.all()]
    same = [other for other in everywhere if other.rpartition("/")[2] == name]
    alike = same or [other for other in everywhere if other.rpartition("/")[2].startswith(name)]
    if not alike:
        return message("; name it as NAMESPACE/NAME or with -n")
    names = ", ".join(sorted(alike)[:3])
    if len(alike) > 3:
        return message("; did you mean {names} or {n} more?", names=names, n=len(alike) - 3)
    return message("; did you mean {names}?", names=names)


def _held_back(cluster_state: ClusterState, pod: Pod) -> Answer | None:
    """Pods that no node would help."""
    subject = f"pod/{pod.metadata.key}"
    if pod.finished:
        return Answer(subject=subject, line=message("has ended ({phase})", phase=pod.status.phase))
    if pod.terminating:
        return Answer(subject=subject, line=message("is being deleted; it never had a node"))
    if pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        remedy = reason("GATED").remedy
        line = message("pending: its scheduling gates hold it: {gates}; {remedy} (GATED)", gates=gates, remedy=remedy)
        return Answer(subject=subject, line=line, code="GATED", object=subject, remedy=remedy, facts={"gates": gates})
    return daemonset_pod(cluster_state, pod) if owned_by(pod, "DaemonSet") else None


def _pending(
    cluster_state: ClusterState,
    since_creation: Sequence[Decision],
    about: Sequence[Decision],
    pod: Pod,
    now: datetime,
    events: Sequence[Event],
) -> Answer:
    key = pod.metadata.key
    mine = about_object(events, "Pod", key)
    target = nominated(cluster_state, pod, about, mine)
    if isinstance(target, NodeClaim):
        return waiting_for(cluster_state, since_creation, about, pod, target, now, events)
    if target:
        return Answer(
            subject=f"pod/{key}",
            line=message("waits for node {target}, which has room for it", target=target),
            deep=lines(about[-5:]),
        )
    growing = scale_up(mine)
    if growing is not None and growing.is_underway(now):
        return waits_for_group(key, growing, mine)
    refusal = refusal_of(cluster_state, since_creation, pod)
    if refusal is not None and (growing is None or refusal.code not in ("NO_NODEPOOL", NOT_TRIGGERED)):
        answer = refused(key, refusal, about)
        if growing is None:
            return answer
        return msgspec.structs.replace(answer, details=(*answer.details, f"cluster-autoscaler: {growing.message}"))
    if growing is not None:
        return refused_by_groups(key, growing, mine)
    scheduled = condition(pod.status.conditions, "PodScheduled")
    if pod.spec.scheduler_name != "default-scheduler" and scheduled is None:
        remedy = message("start that scheduler, or take spec.schedulerName out")
        line = message(
            "pending: it asks for the scheduler {scheduler_name}, which has not tried it",
            scheduler_name=pod.spec.scheduler_name,
        )
        subject = f"pod/{key}"
        return Answer(
            subject=subject, line=f"{line}; {remedy}", object=subject, remedy=remedy, deep=tuple(event_lines(mine))
        )
    if scheduled is None:
        line = message("pending: kube-scheduler has not tried it yet")
    else:
        waited = age(pod.metadata.creation_timestamp, now)
        line = (
            message("pending for {waited}: it has not been planned for yet", waited=waited)
            if waited
            else message("pending: it has not been planned for yet")
        )
    return Answer(subject=f"pod/{key}", line=line, source="none", deep=tuple(event_lines(mine)))


def nominated(
    cluster_state: ClusterState, pod: Pod, about: Sequence[Decision], events: Sequence[Event]
) -> NodeClaim | str:
    """The NodeClaim or the name of the node that a pod waits for; empty if there is none.

    A NodeClaim names its pods; where it does not, the last `Nominated` event does, as long as the NodeClaim is there.
    """
    target = cluster_state.nominations.of(pod.metadata.uid)
    if target is not None:
        claim = cluster_state.claims.store.get(target.name) if target.kind == "claim" else None
        return claim if claim is not None else target.name
    launched = next((decision for decision in reversed(about) if decision.node_claims), None)
    made = (
        [claim.claim for claim in launched.node_claims]
        if launched is not None and len(launched.node_claims) == 1
        else []
    )
    last = next((event for event in reversed(events) if event.reason in ("Nominated", "FailedScheduling")), None)
    if last is not None and last.reason == "Nominated":
        made += _NOMINATED.findall(last.message)
    for name in made:
        claim = cluster_state.claims.store.get(name)
        if claim is not None and not claim.is_true("Initialized") and claim.metadata.deletion_timestamp is None:
            return claim
    return ""


def waiting_for(
    cluster_state: ClusterState,
    decisions: Sequence[Decision],
    about: Sequence[Decision],
    pod: Pod,
    claim: NodeClaim,
    now: datetime,
    events: Sequence[Event],
) -> Answer:
    """A pod whose NodeClaim exists: how far that is."""
    step = claims.progress(cluster_state, decisions, claim, now, events)
    remedy = f"; {step.remedy}" if step.remedy else ""
    code = f" ({step.code})" if step.code and not step.text.endswith(f"({step.code})") else ""
    progress = f"{step.text}{remedy}{code}"
    line = (
        message("pending: waits for nodeclaim {claim}: {progress}", claim=claim.name, progress=progress)
        if step.code
        else message("waits for nodeclaim {claim}: {progress}", claim=claim.name, progress=progress)
    )
    return Answer(
        subject=f"pod/{pod.metadata.key}",
        line=line,
        code=step.code,
        object=step.object,
        remedy=step.remedy,
        details=(
            *([message("remedy: {remedy}", remedy=step.remedy)] if step.remedy else ()),
            *(
                f"{state.type}={state.status} {state.reason} {state.message}".strip()
                for state in claim.status.conditions
            ),
        ),
        deep=lines(about[-5:]),
        facts={"nodeClaim": claim.name},
    )


def refusal_of(cluster_state: ClusterState, decisions: Sequence[Decision], pod: Pod) -> Refusal | None:
    """The newest refusal that names the pod; or one of its owner's pods, where not all were named."""
    newest = [refusal for decision in reversed(decisions) for refusal in decision.refusals]
    key, owner = pod.metadata.key, pod.metadata.controller
    for refusal in newest:
        if key in refusal.pods:
            return refusal
    alike = {other.metadata.key for other in cluster_state.unbound() if owner and other.metadata.controller == owner}
    return next((r for r in newest if r.count > len(r.pods) and not alike.isdisjoint(r.pods)), None)


def refused(key: str, refusal: Refusal, about: Sequence[Decision] = (), source: str = "history") -> Answer:
    details, deep = [], []
    for name, funnel in refusal.pools.items():
        details.append(_funnel(name, funnel))
        deep += [
            message(
                "{name}: {left:>6} left after {clause}{turned_away}",
                name=name,
                left=step.left,
                clause=recognized(step.clause),
                turned_away=_turned_away(step),
            )
            for step in funnel.steps
        ]
    blamed = next(iter(refusal.pools.values()), None)
    explained = REASONS.get(refusal.code)
    remedy = refusal.remedy or (blamed.remedy if blamed is not None else "")
    remedy = remedy or (explained.remedy if explained is not None else "")
    if remedy:
        details.append(message("remedy: {remedy}", remedy=recognized(remedy)))
    spoken = f"; {recognized(remedy)}" if remedy and remedy not in refusal.message else ""
    return Answer(
        subject=f"pod/{key}",
        line=message(
            "pending: {why}{remedy} ({code})", why=recognized(refusal.message), remedy=spoken, code=refusal.code
        ),
        code=refusal.code,
        object=refusal.object or f"pod/{key}",
        remedy=remedy,
        source=source,
        details=tuple(shortened(details, 50)),
        deep=(*deep, *lines(about[-5:])),
        facts={**msgspec.to_builtins(refusal), "class": explained.kind if explained is not None else ""},
    )


def _turned_away(step: FunnelStep) -> str:
    return message("; rejected: {types}", types=", ".join(step.turned_away)) if step.turned_away else ""


def _funnel(pool: str, funnel: Funnel) -> str:
    if funnel.unusable:
        return message("nodepool {pool} {why}", pool=pool, why=recognized(funnel.emptied_by))
    text = message(
        "nodepool {pool}: {start} offerings; none left by {emptied_by}",
        pool=pool,
        start=funnel.start,
        emptied_by=recognized(funnel.emptied_by),
    )
    nearest = funnel.nearest
    if nearest is not None:
        facts = {"instance_type": nearest.instance_type, "zone": nearest.zone}
        text += (
            message("; nearest {instance_type} in {zone}", **facts)
            if nearest.price is None
            else message("; nearest {instance_type} in {zone} at {price}", **facts, price=dollars(nearest.price))
        )
        text += message(", lacks {amount}", amount=funnel.nearest_lacks) if funnel.nearest_lacks else ""
    return text


def _running(
    cluster_state: ClusterState, decisions: Sequence[Decision], about: Sequence[Decision], pod: Pod, now: datetime
) -> Answer:
    """Where it runs, how it blocks its node's disruption, and why this node was launched."""
    name = pod.spec.node_name
    node = cluster_state.nodes.store.get(name)
    claim = cluster_state.claim_for(node) if node else None
    price = launch_price(claim) if claim else None
    cost = "" if price is None else message(" ({dollars} at launch)", dollars=dollars(price))
    pod_blockers = candidates.pod_blockers((pod,), cluster_state.pdbs, now)
    launched = [
        decision for decision in decisions if claim and any(made.claim == claim.name for made in decision.node_claims)
    ]
    trouble = container_trouble(pod)
    created = [made for decision in launched for made in decision.node_claims if claim and made.claim == claim.name]
    return Answer(
        subject=f"pod/{pod.metadata.key}",
        line=_phase(pod, name) + cost + (f"; {trouble}" if trouble else ""),
        details=(
            *(
                message("blocks its node: {describe}", describe=candidates.describe(blocker))
                for blocker in pod_blockers
            ),
            *lines(
                sorted(
                    {decision.id: decision for decision in (*about[-5:], *launched)}.values(),
                    key=lambda decision: decision.time,
                )
            ),
        ),
        deep=tuple(message("cheaper, but {lost}", lost=lost) for made in created for lost in made.cheaper),
        facts={
            "node": name,
            "blockers": msgspec.to_builtins(pod_blockers),
            "decisions": [decision.id for decision in launched],
        },
    )


def _phase(pod: Pod, node: str) -> str:
    if pod.finished:
        return message("has ended ({phase}) on {node}", phase=pod.status.phase, node=node)
    if pod.status.phase == "Pending":
        return message("is bound to {node}", node=node)
    return message("runs on {node}", node=node)


def container_trouble(pod: Pod) -> str:
    """What keeps its containers from starting, if the kubelet says so."""
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
            return message(
                "container {container} waits: {reason}",
                container=status.name,
                reason=f"{waiting.reason} {waiting.message}".rstrip(),
            )
    return ""
