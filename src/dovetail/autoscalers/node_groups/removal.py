"""Removal simulation: whether the pods of a node would find places on others.

The node is tainted meanwhile, not taken away: a topology spread counts its domain until it is really gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from dovetail.autoscalers.node_groups.annotations import TO_BE_DELETED
from dovetail.autoscalers.node_groups.drain import DrainContext, DrainRules, pods_to_move
from dovetail.autoscalers.node_groups.simulation import ClusterSnapshot
from dovetail.autoscalers.node_groups.unremovable import Unremovable, UnremovableReason
from dovetail.model.fit import NodeInfo
from dovetail.model.nodes import Taint
from dovetail.model.pods import Pod
from dovetail.model.taints import NO_SCHEDULE


class Removable(msgspec.Struct, frozen=True):
    """A node that could go. `risky`: its PodDisruptionBudgets do not allow all its pods to move at once."""

    node: str
    pods: tuple[Pod, ...] = ()
    daemonset_pods: tuple[Pod, ...] = ()
    on_completion: tuple[Pod, ...] = ()
    risky: bool = False
    destinations: Mapping[str, str] = {}


def simulate_removal(
    name: str,
    snapshot: ClusterSnapshot,
    is_destination: Callable[[NodeInfo], bool],
    rules: DrainRules,
    context: DrainContext,
    hints: Mapping[str, str],
) -> Removable | Unremovable:
    """Try it. If it works, the snapshot keeps it: later removals have to do without this node."""
    info = snapshot.nodes.get(name)
    if info is None:
        return Unremovable(name, UnremovableReason.NO_NODE_INFO)
    moving = pods_to_move([placed.pod for placed in info.pods.values()], rules, context)
    if moving.blocking is not None:
        return Unremovable(name, UnremovableReason.BLOCKED_BY_POD, moving.blocking)
    snapshot.fork()
    for pod in moving.pods:
        snapshot.remove_pod(pod.metadata.uid or pod.metadata.key, info)
    taint = Taint(key=TO_BE_DELETED, effect=NO_SCHEDULE)
    spec = msgspec.structs.replace(info.node.spec, taints=(*info.node.spec.taints, taint))
    snapshot.set_node(msgspec.structs.replace(info.node, spec=spec))
    placed = snapshot.schedule(
        moving.pods, lambda node: node.name != name and is_destination(node), hints, stop_at_failure=True
    )
    if len(placed) != len(moving.pods):
        snapshot.revert()
        return Unremovable(name, UnremovableReason.NO_PLACE_TO_MOVE_PODS)
    snapshot.remove_node(name)
    snapshot.commit()
    return Removable(name, moving.pods, moving.daemonset_pods, moving.on_completion, False, placed)
