"""Run files: where the labs that run can be found. One small file a lab with its pid, address and kubeconfig.

`up` writes it; `down`, `env`, `fault`, `explain`, `history` and `kubectl` read it, and `run` looks whether its cluster
is a lab with an autoscaler of its own. A file whose process is gone counts as no lab.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from dovetail.language import message

DEFAULT_NAME = "default"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class RunningLab(msgspec.Struct, frozen=True):
    """A running lab. While it is not `ready`, AWS does not answer yet, and `environment` does not point there."""

    pid: int
    url: str
    kubeconfig: str
    token: str
    speed: float = 1.0
    log: str = ""
    environment: Mapping[str, str] = {}
    ready: bool = True
    name: str = DEFAULT_NAME
    #: The URL of its page, with the token; only the owner may read the run file.
    dashboard: str = ""
    #: When the process started, by the kernel's count: another process may get the same pid.
    started: str = ""


class NotOneLab(LookupError):
    """No lab, or several, where one is meant; the text says which run and how to choose."""


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def folder() -> Path:
    """Where run files are, by the rules of the XDG base directories."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "dovetail" / "labs"


def path_of(name: str) -> Path:
    return folder() / f"{name}.json"


def log_of(name: str) -> Path:
    """What a lab in the background prints."""
    return folder() / f"{name}.log"


def command_for(command: str, name: str) -> str:
    """A command as one types it for that lab."""
    return f"dovetail {command}" if name == DEFAULT_NAME else f"dovetail {command} --name {name}"


def register(lab: RunningLab) -> None:
    path = path_of(lab.name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.touch(mode=0o600)
    fresh.write_bytes(msgspec.json.encode(msgspec.structs.replace(lab, started=_started(lab.pid))))
    fresh.replace(path)


def running() -> list[RunningLab]:
    """The labs that run, by name."""
    try:
        paths = sorted(folder().glob("*.json"))
    except OSError:
        return []
    return [lab for path in paths if (lab := _read(path)) is not None and _is_alive(lab)]


def find(name: str = DEFAULT_NAME) -> RunningLab | None:
    """The lab of that name, if it runs."""
    lab = _read(path_of(name))
    return lab if lab is not None and _is_alive(lab) else None


def choose(name: str | None) -> RunningLab:
    """The lab of that name; without one, that of KUBECONFIG or the only one. NotOneLab says which there are."""
    labs = running()
    listed = ", ".join(f"{lab.name} ({lab.url})" for lab in labs)
    if name is not None:
        chosen = [lab for lab in labs if lab.name == name]
        if not chosen:
            others = message("; there are {listed}", listed=listed) if labs else ""
            raise NotOneLab(
                message(
                    "no lab {name!r} runs{others}; {command_for} --detach starts one",
                    name=name,
                    others=others,
                    command_for=command_for("up", name),
                )
            )
        return chosen[0]
    if not labs:
        raise NotOneLab(message("no lab runs; dovetail up --detach starts one"))
    if len(labs) > 1:
        pointed = [lab for lab in labs if lab.kubeconfig == os.environ.get("KUBECONFIG")]
        if len(pointed) != 1:
            raise NotOneLab(
                message(
                    'several labs run: {listed}; choose one with --name, or for every command with eval "$(dovetail '
                    'env --name {first})"',
                    listed=listed,
                    first=labs[0].name,
                )
            )
        return pointed[0]
    return labs[0]


def leave(pid: int, name: str = DEFAULT_NAME) -> None:
    """Take the file away, if it is this process's."""
    lab = _read(path_of(name))
    if lab is not None and lab.pid == pid:
        path_of(name).unlink(missing_ok=True)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read(path: Path) -> RunningLab | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunningLab)
    except (OSError, msgspec.DecodeError):
        return None


def _is_alive(lab: RunningLab) -> bool:
    return alive(lab.pid) and (not lab.started or lab.started == _started(lab.pid))


def _started(pid: int) -> str:
    """The start time of a process; empty where the kernel does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
