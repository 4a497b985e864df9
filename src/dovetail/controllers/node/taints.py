"""Our taints on nodes: added before disruption or a reboot, removed from a node that stays or is back.

Taints are one list for all actors, so it is read afresh and written under its version: the cluster state does not
follow a node's heartbeats, and the taint of another actor must not be lost.
"""

from __future__ import annotations

from typing import Any

from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.nodeclaim.registration import manifest
from dovetail.kube.resources import NODES
from dovetail.model import wellknown
from dovetail.model.nodes import Node, Taint
from dovetail.model.taints import same

EXCLUDE_LB = "node.kubernetes.io/exclude-from-external-load-balancers"


def tainted(node: Node, taint: Taint = wellknown.DISRUPTED_TAINT) -> bool:
    return any(same(existing, taint) for existing in node.spec.taints)


def excluded(node: Node) -> bool:
    return node.metadata.labels.get(EXCLUDE_LB) == "karpenter"


async def add(
    context: Context, name: str, taint: Taint = wellknown.DISRUPTED_TAINT, *, leave_load_balancers: bool = False
) -> None:
    """No new pods; with `leave_load_balancers` no new connections either. NotFound and Conflict go to the caller."""
    node = await context.kube.get(NODES, name, type=Node)
    body: dict[str, Any] = {"metadata": {"resourceVersion": node.metadata.resource_version}}
    if leave_load_balancers and not excluded(node):
        body["metadata"]["labels"] = {EXCLUDE_LB: "karpenter"}
    if not tainted(node, taint):
        body["spec"] = {"taints": [manifest(existing) for existing in (*node.spec.taints, taint)]}
        context.log.info(
            "tainted node",
            controller="disruption",
            Node=logs.ref(name),
            **{"taint.Key": taint.key, "taint.Effect": taint.effect},
        )
    if len(body["metadata"]) + len(body) > 2:
        await context.kube.patch(NODES, name, body)


async def remove(context: Context, name: str, taint: Taint = wellknown.DISRUPTED_TAINT) -> None:
    """Let pods be scheduled again."""
    node = await context.kube.get(NODES, name, type=Node)
    if not tainted(node, taint):
        return
    left = [manifest(existing) for existing in node.spec.taints if not same(existing, taint)]
    body = {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": left or None}}
    await context.kube.patch(NODES, name, body)
    context.log.info("untainted node", controller="disruption", Node=logs.ref(name))
