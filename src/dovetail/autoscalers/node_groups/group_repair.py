"""Repair of node groups: requests that timed out, instances that never joined or could not be made, wrong sizes."""

from __future__ import annotations

from datetime import datetime, timedelta

from dovetail.autoscalers.node_groups.cluster_state import GroupClusterState
from dovetail.autoscalers.node_groups.metrics import ClusterAutoscalerMetrics
from dovetail.autoscalers.node_groups.recording import LoopRecorder
from dovetail.cloud.node_groups import NodeGroupCloud, NodeGroupError, SizeRefused

SOURCE = "static_autoscaler"


class GroupRepair:
    """Brings groups back to what their nodes are, within their minima."""

    def __init__(
        self,
        cloud: NodeGroupCloud,
        state: GroupClusterState,
        recording: LoopRecorder,
        metrics: ClusterAutoscalerMetrics,
    ) -> None:
        self._cloud = cloud
        self._state = state
        self._record = recording
        self._metrics = metrics

    async def revert_timed_out(self) -> None:
        """Nodes that did not come in their time are no longer asked for."""
        timed_out, self._state.timed_out = self._state.timed_out, []
        for request in timed_out:
            group = next((candidate for candidate in self._cloud.groups() if candidate.id == request.group), None)
            if group is None:
                continue
            try:
                await self._cloud.decrease_target(group, request.increase)
            except NodeGroupError as problem:
                message = f"Failed to decrease target size for group {group.id} after scale-up timeout: {problem}"
                self._record.status_event("Warning", "FailedToRevertScaleUp", message)
        if timed_out:
            self._state.retarget(self._cloud.groups())

    async def remove_overdue(self, now: datetime) -> None:
        """Instances that never became nodes are ended, as far as the minimum allows."""
        for reason, kept in self._state.unproven_instances(now).items():
            message = f"{len(kept)} instances without a Node are not ended: {reason}; {', '.join(sorted(kept)[:3])}"
            self._record.warning(SOURCE, message)
            self._record.status_event("Warning", "UnregisteredNodesKept", message)
        for name, overdue in self._state.overdue_instances(now).items():
            group = next((candidate for candidate in self._cloud.groups() if candidate.id == name), None)
            if group is None:
                continue
            spare = group.target_size - group.min_size
            if spare <= 0:
                self._record.warning(
                    SOURCE, f"Node group {name} min size reached, {len(overdue)} unregistered nodes stay"
                )
                continue
            doomed = overdue[:spare]
            try:
                await self._cloud.delete(group, doomed)
            except NodeGroupError as problem:
                for provider_id in doomed:
                    message = f"Failed to remove node {provider_id}: {problem}"
                    self._record.status_event("Warning", "DeleteUnregisteredFailed", message)
                continue
            for provider_id in doomed:
                message = f"Removed unregistered node {provider_id}"
                self._record.status_event("Normal", "DeleteUnregistered", message)
                self._record.log(SOURCE, message)
            self._metrics.old_unregistered_removed.inc(len(doomed))
        self._state.retarget(self._cloud.groups())

    async def remove_failed(self) -> None:
        """Requests that the cloud could not fulfil are withdrawn."""
        for name, failed in self._state.failed_instances().items():
            group = next((candidate for candidate in self._cloud.groups() if candidate.id == name), None)
            if group is None:
                continue
            self._record.log(SOURCE, f"Deleting {len(failed)} from {name} node group because of create errors", 1)
            try:
                await self._cloud.delete(group, failed)
            except NodeGroupError as problem:
                self._record.warning(SOURCE, f"Error while trying to delete nodes from {name}: {problem}")
        self._state.retarget(self._cloud.groups())

    async def fix_sizes(self, now: datetime) -> bool:
        """A target that has exceeded the nodes for too long is lowered to them."""
        fixed = False
        for name, wrong in list(self._state.wrong_sizes.items()):
            group = self._state.groups[name]
            if wrong.since + timedelta(seconds=group.options.max_node_provision_s) >= now:
                continue
            if wrong.current < wrong.expected:
                self._record.log(
                    SOURCE, f"Decreasing size of {name}, expected={wrong.expected} current={wrong.current}"
                )
                try:
                    await self._cloud.decrease_target(group, wrong.expected - wrong.current)
                except SizeRefused as problem:
                    self._record.warning(SOURCE, f"Failed to fix node group sizes: {problem}")
                    continue
                fixed = True
        return fixed
