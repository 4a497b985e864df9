"""Tokens that change: read from a file again and again, or made by a command such as `aws eks get-token`."""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from dovetail.clock import wall
from dovetail.kube.errors import KubeError
from dovetail.language import message
from dovetail.language.system_errors import system_error

_REREAD = timedelta(minutes=1)
_EARLY = timedelta(minutes=1)
_PATIENCE = 60.0


class ConfigError(KubeError):
    """What is wrong with the configuration: the file, the field, and the way out."""


class TokenFile:
    """A token in a file that is rotated (service accounts)."""

    def __init__(self, path: Path, now: Callable[[], datetime] = wall) -> None:
        self._path = path
        self._now = now
        self._read: datetime | None = None
        self._headers: dict[str, str] = {}

    async def headers(self) -> Mapping[str, str]:
        now = self._now()
        if self._read is None or now - self._read >= _REREAD:
            try:
                token = self._path.read_text().strip()
            except OSError as problem:
                raise ConfigError(
                    message(
                        "{path}: the token cannot be read: {system_error}",
                        path=self._path,
                        system_error=system_error(problem),
                    )
                ) from problem
            if not token:
                raise ConfigError(message("{path}: the token file is empty", path=self._path))
            self._headers, self._read = {"authorization": f"Bearer {token}"}, now
        return self._headers

    def rejected(self) -> bool:
        self._read = None
        return True


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    status: _Status
    kind: str = ""
    api_version: str = ""


class Exec:
    """A command that prints an ExecCredential; run again shortly before what it gave expires, or after a 401."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        api_version: str,
        where: str,
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
        cluster: Mapping[str, Any] | None = None,
        hint: str = "",
        tls: ssl.SSLContext | None = None,
        now: Callable[[], datetime] = wall,
    ) -> None:
        self._command = list(command)
        self._where = where
        self._folder = folder
        self._hint = hint
        self._tls = tls
        self._now = now
        spec: dict[str, Any] = {"interactive": False} | ({"cluster": dict(cluster)} if cluster else {})
        info = {"apiVersion": api_version, "kind": "ExecCredential", "spec": spec}
        self._env = {**(env or {}), "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        self._lock = asyncio.Lock()
        self._held: _Status | None = None

    async def headers(self) -> Mapping[str, str]:
        async with self._lock:
            if self._held is None or self._stale(self._held):
                self._held = await self._run()
                self._take_certificate(self._held)
            return {"authorization": f"Bearer {self._held.token}"} if self._held.token else {}

    def rejected(self) -> bool:
        self._held = None
        return True

    def _stale(self, status: _Status) -> bool:
        return status.expiration_timestamp is not None and self._now() >= status.expiration_timestamp - _EARLY

    async def _run(self) -> _Status:
        program = self._command[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **self._env},
                cwd=self._folder,
            )
        except OSError as problem:
            hint = (
                f"\n{self._hint}"
                if self._hint
                else message(": install {program!r} or put it on the PATH", program=program)
            )
            raise ConfigError(
                message(
                    "{where}: {program!r} cannot be run ({system_error}){hint}",
                    where=self._where,
                    program=program,
                    system_error=system_error(problem),
                    hint=hint,
                )
            ) from problem
        try:
            async with asyncio.timeout(_PATIENCE * getattr(asyncio.get_running_loop(), "speed", 1.0)):
                out, err = await process.communicate()
        except TimeoutError as problem:
            process.kill()
            await process.wait()
            raise ConfigError(
                message(
                    "{where}: {program!r} gave no credentials within {patience:g} s",
                    where=self._where,
                    program=program,
                    patience=_PATIENCE,
                )
            ) from problem
        if process.returncode:
            stderr_text = err.decode(errors="replace").strip() or message("it said nothing")
            raise ConfigError(
                f"{self._where}: {' '.join(self._command)!r} failed ({process.returncode}): {stderr_text}"
            )
        return self._parse(out)

    def _parse(self, out: bytes) -> _Status:
        try:
            status = msgspec.json.decode(out, type=_ExecCredential).status
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise ConfigError(
                message(
                    "{where}: {command!r} did not print an ExecCredential: {problem}",
                    where=self._where,
                    command=self._command[0],
                    problem=problem,
                )
            ) from problem
        if not status.token and not status.client_certificate_data:
            raise ConfigError(
                message(
                    "{where}: {command!r} printed neither a token nor a certificate",
                    where=self._where,
                    command=self._command[0],
                )
            )
        return status

    def _take_certificate(self, status: _Status) -> None:
        if status.client_certificate_data and self._tls is not None:
            load_pair(self._tls, status.client_certificate_data.encode(), status.client_key_data.encode())


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Give a context a client certificate that is not in a file (the library reads files only)."""
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
        file = Path(folder) / "pair.pem"
        file.touch(mode=0o600)
        file.write_bytes(certificate + b"\n" + key)
        context.load_cert_chain(file)
