"""Others who act on a cluster in a scenario: they taint machines, hide pods on them, or move pods about.

Each works through the client alone, as whoever it stands for would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError, NotFound
from dovetail.kube.resources import NODES, PODS
from dovetail.model.labels import NODEPOOL
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod

#: Seconds after a machine began to join that somebody else's taint comes.
TAINTED_AFTER = 18.0


class Tainter:
    """Taints every machine that joins, until its time is over."""

    def __init__(self, kube: Kube, clock: Clock, taint: Mapping[str, str], seconds: float) -> None:
        self._kube = kube
        self._clock = clock
        self._taint = dict(taint)
        self._until = clock.monotonic() + seconds
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, node: str) -> None:
        if self._clock.monotonic() < self._until:
            task = asyncio.ensure_future(self._later(node))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _later(self, name: str) -> None:
        await asyncio.sleep(TAINTED_AFTER)
        with suppress(NotFound):
            node = await self._kube.get(NODES, name)
            taints = [*(node["spec"].get("taints") or []), self._taint]
            await self._kube.patch(NODES, name, {"spec": {"taints": taints}})


class Stowaways:
    """Puts a pod that no DaemonSet announces on every machine that joins: an agent that comes with the image."""

    def __init__(self, kube: Kube, clock: Clock, requests: Mapping[str, str], seconds: float) -> None:
        self._kube = kube
        self._clock = clock
        self._requests = dict(requests)
        self._until = clock.monotonic() + seconds

    async def __call__(self, node: str) -> None:
        if self._clock.monotonic() >= self._until:
            return
        container = {"name": "agent", "image": "agent", "resources": {"requests": self._requests}}
        body = {
            "metadata": {"name": f"agent-{node}", "labels": {"app": "stowaway"}},
            "spec": {"nodeName": node, "tolerations": [{"operator": "Exists"}], "containers": [container]},
        }
        await self._kube.create(PODS, body, "kube-system")


async def deschedule(kube: Kube, every: float, times: int) -> None:
    """Another optimiser: now and then it evicts a pod of the fullest machine that was bought, for balance."""
    for _ in range(times):
        await asyncio.sleep(every)
        ours = {node.metadata.name for node in (await kube.list(NODES, type=Node)).items
                if NODEPOOL in node.metadata.labels}  # fmt: skip
        full: dict[str, list[Pod]] = {name: [] for name in ours}
        for pod in (await kube.list(PODS, type=Pod)).items:
            if pod.spec.node_name in ours and pod.metadata.controller is not None and not pod.terminating:
                full[pod.spec.node_name].append(pod)
        crowd = max(full.items(), key=lambda item: (len(item[1]), item[0]), default=("", []))[1]
        if crowd:
            victim = min(crowd, key=lambda pod: pod.metadata.name)
            with suppress(ApiError):  # a budget may refuse: it tries again next time
                await kube.evict(victim.metadata.name, victim.metadata.namespace)
