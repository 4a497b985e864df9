"""`dovetail up --bare`: the API server alone, for those who otherwise download envtest."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import yaml

from dovetail.chance import Chance, system_seed
from dovetail.clock import Clock, run_scaled, wall
from dovetail.lab.apiserver import auth, tls
from dovetail.lab.apiserver.garbage_collector import Collector
from dovetail.lab.apiserver.http import HttpMount
from dovetail.lab.apiserver.journal import DataError, Journal
from dovetail.lab.apiserver.kept_identity import keep_identity
from dovetail.lab.apiserver.kinds.bootstrap_rbac import seed_defaults
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.apiserver.store import JournalRefused, ObjectStore
from dovetail.lab.namespace_finalizer import NamespaceFinalizer
from dovetail.language import message
from dovetail.language.system_errors import system_error
from dovetail.runfile import DEFAULT_NAME, RunningLab, command_for, find, leave, register


class StartError(RuntimeError):
    """The server cannot start; the text says why and what to do."""


def kubeconfig(url: str, authority: bytes | None, token: str, name: str = DEFAULT_NAME) -> str:
    """A kubeconfig with one context, `dovetail`, or `dovetail-NAME` of a lab that has a name."""
    context = "dovetail" if name == DEFAULT_NAME else f"dovetail-{name}"
    cluster: dict[str, str] = {"server": url}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": {"token": token}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    }
    return yaml.safe_dump(document, sort_keys=False)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, all at once."""
    try:
        if not path.name:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.touch(mode=0o600)
        fresh.write_text(text)
        fresh.replace(path)
    except OSError as error:
        raise StartError(
            message("cannot write {path}: {why}; choose another --kubeconfig", path=path, why=system_error(error))
        ) from error


class ApiServerOnly:
    """The server, its certificate, its token, its data directory and its listener on the loopback."""

    def __init__(
        self,
        clock: Clock,
        chance: Chance,
        port: int,
        token: str | None,
        data: Path | None = None,
        make: Callable[..., ApiServer] = ApiServer,
        recover: bool = False,
    ) -> None:
        store = ObjectStore(clock)
        self.journal = Journal(data, store, recover) if data is not None else None
        self.token, authority = token or Chance(system_seed()).uid(), None
        if self.journal is not None:
            try:
                self.journal.open()
                kept = keep_identity(self.journal.folder, token, self.token, wall())
            except DataError as error:
                self.journal.close()
                raise StartError(str(error)) from error
            self.token, authority = kept.token, kept.authority
        try:
            self.server = make(clock, chance, store=store, tokens={self.token: auth.ADMIN})
            seed_defaults(self.server, clock.now())
        except JournalRefused as error:
            assert self.journal is not None
            self.journal.close()
            raise StartError(str(error)) from error
        if self.journal is not None:
            self.server.settled = self.journal.settled
            self.server.health.storage = self.journal.health
        self.collector = Collector(self.server, delay=0.5)
        self.identity = tls.make(wall(), authority)  # by the clock of those who check it, however fast the lab's runs
        self._folder = tempfile.TemporaryDirectory(prefix="dovetail-")
        self.mount = HttpMount(self.server, port=port, context=self.identity.context(Path(self._folder.name)))

    async def start(self) -> str:
        self.collector.start()
        try:
            await self.mount.start()
        except OSError as error:
            why = message("it is in use") if error.errno == errno.EADDRINUSE else system_error(error)
            raise StartError(
                message("cannot listen on port {port}: {why}; choose another --port", port=self.mount.port, why=why)
            ) from error
        return self.url

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.mount.port}"

    async def stop(self) -> None:
        await self.mount.stop()
        if self.journal is not None:
            self.journal.close()
        self._folder.cleanup()

    @property
    def notes(self) -> list[str]:
        """What was put aside of a data folder that was not whole."""
        return self.journal.notes if self.journal is not None else []

    def kubeconfig(self, name: str = DEFAULT_NAME) -> str:
        return kubeconfig(self.url, self.identity.authority, self.token, name)


async def serve(
    port: int,
    config: Path,
    token: str | None,
    data: Path | None,
    write_line: Callable[[str], None],
    log: str = "",
    recover: bool = False,
    name: str = DEFAULT_NAME,
) -> None:
    """Run until interrupted. With a log of its own it runs in the background, and `dovetail down` finds it."""
    loop = asyncio.get_running_loop()
    chance = Chance(system_seed())
    bare = ApiServerOnly(Clock(loop), chance, port, token, data, recover=recover)
    namespace_finalizer = NamespaceFinalizer(bare.server, bare.token)
    try:
        url = await bare.start()
        namespace_finalizer.start()
        write_private(config, bare.kubeconfig(name))
        if log:
            _register(url, config, log, name)
        for note in bare.notes:
            write_line(note)
        write_line(f"API server  {url}")
        write_line(f"kubeconfig  {config}")
        done = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, done.set)
        await done.wait()
    finally:
        leave(os.getpid(), name)
        await namespace_finalizer.stop()
        await bare.stop()


def _register(url: str, config: Path, log: str, name: str) -> None:
    register(RunningLab(os.getpid(), url, str(config.absolute()), "", log=log, name=name))


def refuse_second(name: str) -> None:
    """StartError if a lab of that name runs already."""
    other = find(name)
    if other is not None and other.pid != os.getpid():
        which = message("a lab") if name == DEFAULT_NAME else message("lab {name}", name=name)
        raise StartError(
            message(
                "{which} runs already at {url} (process {pid}); {command} stops it, "
                "up --name OTHER starts another beside it",
                which=which,
                url=other.url,
                pid=other.pid,
                command=command_for("down", name),
            )
        )


def run(
    port: int,
    config: Path,
    token: str | None,
    data: Path | None,
    write_line: Callable[[str], None],
    log: str = "",
    recover: bool = False,
    name: str = DEFAULT_NAME,
) -> None:
    run_scaled(serve(port, config, token, data, write_line, log, recover, name))
