"""Templates of all groups, worked out anew in every loop: of their nodes, or of what the cloud says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from dovetail.autoscalers.node_groups.cluster_watch import ClusterWatch
from dovetail.autoscalers.node_groups.options import AutoscalingOptions
from dovetail.autoscalers.node_groups.recording import LoopRecorder
from dovetail.autoscalers.node_groups.simulation import ClusterSnapshot
from dovetail.autoscalers.node_groups.templates import TemplateCache, from_any_node, from_cloud, from_nodes
from dovetail.cloud.node_groups import NodeGroup, NodeGroupCloud
from dovetail.model.fit import NodeInfo
from dovetail.model.nodes import Node

SOURCE = "static_autoscaler"


class NodeTemplates:
    """A group whose template cannot be had is logged and left out; the others are not to suffer for it."""

    def __init__(
        self,
        cloud: NodeGroupCloud,
        watch: ClusterWatch,
        options: AutoscalingOptions,
        recording: LoopRecorder,
        is_ready: Callable[[Node], bool],
    ) -> None:
        self._cloud = cloud
        self._watch = watch
        self._record = recording
        self._is_ready = is_ready
        self._taints = options.taints
        self._force_daemonsets = options.force_daemonsets
        self._cache = TemplateCache(options.template_life_s)

    async def of_groups(
        self, groups: Sequence[NodeGroup], snapshot: ClusterSnapshot, now: datetime
    ) -> dict[str, NodeInfo]:
        """Templates by group id."""
        members: dict[str, list[NodeInfo]] = {}
        for info in snapshot.nodes.values():
            group = self._cloud.group_of(info.node.spec.provider_id)
            if group is not None:
                members.setdefault(group.id, []).append(info)
        ready = {name: [info for info in infos if self._is_ready(info.node)] for name, infos in members.items()}
        daemonsets = list(self._watch.daemonsets.store)
        forced = daemonsets if self._force_daemonsets else ()
        templates = from_nodes(groups, ready, self._cache, self._taints, now, forced)
        for group in groups:
            if group.id in templates:
                continue
            try:
                template = await self._cloud.template(group)
            except Exception as problem:  # whatever the cloud's library raises
                self._record.error(SOURCE, f"Unable to build proper template node for {group.id}: {problem}")
                unwell = from_any_node(members.get(group.id, ()), group.id, self._taints, forced)
                if unwell is not None:
                    templates[group.id] = unwell
                continue
            templates[group.id] = from_cloud(template, daemonsets, group.id, self._taints)
        return templates
