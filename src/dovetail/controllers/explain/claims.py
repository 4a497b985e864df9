"""A NodeClaim on its way: launched, joined, initialized, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dovetail.cluster.state import ClusterState
from dovetail.controllers.explain.answer import Answer, Event, about_object, age, event_lines, lines
from dovetail.controllers.history.decisions import Decision, Refusal, concerns
from dovetail.controllers.nodeclaim import initialization
from dovetail.language import message
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import condition
from dovetail.model.reasons import reason

#: After so long without a node, an instance is not merely starting.
JOIN_GRACE = timedelta(minutes=3)
#: After so long, nothing is about to remove a startup taint.
STARTUP_TAINT_GRACE = timedelta(minutes=2)


class ClaimProgress(NamedTuple):
    """How far a NodeClaim is, in words that follow its name; `code` if something is wrong with it."""

    text: str
    code: str = ""
    remedy: str = ""
    object: str = ""


def progress(
    cluster_state: ClusterState,
    decisions: Sequence[Decision],
    claim: NodeClaim,
    now: datetime,
    events: Sequence[Event] = (),
) -> ClaimProgress:
    if claim.metadata.deletion_timestamp is not None:
        return ClaimProgress(message("is terminating"))
    if claim.is_true("Initialized"):
        return ClaimProgress(message("is ready"))
    launched = claim.condition("Launched")
    if launched is None or launched.status != "True":
        return _not_launched(claim, now)
    node = cluster_state.node_for(claim)
    if node is None and not claim.is_true("Registered"):
        return _not_joined(decisions, claim, now, events)
    return _not_initialized(cluster_state, claim, now)


def _not_launched(claim: NodeClaim, now: datetime) -> ClaimProgress:
    launched = claim.condition("Launched")
    if launched is None or not launched.message or launched.reason == "AwaitingReconciliation":
        return ClaimProgress(message("is being launched"))
    last = launched.message.rpartition(" (")[2]
    code = last.rstrip(")") if last.endswith(")") else ""
    return ClaimProgress(
        message("is not launched yet: {message}", message=launched.message), code, "", f"nodeclaim/{claim.name}"
    )


def diagnosis(decisions: Sequence[Decision], claim: str) -> Refusal | None:
    """What registration diagnosis found about an instance that does not join."""
    for decision in reversed(decisions):
        if decision.kind == "refuse" and claim in decision.about:
            return next((refusal for refusal in decision.refusals if refusal.code == "NEVER_JOINED"), None)
    return None


def _not_joined(
    decisions: Sequence[Decision], claim: NodeClaim, now: datetime, events: Sequence[Event]
) -> ClaimProgress:
    launched = claim.condition("Launched")
    since = launched.last_transition_time if launched is not None else None
    waited = message(" for {age}", age=age(since, now)) if since is not None else ""
    instance = claim.status.provider_id.rpartition("/")[2] or message("its instance")
    mine, runs = (
        f"nodeclaim/{claim.name}",
        message("instance {instance} has run{waited}", instance=instance, waited=waited),
    )
    cause = diagnosis(decisions, claim.name)
    reported = [event for event in about_object(events, "NodeClaim", claim.name) if event.reason == "NodeNotJoined"]
    if cause is not None or reported:
        cause_text = cause.message if cause is not None else reported[-1].message
        why = cause_text.partition("has not joined the cluster: ")[2] or cause_text  # it ends with its own remedy
        text = message(
            "{runs} and has not joined the cluster: {why}",
            runs=runs,
            why=why.removesuffix(" (NEVER_JOINED)"),
        )
        return ClaimProgress(text, "NEVER_JOINED", "", mine)
    if since is not None and now - since > JOIN_GRACE:
        text = message("{runs} and has not joined the cluster", runs=runs)
        remedy = message(
            "dovetail doctor checks its role, security groups and subnets; its console output says the rest"
        )
        return ClaimProgress(text, "NEVER_JOINED", remedy, mine)
    return ClaimProgress(message("instance {instance} has been starting{waited}", instance=instance, waited=waited))


def _not_initialized(cluster_state: ClusterState, claim: NodeClaim, now: datetime) -> ClaimProgress:
    node = cluster_state.node_for(claim)
    missing = initialization.missing(node, claim)
    registered = claim.condition("Registered")
    since = registered.last_transition_time if registered is not None else None
    name = node.metadata.name if node is not None else claim.status.node_name
    if missing is None:
        return ClaimProgress(message("node {name} is being filled", name=name))
    if missing.reason == "StartupTaintsExist":
        taint = missing.message.partition('"')[2].partition('"')[0]
        waited = message(", {age} after it joined", age=age(since, now)) if since is not None else ""
        text = message("node {name} still has the startup taint {taint}{waited}", name=name, taint=taint, waited=waited)
        if since is not None and now - since <= STARTUP_TAINT_GRACE:
            return ClaimProgress(text)
        startup_taint = reason("STARTUP_TAINT")
        return ClaimProgress(
            message("{text}: nothing has removed it", text=text),
            "STARTUP_TAINT",
            startup_taint.remedy,
            f"nodepool/{claim.node_pool}",
        )
    ready = condition(node.status.conditions, "Ready") if node is not None else None
    ready_message = f": {ready.message}" if ready is not None and ready.status != "True" and ready.message else ""
    return ClaimProgress(
        message(
            "node {name} has joined and is not initialized yet ({message}{said})",
            name=name,
            message=missing.message,
            said=ready_message,
        )
    )


def claim_answer(
    cluster_state: ClusterState,
    decisions: Sequence[Decision],
    claim: NodeClaim,
    now: datetime,
    events: Sequence[Event] = (),
) -> Answer:
    """A NodeClaim that has no initialized node yet."""
    step = progress(cluster_state, decisions, claim, now, events)
    about = [decision for decision in decisions if concerns(decision, claim.name)]
    conditions = [
        f"{condition.type}={condition.status} {condition.reason} {condition.message}".strip()
        for condition in claim.status.conditions
    ]
    remedy = [message("remedy: {remedy}", remedy=step.remedy)] if step.remedy else []
    code = f" ({step.code})" if step.code and not step.text.endswith(f"({step.code})") else ""
    node = cluster_state.node_for(claim)
    prefix = "" if node is not None else message("has no node yet: ")
    return Answer(
        subject=f"nodeclaim/{claim.name}",
        line=f"{prefix}{step.text}{code}",
        code=step.code,
        object=step.object,
        remedy=step.remedy,
        details=(*remedy, *conditions),
        deep=(*lines(about[-10:]), *event_lines(about_object(events, "NodeClaim", claim.name))),
        facts={"providerID": claim.status.provider_id, "nodePool": claim.node_pool or ""},
    )
