"""NodePools that launch nothing now, and why: the condition's own message, and what has to be changed.

Pure: the NodePool and its EC2NodeClass come in as the server has them. A condition that no controller has written
is no evidence; it counts as "not reconciled yet" only where a controller is known to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dovetail.language import message, source
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.reasons import REASONS
from dovetail.model.spelling import nearest

Json = Mapping[str, Any]

#: What helps where a condition of an EC2NodeClass is False.
_REMEDIES = {
    "SubnetsReady": source("correct spec.subnetSelectorTerms, or tag the subnets as it asks"),
    "SecurityGroupsReady": source("correct spec.securityGroupSelectorTerms, or tag the security groups as it asks"),
    "AMIsReady": source("correct spec.amiSelectorTerms"),
    "InstanceProfileReady": source("correct spec.role, or create the role"),
    "CapacityReservationsReady": source("correct spec.capacityReservationSelectorTerms"),
    "ValidationSucceeded": source("grant the controller's role what is missing, or correct the EC2NodeClass"),
}


class UnusableCause(msgspec.Struct, frozen=True, kw_only=True):
    """`why` ends a sentence that begins with the NodePool's name; `object` is what has to be changed."""

    code: str
    why: str
    remedy: str
    object: str
    leaving: bool = False
    meant: str = ""
    """The NodeClass that was meant, if the one that is named does not exist."""
    awaited: bool = False
    """Not reconciled yet, or applied in another order: it may pass by itself within seconds."""


def cause(
    pool: NodePool, node_class: Json | None, *, class_required: bool, reconciled: bool, classes: Iterable[str] = ()
) -> UnusableCause | None:
    """Why a NodePool launches nothing, or None.

    `reconciled`: whether a controller writes conditions, so that a missing one means something. `classes` are the
    names of the EC2NodeClasses that exist.
    """
    mine = f"nodepool/{pool.name}"
    if pool.metadata.deletion_timestamp is not None:
        remedy = message("use another NodePool, or create it again once it is gone")
        return UnusableCause(
            code="NO_NODEPOOL", why=message("is being deleted"), remedy=remedy, object=mine, leaving=True
        )
    reference = pool.spec.template.spec.node_class_ref
    if node_class is None and class_required:
        return _missing(pool, classes)
    return of_class(node_class, reference.kind or "EC2NodeClass") or _own(pool, mine, reconciled)


def _missing(pool: NodePool, classes: Iterable[str]) -> UnusableCause:
    """In the words of what the operator wrote: a Provisioner has an AWSNodeTemplate."""
    reference = pool.spec.template.spec.node_class_ref
    kind, name = reference.kind or "EC2NodeClass", reference.name
    remedy = message("create it, or name another in spec.template.spec.nodeClassRef.name")
    if any(owner.kind == "Provisioner" for owner in pool.metadata.owner_references):
        kind = "AWSNodeTemplate"
        remedy = message("create it, or name another in spec.providerRef.name of the Provisioner")
    meant = nearest(name, classes)
    hint = message("; did you mean {meant}?", meant=meant) if meant else ""
    return UnusableCause(
        code="BAD_NODECLASS",
        why=message("is not ready: its {kind} {name} does not exist{hint}", kind=kind, name=name, hint=hint),
        remedy=remedy,
        object=f"{kind.lower()}/{name}",
        meant=meant or "",
        awaited=True,
    )


def of_class(node_class: Json | None, kind: str) -> UnusableCause | None:
    """What is wrong with the NodeClass, by its own conditions."""
    metadata = (node_class or {}).get("metadata") or {}
    name = metadata.get("name")
    mine = f"{kind.lower()}/{name}"
    if metadata.get("deletionTimestamp"):
        why, remedy = (
            message("is not ready: its {kind} {name} is being deleted", kind=kind, name=name),
            message("name another in spec.template.spec.nodeClassRef"),
        )
        return UnusableCause(code="BAD_NODECLASS", why=why, remedy=remedy, object=mine)
    conditions = ((node_class or {}).get("status") or {}).get("conditions") or ()
    bad = [condition for condition in conditions if condition.get("status") == "False"]
    worst = min(bad, key=lambda condition: (condition.get("type") == "Ready", str(condition.get("type"))), default=None)
    if worst is not None:
        text, remedy = _parted(str(worst.get("message") or ""))
        condition_text = ": ".join(filter(None, (worst.get("reason"), text)))
        remedy = remedy or _REMEDIES.get(str(worst.get("type")), source("correct it"))
        return UnusableCause(
            code="BAD_NODECLASS",
            why=message(
                "is not ready: {kind} {name}: {said}", kind=kind, name=name, said=condition_text or worst.get("type")
            ),
            remedy=remedy,
            object=mine,
        )
    unknown = [
        condition
        for condition in conditions
        if condition.get("status") == "Unknown" and condition.get("type") != "Ready"
    ]
    if unknown:
        condition_text = str(unknown[0].get("message") or unknown[0].get("reason") or message("not reconciled yet"))
        why, remedy = (
            message(
                "is not ready: {kind} {name}: {type} is unknown: {said}",
                kind=kind,
                name=name,
                type=unknown[0].get("type"),
                said=condition_text,
            ),
            _WAIT,
        )
        return UnusableCause(code="BAD_NODECLASS", why=why, remedy=remedy, object=mine, awaited=True)
    return None


def _parted(condition: str) -> tuple[str, str]:
    """A condition's message, and the remedy that it ends with: our own cloud's end with one."""
    text, _, code = condition.rpartition(" (")
    if code.rstrip(")") not in REASONS or not code.endswith(")"):
        text = condition
    explanation, semicolon, remedy = text.rpartition("; ")
    return (explanation, remedy) if semicolon else (text, "")


_WAIT = source("wait a moment; if it stays so, see the controller's log")


def _own(pool: NodePool, mine: str, reconciled: bool) -> UnusableCause | None:
    conditions = {condition.type: condition for condition in pool.status.conditions}
    ready = conditions.get("Ready")
    if ready is None and not reconciled:
        return None
    if ready is not None and (ready.status == "True" or (ready.status != "False" and not reconciled)):
        return None
    bad = [
        condition for condition in pool.status.conditions if condition.status == "False" and condition.type != "Ready"
    ]
    worst = next((condition for condition in bad if condition.message), ready)
    if worst is None or worst.status != "False":
        why = message("is not ready: no controller has written its status yet")
        return UnusableCause(code="NO_NODEPOOL", why=why, remedy=_WAIT, object=mine, awaited=True)
    return UnusableCause(
        code="NO_NODEPOOL",
        why=message("is not ready: {message}", message=worst.message or worst.reason or worst.type),
        remedy=message("correct the NodePool")
        if worst.type == "ValidationSucceeded"
        else message("see its status.conditions"),
        object=mine,
        awaited=worst.reason == "NodeClassReadinessUnknown",
    )
