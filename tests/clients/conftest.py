"""A lab server over HTTPS in a process of its own, for unmodified third-party clients."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest


class Served:
    """A running server and the kubeconfig that leads to it."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("kube") / "config"
    start = [sys.executable, "-c", "from dovetail.cli.main import main; main()"]
    process = subprocess.Popen(
        [*start, "up", "--bare", "--port", "0", "--kubeconfig", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    pause = threading.Event()
    for _ in range(600):
        if path.exists() or process.poll() is not None:
            break
        pause.wait(0.05)
    if path.exists():
        yield Served(path)
    process.terminate()
    said, _ = process.communicate(timeout=10)
    assert path.exists(), f"the server did not start: {said.decode()}"


@pytest.fixture(autouse=True)
def _strangers_clean_up() -> Iterator[None]:
    """What a foreign client leaves open is collected within its own test, whose warnings are its own."""
    yield
    gc.collect()
