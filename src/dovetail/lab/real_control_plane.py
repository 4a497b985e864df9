"""A real Kubernetes control plane beside the lab: etcd, kube-apiserver and, if wanted, the other two.

It is the judge of the embedded one, and can stand in for it. One binary holds all parts (`make kubernetes`
builds it into a cache); a start takes some four seconds, everything lives in one folder and on loopback,
and leaving the block leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import yaml

from dovetail.kube.errors import KubeError
from dovetail.kube.http import Bearer, Http
from dovetail.kube.transport import Request
from dovetail.language import message

VERSION = "v1.36.3"
ADMIN_TOKEN = "dovetail-admin"


class StartFailed(RuntimeError):
    """The control plane did not come up; the message ends with what its log says."""


def binary() -> Path:
    """Where `make kubernetes` puts the control plane."""
    cache = os.environ.get("DOVETAIL_CACHE")
    base = Path(cache) if cache else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dovetail"
    return base / "kubernetes" / f"controlplane-{VERSION}"


class RealControlPlane:
    """`async with RealControlPlane() as plane:` then `plane.transport()` or `plane.kubeconfig`.

    etcd and kube-apiserver always run; the scheduler and the controllers on request.
    `users` are further tokens: token to (user, groups).
    """

    def __init__(
        self,
        *,
        scheduler: bool = False,
        controllers: bool = False,
        users: dict[str, tuple[str, Sequence[str]]] | None = None,
        admission_off: Sequence[str] = ("ServiceAccount",),
        port: int = 0,
        folder: Path | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        self._scheduler = scheduler
        self._controllers = controllers
        self._users = users or {}
        self._admission_off = admission_off
        self._port = port
        self._keep = folder is not None
        self.folder = folder or Path()
        self._flags = flags
        self._running: list[tuple[str, subprocess.Popen[bytes], IO[bytes]]] = []
        self.token = ADMIN_TOKEN

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def certificate(self) -> Path:
        """The serving certificate, which is its own authority."""
        return self.folder / "certificates" / "apiserver.crt"

    def transport(self, token: str | None = None) -> Http:
        """A transport of its own; the caller closes it. An empty token means anonymous."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        chosen = ADMIN_TOKEN if token is None else token
        return Http(self.server, tls=context, credentials=Bearer(chosen) if chosen else None)

    async def __aenter__(self) -> Self:
        if not binary().exists():
            raise StartFailed(message("{binary} is missing: make kubernetes builds it", binary=binary()))
        if self._keep:
            self.folder.mkdir(parents=True, exist_ok=True)
        else:
            self.folder = Path(tempfile.mkdtemp(prefix="dovetail-kubernetes-"))
        try:
            await self._start()
        except BaseException:
            self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._stop)

    async def _start(self) -> None:
        client, peer, serve = free_ports(3)
        self._port = self._port or serve
        self._write_files()
        self._run("etcd", *_etcd_flags(self.folder, client, peer))
        self._run("kube-apiserver", *self._apiserver_flags(client))
        await self._until_ready()
        self._write_kubeconfig()
        common = ("--kubeconfig", str(self.kubeconfig), "--leader-elect=false", "--bind-address=127.0.0.1")
        if self._controllers:
            key = self.folder / "service-account.key"
            extra = ("--service-account-private-key-file", str(key), "--use-service-account-credentials=false")
            self._run("kube-controller-manager", *common, *extra, f"--secure-port={free_ports(1)[0]}")
        if self._scheduler:
            self._run("kube-scheduler", *common, f"--secure-port={free_ports(1)[0]}")

    def _apiserver_flags(self, etcd: int) -> list[str]:
        folder = self.folder
        return [
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={folder / 'certificates'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={folder / 'service-account.key'}",
            f"--service-account-key-file={folder / 'service-account.pub'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            *([f"--disable-admission-plugins={','.join(self._admission_off)}"] if self._admission_off else []),
            *self._flags,
        ]

    def _write_files(self) -> None:
        lines = [f'{ADMIN_TOKEN},admin,admin,"system:masters"']
        lines += [f'{token},{user},{user},"{",".join(groups)}"' for token, (user, groups) in self._users.items()]
        (self.folder / "tokens.csv").write_text("\n".join(lines) + "\n")
        if not (self.folder / "service-account.key").exists():
            _write_key_pair(self.folder)

    def _write_kubeconfig(self) -> None:
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "kubernetes",
                    "cluster": {"server": self.server, "certificate-authority": str(self.certificate)},
                }
            ],
            "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
            "contexts": [{"name": "kubernetes", "context": {"cluster": "kubernetes", "user": "admin"}}],
            "current-context": "kubernetes",
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def _run(self, part: str, *flags: str) -> None:
        log = (self.folder / f"{part}.log").open("ab")
        process = subprocess.Popen(
            [str(binary()), part, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        self._running.append((part, process, log))

    async def _until_ready(self, seconds: float = 90.0) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds * getattr(loop, "speed", 1.0)
        while loop.time() < deadline:
            for part, process, _ in self._running:
                if process.poll() is not None:
                    raise StartFailed(
                        message(
                            "{part} ended with {returncode}:\n{tail}",
                            part=part,
                            returncode=process.returncode,
                            tail=self._tail(part),
                        )
                    )
            if self.certificate.exists() and await self._ready():
                return
            await asyncio.sleep(0.1 * getattr(loop, "speed", 1.0))
        raise StartFailed(
            message(
                "kube-apiserver was not ready in {seconds:g} s:\n{tail}",
                seconds=seconds,
                tail=self._tail("kube-apiserver"),
            )
        )

    async def _ready(self) -> bool:
        try:
            transport = self.transport()
        except ssl.SSLError:
            return False  # the certificate is being written
        try:
            return (await transport.send(Request(method="GET", path="/readyz"))).status == 200
        except KubeError:
            return False
        finally:
            await transport.close()

    def _tail(self, part: str) -> str:
        text = (self.folder / f"{part}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-8:])

    def _stop(self) -> None:
        for _, process, log in reversed(self._running):
            process.terminate()
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()
        self._running.clear()
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def _etcd_flags(folder: Path, client: int, peer: int) -> list[str]:
    here, there = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    return [
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={here}",
        f"--advertise-client-urls={here}",
        f"--listen-peer-urls={there}",
        f"--initial-advertise-peer-urls={there}",
        f"--initial-cluster=default={there}",
        "--log-level=error",
    ]


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [int(socket.getsockname()[1]) for socket in sockets]
    finally:
        for listener in sockets:
            listener.close()


def _write_key_pair(folder: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / "service-account.key").write_bytes(private)
    (folder / "service-account.key").chmod(0o600)
    (folder / "service-account.pub").write_bytes(public)
