"""Where a running lab can be found: one small file with its pid, its address and its kubeconfig.

`up` writes it, `down`, `env`, `fault` and `kubectl` read it. A file whose process is gone counts as no lab.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec


class Residence(msgspec.Struct, frozen=True):
    """A running lab. While it is not `ready`, AWS does not answer yet, and `environment` does not point there."""

    pid: int
    url: str
    kubeconfig: str
    token: str
    speed: float = 1.0
    log: str = ""
    environment: Mapping[str, str] = {}
    ready: bool = True


def place() -> Path:
    """The file's place, by the rules of the XDG base directories."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "dovetail" / "lab.json"


def register(lab: Residence, path: Path | None = None) -> None:
    path = path or place()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(msgspec.json.encode(lab))


def find(path: Path | None = None) -> Residence | None:
    """The lab that runs, if one does."""
    path = path or place()
    try:
        lab = msgspec.json.decode(path.read_bytes(), type=Residence)
    except (OSError, msgspec.DecodeError):
        return None
    return lab if alive(lab.pid) else None


def leave(pid: int, path: Path | None = None) -> None:
    """Take the file away, if it is ours."""
    path = path or place()
    try:
        lab = msgspec.json.decode(path.read_bytes(), type=Residence)
    except (OSError, msgspec.DecodeError):
        return
    if lab.pid == pid:
        path.unlink(missing_ok=True)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
