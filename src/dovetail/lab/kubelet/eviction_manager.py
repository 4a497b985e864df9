"""A node short of memory: it says so, takes no more pods, and evicts the pod that took most beyond its request.

Only pods whose appetite is written on them can do that to a node; where there are none, nothing is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from dovetail.clock import Clock
from dovetail.kube.errors import ApiError, Disconnected
from dovetail.lab.kubelet.container import Notes
from dovetail.lab.kubelet.kubelets import Kubelets
from dovetail.lab.kubelet.pod_worker import PodRun
from dovetail.lab.kubelet.registration import KubeletRegistration
from dovetail.lab.load.model import load_of
from dovetail.lab.metrics import SYSTEM
from dovetail.model.quantity import quantity, whole

MONITOR_SECONDS = 10.0
#: A node that had too little is said to have enough after so long.
TRANSITION_SECONDS = 300.0
#: Evictions begin when less than this is left.
THRESHOLD = 100 * 1024**2


class PodMemory(msgspec.Struct, frozen=True):
    """A pod's memory: (container, bytes used, bytes requested)."""

    run: PodRun
    uses: tuple[tuple[str, int, int], ...]

    @property
    def used(self) -> int:
        return sum(used for _, used, _ in self.uses)

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Who goes first: above its request, less important, further above."""
        above = self.used - sum(requested for _, _, requested in self.uses)
        return above <= 0, self.run.pod.spec.priority, -above


def used_memory(run: PodRun, now: float) -> int:
    """Bytes of memory that a pod uses now."""
    annotations = run.pod.metadata.annotations
    return sum(
        load_of(container.spec, annotations).memory_at(now - container.started)
        for container in run.everything
        if container.started is not None
    )


def memory_use(run: PodRun, now: float) -> PodMemory:
    """What a pod uses of memory now."""
    uses = []
    for container in run.everything:
        if container.started is not None:
            requested = container.spec.resources.get("requests", {}).get("memory", "0")
            used = load_of(container.spec, run.pod.metadata.annotations).memory_at(now - container.started)
            uses.append((container.spec.name, used, whole(requested)))
    return PodMemory(run, tuple(uses))


def reason(victim: PodMemory, available: int) -> str:
    """Why it was evicted, in the kubelet's words."""
    text = "The node was low on resource: memory. "
    text += f"Threshold quantity: {_shown(THRESHOLD)}, available: {max(0, available) // 1024}Ki. "
    for name, used, requested in victim.uses:
        if used > requested:
            text += f"Container {name} was using {used // 1024}Ki, request is {_shown(requested)}, "
            text += "has larger consumption of memory. "
    return text


def _shown(amount: int) -> str:
    return str(quantity("memory", amount))


class Pressure:
    """Watches the nodes' memory."""

    def __init__(self, fleet: Kubelets, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock
        self._short: dict[str, float] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(MONITOR_SECONDS)
            hungry = {run.node for run in map(self._fleet.runs.get, list(self._fleet.hungry)) if run is not None}
            for node in sorted(hungry | self._short.keys()):
                seat = self._fleet.seats.get(node)
                if seat is None or not seat.registered:
                    self._short.pop(node, None)
                elif seat.silent_since is None:
                    await self._look(seat)

    async def _look(self, seat: KubeletRegistration) -> None:
        now = self._clock.monotonic()
        runs = [run for run in map(self._fleet.runs.get, seat.pods) if run is not None and not run.over]
        available = seat.instance.capacity["memory"] - SYSTEM[1] - sum(used_memory(run, now) for run in runs)
        if available < THRESHOLD:
            eaters = [memory_use(run, now) for run in runs]
            self._short[seat.instance.name] = now
            await self._press(seat, True)
            self._evict(seat, eaters, available, now)
        elif seat.pressed and now - self._short[seat.instance.name] >= TRANSITION_SECONDS:
            del self._short[seat.instance.name]
            await self._press(seat, False)

    async def _press(self, seat: KubeletRegistration, pressed: bool) -> None:
        if seat.pressed == pressed:
            return
        seat.pressed = pressed
        self._fleet.registration.pressed(seat)
        try:
            await self._fleet.registration.post(seat)
        except (ApiError, Disconnected):
            return  # the next heartbeat says it

    def _evict(self, seat: KubeletRegistration, eaters: Sequence[PodMemory], available: int, now: float) -> None:
        """One pod at a time: the next look tells whether that was enough."""
        victim = min(
            (memory_use for memory_use in eaters if memory_use.uses),
            key=lambda memory_use: memory_use.rank,
            default=None,
        )
        if victim is None:
            return
        text = reason(victim, available)
        notes: Notes = [("Warning", "Evicted", text, "")]
        for container in victim.run.everything:
            if container.running:
                notes.append(("Normal", "Killing", f"Stopping container {container.spec.name}", container.field))
        self._fleet.evict(victim.run, text, notes)
