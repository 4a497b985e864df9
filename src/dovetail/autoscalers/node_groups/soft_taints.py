"""Soft taints: unneeded nodes are marked so that pods rather go elsewhere, and unmarked when they are needed again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from dovetail.autoscalers.node_groups.annotations import DELETION_CANDIDATE, has_taint
from dovetail.autoscalers.node_groups.node_taints import mark_candidate, unmark_candidate
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError
from dovetail.model.nodes import Node


class SoftTaintLimits(msgspec.Struct, frozen=True):
    """How many nodes, and for how long, in one loop."""

    count: int = 10
    seconds: float = 3.0


def changes(nodes: Sequence[Node], unneeded: Collection[str], most: int) -> list[tuple[str, bool]]:
    """Nodes to mark (True) or unmark, no more than so many; first those that are needed again."""
    wrong = [
        (node.metadata.name, node.metadata.name in unneeded)
        for node in nodes
        if has_taint(node, DELETION_CANDIDATE) is not (node.metadata.name in unneeded)
    ]
    return sorted(wrong, key=lambda change: change[1])[:most]


async def update(
    kube: Kube,
    clock: Clock,
    taint_changes: Sequence[tuple[str, bool]],
    limits: SoftTaintLimits,
    warn: Callable[[str], None],
) -> None:
    """Carry them out, as far as the time goes; the next loop goes on."""
    deadline = clock.monotonic() + limits.seconds
    for name, marked in taint_changes:
        if clock.monotonic() > deadline:
            return
        try:
            await (mark_candidate(kube, name, clock.now()) if marked else unmark_candidate(kube, name))
        except KubeError as problem:
            warn(f"taint of node {name} not changed: {problem}")
