"""The lab's certificate authority and administrator token, kept in its data folder.

The kubeconfig of a lab stays valid after a restart on the same directory.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import msgspec

from dovetail.lab.apiserver.journal import FILE_MODE, DataError
from dovetail.lab.apiserver.tls import Authority, is_usable, new_authority
from dovetail.language import message
from dovetail.language.system_errors import system_error

NAME = "identity"


class Kept(msgspec.Struct, frozen=True):
    """What the file holds."""

    authority: Authority
    token: str


def keep_identity(folder: Path, token: str | None, make_token: str, now: datetime) -> Kept:
    """The identity of the folder, made if it has none; a `token` that is asked for takes the place of the kept one."""
    path = folder / NAME
    kept = _read(path)
    if kept is not None and not is_usable(kept.authority, now):
        raise DataError(
            message(
                "{path}: its certificate authority cannot be used; remove the file, and a new one is made", path=path
            )
        )
    authority = kept.authority if kept is not None else new_authority(now)
    identity = Kept(authority, token or (kept.token if kept is not None else make_token))
    if identity != kept:
        _write(path, identity)
    return identity


def _read(path: Path) -> Kept | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(
            message(
                "cannot use {folder}: {strerror}; choose another --data folder",
                folder=path,
                strerror=system_error(error),
            )
        ) from error
    except msgspec.DecodeError as error:
        raise DataError(
            message("{path} cannot be read as a lab's identity; remove it, and a new one is made", path=path)
        ) from error


def _write(path: Path, kept: Kept) -> None:
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), "wb") as out:
            out.write(msgspec.json.encode(kept))
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(path)
    except OSError as error:
        raise DataError(
            message(
                "cannot write {path}: {strerror}; choose another --data folder", path=path, strerror=system_error(error)
            )
        ) from error
