"""Eligibility: which nodes are worth a removal simulation at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from dovetail.autoscalers.node_groups.annotations import SCALE_DOWN_DISABLED, gpu_resource, is_being_deleted
from dovetail.autoscalers.node_groups.unremovable import Unremovable, UnremovableNodes, UnremovableReason
from dovetail.autoscalers.node_groups.utilization import UnknownUtilization, Utilization, utilization
from dovetail.cloud.node_groups import NodeGroup
from dovetail.model.fit import NodeInfo
from dovetail.model.nodes import Node

GroupOf = Callable[[Node], NodeGroup | None]


class Eligible(msgspec.Struct, frozen=True):
    """Names of nodes that may be unneeded, the utilisation of those that have one, and why the others stay."""

    nodes: tuple[str, ...]
    utilization: dict[str, Utilization]
    ineligible: tuple[Unremovable, ...]


class EligibilityRules(msgspec.Struct, frozen=True):
    """What the flags say."""

    unready_enabled: bool = True
    ignore_mirrors: bool = False


def eligible(
    candidates: Iterable[NodeInfo],
    group_of: GroupOf,
    rules: EligibilityRules,
    unremovable: UnremovableNodes,
    is_ready: Callable[[Node], bool],
    now: datetime,
) -> Eligible:
    """Sort the candidates, in their order."""
    names: list[str] = []
    shares: dict[str, Utilization] = {}
    ineligible: list[Unremovable] = []
    for info in candidates:
        if unremovable.is_recent(info.name):
            ineligible.append(Unremovable(info.name, UnremovableReason.RECENTLY_UNREMOVABLE))
            continue
        reason, share = unremovable_reason(info, group_of(info.node), rules, is_ready, now)
        if share is not None:
            shares[info.name] = share
        if reason is None:
            names.append(info.name)
        else:
            ineligible.append(Unremovable(info.name, reason))
    return Eligible(tuple(names), shares, tuple(ineligible))


def unremovable_reason(
    info: NodeInfo,
    group: NodeGroup | None,
    rules: EligibilityRules,
    is_ready: Callable[[Node], bool],
    now: datetime,
) -> tuple[UnremovableReason | None, Utilization | None]:
    """Why the node stays, or None; and its utilisation where that was worked out."""
    node = info.node
    if is_being_deleted(node, now):
        return UnremovableReason.BEING_DELETED, None
    if node.metadata.annotations.get(SCALE_DOWN_DISABLED) == "true":
        return UnremovableReason.SCALE_DOWN_DISABLED, None
    if group is None:
        return UnremovableReason.NOT_AUTOSCALED, None
    if not rules.unready_enabled and not is_ready(node):
        return UnremovableReason.UNREADY_DISABLED, None
    gpu = gpu_resource(node)
    try:
        share = utilization(
            info,
            now,
            ignore_daemonsets=group.options.ignore_daemonsets_utilization,
            ignore_mirrors=rules.ignore_mirrors,
            gpu=gpu,
        )
    except UnknownUtilization:
        return UnremovableReason.UNEXPECTED_ERROR, None
    options = group.options
    threshold = (
        options.scale_down_utilization_threshold if gpu is None else options.scale_down_gpu_utilization_threshold
    )
    if share.highest > threshold:
        return UnremovableReason.NOT_UNDERUTILIZED, share
    return None, share
