"""All kubelets of the lab in one object: one watch of pods, one timer queue, however many nodes.

It speaks to the API server through the client alone, so it also runs around a real control plane. An instance
that is silent keeps its containers running but neither hears nor says anything; one that vanished is gone.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError, Disconnected, NotFound
from dovetail.kube.events import EventRecorder, InvolvedObject
from dovetail.kube.resources import PODS
from dovetail.lab.controllers.informer import Informer
from dovetail.lab.controllers.timestamps import stamp as to_text
from dovetail.lab.instances import SimulatedInstance
from dovetail.lab.kubelet import resizing
from dovetail.lab.kubelet.config_refs import Configs
from dovetail.lab.kubelet.container import ContainerRun, Notes
from dovetail.lab.kubelet.container_model import MEMORY
from dovetail.lab.kubelet.mounts import Mounts
from dovetail.lab.kubelet.pod_worker import PodRun, Resize, accept, join, resume
from dovetail.lab.kubelet.process import Programs
from dovetail.lab.kubelet.registration import KubeletRegistration, Registration
from dovetail.lab.kubelet.status import status_of
from dovetail.lab.kubelet.views import KubeletPod, compact

_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
_IN_ORDER = {"$setElementOrder/conditions": [{"type": kind} for kind in _CONDITIONS]}
RETRY_SECONDS = 1.0
_KEPT_TEXTS = 512


class ReportingDetail(msgspec.Struct, frozen=True):
    """How finely kubelets report. `lean` writes only what a scheduler or an autoscaler can notice."""

    lean: bool = False
    heartbeat_seconds: float | None = 10.0
    grid_seconds: float = 0.0


class Kubelets:
    """The kubelets. `join`, `silence`, `wake`, `vanish` are the interface that a cloud calls."""

    def __init__(
        self, kube: Kube, clock: Clock, chance: Chance, recorder: EventRecorder, pace: ReportingDetail | None = None
    ) -> None:
        self.pace = pace or ReportingDetail()
        self.seats: dict[str, KubeletRegistration] = {}
        self.runs: dict[str, PodRun] = {}
        #: Nodes whose kubelet is silent or whose instance is gone, and since when.
        self.doubtful: dict[str, float] = {}
        #: Pods whose use of memory is written on them.
        self.hungry: set[str] = set()
        #: Runs the programs of known images; without it every container is modelled.
        self.programs: Programs | None = None
        self._mounts = Mounts(kube, self.volumes_changed)
        self._configs = Configs(kube)
        self._kube = kube
        self._clock = clock
        self._recorder = recorder
        self._texts: dict[float, str] = {}
        self._zero = clock.now() - timedelta(seconds=clock.monotonic())
        self._pods: Informer[KubeletPod] = Informer(kube, PODS, KubeletPod, keep=compact)
        self._pods.listen(self._pod_changed)
        self._waiting: dict[str, dict[str, None]] = {}
        self._timers: list[tuple[float, int, str]] = []
        self._dirty: dict[str, None] = {}
        self._order = 0
        self._wake = asyncio.Event()
        self._addresses = 0
        self.registration = Registration(kube, clock, recorder, self.seats, self.pace.heartbeat_seconds, self.stamp)

    # The interface for clouds

    async def join(self, instance: SimulatedInstance, network: Callable[[], Awaitable[None]] | None = None) -> None:
        """Boot the instance and register its Node; `network` waits until its pods get addresses."""
        seat = KubeletRegistration(instance)
        self.seats[instance.name] = seat
        self.doubtful.pop(instance.name, None)
        if instance.boot_seconds:
            await asyncio.sleep(instance.boot_seconds)
            if self.seats.get(instance.name) is not seat:
                return  # the instance was ended while it booted
        await self.registration.register(seat, network)
        for key in self._waiting.pop(instance.name, {}):
            pod = self._pods.get(key)
            if pod is not None and pod.spec.node_name == instance.name:
                self._pod_changed(None, pod)

    def silence(self, node: str) -> None:
        """The kubelet stops talking; containers go on."""
        self.doubtful[node] = self.seats[node].silent_since = self._clock.monotonic()

    def wake(self, node: str) -> None:
        """The kubelet talks again, and acts on all it missed."""
        seat = self.seats[node]
        seat.silent_since = None
        self.doubtful.pop(node, None)
        for key in list(seat.pods):
            pod = self._pods.get(key)
            run = self.runs.get(key)
            if run is not None and (pod is None or pod.metadata.uid != run.uid):
                self._forget(run)
            elif pod is not None:
                self._mark(key)
                if run is not None:
                    self._schedule(run)  # what fell due in silence
        for pod in list(self._pods.all()):
            if pod.spec.node_name == node:
                self._pod_changed(None, pod)
        self.registration.post_status_now(node)

    def vanish(self, node: str) -> None:
        """The instance is gone, with everything on it. Its Node object stays until a controller deletes it."""
        seat = self.seats.pop(node, None)
        if seat is not None:
            self.doubtful.setdefault(node, self._clock.monotonic())
            for key in list(seat.pods):
                if (run := self.runs.pop(key, None)) is not None:
                    run.gone = True
                    run.kill()

    def heard(self, node: str) -> float | None:
        """When the kubelet was last heard of (a time of the loop); None for a node without one here."""
        since = self.doubtful.get(node)
        if since is not None:
            return since
        seat = self.seats.get(node)
        return self._clock.monotonic() if seat is not None and seat.registered else None

    def skew(self, node: str, seconds: float) -> None:
        """The instance's clock is off by so many seconds."""
        self.seats[node].skew = seconds

    # Time

    def stamp(self, seat: KubeletRegistration | None, monotonic: float) -> str:
        """An instant by the instance's clock. Many kubelets act at the same instant, so its text is kept a while."""
        instant = monotonic + (seat.skew if seat is not None else 0.0)
        text = self._texts.get(instant)
        if text is None:
            if len(self._texts) >= _KEPT_TEXTS:
                self._texts.clear()
            text = self._texts[instant] = to_text(self._zero + timedelta(seconds=instant))
        return text

    # Running

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run(), name="kubelet pods")
            tasks.create_task(self._work(), name="kubelet work")
            tasks.create_task(self._mounts.run(), name="kubelet mounts")
            tasks.create_task(self._configs.run(), name="kubelet configs")
            tasks.create_task(self.registration.run(), name="kubelet heartbeats")

    @property
    def synced(self) -> asyncio.Event:
        return self._pods.synced

    def _pod_changed(self, old: KubeletPod | None, new: KubeletPod | None) -> None:
        pod = new or old
        assert pod is not None
        node = pod.spec.node_name
        if not node:
            return
        seat = self.seats.get(node)
        if seat is None or not seat.registered:
            if new is not None:
                self._waiting.setdefault(node, {})[pod.metadata.key] = None
            elif node in self._waiting:
                self._waiting[node].pop(pod.metadata.key, None)
            return
        if seat.silent_since is not None:
            return
        run = self.runs.get(pod.metadata.key)
        if new is None:
            if run is not None and run.uid == pod.metadata.uid:
                self._forget(run)
            return
        if run is not None and run.uid != new.metadata.uid:
            self._forget(run)
            run = None
        if run is None:
            run = self._accept(seat, new)
        else:
            self._update(run, new)
        if new.metadata.deletion_timestamp is not None:
            self._stop(run, new)

    def _accept(self, seat: KubeletRegistration, pod: KubeletPod) -> PodRun:
        self._addresses += 1
        now = self._clock.monotonic()
        run = accept(pod, pod.status.pod_ip or pod_address(self._addresses), now, self._configs.unset)
        if self.programs is not None:
            self._attach_programs(run, self.programs)
        if pod.status.phase != "Pending" or pod.status.pod_ip:
            resume(run, now)
        elif pod.spec.volumes:
            run.blocked = self._mounts.missing(pod)
            if run.blocked is None:
                self._mount(run, now)
        self.runs[run.key] = run
        seat.pods[run.key] = None
        if any(name.startswith(MEMORY) for name in pod.metadata.annotations):
            self.hungry.add(run.key)
        if not self.pace.lean and pod.status.phase == "Pending":
            self._mark(run.key)
        self._schedule(run)
        return run

    def _attach_programs(self, run: PodRun, programs: Programs) -> None:
        """Containers of known images run their programs instead of a model."""

        def attach(container: ContainerRun) -> None:
            container.execute = lambda: programs.execute(
                run.pod, container.spec, run.ip, lambda: self._program_ended(run, container)
            )

        for container in (*run.inits, *run.mains):
            if programs.runs(container.spec):
                attach(container)

    def _program_ended(self, run: PodRun, container: ContainerRun) -> None:
        if run.gone or self.runs.get(run.key) is not run:
            return
        now = self._clock.monotonic()
        if run.stopping is not None:
            run.stop_early(now)
        elif container.running:
            container.due = now
        self._schedule(run)

    def _mount(self, run: PodRun, now: float) -> None:
        notes: Notes = []
        run.mount(now, self._configs.unmounted(run.pod), notes)
        self._record_events(run, notes)

    def _update(self, run: PodRun, new: KubeletPod) -> None:
        changed = new.metadata.generation != run.pod.metadata.generation
        gates = bool(new.spec.readiness_gates) and new.status.conditions != run.pod.status.conditions
        run.pod = new
        if changed and join(run, new, self._clock.monotonic(), self._configs.unset):
            self._schedule(run)
        if changed and (run.resize is not None or resizing.is_wanted(run)):
            self._resize(run)
        if (changed or gates) and not self.pace.lean:
            self._mark(run.key)

    def _resize(self, run: PodRun) -> None:
        """See what can become of the resources that the spec asks for now."""
        seat = self.seats.get(run.node)
        if seat is None or run.over or run.stopping is not None:
            return
        neighbours = [self.runs[key] for key in seat.pods if key in self.runs]
        allocatable, now = seat.instance.allocatable, self._clock.monotonic()
        before, decided = run.resize, resizing.decide(run, allocatable, neighbours, now)
        if decided is None and before is not None and before.stage in ("InProgress", "Error"):
            return  # what was allocated is what the spec asks for, and is being carried out
        if before is not None and before.stage == "InProgress" and decided is not None:
            resizing.carry_out(run, now)  # what was allocated before is not taken back
        run.resize = decided
        if decided is not None and decided.stage == "InProgress":
            resizing.allocate(run)
        self._tell_resize(run, before)
        self._schedule(run)
        self._mark(run.key)

    def _carry_on(self, run: PodRun, now: float) -> None:
        """A resize is due: end it, or try it again."""
        before = run.resize
        assert before is not None
        if before.stage not in ("InProgress", "Error"):
            self._resize(run)
            return
        problem = resizing.problem(run, now)
        if problem:
            run.resize = Resize("Error", problem, now + resizing.ERROR_RETRY_S, before.generation)
        else:
            resizing.carry_out(run, now)
            run.resize = None
            self._retry_deferred(run.node)
        self._tell_resize(run, before)
        self._mark(run.key)

    def _tell_resize(self, run: PodRun, before: Resize | None) -> None:
        notes: Notes = []
        resizing.tell_change(run, before, notes)
        self._record_events(run, notes)

    def _retry_deferred(self, node: str) -> None:
        """There may be room now for resizes that wait for it."""
        seat = self.seats.get(node)
        for key in list(seat.pods) if seat is not None else ():
            other = self.runs.get(key)
            if other is not None and other.resize is not None and other.resize.stage == "Deferred":
                self._resize(other)

    def _stop(self, run: PodRun, pod: KubeletPod) -> None:
        grace = pod.metadata.deletion_grace_period_seconds
        notes: Notes = []
        run.stop(self._clock.monotonic(), 30.0 if grace is None else float(grace), notes)
        self._record_events(run, notes)
        self._schedule(run)

    def volumes_changed(self, keys: list[str]) -> None:
        """Volumes of these pods may be ready now."""
        for key in keys:
            run = self.runs.get(key)
            if run is None or run.blocked is None:
                continue
            run.blocked = self._mounts.missing(run.pod)
            if run.blocked is None:
                self._mount(run, self._clock.monotonic())
                run.accepted = max(run.accepted, self._clock.monotonic() - 0.2)
                self._schedule(run)

    def evict(self, run: PodRun, message: str, notes: Notes) -> None:
        """The node needs what the pod takes."""
        run.fail(self._clock.monotonic(), "Evicted", message)
        self._record_events(run, notes)
        self._mark(run.key)

    def _forget(self, run: PodRun) -> None:
        self.runs.pop(run.key, None)
        self.hungry.discard(run.key)
        run.gone = True
        run.kill()
        seat = self.seats.get(run.node)
        if seat is not None:
            seat.pods.pop(run.key, None)
            self._retry_deferred(run.node)

    def _mark(self, key: str) -> None:
        self._dirty[key] = None
        self._wake.set()

    def _schedule(self, run: PodRun) -> None:
        due = run.due
        if due == math.inf:
            return
        grid = self.pace.grid_seconds
        if grid:
            due = math.ceil(due / grid - 1e-9) * grid
        self._order += 1
        first = self._timers[0][0] if self._timers else math.inf
        heapq.heappush(self._timers, (due, self._order, run.key))
        if due < first:
            self._wake.set()

    async def _work(self) -> None:
        """Do what is due, write what changed, sleep until the next."""
        while True:
            self._wake.clear()
            now = self._clock.monotonic()
            while self._timers and self._timers[0][0] <= now:
                await self._advance(heapq.heappop(self._timers)[2])
            for key in list(self._dirty):
                self._dirty.pop(key, None)
                run = self.runs.get(key)
                if run is not None:
                    await self._write(run)
            if self._dirty or (self._timers and self._timers[0][0] <= self._clock.monotonic()):
                continue
            await self._sleep()

    async def _sleep(self) -> None:
        pause = self._timers[0][0] - self._clock.monotonic() if self._timers else None
        if self._wake.is_set():
            return
        timer = None
        if pause is not None:
            timer = asyncio.get_running_loop().call_later(max(0.0, pause), self._wake.set)
        await self._wake.wait()
        if timer is not None:
            timer.cancel()

    async def _advance(self, key: str) -> None:
        run = self.runs.get(key)
        if run is None or run.gone:
            return
        seat = self.seats.get(run.node)
        if seat is None or seat.silent_since is not None:
            return
        now = self._clock.monotonic()
        if run.stopping is not None:
            if now >= run.stopping - 1e-6:
                await self._finish(run, now)
            return
        if run.blocked is not None and now >= run.mount_due:
            self._mount(run, now)
        if run.resize is not None and now >= run.resize.due:
            self._carry_on(run, now)
        notes: Notes = []
        changed = run.advance(now, seat.images, notes)
        seat.images.update([container.image.reference for container in run.everything if container.has_run])
        self._record_events(run, notes)
        if changed and (not self.pace.lean or run.phase != "Pending"):
            self._dirty.pop(key, None)
            await self._write(run)
        self._schedule(run)

    async def _finish(self, run: PodRun, now: float) -> None:
        """The containers have stopped: say so, and take the pod away."""
        meta = run.pod.metadata
        try:
            if not run.gone:
                run.finish(now)
                if not self.pace.lean:
                    await self._patch(run, now)
            await self._kube.delete(PODS, meta.name, meta.namespace, uid=run.uid, grace=0)
        except NotFound:
            self._forget(run)
        except (ApiError, Disconnected):
            run.gone = False
            run.stopping = now + RETRY_SECONDS
            self._schedule(run)

    async def _write(self, run: PodRun) -> None:
        seat = self.seats.get(run.node)
        if seat is None or seat.silent_since is not None or run.gone:
            return
        try:
            await self._patch(run, self._clock.monotonic())
        except NotFound:
            return  # it went: the watch tells
        except (ApiError, Disconnected):
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._mark, run.key)

    async def _patch(self, run: PodRun, now: float) -> None:
        seat = self.seats[run.node]
        status = status_of(run, seat.instance.ip, now, lambda monotonic: self.stamp(seat, monotonic))
        body: dict[str, Any] = {"metadata": {"uid": run.uid}, "status": status | _IN_ORDER}
        if run.resize is not None or run.resize_reported:
            body["status"] = _with_resize(run, status)
        meta = run.pod.metadata
        await self._kube.patch(
            PODS, meta.name, body, meta.namespace, kind="strategic", subresource="status", type=_Nothing
        )

    def _record_events(self, run: PodRun, notes: Notes) -> None:
        if self._recorder.quiet:
            notes = [note for note in notes if note[0] != "Normal"]
        if not notes:
            return
        about = InvolvedObject.of("v1", "Pod", run.pod.metadata)
        for type_, reason, message, field in notes:
            if field != about.field_path:
                about = about.at(field)
            record = self._recorder.normal if type_ == "Normal" else self._recorder.warning
            record(about, reason, message, run.node)


def _with_resize(run: PodRun, status: dict[str, Any]) -> dict[str, Any]:
    """The status with the condition of a resize in its order, and without the one that holds no longer."""
    kinds = [item["type"] for item in status["conditions"]]
    order = {"$setElementOrder/conditions": [{"type": kind} for kind in kinds]}
    reported = next((kind for kind in kinds if kind.startswith("PodResize")), "")
    former, run.resize_reported = run.resize_reported, reported
    if former and former != reported:
        removed = {"type": former, "$patch": "delete"}
        return {**status, **order, "conditions": [*status["conditions"], removed]}
    return {**status, **order}


class _Nothing(msgspec.Struct):
    """Answers to status writes are not read."""


def pod_address(number: int) -> str:
    """The n-th pod's address, in 10.64.0.0/10."""
    return f"10.{64 + number // 62500 % 64}.{number // 250 % 250}.{number % 250 + 2}"
