"""A node: everything that keeps it, the best that was found instead, and when it will be looked at again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from dovetail.cluster import keys
from dovetail.cluster.machines import paid
from dovetail.cluster.mirror import Mirror
from dovetail.controllers.disruption import blockers
from dovetail.controllers.disruption.consolidation import WORTH
from dovetail.controllers.explanation import illness, leaving
from dovetail.controllers.explanation.answer import Answer, Unknown, dollars, safe_mode, story
from dovetail.controllers.explanation.outlook import Outlook, saving
from dovetail.controllers.ledger import Decision, concerns
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.podrequests import requests
from dovetail.model.pods import Pod
from dovetail.model.quantity import resources


def node(mirror: Mirror, decisions: Sequence[Decision], name: str, now: datetime) -> Answer:
    found = mirror.nodes.store.get(name)
    if found is None:
        return gone("node", name, decisions)
    claim = mirror.claim_for(found)
    if claim is None:
        return Answer(subject=f"node/{name}", line="is not ours: no NodeClaim has its provider id; nothing touches it")
    pods = tuple(mirror.pods_on(name))
    held = blockers.of_pods(pods, mirror.guards, now)
    about = [each for each in decisions if concerns(each, name)]
    details = [_machine(found, claim, pods), *illness.conditions(found)]
    if found.metadata.deletion_timestamp is not None or claim.metadata.deletion_timestamp is not None:
        details += [f"blocked: {blockers.words(each)}" for each in held]
        return Answer(
            subject=f"node/{name}",
            line=leaving.line(claim, pods, held, now),
            details=(*leaving.cause(about), *details, *leaving.patience(claim, held)),
            deep=story(about[-10:]),
            facts={"blockers": msgspec.to_builtins(held)},
        )
    why = blockers.of_machine(found, claim, going=False, nominated=False) + held
    outlook = Outlook(mirror, found, claim, about, now)
    kept, repair = outlook.kept, illness.repair(found, about)
    stopped, bound, next_look = safe_mode(decisions), rules(pods), outlook.next_look(why)
    details += [f"repair: {repair}"] if repair else []
    details += outlook.drift()
    details += [stopped] if stopped else []
    details += [f"blocked: {blockers.words(each)}" for each in why]
    details += [f"bound: {each}" for each in bound]
    details += [*_alternative(kept), *outlook.budget(), *next_look]
    return Answer(
        subject=f"node/{name}",
        line=outlook.verdict(why, stopped, repair),
        details=tuple(details),
        deep=story(about[-10:]),
        facts={
            "blockers": msgspec.to_builtins(why), "rules": bound, "keep": msgspec.to_builtins(kept) if kept else None,
            "safeMode": stopped, "nextLook": next_look, "repair": repair,
        },
    )  # fmt: skip


def gone(kind: str, name: str, decisions: Sequence[Decision]) -> Answer:
    """A machine that is no more: what was last decided about it, if anything was."""
    about = [each for each in decisions if concerns(each, name)]
    if not about:
        raise Unknown(f"{kind}/{name} is not in the cluster")
    last = about[-1]
    line = f"is gone; last was {last.id} at {last.time}: {last.summary}"
    return Answer(subject=f"{kind}/{name}", line=line, deep=story(about[-10:]))


def claim(mirror: Mirror, decisions: Sequence[Decision], name: str, now: datetime) -> Answer:
    """A NodeClaim: its node, or why it has none yet."""
    found = mirror.claims.store.get(name)
    if found is None:
        return gone("nodeclaim", name, decisions)
    there = mirror.node_for(found)
    if there is not None:
        return node(mirror, decisions, there.metadata.name, now)
    about = [each for each in decisions if concerns(each, name)]
    if found.metadata.deletion_timestamp is not None:
        line, details = "is going; it has no node", leaving.cause(about)
        return Answer(subject=f"nodeclaim/{name}", line=line, details=tuple(details), deep=story(about[-10:]))
    steps = [each for each in found.status.conditions if each.type in ("Launched", "Registered") and each.message]
    told = "; ".join(f"{each.type}={each.status}: {each.message}" for each in steps if each.status != "True")
    line = f"has no node yet{': ' + told if told else ''}"
    return Answer(subject=f"nodeclaim/{name}", line=line, details=(), deep=story(about[-10:]))


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
    found = "; ".join(filter(None, (kept.detail.get("instead"), kept.summary)))
    return [f"{best} {kept.time}: {found} [{kept.reason}]{saving(kept)}{needed}"]
