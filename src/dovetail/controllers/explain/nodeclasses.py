"""An EC2NodeClass: whether it can launch instances, what it selects, and which NodePools use it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dovetail.cluster.state import ClusterState
from dovetail.cluster.unusable_nodepools import UnusableCause, of_class
from dovetail.controllers.explain.answer import (
    Answer,
    Event,
    Unknown,
    about_object,
    condition_text,
    event_lines,
    lines,
    shortened,
)
from dovetail.controllers.history.decisions import Decision, concerns
from dovetail.language import message


def nodeclass(
    cluster_state: ClusterState,
    decisions: Sequence[Decision],
    name: str,
    now: datetime,
    events: Sequence[Event] = (),
) -> Answer:
    node_class = cluster_state.node_classes.store.get(name)
    if node_class is None:
        names = [
            str((node_class.get("metadata") or {}).get("name")) for node_class in cluster_state.node_classes.store.all()
        ]
        raise Unknown(
            message(
                "ec2nodeclass/{name} is not in the cluster; there are: {names}",
                name=name,
                names=", ".join(sorted(names)) or "none",
            )
        )
    pools = sorted(
        pool.name for pool in cluster_state.pools.store.all() if pool.spec.template.spec.node_class_ref.name == name
    )
    claims = [claim for claim in cluster_state.claims.store.all() if claim.spec.node_class_ref.name == name]
    status = node_class.get("status") or {}
    used = message("{n} NodeClaim(s)", n=len(claims)) + (
        message(", NodePools {pools}", pools=", ".join(shortened(pools, 5))) if pools else message(", no NodePool")
    )
    cause = of_class(node_class, "EC2NodeClass")
    subject = f"ec2nodeclass/{name}"
    line, code, remedy = _state(node_class, name, len(claims), used, cause)
    conditions = [condition_text(condition) for condition in status.get("conditions") or ()]
    about = [decision for decision in decisions if concerns(decision, name)]
    return Answer(
        subject=subject,
        line=line,
        code=code,
        object=subject if code else "",
        remedy=remedy,
        details=(message("used by {used}", used=used), *_resolved(status), *conditions),
        deep=(*lines(about[-10:]), *event_lines(about_object(events, "EC2NodeClass", name))),
        facts={
            "ready": cause is None and bool(status.get("conditions")),
            "nodePools": pools,
            "nodeClaims": len(claims),
        },
    )


def _state(
    node_class: dict[str, Any], name: str, claims: int, used: str, cause: UnusableCause | None
) -> tuple[str, str, str]:
    """Its state in words that follow its name, the reason code, and the remedy."""
    if (node_class.get("metadata") or {}).get("deletionTimestamp"):
        claims_text = message(": {count} NodeClaim(s) still use it", count=claims) if claims else ""
        remedy = message("delete its NodeClaims, or wait until they are gone")
        return message("is being deleted{held}", held=claims_text), "", remedy
    if cause is not None:
        cause_text = cause.why.partition(f"{name}: ")[2] or cause.why
        line = message("is not ready: {said}; {remedy} ({code})", said=cause_text, remedy=cause.remedy, code=cause.code)
        return line, cause.code, cause.remedy
    if not (node_class.get("status") or {}).get("conditions"):
        line = message("has not been reconciled: no controller has written its status")
        return line, "", message("see the controller's log")
    return message("is ready; used by {used}", used=used), "", ""


def _resolved(status: dict[str, Any]) -> list[str]:
    """What its selectors select."""
    texts_by_field = []
    for field, shown in (("subnets", "zone"), ("securityGroups", "name"), ("amis", "name")):
        entries = status.get(field) or ()
        texts = [
            f"{entry.get('id')} ({entry[shown]})" if entry.get(shown) else str(entry.get("id")) for entry in entries
        ]
        if texts:
            texts_by_field.append(f"{field}: {', '.join(shortened(texts, 4))}")
    if status.get("instanceProfile"):
        texts_by_field.append(message("instance profile: {instanceProfile}", instanceProfile=status["instanceProfile"]))
    return texts_by_field
