"""One container's life: pull, start, run, get ready, end, start again. Events in, notes out, no I/O.

Time comes in as seconds. `step` is called when `due` has come; what it did is said through `Notes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.lab.kubelet.container_model import Behaviour
from dovetail.lab.kubelet.images import Image, go_seconds
from dovetail.lab.kubelet.process import ProbeState, Process
from dovetail.lab.kubelet.views import ContainerSpec

FIRST_BACKOFF = 10.0
LONGEST_BACKOFF = 300.0
#: A container that ran this long starts over with a short back-off.
FORGIVEN_AFTER = 600.0
SYNC = 1.0
#: Seconds until a container that lacks a ConfigMap or a Secret is tried again.
CONFIG_RETRY = 12.0

Note = tuple[str, str, str, str]  # type, reason, message, field path
Notes = list[Note]


class Ended(msgspec.Struct, frozen=True):
    """How a run of the container ended."""

    code: int
    reason: str
    started: float
    finished: float
    serial: int
    message: str = ""


class ContainerRun(msgspec.Struct):
    """The container's present state. `stage` is one of the method names below."""

    spec: ContainerSpec
    behaviour: Behaviour
    image: Image
    field: str
    stage: str = "waiting"
    due: float = math.inf
    waiting: tuple[str, str] = ("ContainerCreating", "")
    started: float | None = None
    pull_began: float = 0.0
    ready: bool = False
    restarts: int = 0
    serial: int = 0
    backoff: float = 0.0
    pull_backoff: float = 0.0
    ended: Ended | None = None
    previous: Ended | None = None
    #: Seconds of running until it has used up its memory limit.
    oom_after: float | None = None
    #: The resources that a resize in progress will give it.
    allocated: dict[str, Any] | None = None
    #: What its environment lacks.
    unset: Callable[[], str | None] = lambda: None
    #: Starts the program of the image, where it is one that really runs.
    execute: Callable[[], Process] | None = None
    process: Process | None = None
    previous_process: Process | None = None
    probes: dict[str, ProbeState] = {}

    @property
    def allocation(self) -> dict[str, Any]:
        """The resources reserved for it on its node."""
        return self.spec.resources if self.allocated is None else self.allocated

    @property
    def running(self) -> bool:
        return self.started is not None

    @property
    def has_run(self) -> bool:
        return self.started is not None or self.ended is not None or self.previous is not None

    @property
    def state(self) -> str:
        if self.started is not None:
            return "running"
        return "terminated" if self.ended is not None and self.stage in ("ended", "over") else "waiting"

    def begin(self, now: float, present: bool, notes: Notes) -> None:
        """Take the container up: the image first."""
        if self.image.invalid:
            self.waiting = ("InvalidImageName", self.image.error or "")
            self._note(notes, "Warning", "InspectFailed", self.image.error or "")
            self._note(notes, "Warning", "Failed", "Error: InvalidImageName")
            self._next("waiting", math.inf)
        elif self.spec.image_pull_policy == "Never" and not present:
            text = f'Container image "{self.image.reference}" is not present with pull policy of Never'
            self.waiting = ("ErrImageNeverPull", text)
            self._note(notes, "Warning", "ErrImageNeverPull", text)
            self._note(notes, "Warning", "Failed", "Error: ErrImageNeverPull")
            self._next("waiting", math.inf)
        elif present and self.spec.image_pull_policy != "Always":
            text = f'Container image "{self.image.reference}" already present on machine and can be accessed by the pod'
            self._note(notes, "Normal", "Pulled", text)
            self._next("starting", now + self.behaviour.start_seconds)
        else:
            self._note(notes, "Normal", "Pulling", f'Pulling image "{self.image.reference}"')
            self.pull_began = now
            seconds = 0.3 if present else self.image.pull_seconds
            self._next("pulling", now + seconds)

    def step(self, now: float, notes: Notes, restart_policy: str, pod: str) -> None:
        """Do what is due. `pod` is `name_namespace(uid)`, as messages call it."""
        match self.stage:
            case "pulling":
                self._pulled(now, notes)
            case "pull-failed":
                self._back_off_pull(now, notes)
            case "pull-backoff":
                self.begin(now, False, notes)
            case "starting":
                self._start(now, notes)
            case "running":
                self._run(now, notes)
            case "ended":
                self._after_end(now, notes, restart_policy, pod)
            case "crash-backoff":
                self._again(now, notes)
            case "unset":
                self.begin(now, True, notes)
            case _:
                self.due = math.inf

    def _pulled(self, now: float, notes: Notes) -> None:
        if self.image.error is not None:
            text = f'Failed to pull image "{self.image.reference}": {self.image.error}'
            self._note(notes, "Warning", "Failed", text)
            self._note(notes, "Warning", "Failed", "Error: ErrImagePull")
            self.waiting = ("ErrImagePull", self.image.error)
            self.pull_backoff = min(LONGEST_BACKOFF, self.pull_backoff * 2 or FIRST_BACKOFF)
            self._next("pull-failed", now + min(self.pull_backoff, 12.0) / 2)
            return
        took = go_seconds(self.due - self.pull_began)
        text = f'Successfully pulled image "{self.image.reference}" in {took} ({took} including waiting). '
        self._note(notes, "Normal", "Pulled", f"{text}Image size: {self.image.size} bytes.")
        self.pull_backoff = 0.0
        self._next("starting", now + self.behaviour.start_seconds)

    def _back_off_pull(self, now: float, notes: Notes) -> None:
        text = f'Back-off pulling image "{self.image.reference}"'
        self._note(notes, "Normal", "BackOff", text)
        self._note(notes, "Warning", "Failed", "Error: ImagePullBackOff")
        self.waiting = ("ImagePullBackOff", f"{text}: ErrImagePull: {self.image.error}")
        self._next("pull-backoff", now + max(1.0, self.pull_backoff - min(self.pull_backoff, 12.0) / 2))

    def _start(self, now: float, notes: Notes) -> None:
        problem = self.unset()
        if problem is not None:
            self.waiting = ("CreateContainerConfigError", problem)
            self._note(notes, "Warning", "Failed", f"Error: {problem}")
            self._next("unset", now + CONFIG_RETRY)
            return
        self._note(notes, "Normal", "Created", "Container created")
        self._note(notes, "Normal", "Started", "Container started")
        self.started = now
        self.ended = None
        self.ready = False
        self.serial += 1
        if self.execute is not None:
            self.run_program(now)
            return
        self.plan(now)

    def run_program(self, now: float) -> None:
        """Start the program of the image; its own state answers the probes."""
        assert self.execute is not None
        self.previous_process, self.process = self.process, self.execute()
        spec = self.spec
        kinds = {"startup": spec.startup_probe, "readiness": spec.readiness_probe, "liveness": spec.liveness_probe}
        self.probes = {
            kind: ProbeState(probe, now + max(probe.initial_delay_seconds, 0) + SYNC)
            for kind, probe in kinds.items()
            if probe is not None
        }
        self.ready = not {"startup", "readiness"} & self.probes.keys()
        self._plan_probes()

    def _plan_probes(self) -> None:
        """Liveness and readiness are asked once a startup probe has succeeded."""
        startup = self.probes.get("startup")
        moments = [probing.due for probing in ([startup] if startup is not None else self.probes.values())]
        if self.oom_after is not None and self.started is not None:
            moments.append(self.started + self.oom_after)
        self._next("running", min(moments, default=math.inf))

    def _run_program(self, now: float, notes: Notes) -> None:
        """The program has ended, or a probe is due."""
        assert self.process is not None
        assert self.started is not None
        if self.oom_after is not None and now >= self.started + self.oom_after:
            self.end(now, 137, "OOMKilled")
            return
        if self.process.exit_code is not None:
            self.end(now, self.process.exit_code)
            return
        waiting_for_startup = "startup" in self.probes
        for kind, probing in list(self.probes.items()):
            if probing.due > now or (waiting_for_startup and kind != "startup"):
                continue
            failure = probing.ask(self.process, now)
            if failure:
                self._note(notes, "Warning", "Unhealthy", f"{kind.capitalize()} probe failed: {failure}")
            if kind == "readiness":
                self.ready = probing.has_succeeded or (self.ready and not probing.has_failed)
            elif probing.has_failed:
                text = f"Container {self.spec.name} failed {kind} probe, will be restarted"
                self._note(notes, "Normal", "Killing", text)
                self.end(now, 137)
                return
            elif kind == "startup" and probing.has_succeeded:
                del self.probes["startup"]
                self.ready = "readiness" not in self.probes
        self._plan_probes()

    def plan(self, now: float) -> None:
        """The next thing to happen to a running container: it gets ready, fails its probe, or ends."""
        assert self.started is not None
        moments = []
        if not self.ready and not self.behaviour.never_ready:
            moments.append(self.ready_at)
        if self.behaviour.never_ready and self.spec.readiness_probe is not None:
            moments.append(max(now, self.started + self.spec.readiness_probe.initial_delay_seconds) + 10.0)
        if self.behaviour.run_seconds is not None:
            moments.append(self.started + self.behaviour.run_seconds)
        if self.oom_after is not None:
            moments.append(self.started + self.oom_after)
        if self.behaviour.unhealthy_after is not None and self.spec.liveness_probe is not None:
            moments.append(self.started + self.behaviour.unhealthy_after)
        self._next("running", max(now, min(moments, default=math.inf)))

    @property
    def ready_at(self) -> float:
        """A probe answers at its first turn after the container can answer."""
        assert self.started is not None
        able = self.started + self.behaviour.ready_seconds
        for probe in (self.spec.startup_probe, self.spec.readiness_probe):
            if probe is not None:
                first = self.started + max(probe.initial_delay_seconds, 0) + SYNC
                turns = max(0, math.ceil((able - first) / max(1, probe.period_seconds)))
                able = first + (turns + probe.success_threshold - 1) * max(1, probe.period_seconds)
        return able

    def _run(self, now: float, notes: Notes) -> None:
        assert self.started is not None
        if self.process is not None:
            self._run_program(now, notes)
            return
        model = self.behaviour
        if self.oom_after is not None and now >= self.started + self.oom_after:
            self.end(now, 137, "OOMKilled")
            return
        if model.run_seconds is not None and now >= self.started + model.run_seconds:
            self.end(now, model.exit_code)
            return
        sick = model.unhealthy_after
        if sick is not None and self.spec.liveness_probe is not None and now >= self.started + sick:
            self._note(notes, "Warning", "Unhealthy", f"Liveness probe failed: {_failure(self.spec.liveness_probe)}")
            text = f"Container {self.spec.name} failed liveness probe, will be restarted"
            self._note(notes, "Normal", "Killing", text)
            self.end(now, 137)
            return
        if model.never_ready and self.spec.readiness_probe is not None:
            self._note(notes, "Warning", "Unhealthy", f"Readiness probe failed: {_failure(self.spec.readiness_probe)}")
        elif not self.ready and now >= self.ready_at:
            self.ready = True
        self.plan(now)

    def end(self, now: float, code: int, reason: str | None = None) -> None:
        if self.process is not None:
            self.process.kill()
        started = now if self.started is None else self.started
        self.ended = Ended(code, reason or ("Completed" if code == 0 else "Error"), started, now, self.serial)
        self.started = None
        self.ready = False
        self._next("ended", now + SYNC)

    def _after_end(self, now: float, notes: Notes, policy: str, pod: str) -> None:
        assert self.ended is not None
        if policy == "Never" or (policy == "OnFailure" and self.ended.code == 0):
            self._next("over", math.inf)
            return
        if self.ended.finished - self.ended.started >= FORGIVEN_AFTER:
            self.backoff = 0.0
        if self.backoff == 0.0:
            self.backoff = FIRST_BACKOFF
            self._again(now, notes)
            return
        wait = self.backoff
        self.backoff = min(LONGEST_BACKOFF, self.backoff * 2)
        self.previous = self.ended
        label = go_minutes(wait)
        text = f"back-off {label} restarting failed container={self.spec.name} pod={pod}"
        self.waiting = ("CrashLoopBackOff", text)
        event = f"Back-off restarting failed container {self.spec.name} in pod {pod}"
        self._note(notes, "Warning", "BackOff", event)
        self._next("crash-backoff", self.ended.finished + wait)

    def _again(self, now: float, notes: Notes) -> None:
        self.previous = self.ended
        self.restarts += 1
        self.begin(now, True, notes)
        if self.stage in ("starting", "pulling"):
            self.due = min(self.due, now + max(0.1, self.behaviour.start_seconds / 2))

    def _next(self, stage: str, due: float) -> None:
        self.stage = stage
        self.due = due

    def _note(self, notes: Notes, type_: str, reason: str, message: str) -> None:
        notes.append((type_, reason, message, self.field))


def _failure(probe: object) -> str:
    http = getattr(probe, "http_get", None)
    if http is not None:
        return "HTTP probe failed with statuscode: 500"
    refused = getattr(probe, "tcp_socket", None) is not None
    return "dial tcp: connect: connection refused" if refused else "command terminated with exit code 1"


def go_minutes(seconds: float) -> str:
    """A whole number of seconds as Go prints it: 10s, 1m20s, 5m0s."""
    whole = int(seconds)
    return f"{whole}s" if whole < 60 else f"{whole // 60}m{whole % 60}s"
