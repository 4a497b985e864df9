"""Initialization: whether a registered node is complete and ready for pods."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.language import source
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node, Taint
from dovetail.model.quantity import resources
from dovetail.model.taints import ephemeral, text


class Missing(NamedTuple):
    """What a node still lacks, as its NodeClaim's condition says it."""

    reason: str
    message: str


def missing(node: Node | None, claim: NodeClaim) -> Missing | None:
    """What is missing; None if the node is initialized (but for pods that we are still binding)."""
    if node is None:
        return Missing("NodeNotFound", source("Node not registered with cluster"))
    if not node.ready:
        return Missing("NodeNotReady", source("Node status is NotReady"))
    for taint in node.spec.taints:
        if any(
            taint.key == startup_taint.key and taint.effect == startup_taint.effect
            for startup_taint in claim.spec.startup_taints
        ):
            said = source('StartupTaint "{taint}" still exists').format(taint=text(taint))
            return Missing("StartupTaintsExist", said)
    for taint in node.spec.taints:
        if ephemeral(taint):
            said = source('KnownEphemeralTaint "{taint}" still exists').format(taint=text(taint))
            return Missing("KnownEphemeralTaintsExist", said)
    allocatable = resources(node.status.allocatable)
    for name, amount in resources(claim.spec.resources.requests).items():
        if amount and not allocatable.get(name):
            said = source('Resource "{name}" was requested but not registered').format(name=name)
            return Missing("ResourceNotRegistered", said)
    return None


def placing(node: Node) -> bool:
    """Whether planned pods are still being bound to the node."""
    return placing_taint(node) is not None


def placing_taint(node: Node) -> Taint | None:
    return next((taint for taint in node.spec.taints if taint.key == wellknown.PLACING), None)
