"""A program that really runs in a container: what its kubelet asks of it, and the lines it has written.

The kubelet starts it, asks its probes, ends it, and learns when it has ended by itself. What the program is, and how
it runs, is known to the part of the lab that starts it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Protocol

import msgspec

from dovetail.lab.kubelet.views import ContainerSpec, KubeletPod, Probe

#: Lines kept of one run of a container; a kubelet rotates logs, too.
MAX_LOG_LINES = 20_000


class LogLine(msgspec.Struct, frozen=True):
    """A line of a log. `number` counts from the first line of the container's run."""

    number: int
    written: datetime
    text: str


class ProcessLog:
    """The lines of one run. Readers that follow it are woken by each line, and by its end."""

    def __init__(self) -> None:
        self.lines: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)
        self._written = 0
        self._closed = False
        self._changed = asyncio.Event()

    def write(self, written: datetime, text: str) -> None:
        for part in text.rstrip("\n").split("\n"):
            self.lines.append(LogLine(self._written, written, part))
            self._written += 1
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    async def after(self, number: int) -> AsyncIterator[LogLine]:
        """Lines from this number on, as they are written, until the run has ended."""
        while True:
            changed, closed = self._changed, self._closed
            for line in list(self.lines):
                if line.number >= number:
                    number = line.number + 1
                    yield line
            if closed:
                return
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Process(Protocol):
    """One run of a program. `exit_code` is None while it runs."""

    log: ProcessLog
    exit_code: int | None

    def probe_failure(self, probe: Probe) -> str:
        """Why the probe fails, in the kubelet's words; empty where it succeeds."""
        ...

    def terminate(self) -> None:
        """SIGTERM: the program ends in its own time."""
        ...

    def kill(self) -> None:
        """SIGKILL, or the end of the instance: nothing that the program does from now on has an effect."""
        ...


class Programs(Protocol):
    """What starts programs."""

    def runs(self, container: ContainerSpec) -> bool:
        """Whether the container's image and command are those of a program."""
        ...

    def execute(self, pod: KubeletPod, container: ContainerSpec, pod_ip: str, ended: Callable[[], None]) -> Process:
        """Start it; `ended` is called when it has ended, for whatever cause."""
        ...


class ProbeState(msgspec.Struct):
    """The state of one probe of a running program."""

    probe: Probe
    due: float
    failures: int = 0
    successes: int = 0

    def ask(self, process: Process, now: float) -> str:
        """Ask once, and plan the next time; returns why it failed, or nothing."""
        failure = process.probe_failure(self.probe)
        self.due = now + max(1, self.probe.period_seconds)
        self.failures = self.failures + 1 if failure else 0
        self.successes = 0 if failure else self.successes + 1
        return failure

    @property
    def has_failed(self) -> bool:
        return self.failures >= self.probe.failure_threshold

    @property
    def has_succeeded(self) -> bool:
        return self.successes >= self.probe.success_threshold
