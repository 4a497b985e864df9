"""The two programs that are compared, each started against a kubeconfig and measured from outside by /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from bench.versus_kwok import karpenter
from bench.versus_kwok.instance_types import InstanceTypes

TICK = os.sysconf("SC_CLK_TCK")


class Side:
    """A running autoscaler."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.name, self._process = name, process

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def cpu(self) -> float:
        """CPU seconds so far, with those of its children."""
        return sum(_cpu(pid) for pid in _family(self._process.pid))

    def memory(self, field: str = "VmHWM") -> float:
        """MiB at the peak (or `VmRSS` now), with its children."""
        return sum(_memory(pid, field) for pid in _family(self._process.pid))


@contextmanager
def start(
    name: str, kubeconfig: Path, instance_types: InstanceTypes, folder: Path, gates: Sequence[str] = ()
) -> Iterator[Side]:
    theirs, ours = instance_types.write(folder)
    with ExitStack() as stack:
        log = stack.enter_context((folder / f"{name}.log").open("ab"))
        if name == "karpenter":
            environment = {
                "KUBECONFIG": str(kubeconfig),
                "INSTANCE_TYPES_FILE_PATH": str(theirs),
                "METRICS_PORT": "0",
                "HEALTH_PROBE_PORT": "0",
                "DISABLE_LEADER_ELECTION": "true",
                "PATH": os.environ["PATH"],
                "HOME": str(Path.home()),
                "FEATURE_GATES": _gates(gates),
                "SYSTEM_NAMESPACE": "kube-system",
            }
            process = _run(stack, [str(karpenter.binary())], log, environment)
            _run(stack, [sys.executable, "-m", "bench.versus_kwok.kubelets", str(kubeconfig)], log, dict(os.environ))
        else:
            command = [
                sys.executable,
                "-m",
                "dovetail.cli",
                "run",
                "--cloud",
                "simulated",
                "--catalog",
                str(ours),
                "--kubeconfig",
                str(kubeconfig),
                "--metrics-port",
                "0",
                "--health-probe-port",
                "0",
                "--disable-leader-election",
                "true",
                *(["--feature-gates", _gates(gates)] if gates else []),
            ]
            process = _run(stack, command, log, dict(os.environ))
        yield Side(name, process)


def _gates(gates: Sequence[str]) -> str:
    return ",".join(f"{gate}=true" for gate in gates)


def _run(
    stack: ExitStack, command: Sequence[str], log: IO[bytes], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def stop() -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(stop)
    return process


def _family(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += _family(int(child))
    return found


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(int(each) for each in fields[11:15]) / TICK  # utime, stime, and those of children that ended


def _memory(pid: int, field: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0.0
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))
