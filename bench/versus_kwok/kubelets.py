"""Kubelets for Karpenter's nodes: what the kwok controller does there. A process of its own, so that it is not billed.

python -m bench.versus_kwok.kubelets KUBECONFIG
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from dovetail.chance import Chance
from dovetail.clock import Clock, run_scaled
from dovetail.cloud.simulated import node_status
from dovetail.kube.client import Kube
from dovetail.kube.config import load
from dovetail.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import LEASES, NODES, PODS
from dovetail.kube.workqueue import WorkQueue
from dovetail.model.pods import Pod

BEAT = 15.0
WORKERS = 24


class Kubelets:
    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube, self._clock = kube, clock
        self._queue: WorkQueue[tuple[str, str]] = WorkQueue(chance=Chance(0))
        self._nodes = Reflector(kube, NODES, on_event=self._node_changed)
        self._pods = Reflector(kube, PODS, Pod, on_event=self._pod_changed)
        self._addresses = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            group.create_task(self._pods.run())
            group.create_task(self._beat())
            group.create_task(self._queue.work(self._serve, failed=self._failed, workers=WORKERS))

    def _node_changed(self, change: CacheChange[dict[str, Any]]) -> None:
        if change.new is not None and not _ready(change.new):
            self._queue.add(("node", change.key))

    def _pod_changed(self, change: CacheChange[Pod]) -> None:
        pod = change.new
        if pod is not None and pod.spec.node_name and (pod.terminating or pod.status.phase in ("", "Pending")):
            self._queue.add(("pod", change.key))

    async def _serve(self, task: tuple[str, str]) -> None:
        kind, key = task
        try:
            await (self._join(key) if kind == "node" else self._pod(key))
        except (NotFound, Conflict, AlreadyExists):
            return

    def _failed(self, task: tuple[str, str], problem: Exception, pause: float) -> None:
        print("kubelet:", *task, problem, file=sys.stderr)

    async def _join(self, name: str) -> None:
        await self._kube.patch(NODES, name, node_status.ready(self._clock.now()), subresource="status")
        body = {"metadata": {"name": name}, "spec": node_status.lease(name, self._clock.now())}
        await self._kube.create(LEASES, body, "kube-node-lease")

    async def _pod(self, key: str) -> None:
        pod = self._pods.store.get(key)
        if pod is None:
            return
        meta = pod.metadata
        if pod.terminating:
            await self._kube.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace=0)
        elif pod.status.phase in ("", "Pending"):
            self._addresses += 1
            body = node_status.running(pod, self._clock.now(), self._addresses)
            await self._kube.patch(PODS, meta.name, body, meta.namespace, subresource="status")

    async def _beat(self) -> None:
        while True:
            names = [each["metadata"]["name"] for each in self._nodes.store.all()]
            for name in names:
                try:
                    body = {"spec": node_status.lease(name, self._clock.now())}
                    await self._kube.patch(LEASES, name, body, "kube-node-lease")
                except KubeError:
                    continue  # not there yet, or gone: the next round sees
                await asyncio.sleep(BEAT / len(names))
            await asyncio.sleep(1.0)


def _ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def _main(kubeconfig: str) -> None:
    clock = Clock(asyncio.get_running_loop())
    await Kubelets(Kube(load(kubeconfig, None).transport(), clock), clock).run()


if __name__ == "__main__":
    run_scaled(_main(sys.argv[1]))
