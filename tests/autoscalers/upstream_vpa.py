"""Upstream's Vertical Pod Autoscaler beside ours: how its programs are started, and what they cost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.tls import Identity
from dovetail.lab.real_control_plane import RealControlPlane, binary
from dovetail.model.meta import stamp

Json = dict[str, Any]
VERSION = "v1.8.1"


def upstream_program(name: str) -> list[str]:
    """The command of a program that `make kubernetes` builds."""
    path = binary().parent / f"vpa-{VERSION}" / name
    assert path.exists(), f"{path} is missing: make kubernetes builds it"
    return [str(path)]


def our_program(name: str) -> list[str]:
    return [sys.executable, "-m", "dovetail.cli", "vpa", name]


class Cost(msgspec.Struct, frozen=True):
    """What a process took: seconds of processor, and its largest resident memory."""

    cpu_s: float
    peak_mib: float


def cost(process: subprocess.Popen[bytes]) -> Cost:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    peak = next(
        line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return Cost(ticks / os.sysconf("SC_CLK_TCK"), int(peak.split()[1]) / 1024)


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process while the block lasts; its log goes to a file."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class ScriptedMetrics:
    """metrics.k8s.io with a script: the n-th list that a user asks for is that of minute n.

    After the last minute the answer stays the same, so that both come to rest.
    """

    def __init__(self, pods: list[str], minutes: int, end: datetime, seed: int = 1) -> None:
        self.asked: dict[str, int] = {}
        self._start = (end - timedelta(minutes=minutes)).replace(microsecond=0)
        self._minutes = minutes
        chance = Chance(seed).child("usage")
        #: Milli-cores and bytes of each pod by minute: some steady, some growing, some with bursts.
        self._usage: dict[str, list[tuple[int, int]]] = {}
        for pod in pods:
            base, memory = chance.uniform(20, 900), chance.uniform(3e7, 3e9)
            trend, bursts = chance.uniform(-0.004, 0.01), chance.uniform(0, 0.2)
            self._usage[pod] = [
                (
                    int(base * (1 + trend * minute) * (3 if chance.random() < bursts else chance.uniform(0.8, 1.2))),
                    int(memory * (1 + trend * minute) * chance.uniform(0.9, 1.1)),
                )
                for minute in range(minutes)
            ]

    async def intercept(self, request: Request) -> Response | None:
        if not request.path.endswith("/pods"):
            return None
        user = request.headers.get("x-remote-user", "")
        minute = min(self.asked.get(user, 0), self._minutes - 1)
        self.asked[user] = self.asked.get(user, 0) + 1
        taken = stamp(self._start + timedelta(minutes=minute))
        items = [
            {
                "metadata": {"name": name, "namespace": "default"},
                "timestamp": taken,
                "window": "15s",
                "containers": [{"name": "app", "usage": {"cpu": f"{cpu}m", "memory": str(memory)}}],
            }
            for name, usage in self._usage.items()
            for cpu, memory in [usage[minute]]
        ]
        body = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}
        return Response(status=200, headers={"content-type": "application/json"}, body=msgspec.json.encode(body))

    @property
    def is_over(self) -> bool:
        """Whether all that asked know the last minute, and had two more loops to write what they made of it."""
        return bool(self.asked) and all(count > self._minutes + 2 for count in self.asked.values())


def kubeconfig(plane: RealControlPlane, token: str) -> Path:
    """The plane's kubeconfig for another user."""
    path = plane.folder / f"kubeconfig-{token}"
    path.write_text(plane.kubeconfig.read_text().replace(plane.token, token))
    return path


def webhook_flags(folder: Path, identity: Identity, port: int) -> list[str]:
    """Flags of an admission controller that the API server calls at the loopback."""
    files = {
        "client-ca-file": identity.authority,
        "tls-cert-file": identity.certificate,
        "tls-private-key": identity.key,
    }
    flags = ["--register-by-url", "--webhook-address=https://127.0.0.1", f"--webhook-port={port}", f"--port={port}"]
    for flag, text in files.items():
        path = folder / flag
        path.write_bytes(text)
        flags.append(f"--{flag}={path}")
    return flags
