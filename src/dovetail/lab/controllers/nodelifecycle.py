"""Node lifecycle: a silent kubelet makes its Node Unknown, and conditions become taints.

Who is silent is asked of a `Liveness` (the fleet of the same process) or, for nodes it does not know, read from
leases, as on a real cluster. Only suspects are looked at, so a thousand healthy nodes cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

from dovetail.kube.errors import ApiError, Conflict, Disconnected, NotFound
from dovetail.kube.events import EventRecorder, InvolvedObject
from dovetail.kube.resources import LEASES, NODES, PODS
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.pods import ready
from dovetail.lab.controllers.timestamps import stamp
from dovetail.lab.controllers.views import LeaseView, NodeFields, PodFields, Taint
from dovetail.lab.controllers.worker import KeyWorker

MONITOR_SECONDS = 5.0
GRACE_SECONDS = 50.0
STARTUP_GRACE_SECONDS = 60.0

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_BY_CONDITION = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_OURS = frozenset({*_BY_CONDITION.values(), UNSCHEDULABLE})


class Liveness(Protocol):
    """Reads the state of the lab's own kubelets instead of heartbeats."""

    #: Nodes that were not heard of, and since when.
    doubtful: dict[str, float]

    def heard(self, node: str) -> float | None: ...


def wanted_taints(node: NodeFields, now: str) -> list[dict[str, Any]]:
    """The node's taints: others' as they are, ours by its conditions."""
    keys = [
        key
        for (kind, status), key in _BY_CONDITION.items()
        if (condition := node.status.condition(kind)) is not None and condition.status == status
    ]
    if node.spec.unschedulable:
        keys.append(UNSCHEDULABLE)
    taints = [(key, "NoSchedule") for key in keys]
    taints += [(key, "NoExecute") for key in keys if key in (NOT_READY, UNREACHABLE)]
    old = {(taint.key, taint.effect): taint for taint in node.spec.taints}
    kept = [taint for taint in node.spec.taints if not _managed(taint) or (taint.key, taint.effect) in taints]
    fresh = [Taint(key=key, effect=effect, time_added=now) for key, effect in taints if (key, effect) not in old]
    return [_body(taint) for taint in (*kept, *fresh)]


def _managed(taint: Taint) -> bool:
    if taint.key not in _OURS:
        return False
    return taint.effect == "NoSchedule" or (taint.effect == "NoExecute" and taint.key in (NOT_READY, UNREACHABLE))


def _body(taint: Taint) -> dict[str, Any]:
    body: dict[str, Any] = {"key": taint.key, "effect": taint.effect}
    if taint.value:
        body["value"] = taint.value
    if taint.time_added:
        body["timeAdded"] = taint.time_added
    return body


class NodeLifecycle:
    """Watches over nodes."""

    def __init__(self, context: ControllerContext, recorder: EventRecorder, liveness: Liveness | None) -> None:
        self._context = context
        self._recorder = recorder
        self._liveness = liveness
        self._leases = context.typed(LEASES, LeaseView)
        self.worker = KeyWorker("node-taints", self._taint)
        self._signals: dict[str, float] = {}
        #: Nodes that no kubelet of ours is known to run, so far.
        self._strangers: dict[str, None] = {}
        #: Nodes that came or went since the monitor last looked: the node, and whether it came.
        self._news: dict[str, tuple[NodeFields, bool]] = {}
        context.nodes.listen(self._node_changed)
        self._leases.listen(self._lease_changed)

    def _node_changed(self, old: NodeFields | None, new: NodeFields | None) -> None:
        node = new or old
        assert node is not None
        name = node.metadata.name
        if new is None:
            self._signals.pop(name, None)
            self._strangers.pop(name, None)
            if self._news.pop(name, None) is None:
                self._news[name] = node, False
            return
        if old is None:
            self._strangers[name] = None
            if self._news.pop(name, None) is None:
                self._news[name] = new, True
        if old is None or _heartbeat(old) != _heartbeat(new):
            self._signals[name] = self._context.clock.monotonic()
        self.worker.add(name)

    def _lease_changed(self, old: LeaseView | None, new: LeaseView | None) -> None:
        if new is not None and new.metadata.namespace == "kube-node-lease":
            self._signals[new.metadata.name] = self._context.clock.monotonic()

    def _event(self, node: NodeFields, type_: str, reason: str, text: str) -> None:
        about = InvolvedObject("Node", node.metadata.name, uid=node.metadata.uid)
        record = self._recorder.normal if type_ == "Normal" else self._recorder.warning
        record(about, reason, f"Node {node.metadata.name} event: {text}")

    async def _taint(self, name: str) -> float | None:
        node = self._context.nodes.get(name)
        if node is None:
            return None
        taints = wanted_taints(node, stamp(self._context.now()))
        if taints == [_body(taint) for taint in node.spec.taints]:
            return None
        body = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": taints or None},
        }
        try:
            written = await self._context.kube.patch(NODES, name, body)
        except Conflict:
            await asyncio.sleep(0)
            self.worker.add_after(name, 0.05)
            return None
        except NotFound:
            return None
        await self._context.nodes.seen(written["metadata"]["resourceVersion"])
        return None

    async def run(self) -> None:
        """The monitor."""
        while True:
            await asyncio.sleep(MONITOR_SECONDS)
            self._announce()
            for node in list(self._overdue_nodes()):
                try:
                    await self._silent(node)
                except (NotFound, Conflict):
                    continue  # it is gone, or has spoken since
                except (ApiError, Disconnected):
                    break  # the server is failing: missing heartbeats are no evidence

    def _announce(self) -> None:
        for name, (node, came) in self._news.items():
            if came:
                self._event(node, "Normal", "RegisteredNode", f"Registered Node {name} in Controller")
            else:
                self._event(node, "Normal", "RemovingNode", f"Removing Node {name} from Controller")
        self._news.clear()

    def _overdue_nodes(self) -> Iterable[NodeFields]:
        now = self._context.clock.monotonic()
        names = [*self._strangers, *(self._liveness.doubtful if self._liveness is not None else ())]
        for name in dict.fromkeys(names):
            node = self._context.nodes.get(name)
            heard = self._liveness.heard(name) if self._liveness is not None else None
            if heard is None:
                heard = self._signals.get(name, now)
            else:
                self._strangers.pop(name, None)
            if node is not None and now - heard > _grace(node):
                yield node

    async def _silent(self, node: NodeFields) -> None:
        current = node.status.condition("Ready")
        if current is not None and current.status == "Unknown":
            return
        now = stamp(self._context.now())
        never = current is None
        items = []
        for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
            old = node.status.condition(kind)
            reason = "NodeStatusNeverUpdated" if old is None else "NodeStatusUnknown"
            text = "Kubelet never posted node status." if old is None else "Kubelet stopped posting node status."
            item = {"type": kind, "status": "Unknown", "reason": reason, "message": text, "lastTransitionTime": now}
            created = node.metadata.creation_timestamp
            item["lastHeartbeatTime"] = (old.last_heartbeat_time if old is not None else created) or now
            items.append(item)
        order = [
            *dict.fromkeys(
                [condition.type for condition in node.status.conditions] + [str(item["type"]) for item in items]
            )
        ]
        items.sort(key=lambda item: order.index(str(item["type"])))
        body = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "status": {"conditions": items, "$setElementOrder/conditions": [{"type": kind} for kind in order]},
        }
        await self._context.kube.patch(NODES, node.metadata.name, body, kind="strategic", subresource="status")
        if never:
            return
        about = InvolvedObject("Node", node.metadata.name, uid=node.metadata.uid)
        self._recorder.normal(about, "NodeNotReady", f"Node {node.metadata.name} status is now: NodeNotReady")
        for pod in self._context.pods.by("node", node.metadata.name):
            await self._mark_unready(pod, now)

    async def _mark_unready(self, pod: PodFields, now: str) -> None:
        if not ready(pod):
            return
        condition = {"type": "Ready", "status": "False", "lastTransitionTime": now}
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        try:
            await self._context.kube.patch(
                PODS, pod.metadata.name, body, pod.metadata.namespace, kind="strategic", subresource="status"
            )
        except (NotFound, Conflict):
            return
        self._recorder.warning(InvolvedObject.of("v1", "Pod", pod.metadata), "NodeNotReady", "Node is not ready")


def _grace(node: NodeFields) -> float:
    """How long a node may be silent; one that has never said how it is has longer."""
    return STARTUP_GRACE_SECONDS if node.status.condition("Ready") is None else GRACE_SECONDS


def _heartbeat(node: NodeFields) -> tuple[str | None, ...]:
    return tuple(condition.last_heartbeat_time for condition in node.status.conditions)
