"""What a run is measured by: pods and nodes as the API server shows them, whichever autoscaler launched them."""

from __future__ import annotations

import asyncio

import msgspec

from dovetail.kube.resources import NODES, PODS
from dovetail.lab.cluster import Lab
from dovetail.lab.controllers.pods import ready
from dovetail.lab.controllers.views import PodFields
from dovetail.lab.scenario.fleet import ScenarioFleet
from dovetail.model.nodes import Node
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod
from dovetail.model.quantity import resources
from dovetail.studies.bound import OfferBounds

#: A pod that is bound later than this after its creation has waited for a node.
WAITED_S = 2.0


class StudySample(msgspec.Struct, frozen=True):
    """The cluster at a moment: seconds since the start, nodes of the autoscaler, their $/h, the least $/h that the pods
    could cost, pods, pending pods, and the share of CPU and memory of those nodes that pods request."""

    at: float
    nodes: int
    rate: float
    bound: float
    pods: int
    pending: int
    cpu: float
    memory: float


class FleetObserver:
    """An extra of the lab. Listens to pods, and samples the fleet every `interval` seconds."""

    def __init__(self, fleet: ScenarioFleet, bound: OfferBounds, interval_s: float) -> None:
        self._fleet = fleet
        self._bound = bound
        self._interval_s = interval_s
        self._created: dict[str, float] = {}
        self._bound_after: dict[str, float] = {}
        self.ready_after: dict[str, float] = {}
        self.samples: list[StudySample] = []
        self.pods = 0
        self._lab: Lab | None = None

    async def run(self, lab: Lab) -> None:
        self._lab = lab
        assert lab.controllers is not None
        lab.controllers.context.pods.listen(self._pod_changed)
        start = lab.clock.monotonic()
        while True:
            await self._sample(lab, start)
            await asyncio.sleep(self._interval_s)

    @property
    def waited(self) -> int:
        """Pods that were bound late, or never."""
        return sum(after > WAITED_S for after in self._bound_after.values()) + len(
            self._created.keys() - self._bound_after
        )

    @property
    def never_ready(self) -> int:
        return len(self._created.keys() - self.ready_after.keys())

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        assert self._lab is not None
        if new is None:
            if old is not None and old.metadata.uid not in self._bound_after:
                # Deleted before it had a node, as by a scale-down: it waited for nothing.
                self._created.pop(old.metadata.uid, None)
            return
        owner = new.metadata.controller
        if owner is not None and owner.kind in ("DaemonSet", "Node"):
            return
        uid, now = new.metadata.uid, self._lab.clock.monotonic()
        if old is None:
            self.pods += 1
            self._created[uid] = now
        since = self._created.get(uid)
        if since is None:
            return
        if new.spec.node_name and uid not in self._bound_after:
            self._bound_after[uid] = now - since
        if uid not in self.ready_after and ready(new):
            self.ready_after[uid] = now - since

    async def _sample(self, lab: Lab, start: float) -> None:
        pods = (await lab.kube.list(PODS, type=Pod)).items
        nodes = (await lab.kube.list(NODES, type=Node)).items
        launched = self._fleet.provider_ids()
        own = {node.metadata.name: node for node in nodes if node.spec.provider_id in launched}
        standing = [node for node in nodes if node.metadata.name not in own]
        live = [pod for pod in pods if not pod.finished and not pod.terminating]
        requested, there = [0, 0], [0, 0]
        for pod in live:
            if pod.spec.node_name in own:
                amounts = requests(pod)
                requested[0] += amounts.get("cpu", 0)
                requested[1] += amounts.get("memory", 0)
        for node in own.values():
            amounts = resources(node.status.allocatable)
            there[0] += amounts.get("cpu", 0)
            there[1] += amounts.get("memory", 0)
        self.samples.append(
            StudySample(
                at=round(lab.clock.monotonic() - start, 3),
                nodes=len(own),
                rate=round(self._fleet.rate(), 6),
                bound=round(self._bound.per_hour(live, standing), 6),
                pods=len(live),
                pending=sum(not pod.spec.node_name for pod in live),
                cpu=round(requested[0] / there[0], 4) if there[0] else 0.0,
                memory=round(requested[1] / there[1], 4) if there[1] else 0.0,
            )
        )
