"""An EC2NodeClass: whether it can launch instances, what it selects, and which NodePools use it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dovetail.cluster.state import ClusterState
from dovetail.cluster.unusable_nodepools import of_class
from dovetail.controllers.explain.answer import (
    Answer,
    Event,
    Unknown,
    about_object,
    condition_line,
    event_lines,
    lines,
    shortened,
)
from dovetail.controllers.history.decisions import Decision, concerns


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
        raise Unknown(f"ec2nodeclass/{name} is not in the cluster; there are: {', '.join(sorted(names)) or 'none'}")
    pools = sorted(
        pool.name for pool in cluster_state.pools.store.all() if pool.spec.template.spec.node_class_ref.name == name
    )
    claims = [claim for claim in cluster_state.claims.store.all() if claim.spec.node_class_ref.name == name]
    status = node_class.get("status") or {}
    used = f"{len(claims)} NodeClaim(s)" + (
        f", NodePools {', '.join(shortened(pools, 5))}" if pools else ", no NodePool"
    )
    cause = of_class(node_class, "EC2NodeClass")
    subject = f"ec2nodeclass/{name}"
    if (node_class.get("metadata") or {}).get("deletionTimestamp"):
        held = f": {len(claims)} NodeClaim(s) still use it" if claims else ""
        line, code, remedy = f"is being deleted{held}", "", "delete its NodeClaims, or wait until they are gone"
    elif cause is not None:
        said = cause.why.partition(f"{name}: ")[2] or cause.why
        line, code, remedy = f"is not ready: {said}; {cause.remedy} ({cause.code})", cause.code, cause.remedy
    elif not status.get("conditions"):
        line, code, remedy = (
            "has not been reconciled: no controller has written its status",
            "",
            "see the controller's log",
        )
    else:
        line, code, remedy = f"is ready; used by {used}", "", ""
    conditions = [condition_line(condition) for condition in status.get("conditions") or ()]
    about = [decision for decision in decisions if concerns(decision, name)]
    return Answer(
        subject=subject,
        line=line,
        code=code,
        object=subject if code else "",
        remedy=remedy,
        details=(f"used by {used}", *_resolved(status), *conditions),
        deep=(*lines(about[-10:]), *event_lines(about_object(events, "EC2NodeClass", name))),
        facts={
            "ready": cause is None and bool(status.get("conditions")),
            "nodePools": pools,
            "nodeClaims": len(claims),
        },
    )


def _resolved(status: dict[str, Any]) -> list[str]:
    """What its selectors select."""
    fields = []
    for field, shown in (("subnets", "zone"), ("securityGroups", "name"), ("amis", "name")):
        entries = status.get(field) or ()
        texts = [
            f"{entry.get('id')} ({entry[shown]})" if entry.get(shown) else str(entry.get("id")) for entry in entries
        ]
        if texts:
            fields.append(f"{field}: {', '.join(shortened(texts, 4))}")
    if status.get("instanceProfile"):
        fields.append(f"instance profile: {status['instanceProfile']}")
    return fields
