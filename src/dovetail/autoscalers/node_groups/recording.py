"""What others see of the program: events, the status ConfigMap, log lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from dovetail.autoscalers.node_groups.cluster_state import GroupClusterState
from dovetail.autoscalers.node_groups.expanders import PRIORITY_CONFIG_MAP, ConfigWarning
from dovetail.autoscalers.node_groups.explanations import KEY
from dovetail.autoscalers.node_groups.klog import Klog
from dovetail.autoscalers.node_groups.scale_up import MAX_TOTAL_REACHED, ScaleUpPlan, ScaleUpResult
from dovetail.autoscalers.node_groups.status import StatusWriter, config_map, initializing
from dovetail.clock import Clock
from dovetail.cloud.node_groups import GroupInitiatedTermination, NodeGroup
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from dovetail.kube.events import EventRecorder, InvolvedObject
from dovetail.kube.resources import CONFIGMAPS
from dovetail.model.pods import Pod

#: One event for a reason about an object in so many seconds, unless --record-duplicated-events.
EVENT_INTERVAL_S = 300.0
#: What the limit is then: so many about one object at once, whatever their reasons.
DUPLICATES_BURST = 25
_STATUS = ("ConfigMap", "kube-system", "cluster-autoscaler-status")
_SOURCE = "status"


def event_recorder(kube: Kube, component: str, *, duplicates: bool) -> EventRecorder:
    """Events as upstream limits them, since alerts and readers count on what they see and how often."""
    if duplicates:
        return EventRecorder(kube, component, burst=DUPLICATES_BURST, refill=EVENT_INTERVAL_S)
    return EventRecorder(kube, component, burst=1, refill=EVENT_INTERVAL_S, limit_key=_limit_key)


def _limit_key(about: InvolvedObject, reason: str, message: str) -> tuple[str, ...]:
    """By reason; but about the status ConfigMap, of which all is worth reading, by message."""
    if (about.kind, about.namespace, about.name) == _STATUS:
        return (message,)
    return reason, *about.identity


class LoopRecorder:
    """Tells once; a ConfigMap that cannot be written is logged and tried again with the next loop."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        events: EventRecorder,
        klog: Klog,
        *,
        namespace: str,
        name: str,
        write_status: bool = True,
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._events = events
        self._klog = klog
        self._namespace = namespace
        self._name = name
        self._write = write_status
        self._status = StatusWriter()
        self._uid = ""
        self.priority_uid = ""
        #: Groups whose mixed sizes were reported, with the words.
        self._mixed: dict[str, str] = {}

    # Log

    def log(self, source: str, message: str, level: int = 0) -> None:
        self._klog.info(source, message, level)

    def warning(self, source: str, message: str) -> None:
        self._klog.warning(source, message)

    def error(self, source: str, message: str) -> None:
        self._klog.error(source, message)

    def unexpected(self, source: str, message: str, problem: Exception) -> None:
        self._klog.unexpected(source, message, problem)

    # Events

    def status_event(self, kind: str, reason: str, message: str) -> None:
        """About the program as a whole: on the status ConfigMap."""
        if self._write:
            about = InvolvedObject("ConfigMap", self._name, self._namespace, self._uid)
            self._event(about, kind, reason, message)

    def node_event(self, node: str, kind: str, reason: str, message: str) -> None:
        self._event(InvolvedObject("Node", node, uid=node), kind, reason, message)

    def ended_by_group(self, ending: GroupInitiatedTermination, node: str) -> None:
        """The group ended a node that was not drained; the event says how to keep it from doing so."""
        group = ending.group
        if ending.rebalancing:
            remedy = (
                f"aws autoscaling suspend-processes --auto-scaling-group-name {group} --scaling-processes AZRebalance"
            )
        else:
            remedy = "end instances with terminate-instance-in-auto-scaling-group, not by a lower desired capacity"
        message = f"Auto Scaling group {group} ended {node or ending.provider_id} without a drain: {ending.cause}"
        self.status_event("Warning", "NodeEndedByGroup", f"{message}; to prevent it: {remedy}")
        self.warning("static_autoscaler", message)
        if node:
            self.node_event(node, "Warning", "NodeEndedByGroup", message)

    def mixed_sizes(self, groups: Sequence[NodeGroup]) -> None:
        """Once for a group: it launches what it likes of its types, and only one size can be counted with."""
        for group in groups:
            if not group.mixed_sizes or self._mixed.get(group.id) == group.mixed_sizes:
                continue
            self._mixed[group.id] = group.mixed_sizes
            message = (
                f"Auto Scaling group {group.id} mixes sizes: {group.mixed_sizes}; it is simulated with one of them, so "
                "a scale-up may add too few or too many nodes; give each size a group of its own"
            )
            self.status_event("Warning", "MixedInstanceSizes", message)
            self.warning("static_autoscaler", message)

    def priority_warning(self, warning: ConfigWarning) -> None:
        about = InvolvedObject("ConfigMap", PRIORITY_CONFIG_MAP, self._namespace, self.priority_uid)
        self._event(about, "Warning", warning.reason, warning.message)
        self._klog.warning("priority", warning.message)

    def triggered(self, pods: Sequence[Pod], sizes: str) -> None:
        """Pods that a scale-up is for."""
        for pod in pods:
            self.pod_event(pod, "Normal", "TriggeredScaleUp", f"pod triggered scale-up: {sizes}")

    def refused(self, plan: ScaleUpPlan) -> None:
        """Pods that no group can help now, with the reasons and how many groups have each."""
        for refused in plan.refused:
            limited = plan.result is ScaleUpResult.LIMITED_BY_MAX_TOTAL
            reasons = MAX_TOTAL_REACHED if limited else refused.message()
            self.pod_event(refused.pod, "Normal", "NotTriggerScaleUp", f"pod didn't trigger scale-up: {reasons}")

    def pod_event(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        meta = pod.metadata
        self._event(InvolvedObject("Pod", meta.name, meta.namespace, meta.uid), kind, reason, message)

    def _event(self, about: InvolvedObject, kind: str, reason: str, message: str) -> None:
        """Logged as well, in the form that people grep for, unless it is held back."""
        if self._events.record(about, _kind(kind), reason, message):
            self._klog.info("event_sink", f"Event({_go(about)}): type: '{kind}' reason: '{reason}' {message}", 4)

    # Status

    async def announce(self, problem: str = "") -> None:
        """Before the first loop, or while the cluster is not one to begin with."""
        now = self._clock.now()
        await self._put({"status": initializing(now, problem)}, now)

    async def write_status(
        self,
        state: GroupClusterState,
        candidates: Mapping[str, Sequence[str]],
        now: datetime,
        *,
        scale_down_at: datetime | None,
        explanations: str,
    ) -> None:
        if self._write:
            text = self._status.text(state, candidates, now, scale_down_at=scale_down_at)
            await self._put({"status": text, KEY: explanations}, now)

    async def _put(self, data: Mapping[str, str], now: datetime) -> None:
        if not self._write:
            return
        body = config_map(self._name, self._namespace, data, now)
        try:
            written = await self._replace(body)
            self._uid = str(written["metadata"].get("uid", ""))
        except (AlreadyExists, Conflict):
            return  # another wrote it between our two requests; the next loop writes ours
        except KubeError as problem:
            self._klog.error(_SOURCE, f"Failed to write status configmap: {problem}")

    async def _replace(self, body: dict[str, Any]) -> dict[str, Any]:
        """Create or update: the roles of Cluster Autoscaler's manifests grant no `patch` of ConfigMaps."""
        try:
            there: dict[str, Any] = await self._kube.get(CONFIGMAPS, self._name, self._namespace, type=dict)
        except NotFound:
            return await self._kube.create(CONFIGMAPS, body, type=dict)
        metadata = there["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **body["metadata"]["annotations"]}
        changed = {**there, "metadata": {**metadata, "annotations": annotations}, "data": body["data"]}
        return await self._kube.update(CONFIGMAPS, changed, type=dict)

    async def withdraw(self) -> None:
        """At a clean end: a status of a program that does not run misleads."""
        if not self._write:
            return
        try:
            await self._kube.delete(CONFIGMAPS, self._name, self._namespace)
        except NotFound:
            return
        except KubeError as problem:
            self._klog.error(_SOURCE, f"Failed to delete status configmap: {problem}")


def _kind(kind: str) -> Literal["Normal", "Warning"]:
    return "Warning" if kind == "Warning" else "Normal"


def _go(about: InvolvedObject) -> str:
    """The reference as Go programs print it."""
    return (
        f'v1.ObjectReference{{Kind:"{about.kind}", Namespace:"{about.namespace}", Name:"{about.name}", '
        f'UID:"{about.uid}", APIVersion:"{about.api_version}", ResourceVersion:"{about.resource_version}", '
        f'FieldPath:"{about.field_path}"}}'
    )
