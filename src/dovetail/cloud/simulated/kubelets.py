"""The instances of a simulated cloud, as a cluster sees them: nodes that join, beat, run pods and go.

It speaks through the client alone, so it works around any API server. One object is the whole fleet: no task
a node, no task a pod; pods are served by a few workers in the order they come.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.cloud.provider import Instance
from dovetail.cloud.simulated import node_status
from dovetail.cloud.simulated.instances import SCHEME, instance_of
from dovetail.cloud.simulated.provider import SimulatedCloud
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from dovetail.kube.log import Log
from dovetail.kube.resources import LEASES, NODECLAIMS, NODES, PODS
from dovetail.kube.workqueue import WorkQueue
from dovetail.model.meta import ObjectMeta, condition
from dovetail.model.nodes import Node, NodeSpec, NodeStatus
from dovetail.model.pods import Pod

log = Log(__name__)

#: A node's lease is renewed this often, in seconds; Kubernetes gives up on a node after 40 to 50.
BEAT = 20.0
#: Seconds between rounds of renewals, and how many are under way at once: a request alone wakes a process that has
#: gone cold, and costs three times what it costs in a row of them.
ROUND, ABREAST = 5.0, 16
LEASE_NAMESPACE = "kube-node-lease"
WORKERS = 16


class SimulatedKubelets:
    """Runs until cancelled. Its owner passes on the pods and nodes that it watches anyway."""

    def __init__(self, kube: Kube, cloud: SimulatedCloud, clock: Clock, chance: Chance) -> None:
        self._kube = kube
        self._cloud = cloud
        self._clock = clock
        self._chance = chance
        self._joining: set[str] = set()
        self._restarted: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._pods: dict[str, Pod] = {}
        self._on: dict[str, set[str]] = {}
        self._queue: WorkQueue[str] = WorkQueue(chance=chance.child("fleet"))
        #: Instances of an earlier process whose nodes are not Ready, with what they are instead.
        self._unready: dict[str, str] = {}
        self._given_up: WorkQueue[str] = WorkQueue(chance=chance.child("given up"))
        self._addresses = 0
        self._beats: list[tuple[float, str]] = []
        self._abreast = asyncio.Semaphore(ABREAST)

    async def recover(self) -> None:
        """The books of an earlier process, from what the cluster knows."""
        types = {t.name: t for t in await self._cloud.instance_types({}, {})}
        listing = await self._kube.list(NODECLAIMS)
        instances = [instance_of(claim, self._clock.now(), types) for claim in listing.items]
        self._cloud.adopt(instance for instance in instances if instance is not None)
        for node in (await self._kube.list(NODES, type=Node, trim=_identity)).items:
            provider = node.spec.provider_id or ""
            if provider.startswith(f"{SCHEME}://"):
                self._joined(provider, node.metadata.name)
                if not node.ready:
                    ready = condition(node.status.conditions, "Ready")
                    self._unready[provider] = ready.status if ready is not None else "Unknown"

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(group), name="fleet instances")
            group.create_task(self._beat(), name="fleet heartbeats")
            group.create_task(self._cloud.call_back_spot(), name="fleet interruptions")
            group.create_task(self._queue.work(self._serve, failed=self._failed, workers=WORKERS), name="fleet pods")
            group.create_task(self._given_up.work(self._come_back, failed=self._failed), name="fleet nodes")

    # -- instances

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        while True:
            standing = {instance.provider_id: instance for instance in self._cloud.standing()}
            self._joining &= standing.keys()  # one that never joins is not tried again, and forgotten once it is gone
            for instance in standing.values():
                if instance.provider_id not in self._nodes and instance.provider_id not in self._joining:
                    self._joining.add(instance.provider_id)
                    group.create_task(self._join(instance), name=f"fleet join {instance.provider_id}")
            for provider in [node for node in self._nodes if node not in standing]:
                await self._leave(provider)
            for provider, was in self._unready.items():
                if provider in standing:
                    group.create_task(self._resume(standing[provider], was), name=f"fleet resume {provider}")
            self._unready.clear()
            for provider, operation in self._cloud.restarts.items():
                if provider in self._nodes and self._restarted.get(provider) != operation:
                    self._restarted[provider] = operation
                    group.create_task(self._restart(standing[provider], operation), name=f"fleet restart {provider}")
            try:
                async with asyncio.timeout(self._cloud.next_end()):
                    await self._cloud.changed()
            except TimeoutError:
                continue

    async def _join(self, instance: Instance) -> None:
        market = self._cloud.market
        chance = self._chance.child("boot", instance.provider_id)
        if market.never_joins and chance.random() < market.never_joins:
            return
        await asyncio.sleep(market.between(chance, market.boot))
        delay = market.between(chance, market.ready)
        name = instance.claim_name or instance.provider_id.rpartition("/")[2]
        body = node_status.node(
            instance, name, self._cloud.taints_of(instance.provider_id), self._clock.now(), delay <= 0
        )
        if await self._insist(instance, lambda: self._create_node(body)):
            self._joined(instance.provider_id, name)
            await self._first_beat(name)
            if delay > 0:
                await asyncio.sleep(delay)
                await self._insist(instance, lambda: self._tell(name, node_status.ready(self._clock.now())))
        self._joining.discard(instance.provider_id)

    async def _resume(self, instance: Instance, was: str) -> None:
        """The kubelet of an instance that an earlier process had: one that had yet to become Ready takes its time."""
        name = self._nodes[instance.provider_id]
        if was == "Unknown":
            self._given_up.add(name)
            return
        market = self._cloud.market
        await asyncio.sleep(market.between(self._chance.child("resume", instance.provider_id), market.ready))
        await self._insist(instance, lambda: self._come_back(name))

    async def _insist(self, instance: Instance, act: Callable[[], Awaitable[None]]) -> bool:
        """Repeat until it works or the instance is gone: a kubelet does not give up either."""
        while any(standing.provider_id == instance.provider_id for standing in self._cloud.standing()):
            try:
                await act()
                return True
            except KubeError as problem:
                log.warning("kubelet's call failed", instance=instance.provider_id, problem=str(problem))
                await asyncio.sleep(1.0)
        return False

    async def _create_node(self, body: Mapping[str, Any]) -> None:
        try:
            await self._kube.create(NODES, body)
        except AlreadyExists:
            return  # a restart found it there

    async def _tell(self, name: str, body: Mapping[str, Any]) -> None:
        try:
            await self._kube.patch(NODES, name, body, subresource="status", kind="strategic")
        except NotFound:
            return  # deleted meanwhile

    async def _restart(self, instance: Instance, operation: str) -> None:
        """Away and back, under a new boot id; its pods are there again."""
        market, name = self._cloud.market, self._nodes[instance.provider_id]
        chance = self._chance.child("restart", operation)
        await self._insist(instance, lambda: self._tell(name, node_status.unready(self._clock.now())))
        await asyncio.sleep(market.between(chance, market.boot))
        await self._insist(instance, lambda: self._tell(name, node_status.booted(self._clock.now(), operation)))

    def _joined(self, provider: str, name: str) -> None:
        self._nodes[provider] = name
        self._names[name] = provider
        heapq.heappush(self._beats, (self._clock.monotonic() + BEAT * self._chance.random(), name))
        for key in self._on.get(name, ()):
            self._queue.add(key)

    async def _leave(self, provider: str) -> None:
        """An instance is gone: its node goes, as a cloud's own controller would see to it, and its pods with it."""
        name = self._nodes.pop(provider)
        self._names.pop(name, None)
        self._restarted.pop(provider, None)
        for key in tuple(self._on.get(name, ())):
            self._queue.add(key)
        for resource, namespace in ((NODES, None), (LEASES, LEASE_NAMESPACE)):
            try:
                await self._kube.delete(resource, name, namespace)
            except NotFound:
                continue
            except KubeError as problem:
                log.warning("not deleted", kind=resource.kind, name=name, problem=str(problem))

    async def _beat(self) -> None:
        """Renew leases in rounds, whichever nodes join or leave; a slow answer does not delay the next round."""
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(ROUND)
                for name in self._due():
                    group.create_task(self._renew(name), name=f"fleet beat {name}")

    def _due(self) -> list[str]:
        """The nodes whose leases are to be renewed now."""
        now, due = self._clock.monotonic(), []
        while self._beats and self._beats[0][0] <= now:
            name = heapq.heappop(self._beats)[1]
            if name in self._names:
                heapq.heappush(self._beats, (now + BEAT, name))
                due.append(name)
        return due

    async def _renew(self, name: str) -> None:
        try:
            async with self._abreast:
                body = {"spec": node_status.lease(name, self._clock.now())}
                await self._kube.patch(LEASES, name, body, LEASE_NAMESPACE)
        except NotFound:
            await self._first_beat(name)
        except KubeError as problem:
            log.warning("lease not renewed", node=name, problem=str(problem))

    async def _first_beat(self, name: str) -> None:
        body: Mapping[str, Any] = {
            "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
            "spec": node_status.lease(name, self._clock.now()),
        }
        try:
            await self._kube.create(LEASES, body)
        except AlreadyExists:
            return  # the next beat renews it
        except KubeError as problem:
            log.warning("lease not created", node=name, problem=str(problem))

    def node_changed(self, node: Node | None) -> None:
        """A node as the watch tells it. One of ours that was given up, its lease being late, says that it is there."""
        if node is not None and node.metadata.name in self._names:
            ready = condition(node.status.conditions, "Ready")
            if ready is not None and ready.status == "Unknown":
                self._given_up.add(node.metadata.name)

    async def _come_back(self, name: str) -> None:
        if name in self._names:
            await self._renew(name)  # first: by a lease that is still old the node would be given up again
            await self._tell(name, node_status.ready(self._clock.now()))
            for key in self._on.get(name, ()):
                self._queue.add(key)

    # -- pods

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod as the watch tells it. Only pods on nodes of ours are served."""
        pod = new or old
        if pod is None or not pod.spec.node_name:
            return
        key = pod.metadata.key
        if new is None:
            self._pods.pop(key, None)
            there = self._on.get(pod.spec.node_name, set())
            there.discard(key)
            if not there:
                self._on.pop(pod.spec.node_name, None)
            return
        self._pods[key] = new
        self._on.setdefault(new.spec.node_name, set()).add(key)
        if new.spec.node_name in self._names and _work(new):
            self._queue.add(key)

    async def _serve(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None:
            return
        meta = pod.metadata
        here = pod.spec.node_name in self._names
        try:
            if pod.terminating:
                await self._kube.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace=0)
            elif here and pod.status.phase in ("", "Pending"):
                self._addresses += 1
                body = node_status.running(pod, self._clock.now(), self._addresses)
                await self._kube.patch(PODS, meta.name, body, meta.namespace, subresource="status", kind="merge")
            elif here and _marked_unready(pod):
                body = node_status.pod_ready(self._clock.now())
                await self._kube.patch(PODS, meta.name, body, meta.namespace, subresource="status", kind="strategic")
        except (NotFound, Conflict):
            return

    def _failed(self, key: str, problem: Exception, pause: float) -> None:
        log.warning("kubelet's call failed", about=key, problem=str(problem), retry=pause)


def _work(pod: Pod) -> bool:
    return pod.terminating or pod.status.phase in ("", "Pending")


def _marked_unready(pod: Pod) -> bool:
    """Whether the node lifecycle controller took the pod for lost with its node: its containers run all the while."""
    ready = condition(pod.status.conditions, "Ready")
    return pod.status.phase == "Running" and ready is not None and ready.status == "False"


def _identity(node: Node) -> Node:
    """A node's name, instance and conditions: of 5,000 nodes the rest is 100 MB, most of it the names of images."""
    return Node(
        metadata=ObjectMeta(name=node.metadata.name),
        spec=NodeSpec(provider_id=node.spec.provider_id),
        status=NodeStatus(conditions=node.status.conditions),
    )
