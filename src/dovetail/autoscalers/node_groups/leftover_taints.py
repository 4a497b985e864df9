"""Leftover taints: those of deletions that an earlier program began and did not finish, or that ours gave up.

A taint that the API server does not let go is tried again in the next loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dovetail.autoscalers.node_groups.actuation import Actuator
from dovetail.autoscalers.node_groups.annotations import DELETION_CANDIDATE, TO_BE_DELETED, has_taint
from dovetail.autoscalers.node_groups.eligibility import GroupOf
from dovetail.autoscalers.node_groups.node_taints import unmark_candidate, unmark_to_be_deleted
from dovetail.autoscalers.node_groups.recording import LoopRecorder
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError
from dovetail.model.nodes import Node

SOURCE = "static_autoscaler"


class LeftoverTaints:
    """`soft_taints_used`: candidates for deletion keep their taint, which the loop looks after."""

    def __init__(
        self, kube: Kube, actuator: Actuator, group_of: GroupOf, recording: LoopRecorder, *, soft_taints_used: bool
    ) -> None:
        self._kube = kube
        self._actuator = actuator
        self._group_of = group_of
        self._record = recording
        self._soft_taints_used = soft_taints_used
        #: Nodes whose taints are still to be looked at; None before the first loop.
        self._due: set[str] | None = None

    async def remove(self, nodes: Sequence[Node], on_first: Callable[[Sequence[Node]], object]) -> None:
        """Undo them on nodes of groups. `on_first` sees the nodes in the first loop, before their taints go."""
        if self._due is None:
            self._due = {node.metadata.name for node in nodes}
            on_first(nodes)
        due = self._due | self._actuator.unreturned
        self._due, self._actuator.unreturned = set(), set()
        for node in nodes if due else ():
            name = node.metadata.name
            if name not in due or name in self._actuator.deletions:
                continue
            if self._group_of(node) is None:  # as far as the cloud tells
                if has_taint(node, TO_BE_DELETED):
                    self._due.add(name)
                continue
            try:
                await self._remove_from(node)
            except KubeError as problem:
                self._due.add(name)
                self._record.warning(SOURCE, f"taints of node {name} not removed, tried again: {problem}")

    async def _remove_from(self, node: Node) -> None:
        name = node.metadata.name
        if has_taint(node, TO_BE_DELETED):
            await unmark_to_be_deleted(self._kube, name, cordon=self._actuator.settings.cordon)
            self._tell(name, TO_BE_DELETED)
        if has_taint(node, DELETION_CANDIDATE) and not self._soft_taints_used:
            await unmark_candidate(self._kube, name)
            self._tell(name, DELETION_CANDIDATE)

    def _tell(self, node: str, taint: str) -> None:
        message = f"removed {taint} taints from node {node}"
        self._record.node_event(node, "Normal", "ClusterAutoscalerCleanup", message)
