"""Third-party actors in a scenario: they taint nodes, start static pods on them, or evict pods.

Each works through the client alone, as the real component would.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress

from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError
from dovetail.kube.log import Log
from dovetail.kube.resources import NODES, PODS
from dovetail.model.labels import NODEPOOL
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod

log = Log(__name__)

#: Seconds after a node began to join that its static pods show, and that a third party's taint comes.
STOWED_AFTER, TAINTED_AFTER = 0.5, 18.0


class _Later(ABC):
    """Acts on every node a while after it booted, until its time is over."""

    def __init__(self, kube: Kube, clock: Clock, seconds: float) -> None:
        self._kube = kube
        self._clock = clock
        self._until = clock.monotonic() + seconds
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, node: str) -> None:
        if self._clock.monotonic() < self._until:
            task = asyncio.ensure_future(self._try(node))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _try(self, name: str) -> None:
        try:
            await self._do(name)
        except ApiError as problem:  # the node is gone, or the server out of order: it is spared
            log.info("not meddled with", node=name, problem=problem.message)

    @abstractmethod
    async def _do(self, name: str) -> None: ...


class Tainter(_Later):
    """Taints every node that joins."""

    def __init__(self, kube: Kube, clock: Clock, taint: Mapping[str, str], seconds: float) -> None:
        super().__init__(kube, clock, seconds)
        self._taint = dict(taint)

    async def _do(self, name: str) -> None:
        await asyncio.sleep(TAINTED_AFTER)
        node = await self._kube.get(NODES, name)
        taints = [*(node["spec"].get("taints") or []), self._taint]
        await self._kube.patch(NODES, name, {"spec": {"taints": taints}})


class UnannouncedPods(_Later):
    """Puts a static pod, which no DaemonSet announces, on every node that joins: it comes with the image."""

    def __init__(self, kube: Kube, clock: Clock, requests: Mapping[str, str], seconds: float) -> None:
        super().__init__(kube, clock, seconds)
        self._requests = dict(requests)

    async def _do(self, name: str) -> None:
        await asyncio.sleep(STOWED_AFTER)
        uid = (await self._kube.get(NODES, name))["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": True}
        container = {"name": "agent", "image": "agent", "resources": {"requests": self._requests}}
        annotations = {"kubernetes.io/config.mirror": "agent"}
        body = {
            "metadata": {"name": f"agent-{name}", "annotations": annotations, "ownerReferences": [owner]},
            "spec": {"nodeName": name, "tolerations": [{"operator": "Exists"}], "containers": [container]},
        }
        await self._kube.create(PODS, body, "kube-system")


async def deschedule(kube: Kube, every: float, times: int) -> None:
    """Another optimiser: now and then it evicts a pod of the fullest launched node, for balance."""
    for _ in range(times):
        await asyncio.sleep(every)
        try:
            await _unbalance(kube)
        except ApiError as problem:  # refused, or the server is down: next time
            log.info("not descheduled", problem=problem.message)


async def _unbalance(kube: Kube) -> None:
    nodes = (await kube.list(NODES, labels=NODEPOOL, type=Node)).items
    full: dict[str, list[Pod]] = {node.metadata.name: [] for node in nodes}
    for pod in (await kube.list(PODS, type=Pod)).items:
        if pod.spec.node_name in full and pod.metadata.controller is not None and not pod.terminating:
            full[pod.spec.node_name].append(pod)
    crowd = max(full.items(), key=lambda item: (len(item[1]), item[0]), default=("", []))[1]
    if crowd:
        victim = min(crowd, key=lambda pod: pod.metadata.name)
        await kube.evict(victim.metadata.name, victim.metadata.namespace)


async def drain(kube: Kube, node: str) -> None:
    """`kubectl drain`: no new pods, and those of others than DaemonSets are evicted until none is left."""
    try:
        await kube.patch(NODES, node, {"spec": {"unschedulable": True}})
        while pods := [
            pod
            for pod in (await kube.list(PODS, fields=f"spec.nodeName={node}", type=Pod)).items
            if not any(
                owner_reference.kind in ("DaemonSet", "Node") for owner_reference in pod.metadata.owner_references
            )
        ]:
            for pod in pods:
                with suppress(ApiError):  # refused by a budget, or gone: the next round tells
                    await kube.evict(pod.metadata.name, pod.metadata.namespace)
            await asyncio.sleep(5.0)
    except ApiError as problem:
        log.info("drain ended", node=node, problem=problem.message)
