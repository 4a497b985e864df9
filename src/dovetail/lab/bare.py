"""`dovetail up --bare`: the API server alone, for those who otherwise download envtest."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import tempfile
from pathlib import Path

import yaml

from dovetail.chance import Chance, system_seed
from dovetail.clock import Clock, run_scaled
from dovetail.lab.apiserver import access, tls
from dovetail.lab.apiserver.http import HttpMount
from dovetail.lab.apiserver.server import ApiServer


def kubeconfig(url: str, authority: bytes | None, token: str) -> str:
    """A kubeconfig with one context, `dovetail`."""
    cluster: dict[str, str] = {"server": url}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "dovetail", "cluster": cluster}],
        "users": [{"name": "dovetail", "user": {"token": token}}],
        "contexts": [{"name": "dovetail", "context": {"cluster": "dovetail", "user": "dovetail"}}],
        "current-context": "dovetail",
    }
    return yaml.safe_dump(document, sort_keys=False)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, all at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(path)


class Bare:
    """The server, its certificate, its token and its door on the loopback."""

    def __init__(self, clock: Clock, chance: Chance, port: int, token: str) -> None:
        self.clock = clock
        self.token = token
        self.server = ApiServer(clock, chance, tokens={token: access.ADMIN})
        self.identity = tls.make(clock.now())
        self._folder = tempfile.TemporaryDirectory(prefix="dovetail-")
        self.mount = HttpMount(self.server, port=port, context=self.identity.context(Path(self._folder.name)))

    async def start(self) -> str:
        await self.mount.start()
        return f"https://127.0.0.1:{self.mount.port}"

    async def stop(self) -> None:
        await self.mount.stop()
        self._folder.cleanup()

    def kubeconfig(self) -> str:
        return kubeconfig(f"https://127.0.0.1:{self.mount.port}", self.identity.authority, self.token)


async def serve(port: int, config: Path, token: str | None, say: object) -> None:
    """Run until interrupted."""
    loop = asyncio.get_running_loop()
    chance = Chance(system_seed())
    bare = Bare(Clock(loop), chance, port, token or chance.child("token").uid())
    url = await bare.start()
    write_private(config, bare.kubeconfig())
    if callable(say):
        say(f"API server  {url}")
        say(f"kubeconfig  {config}")
    done = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, done.set)
    await done.wait()
    await bare.stop()


def run(port: int, config: Path, token: str | None, say: object) -> None:
    run_scaled(serve(port, config, token, say))
