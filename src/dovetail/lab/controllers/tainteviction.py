"""NoExecute: a pod leaves a node whose taint it does not tolerate, at once or when its tolerationSeconds are over."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.kube.errors import Conflict, NotFound
from dovetail.kube.events import EventRecorder, InvolvedObject
from dovetail.kube.resources import PODS
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.timestamps import stamp
from dovetail.lab.controllers.views import NodeFields, PodFields, Taint, Toleration
from dovetail.lab.controllers.worker import KeyWorker


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def toleration_seconds(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> float | None:
    """Seconds the pod may stay: 0 if a taint is not tolerated, None if it may stay for ever."""
    limits = []
    for taint in taints:
        matching = [toleration for toleration in tolerations if tolerates(toleration, taint)]
        if not matching:
            return 0.0
        limits += [
            max(0, toleration.toleration_seconds)
            for toleration in matching
            if toleration.toleration_seconds is not None
        ]
    return float(min(limits)) if limits else None


class TaintEviction:
    """Deletes pods that must not stay."""

    def __init__(self, context: ControllerContext, recorder: EventRecorder) -> None:
        self._context = context
        self._recorder = recorder
        self._since: dict[str, float] = {}
        self.worker = KeyWorker("taint-eviction", self._look)
        context.nodes.listen(self._node_changed)
        context.pods.listen(self._pod_changed)

    def _node_changed(self, old: NodeFields | None, new: NodeFields | None) -> None:
        before = _execute(old) if old is not None else []
        after = _execute(new) if new is not None else []
        if before != after and new is not None:
            for pod in self._context.pods.by("node", new.metadata.name):
                self.worker.add(pod.metadata.key)

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        if new is None:
            if old is not None:
                self._since.pop(old.metadata.uid, None)
            return
        if not new.spec.node_name or (old is not None and old.spec.node_name):
            return
        node = self._context.nodes.get(new.spec.node_name)
        if node is not None and _execute(node):
            self.worker.add(new.metadata.key)

    async def _look(self, key: str) -> float | None:
        pod = self._context.pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return None
        node = self._context.nodes.get(pod.spec.node_name)
        taints = _execute(node) if node is not None else []
        stay = toleration_seconds(pod.spec.tolerations, taints) if taints else None
        if stay is None:
            if self._since.pop(pod.metadata.uid, None) is not None:
                self._recorder.normal(_about(pod), "TaintManagerEviction", f"Cancelling deletion of Pod {key}")
            return None
        now = self._context.clock.monotonic()
        left = self._since.setdefault(pod.metadata.uid, now) + stay - now
        if left > 0:
            return left
        self._since.pop(pod.metadata.uid, None)
        self._recorder.normal(_about(pod), "TaintManagerEviction", f"Marking for deletion Pod {key}")
        await self._delete(pod)
        return None

    async def _delete(self, pod: PodFields) -> None:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": stamp(self._context.now()),
            "lastProbeTime": None,
            "observedGeneration": pod.metadata.generation,
        }
        meta = pod.metadata
        body = {"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}
        try:
            await self._context.kube.patch(
                PODS, meta.name, body, meta.namespace, kind="strategic", subresource="status"
            )
            await self._context.kube.delete(PODS, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return


def _execute(node: NodeFields) -> list[Taint]:
    return [taint for taint in node.spec.taints if taint.effect == "NoExecute"]


def _about(pod: PodFields) -> InvolvedObject:
    return InvolvedObject.of("v1", "Pod", pod.metadata)
