"""What containers of the lab print: what their command echoes, or the usual first lines of a known image."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from dovetail.clock import Clock
from dovetail.lab.apiserver.registry import Refusal
from dovetail.lab.controllers.timestamps import stamp
from dovetail.lab.kubelet.container import ContainerRun
from dovetail.lab.kubelet.container_model import short_name
from dovetail.lab.kubelet.kubelets import Fleet

#: Lines shown of a loop that prints for ever.
KEPT_LINES = 200


class Logs:
    """Serves the API server's log subresource. `also` comes first: a part of the lab with a real log."""

    def __init__(
        self, fleet: Fleet, clock: Clock, also: Callable[[dict[str, Any], str], list[str] | None] | None = None
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._also = also

    def read(self, pod: dict[str, Any], container: str, options: Mapping[str, str]) -> bytes | None:
        """The log of a container; None if no kubelet here has it."""
        meta = pod["metadata"]
        run = self._fleet.runs.get(f"{meta['namespace']}/{meta['name']}")
        if run is None:
            return None
        found = next((each for each in run.everything if each.spec.name == container), None)
        if found is None:
            return None
        problem = unreadable(found, meta["name"], options.get("previous") == "true")
        if problem is not None:
            raise Refusal(400, "BadRequest", problem)
        lines = self._also(pod, container) if self._also is not None else None
        if lines is None:
            lines = self._lines(found)
        tail = options.get("tailLines", "")
        if tail.isdigit():
            lines = lines[len(lines) - min(len(lines), int(tail)) :]
        return "".join(f"{line}\n" for line in lines).encode()

    def _lines(self, run: ContainerRun) -> list[str]:
        begun = run.started if run.started is not None else run.ended.started if run.ended is not None else None
        if begun is None:
            return []
        now = self._clock.now()
        at = self._clock.monotonic()
        return lines_of(run, begun, at, now - timedelta(seconds=at - begun))


def unreadable(run: ContainerRun, pod: str, previous: bool) -> str | None:
    """Why a container has no log to show, in the kubelet's words."""
    name = run.spec.name
    if previous:
        return None if run.previous is not None else f'previous terminated container "{name}" in pod "{pod}" not found'
    if run.running or run.ended is not None or run.previous is not None:
        return None
    reason = run.waiting[0]
    told = {"ErrImagePull": "image can't be pulled", "ImagePullBackOff": "trying and failing to pull image"}
    return f'container "{name}" in pod "{pod}" is waiting to start: {told.get(reason, reason)}'


def lines_of(run: ContainerRun, begun: float, at: float, started: datetime) -> list[str]:
    script = " ".join((*run.spec.command, *run.spec.args))
    said = [text.strip("\"' ") for text in re.findall(r"\becho\s+(\"[^\"]*\"|'[^']*'|[^;&|]+)", script)]
    if re.search(r"\bdate\b", script):
        said.append(started.strftime("%a %b %e %H:%M:%S UTC %Y"))
    asks = re.search(r"\bwhile\b.*?\b(wget|curl)\b", script)
    pauses = [float(text) for text in re.findall(r"\bsleep\s+([0-9.]+)", script)]
    if asks is not None:
        return ["OK!" * 60]
    if re.search(r"\b(while|until)\b", script) and said:
        turns = int((at - begun) / max(0.5, sum(pauses)))
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
