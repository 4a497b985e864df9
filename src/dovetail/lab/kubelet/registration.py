"""Registering Nodes and keeping them alive: Node, Lease and CSINode objects, conditions, heartbeats.

Heartbeats are written by one loop for the whole fleet. Where they make no difference (virtual time,
with a lifecycle controller in the same process that asks the fleet itself) they are not written at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, ApiError, Disconnected, NotFound
from dovetail.kube.events import EventRecorder, InvolvedObject
from dovetail.kube.resources import CSINODES, LEASES, NODES
from dovetail.lab.controllers.timestamps import micro
from dovetail.lab.instances import SimulatedInstance
from dovetail.lab.kubelet.node import body_of, conditions, csinode_of, lease_of

# A kubelet's seat in the fleet: its state beyond the instance itself.


class KubeletRegistration(msgspec.Struct):
    """`silent_since` is a time of the loop; `skew` is how far its clock is off, in seconds."""

    instance: SimulatedInstance
    registered: bool = False
    ready: bool = False
    ready_since: str = ""
    node_uid: str = ""
    silent_since: float | None = None
    skew: float = 0.0
    pressed: bool = False
    pods: dict[str, None] = msgspec.field(default_factory=dict)
    images: set[str] = msgspec.field(default_factory=set)


STATUS_SECONDS, RETRY_SECONDS = 300.0, 5.0


class Registration:
    """Node objects of the fleet."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        recorder: EventRecorder,
        seats: dict[str, KubeletRegistration],
        heartbeat_seconds: float | None,
        stamp: Callable[[KubeletRegistration | None, float], str],
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._recorder = recorder
        self._seats = seats
        self._heartbeat = heartbeat_seconds
        self._stamp = stamp
        self._hurry = asyncio.Event()
        self._posted: dict[str, float] = {}

    async def register(self, seat: KubeletRegistration, network: Callable[[], Awaitable[None]] | None = None) -> None:
        instance = seat.instance
        now = self._now(seat)
        ready = instance.ready_seconds <= 0
        body = body_of(instance, now, ready=ready)
        try:
            node = await self._kube.create(NODES, body)
        except AlreadyExists:
            node = await self._take_over(instance.name, body)
        seat.node_uid = node["metadata"]["uid"]
        lease = lease_of(instance, seat.node_uid, self._micro(seat))
        for resource, item in ((LEASES, lease), (CSINODES, csinode_of(instance, seat.node_uid))):
            try:
                await self._kube.create(resource, item)
            except AlreadyExists:
                continue
        seat.registered = True
        seat.ready_since = now
        self._posted[instance.name] = self._clock.monotonic()
        about = self._about(seat)
        for reason, message in _startup_events(instance.name):
            self._recorder.normal(about, reason, message, instance.name)
        if ready:
            self._is_ready(seat)
        else:
            await asyncio.sleep(instance.ready_seconds)
            if network is not None:
                await network()
            seat.ready_since = self._now(seat)
            self._is_ready(seat)
            await self.post(seat)

    async def _take_over(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """The Node object is there from before: bring its status up to date."""
        node = await self._kube.get(NODES, name)
        merged = {**node, "status": {**node.get("status", {}), **body["status"]}}
        await self._kube.patch(NODES, name, {"metadata": {"labels": body["metadata"]["labels"]}})
        return await self._kube.patch(NODES, name, {"status": merged["status"]}, subresource="status")

    def _is_ready(self, seat: KubeletRegistration) -> None:
        seat.ready = True
        text = f"Node {seat.instance.name} status is now: NodeReady"
        self._recorder.normal(self._about(seat), "NodeReady", text, seat.instance.name)

    def pressed(self, seat: KubeletRegistration) -> None:
        """Say that the node has too little memory, or enough again."""
        name, about = seat.instance.name, self._about(seat)
        if seat.pressed:
            self._recorder.warning(about, "EvictionThresholdMet", "Attempting to reclaim memory", name)
        state = "NodeHasInsufficientMemory" if seat.pressed else "NodeHasSufficientMemory"
        self._recorder.normal(about, state, f"Node {name} status is now: {state}", name)

    async def post(self, seat: KubeletRegistration) -> None:
        """Write the node's conditions."""
        now = self._now(seat)
        items = conditions(now, seat.ready_since, ready=seat.ready, pressed=seat.pressed)
        body = {"status": {"conditions": items}}
        self._posted[seat.instance.name] = self._clock.monotonic()
        await self._kube.patch(NODES, seat.instance.name, body, kind="strategic", subresource="status")

    def post_status_now(self, node: str) -> None:
        """Post the node's status now: it was silent."""
        self._posted.pop(node, None)
        self._hurry.set()

    async def run(self) -> None:
        """The heart of every kubelet."""
        while True:
            await self._pause()
            for seat in list(self._seats.values()):
                if not seat.registered or seat.silent_since is not None:
                    continue
                try:
                    await self._heartbeat_of(seat)
                except NotFound:
                    await self._recreate_lease(seat)
                except (ApiError, Disconnected):  # the next beat tries again, as a kubelet does
                    asyncio.get_running_loop().call_later(RETRY_SECONDS, self.post_status_now, seat.instance.name)

    async def _pause(self) -> None:
        if self._heartbeat is None:
            await self._hurry.wait()
        else:
            interval = max(self._heartbeat, len(self._seats) / 20)
            try:
                async with asyncio.timeout(interval):
                    await self._hurry.wait()
            except TimeoutError:
                return
        self._hurry.clear()

    async def _heartbeat_of(self, seat: KubeletRegistration) -> None:
        name = seat.instance.name
        if self._heartbeat is not None:
            body = {"spec": {"renewTime": self._micro(seat)}}
            await self._kube.patch(LEASES, name, body, "kube-node-lease")
        posted = self._posted.get(name)
        if posted is None:
            seat.ready_since = self._now(seat)
        if posted is None or self._clock.monotonic() - posted >= STATUS_SECONDS:
            await self.post(seat)

    async def _recreate_lease(self, seat: KubeletRegistration) -> None:
        """A kubelet whose Node or Lease was deleted does not make the Node again; it only renews its lease."""
        try:
            node = await self._kube.get(NODES, seat.instance.name)
        except NotFound:
            return
        item = lease_of(seat.instance, node["metadata"]["uid"], self._micro(seat))
        try:
            await self._kube.create(LEASES, item, "kube-node-lease")
        except AlreadyExists:
            return

    def _about(self, seat: KubeletRegistration) -> InvolvedObject:
        name = seat.instance.name
        return InvolvedObject("Node", name, uid=name)

    def _now(self, seat: KubeletRegistration) -> str:
        return self._stamp(seat, self._clock.monotonic())

    def _micro(self, seat: KubeletRegistration) -> str:
        return micro(self._clock.now() + timedelta(seconds=seat.skew))


def _startup_events(name: str) -> list[tuple[str, str]]:
    states = ("NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID")
    return [
        ("Starting", "Starting kubelet."),
        *((state, f"Node {name} status is now: {state}") for state in states),
        ("NodeAllocatableEnforced", "Updated Node Allocatable limit across pods"),
    ]
