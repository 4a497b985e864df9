"""Why: what a person asks of a pod, a node or a pool, answered from the objects and the ledger.

Pure: the mirror and the decisions come in, an `Answer` goes out. One line says the most important thing; `details`
are what `-v` adds, `deep` what `-vv` adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.cluster import keys
from dovetail.cluster.mirror import Mirror
from dovetail.controllers.disruption import blockers
from dovetail.controllers.disruption.expiration import date
from dovetail.controllers.ledger import Decision, concerns
from dovetail.model import duration
from dovetail.model.kinds import budgets
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.meta import condition
from dovetail.model.nodes import Node

REASONS = ("Empty", "Drifted", "Underutilized")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`facts` is the same for programs."""

    subject: str
    line: str
    details: tuple[str, ...] = ()
    deep: tuple[str, ...] = ()
    facts: dict[str, Any] = {}


class Unknown(LookupError):
    """There is no such object."""


def pod(mirror: Mirror, decisions: Sequence[Decision], key: str) -> Answer:
    """`key` is namespace/name."""
    found = mirror.pods.store.get(key)
    if found is None:
        raise Unknown(f"pod/{key} is not in the cluster; name it as NAMESPACE/NAME or with -n")
    about = [each for each in decisions if concerns(each, key)]
    if found.spec.node_name:
        return _running(mirror, about, key, found.spec.node_name)
    refusal = next(
        (r for each in reversed(about) for r in each.refusals if key in r.pods), None
    )
    promised = mirror.reservations.of(found.metadata.uid)
    if refusal is None and promised is not None:
        return Answer(subject=f"pod/{key}", line=f"waits for {promised.kind} {promised.name}, which is on its way")
    if refusal is None:
        bought = next((each for each in reversed(about) if each.machines), None)
        if bought is not None:
            claims = ", ".join(each.claim for each in bought.machines[:3])
            return Answer(subject=f"pod/{key}", line=f"waits for {claims} (decision {bought.id})")
        scheduled = condition(found.status.conditions, "PodScheduled")
        words = "kube-scheduler has not tried it yet" if scheduled is None else "it has not been planned for yet"
        return Answer(subject=f"pod/{key}", line=f"pending: {words}")
    details, deep = [], []
    for name, funnel in refusal.pools.items():
        details.append(_funnel(name, funnel))
        steps = funnel.get("steps") or ()
        deep += [f"  {name}: {step['left']:>6} left after {step['clause']}" for step in steps]
    return Answer(
        subject=f"pod/{key}",
        line=f"pending: {refusal.message} ({refusal.code})",
        details=tuple(details),
        deep=tuple(deep),
        facts=msgspec.to_builtins(refusal),
    )


def _funnel(pool: str, funnel: dict[str, Any]) -> str:
    text = f"nodepool {pool}: {funnel.get('start', 0)} candidates; emptied by {funnel.get('emptied_by', '')}"
    nearest = funnel.get("nearest")
    if nearest:
        price = nearest.get("price")
        cost = f" at ${price:.4f}/h" if price is not None else ""
        lacks = funnel.get("nearest_lacks", "")
        text += f"; nearest {nearest['instance_type']} in {nearest['zone']}{cost} {lacks}"
    return text


def _running(mirror: Mirror, about: Sequence[Decision], key: str, node_name: str) -> Answer:
    details = [f"{each.time}  {each.id}  {each.summary}" for each in about[-5:]]
    node = mirror.nodes.store.get(node_name)
    claim = mirror.claim_for(node) if node else None
    price = claim.metadata.annotations.get(keys.PRICE) if claim else None
    paid = f" (${float(price):.4f}/h when bought)" if price else ""
    return Answer(subject=f"pod/{key}", line=f"runs on {node_name}{paid}", details=tuple(details))


def node(mirror: Mirror, decisions: Sequence[Decision], name: str, now: datetime) -> Answer:
    found = mirror.nodes.store.get(name)
    if found is None:
        raise Unknown(f"node/{name} is not in the cluster")
    claim = mirror.claim_for(found)
    if claim is None:
        return Answer(subject=f"node/{name}", line="is not ours: no NodeClaim has its provider id; nothing touches it")
    why = blockers.of_machine(found, claim, going=mirror.going(claim, found), nominated=False)
    why += blockers.of_pods(mirror.pods_on(name), tuple(mirror.budgets.store.all()), now)
    about = [each for each in decisions if each.subject == name or name in each.removed]
    kept = next((each for each in reversed(about) if each.kind == "keep"), None)
    details = [_blocker(each) for each in why] + _standing(mirror, claim, now)
    if kept is not None:
        details.append(f"best alternative at {kept.time}: {kept.summary} ({kept.reason}{_saving(kept)})")
    deep = [f"{each.time}  {each.id}  {each.kind}  {each.summary}" for each in about[-10:]]
    return Answer(
        subject=f"node/{name}",
        line=_verdict(found, claim, why, kept),
        details=tuple(details),
        deep=tuple(deep),
        facts={"blockers": msgspec.to_builtins(why), "keep": msgspec.to_builtins(kept) if kept else None},
    )


def _verdict(found: Node, claim: NodeClaim, why: Sequence[blockers.Blocker], kept: Decision | None) -> str:
    if found.metadata.deletion_timestamp is not None or claim.metadata.deletion_timestamp is not None:
        return "is being drained and given back"
    if why:
        more = f" and {len(why) - 1} more reason(s)" if len(why) > 1 else ""
        return f"stays: {_blocker(why[0])}{more}"
    if claim.is_true("Drifted"):
        drifted = claim.condition("Drifted")
        return f"will be replaced within its budget: {drifted.reason if drifted else 'drifted'}"
    if kept is not None:
        return f"stays: {kept.summary} ({kept.reason}{_saving(kept)})"
    if not claim.is_true("Consolidatable"):
        return "stays for now: pods came or went lately"
    return "may be consolidated; nothing cheaper has been found yet"


def _saving(decision: Decision) -> str:
    saving = decision.detail.get("saving")
    return f", saving ${saving:.4f}/h" if isinstance(saving, float) else ""


def _blocker(each: blockers.Blocker) -> str:
    pod_text = f"pod {each.pod}: " if each.pod else ""
    until = f", until {each.until:%Y-%m-%dT%H:%M:%SZ}" if each.until else ""
    return f"{pod_text}{each.message}{until} [{each.code}]"


def _standing(mirror: Mirror, claim: NodeClaim, now: datetime) -> list[str]:
    """When this machine will be looked at again."""
    found = []
    pool = mirror.pools.store.get(claim.node_pool or "")
    if pool is not None:
        after = pool.spec.disruption.consolidate_after
        last = claim.status.last_pod_event_time
        if after == "Never":
            found.append("consolidation is off for its pool (consolidateAfter: Never)")
        elif last is not None:
            ready = last + duration.parse(after)
            when = "now" if ready <= now else f"at {ready:%H:%M:%SZ}"
            found.append(f"quiet since {last:%H:%M:%SZ}; consolidatable {when} (consolidateAfter {after})")
    expiry = date(claim)
    if expiry is not None:
        found.append(f"expires {expiry:%Y-%m-%dT%H:%M:%SZ}")
    return found


def nodepool(mirror: Mirror, decisions: Sequence[Decision], name: str, now: datetime) -> Answer:
    found = mirror.pools.store.get(name)
    if found is None:
        raise Unknown(f"nodepool/{name} is not in the cluster")
    machines = mirror.claims_of(name)
    bad = [each for each in found.status.conditions if each.type == "Ready" and each.status != "True"]
    line = f"{len(machines)} machine(s)" + (f"; not ready: {bad[0].message or bad[0].reason}" if bad else ", ready")
    details = [_allowance(found, reason, machines, now) for reason in REASONS]
    details += [f"{each.type}={each.status} {each.reason} {each.message}".strip() for each in found.status.conditions]
    recent = [each for each in decisions if concerns(each, name)][-10:]
    return Answer(
        subject=f"nodepool/{name}",
        line=line,
        details=tuple(details),
        deep=tuple(f"{each.time}  {each.id}  {each.summary}" for each in recent),
    )


def _allowance(pool: NodePool, reason: str, machines: Sequence[NodeClaim], now: datetime) -> str:
    total = sum(each.is_true("Initialized") for each in machines)
    found = budgets.allowance(pool.spec.disruption.budgets, reason, total, now)
    if found.problem:
        return f"budget {reason}: 0, because it cannot be read: {found.problem}"
    if found.unlimited:
        return f"budget {reason}: no limit"
    by = f" (nodes: {found.decided_by.nodes})" if found.decided_by else ""
    return f"budget {reason}: {found.nodes} of {total}{by}"


def since(decisions: Sequence[Decision], now: datetime, window: timedelta) -> list[Decision]:
    oldest = (now - window).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [each for each in decisions if each.time >= oldest]
