"""What a container does in the lab, where nothing really runs: how long it takes to start, when it ends, and how.

Annotations on the pod decide (`lab.dovetail.dev/…`, for one container: `lab.dovetail.dev/….<container>`), else the
command (sleep, exit, false, true, echo, endless loops), else the image, else it runs until it is stopped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from dovetail.lab.kubelet.views import ContainerSpec

PREFIX = "lab.dovetail.dev/"
MEMORY = f"{PREFIX}memory"

#: Images whose main process ends at once when it has no terminal and no command.
_SHELLS = frozenset({"busybox", "alpine", "ubuntu", "debian", "bash", "amazonlinux", "ubuntu-slim", "python"})
_ONE_SHOT = {"hello-world": 0.2, "perl": 6.0}


class Behaviour(msgspec.Struct, frozen=True):
    """Seconds, unless said otherwise. `run_seconds` None: for ever. `stop_seconds` None: ignores SIGTERM."""

    start_seconds: float = 0.6
    ready_seconds: float = 0.0
    run_seconds: float | None = None
    exit_code: int = 0
    stop_seconds: float | None = 0.4
    never_ready: bool = False
    unhealthy_after: float | None = None
    pull_seconds: float | None = None
    image_error: str | None = None


def behaviour_of(container: ContainerSpec, annotations: Mapping[str, str]) -> Behaviour:
    model = _by_command(container.image, container.command, container.args)
    if not annotations:
        return model
    changes: dict[str, object] = {}
    for field, convert in _SETTINGS.items():
        name = field.replace("_", "-")
        text = annotations.get(f"{PREFIX}{name}.{container.name}", annotations.get(f"{PREFIX}{name}"))
        if text is not None:
            changes[field] = convert(text)
    return msgspec.structs.replace(model, **changes) if changes else model


def _seconds(text: str) -> float | None:
    """`90`, `90s`, `5m`, `2h`, or `never`."""
    if text in ("never", "forever", ""):
        return None
    match = re.fullmatch(r"([0-9.]+)(ms|s|m|h)?", text)
    if match is None:
        return None
    return float(match[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2] or "s"]


_SETTINGS: dict[str, Callable[[str], object]] = {
    "start_seconds": lambda text: _seconds(text) or 0.0,
    "ready_seconds": lambda text: _seconds(text) or 0.0,
    "run_seconds": _seconds,
    "exit_code": lambda text: int(text) if text.lstrip("-").isdigit() else 1,
    "stop_seconds": _seconds,
    "never_ready": lambda text: text == "true",
    "unhealthy_after": _seconds,
    "pull_seconds": _seconds,
    "image_error": str,
}


@lru_cache(maxsize=4096)
def _by_command(reference: str, command: tuple[str, ...], args: tuple[str, ...]) -> Behaviour:
    words = [*command, *args]
    image = short_name(reference)
    if not words:
        if image in _SHELLS:
            return Behaviour(run_seconds=0.1)
        if image in _ONE_SHOT:
            return Behaviour(run_seconds=_ONE_SHOT[image])
        return Behaviour()
    if image in _ONE_SHOT and command[:1] != ("sh",):
        return Behaviour(run_seconds=_ONE_SHOT[image])
    return _by_words(words)


def _by_words(words: list[str]) -> Behaviour:
    program = words[0].rsplit("/", 1)[-1]
    if program in ("sh", "bash", "ash") and len(words) >= 3 and "c" in words[1]:
        return _by_script(words[2])
    if program in ("true", "echo", "env", "date", "ls", "cat", "printenv", "hostname"):
        return Behaviour(run_seconds=0.1)
    if program == "false":
        return Behaviour(run_seconds=0.1, exit_code=1)
    if program == "sleep":
        return _sleep(words[1]) if len(words) > 1 else Behaviour(run_seconds=0.1, exit_code=1)
    return Behaviour()


def _sleep(text: str) -> Behaviour:
    return Behaviour(run_seconds=None if text in ("infinity", "inf") else _seconds(text), stop_seconds=None)


def _by_script(script: str) -> Behaviour:
    """A shell script: endless if it loops; else the sum of its sleeps, and the code of its last exit."""
    if re.search(r"\b(while|until)\b", script) or re.search(r"\b(tail\s+-f|sleep\s+inf)", script):
        return Behaviour(stop_seconds=None)
    sleeps = [_seconds(text) or 0.0 for text in re.findall(r"\bsleep\s+([0-9.]+[smh]?)", script)]
    exits = re.findall(r"\bexit\s+(\d+)", script)
    code = int(exits[-1]) if exits else int(script.strip().endswith("false"))
    is_modelled = bool(sleeps or exits or re.match(r"\s*(echo|true|false|date|env|cat|ls|printf|perl)\b", script))
    if not is_modelled:
        return Behaviour()
    return Behaviour(run_seconds=max(0.1, sum(sleeps)), exit_code=code, stop_seconds=None if sleeps else 0.1)


def short_name(image: str) -> str:
    """`registry.k8s.io/hpa-example:1.0@sha256:…` → `hpa-example`."""
    return image.split("@", 1)[0].rsplit("/", 1)[-1].split(":", 1)[0]
