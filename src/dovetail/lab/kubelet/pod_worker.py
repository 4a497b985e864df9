"""One pod's life on its node: sandbox, init containers in order, sidecars, main containers, the end. No I/O.

`advance(now)` does everything that is due and says what to tell: whether the status changed, and events. The
phase follows from the containers, as in Kubernetes; a pod that is over stays so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Literal

import msgspec

from dovetail.lab.kubelet.container import ContainerRun, Ended, Notes
from dovetail.lab.kubelet.container_model import behaviour_of
from dovetail.lab.kubelet.images import image_of
from dovetail.lab.kubelet.views import ContainerSpec, KubeletPod
from dovetail.lab.load.model import oom_after

#: Seconds from seeing a pod to having its sandbox and address.
SANDBOX_SECONDS = 0.3
#: Seconds until a mount that failed is tried again: first, and at most.
FIRST_MOUNT_RETRY, LONGEST_MOUNT_RETRY = 0.5, 122.0
_TOO_LONG = "Pod was active on the node longer than the specified deadline"


class Resize(msgspec.Struct):
    """A resize that is not done. `stage` is the reason of the pending condition, InProgress, or Error in progress."""

    stage: Literal["Deferred", "Infeasible", "InProgress", "Error"]
    message: str
    due: float
    #: Of the spec that asks for it.
    generation: int = 0


class PodRun(msgspec.Struct):
    """What the kubelet knows of a pod it runs."""

    key: str
    uid: str
    node: str
    pod: KubeletPod
    ip: str
    accepted: float
    inits: list[ContainerRun]
    mains: list[ContainerRun]
    ephemeral: list[ContainerRun] = []
    """Ephemeral containers: they come later, and nothing about the pod depends on them."""
    sandbox: bool = False
    blocked: str | None = None
    mount_due: float = math.inf
    mount_retry: float = FIRST_MOUNT_RETRY
    stopping: float | None = None
    #: When containers that only are modelled have stopped.
    modelled_stop: float = 0.0
    failed: tuple[str, str] | None = None
    gone: bool = False
    transitions: dict[str, tuple[str, float]] = {}
    resize: Resize | None = None
    #: The resize condition that the API server last heard of, if any.
    resize_reported: str = ""

    @property
    def label(self) -> str:
        meta = self.pod.metadata
        return f"{meta.name}_{meta.namespace}({meta.uid})"

    @property
    def everything(self) -> list[ContainerRun]:
        return [*self.inits, *self.mains, *self.ephemeral] if self.inits or self.ephemeral else self.mains

    @property
    def initialized(self) -> bool:
        return all(_initialized(run) for run in self.inits)

    @property
    def phase(self) -> str:
        if self.failed is not None:
            return "Failed"
        policy = self.pod.spec.restart_policy
        if self.inits and not self.initialized:
            broken = any(r.stage == "over" and r.ended is not None and r.ended.code for r in self.inits)
            return "Failed" if broken and policy == "Never" else "Pending"
        phase, failed = "Succeeded", False
        for run in self.mains:
            if not run.has_run:
                return "Pending"
            if run.stage != "over":
                phase = "Running"
            failed = failed or (run.ended is not None and run.ended.code != 0)
        return "Failed" if failed and phase == "Succeeded" else phase

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def due(self) -> float:
        if self.gone:
            return math.inf
        if self.stopping is not None:
            return self.stopping
        moment = self._next
        if moment < math.inf and self.over and not any(run.running for run in self.everything):
            return math.inf
        return moment

    @property
    def _next(self) -> float:
        """When something is due, unless all is over."""
        if not self.sandbox:
            return self.mount_due if self.blocked else self.accepted + SANDBOX_SECONDS
        moments = [run.due for run in self.everything]
        if self.pod.spec.active_deadline_seconds is not None:
            moments.append(self.accepted + self.pod.spec.active_deadline_seconds)
        if self.resize is not None:
            moments.append(self.resize.due)
        return min(moments)

    def advance(self, now: float, images: Collection[str], notes: Notes) -> bool:
        """Do what is due; returns whether the status changed. `images` are those on the node."""
        if self.stopping is not None or self.gone:
            return False
        before = self._shape()
        deadline = self.pod.spec.active_deadline_seconds
        if deadline is not None and not self.over and now >= self.accepted + deadline:
            self.fail(now, "DeadlineExceeded", _TOO_LONG)
            notes.append(("Normal", "DeadlineExceeded", _TOO_LONG, ""))
        if not self.sandbox and not self.blocked and now >= self.accepted + SANDBOX_SECONDS:
            self.sandbox = True
        if self.sandbox and self.failed is None:
            self._containers(now, images, notes)
        return before != self._shape()

    def mount(self, now: float, problem: str | None, notes: Notes) -> None:
        """A mount was tried: it failed, and is tried again later and later; or the pod may start."""
        self.blocked, self.mount_due = problem, math.inf
        if problem is not None:
            notes.append(("Warning", "FailedMount", problem, ""))
            self.mount_due = now + self.mount_retry
            self.mount_retry = min(LONGEST_MOUNT_RETRY, self.mount_retry * 2)

    def _shape(self) -> tuple[object, ...]:
        containers = [(r.state, r.waiting, r.ready, r.restarts, r.stage == "over") for r in self.everything]
        return self.sandbox, self.failed, containers

    def _containers(self, now: float, images: Collection[str], notes: Notes) -> None:
        policy = self.pod.spec.restart_policy
        for run in self.everything:
            while run.due <= now:
                kind = "Always" if run.spec.sidecar else "Never" if run in self.ephemeral else policy
                if run in self.inits and not run.spec.sidecar and policy == "Always":
                    kind = "OnFailure"
                run.step(now, notes, kind, self.label)
        for run in self.ephemeral:
            if _unstarted(run) and not self.over:
                run.begin(now, run.image.reference in images, notes)
        for run in self.inits:
            if _unstarted(run):
                run.begin(now, run.image.reference in images, notes)
            if not _initialized(run):
                return
        if self.over:
            self._stop_sidecars(now)
            return
        for run in self.mains:
            if _unstarted(run):
                run.waiting = ("ContainerCreating", "")
                run.begin(now, run.image.reference in images, notes)

    def _stop_sidecars(self, now: float) -> None:
        for run in self.inits:
            if run.running:
                run.end(now, 0)
                run.stage, run.due = "over", math.inf

    def fail(self, now: float, reason: str, message: str) -> None:
        """The node ends the pod (deadline, pressure)."""
        self.failed = (reason, message)
        for run in self.everything:
            if run.running:
                run.end(now, 137)
            run.stage, run.due = ("over" if run.ended is not None else run.stage), math.inf

    def stop(self, now: float, grace: float, notes: Notes) -> None:
        """Begin to terminate: every running container gets SIGTERM, and at most `grace` seconds.

        A sandbox that is being made is made first. So no controller can make and end pods faster than time passes.
        """
        if self.stopping is not None:
            self.stopping = min(self.stopping, now + grace)
            return
        slowest, programs = 0.0, False
        for run in self.everything:
            if not run.running:
                continue
            notes.append(("Normal", "Killing", f"Stopping container {run.spec.name}", run.field))
            if run.process is not None:
                run.process.terminate()
                programs = True
                continue
            stop_seconds = run.behaviour.stop_seconds
            slowest = max(slowest, grace if stop_seconds is None else min(grace, stop_seconds + _pre_stop(run.spec)))
        self.modelled_stop = max(now + slowest, self.accepted + SANDBOX_SECONDS)
        self.stopping = max(self.modelled_stop, now + grace) if programs else self.modelled_stop
        self.stop_early(now)

    def stop_early(self, now: float) -> None:
        """A terminating pod whose programs have all ended waits for the rest of its grace period no longer."""
        running = (run.process for run in self.everything if run.running and run.process is not None)
        if self.stopping is not None and all(process.exit_code is not None for process in running):
            self.stopping = min(self.stopping, max(now, self.modelled_stop))

    def kill(self) -> None:
        """The pod is gone from its node, with the programs in it."""
        for run in self.everything:
            if run.process is not None:
                run.process.kill()

    def finish(self, now: float) -> None:
        """The last container has ended."""
        for run in self.everything:
            if run.running:
                if run.process is not None:
                    run.end(now, 137 if run.process.exit_code is None else run.process.exit_code)
                else:
                    run.end(now, 0 if run.behaviour.stop_seconds is not None else 137)
                run.stage, run.due = "over", math.inf
        self.gone = True


def _unstarted(run: ContainerRun) -> bool:
    return run.stage == "waiting" and run.due == math.inf and run.waiting[0] in ("ContainerCreating", "PodInitializing")


def _initialized(run: ContainerRun) -> bool:
    if run.spec.sidecar:
        return run.has_run
    return run.stage in ("over", "ended") and run.ended is not None and run.ended.code == 0


def _pre_stop(spec: ContainerSpec) -> float:
    hook = spec.lifecycle.get("preStop") or {}
    if "sleep" in hook:
        return float(hook["sleep"].get("seconds", 0))
    command = (hook.get("exec") or {}).get("command") or []
    numbers = [word for word in " ".join(command).split() if word.isdigit()]
    return float(numbers[0]) if "sleep" in " ".join(command) and numbers else 0.0


#: What a container's environment lacks, given its namespace.
Unset = Callable[[str, ContainerSpec], str | None]


def accept(pod: KubeletPod, ip: str, now: float, unset: Unset = lambda namespace, spec: None) -> PodRun:
    """A pod that has just been bound to the node."""
    first = "PodInitializing" if pod.init_containers else "ContainerCreating"
    run = PodRun(
        key=pod.metadata.key,
        uid=pod.metadata.uid,
        node=pod.spec.node_name,
        pod=pod,
        ip=ip,
        accepted=now,
        inits=[_container(pod, spec, "initContainers", first, unset) for spec in pod.init_containers],
        mains=[_container(pod, spec, "containers", first, unset) for spec in pod.containers],
        transitions={},
    )
    join(run, pod, now, unset)
    return run


def join(run: PodRun, pod: KubeletPod, now: float, unset: Unset) -> bool:
    """Ephemeral containers that the pod has now are taken up at once; says whether there are any new ones."""
    names = {container.spec.name for container in run.ephemeral}
    new = [spec for spec in pod.ephemeral_containers if spec.name not in names]
    for spec in new:
        container = _container(pod, spec, "ephemeralContainers", "ContainerCreating", unset)
        container.due = now
        run.ephemeral.append(container)
    return bool(new)


def _container(pod: KubeletPod, spec: ContainerSpec, kind: str, first: str, unset: Unset) -> ContainerRun:
    annotations = pod.metadata.annotations
    model = behaviour_of(spec, annotations)
    image = image_of(spec.image, model.image_error, model.pull_seconds)
    field = f"spec.{kind}{{{spec.name}}}"
    made = ContainerRun(spec=spec, behaviour=model, image=image, field=field, waiting=(first, ""))
    made.oom_after = oom_after(spec, annotations)
    if spec.env or spec.env_from:
        made.unset = lambda: unset(pod.metadata.namespace, spec)
    return made


def resume(run: PodRun, now: float) -> None:
    """Take up a pod that an earlier life of this kubelet already ran."""
    run.sandbox = True
    seen = {status.name: status for status in run.pod.status.container_statuses}
    for container in run.ephemeral:
        container.serial, container.due = 1, math.inf
        container.ended, container.stage = Ended(0, "Completed", now, now, 1), "over"
    for init in run.inits:
        init.serial = 1
        if init.spec.sidecar:
            init.started, init.ready, init.stage = now, True, "running"
            if init.execute is not None:
                init.run_program(now)
        else:
            init.ended, init.stage = Ended(0, "Completed", now, now, 1), "over"
    for main in run.mains:
        status = seen.get(main.spec.name)
        main.serial = 1
        if status is not None:
            main.restarts = status.restart_count
        if run.pod.status.phase in ("Succeeded", "Failed"):
            code = 0 if run.pod.status.phase == "Succeeded" else 1
            main.ended, main.stage = Ended(code, "Completed" if code == 0 else "Error", now, now, 1), "over"
        else:
            main.started, main.ready = now, status.ready if status is not None else False
            if main.execute is not None:
                main.run_program(now)
            else:
                main.plan(now)
