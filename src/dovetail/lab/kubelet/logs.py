"""What containers of the lab print: the lines of the program that runs in them, or what their model would print.

A model prints what its command echoes, or the usual first lines of its image.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from dovetail.clock import Clock
from dovetail.lab.apiserver.registry import RequestRefused
from dovetail.lab.controllers.timestamps import stamp
from dovetail.lab.kubelet.container import ContainerRun
from dovetail.lab.kubelet.container_model import short_name
from dovetail.lab.kubelet.kubelets import Kubelets
from dovetail.lab.kubelet.process import LogLine, Process

T = TypeVar("T")
#: Lines shown of a loop that prints for ever.
KEPT_LINES = 200
#: Between two looks at what a modelled container has written since, in seconds.
FOLLOW_INTERVAL_S = 1.0


class Logs:
    """Answers the log subresource of the API server."""

    def __init__(self, fleet: Kubelets, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock

    def read(
        self, pod: dict[str, Any], container: str, options: Mapping[str, str]
    ) -> bytes | AsyncIterator[bytes] | None:
        """The log of a container, as it grows if `follow` is set; None if no kubelet here has it."""
        meta = pod["metadata"]
        run = self._fleet.runs.get(f"{meta['namespace']}/{meta['name']}")
        if run is None:
            return None
        container_run = next((item for item in run.everything if item.spec.name == container), None)
        if container_run is None:
            return None
        previous = options.get("previous") == "true"
        problem = unreadable(container_run, meta["name"], previous)
        if problem is not None:
            raise RequestRefused(400, "BadRequest", problem)
        follow = options.get("follow") == "true" and not previous
        process = container_run.process
        if previous and container_run.running and process is not None:
            process = container_run.previous_process
        if process is not None:
            return self._of_program(process, options, follow)
        if follow:
            return self._follow(container_run, options)
        return "".join(f"{line}\n" for line in _tail(self._lines(container_run), options)).encode()

    def _of_program(self, process: Process, options: Mapping[str, str], follow: bool) -> bytes | AsyncIterator[bytes]:
        lines = list(process.log.lines)
        since = self._since(options)
        shown = _tail([line for line in lines if since is None or line.written >= since], options)
        text = "".join(_written(line, options) for line in shown).encode()
        limit = options.get("limitBytes", "")
        if limit.isdigit():
            text = text[: int(limit)]
        if not follow:
            return text
        return _grow(text, process, lines[-1].number + 1 if lines else 0, options)

    def _since(self, options: Mapping[str, str]) -> datetime | None:
        seconds = options.get("sinceSeconds", "")
        if seconds.isdigit():
            return self._clock.now() - timedelta(seconds=int(seconds))
        moment = options.get("sinceTime", "")
        return datetime.fromisoformat(moment) if moment else None

    async def _follow(self, run: ContainerRun, options: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The lines of a modelled container, until it ends."""
        serial = run.serial
        written = self._lines(run)
        yield "".join(f"{line}\n" for line in _tail(written, options)).encode()
        count = len(written)
        while run.running and run.serial == serial and not self._gone(run):
            await asyncio.sleep(FOLLOW_INTERVAL_S)
            lines = self._lines(run)
            if run.serial == serial and len(lines) > count:
                yield "".join(f"{line}\n" for line in lines[count:]).encode()
                count = len(lines)

    def _gone(self, run: ContainerRun) -> bool:
        """Whether its pod is no longer on any node."""
        return not any(run is container for pod in self._fleet.runs.values() for container in pod.everything)

    def _lines(self, run: ContainerRun) -> list[str]:
        begun = run.started if run.started is not None else run.ended.started if run.ended is not None else None
        if begun is None:
            return []
        now = self._clock.now()
        monotonic = self._clock.monotonic()
        return lines_of(run, begun, monotonic, now - timedelta(seconds=monotonic - begun))


def _tail(lines: Sequence[T], options: Mapping[str, str]) -> Sequence[T]:
    tail = options.get("tailLines", "")
    return lines[len(lines) - min(len(lines), int(tail)) :] if tail.isdigit() else lines


def _written(line: LogLine, options: Mapping[str, str]) -> str:
    if options.get("timestamps") == "true":
        return f"{line.written.isoformat(timespec='microseconds').replace('+00:00', 'Z')} {line.text}\n"
    return f"{line.text}\n"


async def _grow(text: bytes, process: Process, number: int, options: Mapping[str, str]) -> AsyncIterator[bytes]:
    """What there is, then each line as it is written, until the program ends."""
    yield text
    async for line in process.log.after(number):
        yield _written(line, options).encode()


def unreadable(run: ContainerRun, pod: str, previous: bool) -> str | None:
    """Why a container has no log to show, in the kubelet's words."""
    name = run.spec.name
    if previous:
        return None if run.previous is not None else f'previous terminated container "{name}" in pod "{pod}" not found'
    if run.running or run.ended is not None or run.previous is not None:
        return None
    reason = run.waiting[0]
    reasons = {"ErrImagePull": "image can't be pulled", "ImagePullBackOff": "trying and failing to pull image"}
    return f'container "{name}" in pod "{pod}" is waiting to start: {reasons.get(reason, reason)}'


def lines_of(run: ContainerRun, begun: float, monotonic: float, started: datetime) -> list[str]:
    script = " ".join((*run.spec.command, *run.spec.args))
    said = [text.strip("\"' ") for text in re.findall(r"\becho\s+(\"[^\"]*\"|'[^']*'|[^;&|]+)", script)]
    if re.search(r"\bdate\b", script):
        said.append(started.strftime("%a %b %e %H:%M:%S UTC %Y"))
    asks = re.search(r"\bwhile\b.*?\b(wget|curl)\b", script)
    pauses = [float(text) for text in re.findall(r"\bsleep\s+([0-9.]+)", script)]
    if asks is not None:
        return ["OK!" * 60]
    if re.search(r"\b(while|until)\b", script) and said:
        turns = int((monotonic - begun) / max(0.5, sum(pauses)))
        return (said * (min(turns, KEPT_LINES) + 1))[:KEPT_LINES]
    if said:
        return said
    if short_name(run.spec.image) == "nginx":
        text = started.strftime("%Y/%m/%d %H:%M:%S [notice] 1#1: ")
        return [f'{text}using the "epoll" event method', f"{text}start worker processes"]
    if short_name(run.spec.image) == "hello-world":
        return [
            "",
            "Hello from Docker!",
            "This message shows that your installation appears to be working correctly.",
            "",
        ]
    if "perl" in run.spec.image and "bpi" in script:
        return [
            "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
        ]
    return [f"{stamp(started)} started"] if run.spec.image and short_name(run.spec.image) not in ("pause",) else []
