"""A lab in a process of its own, driven from outside: the real kubectl, the real aws, nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BIN = Path(sys.executable).parent
SPEED = 4


class Outside:
    """What a person at a terminal can do.

    `timeout_s` is the bound in seconds on every wait. `logs`: whether `kubectl logs` reaches the kubelets; a real
    API server resolves nodes by name, and the lab's names have no DNS records.
    """

    def __init__(self, folder: Path, cluster: str, timeout_s: float = 60, logs: bool = True) -> None:
        self.timeout_s = timeout_s
        self.logs = logs
        self.folder = folder
        self.cluster = cluster
        cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "HOME": str(folder),
            "XDG_CACHE_HOME": cache,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }

    def run(self, command: str, check: bool = True, **options: Any) -> str:
        done = subprocess.run(
            ["bash", "-c", command], env=self.environment, cwd=self.folder, text=True, capture_output=True, **options
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout if check else done.stdout + done.stderr

    def apply(self, text: str) -> str:
        return self.run("kubectl apply -f -", input=text)

    def json(self, command: str) -> Any:
        return json.loads(self.run(f"{command} -o json"))

    def until(self, holds: Callable[[], Any]) -> Any:
        """Wait for the lab, which is another process, in our own seconds."""
        end = time.monotonic() + self.timeout_s
        while not (found := holds()):
            if time.monotonic() > end:
                raise AssertionError(f"did not happen: {self.run('kubectl get nodeclaims,nodes,pods,events -A')}")
            time.sleep(0.3)
        return found

    def types(self, pool: str = "default") -> list[str]:
        claims = self.json(f"kubectl get nodeclaims -l karpenter.sh/nodepool={pool}")["items"]
        return sorted(each["metadata"]["labels"].get("node.kubernetes.io/instance-type", "?") for each in claims)

    def start(self, *options: str) -> None:
        self.run(f"dovetail up --detach --port 0 --cluster-name {self.cluster} {' '.join(options)}")
        ready = self.until(lambda: "AWS_ENDPOINT_URL" in self.run("dovetail env") and self.run("dovetail env"))
        self.environment |= dict(re.findall(r"^export (\w+)=(.*)$", ready, re.M))

    def stop(self) -> None:
        self.run("dovetail down", check=False)


class Together(Outside):
    """Where several go side by side: what more than one begins with is applied once.

    Two could not both create it; and a server without our conversion refuses an old form of what was mended since.
    """

    def __init__(self, folder: Path, cluster: str, timeout_s: float = 60, logs: bool = True) -> None:
        super().__init__(folder, cluster, timeout_s, logs)
        self._applied: dict[str, str] = {}
        self._one_by_one = threading.Lock()

    def apply(self, text: str) -> str:
        with self._one_by_one:
            if text not in self._applied:
                self._applied[text] = super().apply(text)
            return self._applied[text]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    outside = Outside(tmp_path_factory.mktemp("lab"), "test-cluster")
    try:
        outside.start(f"--speed {SPEED}")
        yield outside
    finally:
        outside.stop()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    """The same autoscaler, kubelets and AWS around a real control plane, in real time."""
    outside = Together(tmp_path_factory.mktemp("real"), "test-cluster", timeout_s=300, logs=False)
    try:
        outside.start("--control-plane kubernetes --boot 2")
        yield outside
    finally:
        outside.stop()
