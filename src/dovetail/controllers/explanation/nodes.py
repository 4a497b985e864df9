"""A node: everything that keeps it, the best that was found instead, and when it will be looked at again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from dovetail.cluster import keys
from dovetail.cluster.machines import paid
from dovetail.cluster.mirror import Mirror
from dovetail.controllers.disruption import blockers
from dovetail.controllers.disruption.consolidation import WORTH
from dovetail.controllers.disruption.expiration import date
from dovetail.controllers.disruption.refusals import FOR
from dovetail.controllers.explanation import leaving, pools
from dovetail.controllers.explanation.answer import Answer, Unknown, dollars, others, safe_mode, story
from dovetail.controllers.ledger import Decision, concerns
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.podrequests import requests
from dovetail.model.pods import Pod
from dovetail.model.quantity import resources


def node(mirror: Mirror, decisions: Sequence[Decision], name: str, now: datetime) -> Answer:
    found = mirror.nodes.store.get(name)
    if found is None:
        raise Unknown(f"node/{name} is not in the cluster")
    claim = mirror.claim_for(found)
    if claim is None:
        return Answer(subject=f"node/{name}", line="is not ours: no NodeClaim has its provider id; nothing touches it")
    pods = tuple(mirror.pods_on(name))
    held = blockers.of_pods(pods, mirror.guards, now)
    about = [each for each in decisions if concerns(each, name)]
    details = [_machine(found, claim, pods), *_ill(found)]
    if found.metadata.deletion_timestamp is not None or claim.metadata.deletion_timestamp is not None:
        details += [f"blocked: {blockers.words(each)}" for each in held]
        return Answer(
            subject=f"node/{name}",
            line=leaving.line(claim, pods, held, now),
            details=(*details, *leaving.patience(claim, held)),
            deep=story(about[-10:]),
            facts={"blockers": msgspec.to_builtins(held)},
        )
    why = blockers.of_machine(found, claim, going=False, nominated=False) + held
    kept = _last_look(mirror, claim, about, now)
    stopped, bound = safe_mode(decisions), rules(pods)
    next_look = _next_look(mirror, claim, why, kept, now)
    details += [stopped] if stopped else []
    details += [f"blocked: {blockers.words(each)}" for each in why]
    details += [f"bound: {each}" for each in bound]
    details += [*_alternative(kept), *_budget(mirror, claim, now), *next_look]
    return Answer(
        subject=f"node/{name}",
        line=_verdict(mirror, claim, why, stopped, now) or _outlook(mirror, claim, kept),
        details=tuple(details),
        deep=story(about[-10:]),
        facts={
            "blockers": msgspec.to_builtins(why), "rules": bound, "keep": msgspec.to_builtins(kept) if kept else None,
            "safeMode": stopped, "nextLook": next_look,
        },
    )  # fmt: skip


def claim(mirror: Mirror, decisions: Sequence[Decision], name: str, now: datetime) -> Answer:
    """A NodeClaim: its node, or why it has none yet."""
    found = mirror.claims.store.get(name)
    if found is None:
        raise Unknown(f"nodeclaim/{name} is not in the cluster")
    there = mirror.node_for(found)
    if there is not None:
        return node(mirror, decisions, there.metadata.name, now)
    steps = [each for each in found.status.conditions if each.type in ("Launched", "Registered") and each.message]
    told = "; ".join(f"{each.type}={each.status}: {each.message}" for each in steps if each.status != "True")
    about = [each for each in decisions if concerns(each, name)]
    line = f"has no node yet{': ' + told if told else ''}"
    return Answer(subject=f"nodeclaim/{name}", line=line, details=(), deep=story(about[-10:]))


def _last_look(mirror: Mirror, claim: NodeClaim, about: Sequence[Decision], now: datetime) -> Decision | None:
    """What the last look came to; that no budget was left counts only while none is."""
    kept = next((each for each in reversed(about) if each.kind == "keep"), None)
    pool = mirror.pools.store.get(claim.node_pool or "")
    stale = kept is not None and kept.reason == "BUDGET" and pool is not None
    return None if stale and pool and pools.left(mirror, pool, "Underutilized", now)[0] > 0 else kept


def _verdict(
    mirror: Mirror, claim: NodeClaim, why: Sequence[blockers.Blocker], stopped: str, now: datetime
) -> str:
    """What becomes of the machine whatever it costs; nothing if that decides."""
    rebooting, reason = claim.condition("Rebooting"), claim.condition("DisruptionReason")
    if rebooting is not None and rebooting.status == "True":
        return f"is {rebooting.message}"
    if reason is not None and reason.status == "True":
        return f"goes as soon as what comes in its place is ready ({reason.reason})"
    if why:
        return f"stays: {blockers.words(why[0])}{others(why)}"
    if stopped:
        return f"stays: safe mode. {stopped}"
    drifted = claim.condition("Drifted")
    if drifted is None or drifted.status != "True":
        return ""
    pool = mirror.pools.store.get(claim.node_pool or "")
    if pool is not None and pools.left(mirror, pool, "Drifted", now)[0] < 1:
        return f"has drifted ({drifted.reason}) and waits: {pools.allowance(mirror, pool, 'Drifted', now)}"
    return f"will be replaced within its budget: {drifted.reason}"


def _outlook(mirror: Mirror, claim: NodeClaim, kept: Decision | None) -> str:
    """What will become of a machine that only its cost speaks against."""
    if kept is not None:
        return f"stays: {kept.summary} ({kept.reason}{_saving(kept)})"
    pool = mirror.pools.store.get(claim.node_pool or "")
    if pool is not None and pool.static:
        return "stays: its pool is static"
    if pool is not None and pool.spec.disruption.consolidate_after == "Never":
        return "stays: consolidation is off for its pool (consolidateAfter: Never)"
    if not claim.is_true("Consolidatable"):
        return "stays for now: pods came or went lately"
    return "may be consolidated; nothing cheaper has been found yet"


def _saving(decision: Decision) -> str:
    saving = decision.detail.get("saving")
    return f", saving {dollars(saving)}" if isinstance(saving, float) else ""


def _machine(found: Node, claim: NodeClaim, pods: Sequence[Pod]) -> str:
    """What it is, what it costs, and how full it is."""
    labels, price = found.metadata.labels, paid(claim)
    kind = ", ".join(labels.get(key, "?") for key in (keys.INSTANCE_TYPE, keys.ZONE, keys.CAPACITY_TYPE))
    room, asked = resources(found.status.allocatable), [requests(pod) for pod in pods if not pod.finished]
    full = ", ".join(
        f"{sum(each.get(name, 0) for each in asked) / room[name]:.0%} of {name}"
        for name in ("cpu", "memory")
        if room.get(name)
    )
    cost = "price unknown" if price is None else f"{dollars(price)} when bought"
    return f"{kind}, {cost}; {len(asked)} pod(s) ask for {full}"


def _ill(found: Node) -> list[str]:
    """Conditions of a node that is not well: not ready, or something else of it that should be."""
    bad = [each for each in found.status.conditions if each.type.endswith("Ready") and each.status != "True"]
    return [
        f"ill: {each.type}={each.status} ({each.reason})"
        + (f" since {each.last_transition_time:%Y-%m-%dT%H:%M:%SZ}" if each.last_transition_time else "")
        for each in bad
    ]


def rules(pods: Iterable[Pod]) -> list[str]:
    """What its pods insist on wherever they go, with how many of them do."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        if any(each.kind == "DaemonSet" for each in pod.metadata.owner_references):
            continue
        for rule in _rules(pod):
            found.setdefault(rule, []).append(pod.metadata.key)
    return [f"{rule} ({len(who)} pod(s), {who[0]}{' …' if len(who) > 1 else ''})" for rule, who in found.items()]


def _rules(pod: Pod) -> Iterable[str]:
    for each in pod.spec.topology_spread_constraints:
        if each.when_unsatisfiable == "DoNotSchedule":
            yield f"spread over {each.topology_key}, maxSkew {each.max_skew}"
    affinity = pod.spec.affinity
    if affinity is not None and affinity.pod_anti_affinity is not None:
        for term in affinity.pod_anti_affinity.required:
            yield f"apart from others by {term.topology_key}"
    if affinity is not None and affinity.pod_affinity is not None:
        for term in affinity.pod_affinity.required:
            yield f"together with others by {term.topology_key}"


def _alternative(kept: Decision | None) -> list[str]:
    """The best that was found, and what it would have had to save."""
    if kept is None:
        return []
    threshold = kept.detail.get("needed")
    if threshold is None and kept.before is not None:
        threshold = WORTH * kept.before
    needed = f"; a move must save at least {dollars(threshold)}" if threshold is not None else ""
    best = "best alternative" if isinstance(kept.detail.get("saving"), float) else "looked at"
    return [f"{best} {kept.time}: {kept.summary} [{kept.reason}]{_saving(kept)}{needed}"]


def _budget(mirror: Mirror, claim: NodeClaim, now: datetime) -> list[str]:
    pool = mirror.pools.store.get(claim.node_pool or "")
    if pool is None:
        return []
    reason = "Drifted" if claim.is_true("Drifted") else "Underutilized"
    return [pools.allowance(mirror, pool, reason, now)]


def _next_look(
    mirror: Mirror, claim: NodeClaim, why: Sequence[blockers.Blocker], kept: Decision | None, now: datetime
) -> list[str]:
    """When this machine will be looked at again."""
    found = []
    ends = [each.until for each in why if each.until is not None]
    pool = mirror.pools.store.get(claim.node_pool or "")
    text = pool.spec.disruption.consolidate_after if pool is not None else "Never"
    after = pool.spec.disruption.quiet_time if pool is not None else None
    initialized = claim.condition("Initialized")
    last = claim.status.last_pod_event_time or (initialized.last_transition_time if initialized else None)
    if why:
        first = f", the first of it at {min(ends):%Y-%m-%dT%H:%M:%SZ}" if ends else ""
        found.append(f"next look as soon as what blocks it is gone{first}")
    elif after is None:
        found.append(f"consolidation is off for its pool (consolidateAfter: {text})")
    elif last is not None and last + after > now:
        ready = last + after
        came = f"pods came or went at {last:%H:%M:%SZ} (consolidateAfter {text})"
        found.append(f"next look at {ready:%H:%M:%SZ}: {came}")
    elif kept is not None:
        again = datetime.fromisoformat(kept.time) + timedelta(seconds=FOR)
        when = f"at {again:%H:%M:%SZ} at the latest" if again > now else "within minutes"
        found.append(f"next look {when}, or as soon as its pods, budgets or prices change")
    else:
        found.append("next look within seconds")
    expiry = date(claim)
    if expiry is not None:
        found.append(f"expires {expiry:%Y-%m-%dT%H:%M:%SZ}")
    return found
