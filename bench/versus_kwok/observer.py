"""What an outsider sees of a cluster: claims, nodes and pods as the watches tell them, and what follows from them."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.versus_kwok.instance_types import InstanceTypes
from dovetail.kube.client import Kube
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import NODECLAIMS, NODES, PODS
from dovetail.model.pods import Pod

#: Claims further apart than this are of two waves.
APART = 2.0
EVICTED = "EvictionByEvictionAPI"


class Observer:
    def __init__(self, kube: Kube, instance_types: InstanceTypes) -> None:
        self._instance_types = instance_types
        self._clock = kube.clock
        self._claims = Reflector(kube, NODECLAIMS, on_event=self._claim_changed)
        self._nodes = Reflector(kube, NODES, on_event=self._node_changed)
        self._pods = Reflector(kube, PODS, Pod, on_event=self._pod_changed)
        self._evicted: set[str] = set()
        self._began: set[str] = set()
        self.claims: list[float] = []
        self.evictions: list[str] = []
        self.moved_twice = 0
        self.changed = 0.0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for each in (self._claims, self._nodes, self._pods):
                group.create_task(each.run())

    def begin(self) -> None:
        """A new phase: counts from here."""
        self.claims, self.evictions, self.moved_twice = [], [], 0
        self._began = {pod.metadata.uid for pod in self._pods.store.all()}
        self.changed = self._clock.monotonic()

    # -- what the watches say

    def _claim_changed(self, change: CacheChange[dict[str, Any]]) -> None:
        if change.kind == "added":
            self.claims.append(self._clock.monotonic())
        if change.kind != "modified":
            self.changed = self._clock.monotonic()

    def _node_changed(self, change: CacheChange[dict[str, Any]]) -> None:
        if change.kind != "modified" or _schedulable(change.old) != _schedulable(change.new):
            self.changed = self._clock.monotonic()

    def _pod_changed(self, change: CacheChange[Pod]) -> None:
        pod = change.new
        if change.kind != "modified" or (change.old and change.old.spec.node_name != change.object.spec.node_name):
            self.changed = self._clock.monotonic()
        if pod is None or pod.metadata.uid in self._evicted:
            return
        if any(each.type == "DisruptionTarget" and each.reason == EVICTED for each in pod.status.conditions):
            self._evicted.add(pod.metadata.uid)
            self.evictions.append(pod.metadata.key)
            self.moved_twice += pod.metadata.uid not in self._began

    # -- what follows

    def waves(self) -> int:
        later = [b - a for a, b in zip(self.claims, self.claims[1:], strict=False)]
        return bool(self.claims) + sum(gap > APART for gap in later)

    def nodes(self) -> int:
        return sum(1 for _ in self._nodes.store.all())

    def price(self) -> float:
        prices = self._instance_types.prices()
        found = [_place(node) for node in self._nodes.store.all()]
        return sum(prices.get(each, 0.0) for each in found)

    def missing(self, wanted: int) -> int:
        """How many pods of those wanted do not run, and how many are too many."""
        running = sum(
            pod.status.phase == "Running" and not pod.terminating and bool(pod.spec.node_name)
            for pod in self._pods.store.all()
        )
        return abs(wanted - running)

    def vacant(self) -> int:
        """Nodes that carry no pods."""
        used = {pod.spec.node_name for pod in self._pods.store.all()}
        return sum(node["metadata"]["name"] not in used for node in self._nodes.store.all())

    def waiting(self) -> int:
        return sum(not pod.spec.node_name for pod in self._pods.store.all())

    def claims_there(self) -> int:
        return sum(1 for _ in self._claims.store.all())

    def used(self) -> tuple[float, ...]:
        """Shares of CPU and memory that pods ask for."""
        from dovetail.model.pod_resources import requests
        from dovetail.model.quantity import resources

        have = [resources(node["status"].get("allocatable") or {}) for node in self._nodes.store.all()]
        want = [requests(pod) for pod in self._pods.store.all() if pod.spec.node_name]
        return tuple(
            sum(each.get(name, 0) for each in want) / max(1, sum(each.get(name, 0) for each in have))
            for name in ("cpu", "memory")
        )


def _place(node: dict[str, Any]) -> tuple[str, str, str]:
    labels = node["metadata"].get("labels") or {}
    return (
        labels.get("node.kubernetes.io/instance-type", ""),
        labels.get("topology.kubernetes.io/zone", ""),
        labels.get("karpenter.sh/capacity-type", ""),
    )


def _schedulable(node: dict[str, Any] | None) -> Any:
    return node and (node["spec"].get("taints"), node["metadata"].get("deletionTimestamp"))
