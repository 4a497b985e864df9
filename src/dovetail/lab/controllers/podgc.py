"""Pod garbage collection: pods of nodes that are gone, and pods that no kubelet will finish."""

from __future__ import annotations

import asyncio

from dovetail.kube.errors import ApiError, Conflict, Disconnected, NotFound
from dovetail.kube.resources import NODES, PODS
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.pods import finished
from dovetail.lab.controllers.timestamps import stamp
from dovetail.lab.controllers.views import NodeFields, PodFields

PERIOD_SECONDS = 20.0
QUARANTINE_SECONDS = 40.0
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class PodGarbage:
    """Sweeps up after nodes. Wakes only while there is something to sweep."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._lost: dict[str, float] = {}
        self._wake = asyncio.Event()
        context.nodes.listen(self._node_changed)
        context.pods.listen(self._pod_changed)

    def _node_changed(self, old: NodeFields | None, new: NodeFields | None) -> None:
        if new is None and old is not None and self._context.pods.count("node", old.metadata.name):
            self._lose(old.metadata.name)
        elif new is not None:
            self._lost.pop(new.metadata.name, None)
            if any(taint.key == OUT_OF_SERVICE for taint in new.spec.taints):
                self._wake.set()

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        if new is None:
            return
        node, nodes = new.spec.node_name, self._context.nodes
        if node and nodes.get(node) is None and node not in self._lost and nodes.synced.is_set():
            self._lose(node)
        if not node and new.metadata.deletion_timestamp is not None:
            self._wake.set()

    def _lose(self, node: str) -> None:
        self._lost[node] = self._context.clock.monotonic()
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._lost or self._unfinished():
                await asyncio.sleep(PERIOD_SECONDS)
                try:
                    await self._sweep()
                except (ApiError, Disconnected):
                    continue  # next round

    def _unfinished(self) -> list[PodFields]:
        pods = self._context.pods.all()
        return [pod for pod in pods if not pod.spec.node_name and pod.metadata.deletion_timestamp is not None]

    async def _sweep(self) -> None:
        now = self._context.clock.monotonic()
        for node, since in list(self._lost.items()):
            pods = self._context.pods.by("node", node)
            if not pods:
                del self._lost[node]
            elif now - since >= QUARANTINE_SECONDS and await self._is_gone(node):
                for pod in pods:
                    await self._collect(pod, orphan=True)
        for pod in self._unfinished():
            await self._collect(pod, orphan=False)

    async def _is_gone(self, node: str) -> bool:
        try:
            await self._context.kube.get(NODES, node)
        except NotFound:
            return True
        return False

    async def _collect(self, pod: PodFields, *, orphan: bool) -> None:
        meta = pod.metadata
        try:
            if orphan and not finished(pod):
                condition = {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "message": "PodGC: node no longer exists",
                    "lastTransitionTime": stamp(self._context.now()),
                    "lastProbeTime": None,
                    "observedGeneration": meta.generation,
                }
                body = {"metadata": {"uid": meta.uid}, "status": {"phase": "Failed", "conditions": [condition]}}
                await self._context.kube.patch(
                    PODS, meta.name, body, meta.namespace, kind="strategic", subresource="status"
                )
            await self._context.kube.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace=0)
        except (NotFound, Conflict):
            return
