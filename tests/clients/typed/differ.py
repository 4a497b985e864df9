"""Types the same kubectl lines at the embedded cluster and at one around real Kubernetes, and shows what differs.

    python -m tests.clients.typed.differ [--nodes N] [--any-order] FILE.txt…

A file has one kubectl line a line (without `kubectl`), `# remarks`, and `pause SECONDS`. Both clusters have our
kubelets; only the control plane differs. `make kubernetes` builds the real one. What random names sort
differently is forgiven with --any-order.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.clients.typed.normal import normal

HERE = Path(__file__).parent
#: The kubectl of the wheel, whatever else is installed.
KUBECTL = Path(sys.executable).with_name("kubectl")
SECONDS_A_LINE = 90
_pause = threading.Event()


class Outcome(NamedTuple):
    """What a line came to."""

    line: str
    code: int
    out: str
    err: str

    def text(self) -> str:
        return f"exit {self.code}\n{normal(self.out)}\n--- said\n{normal(self.err)}"


@contextmanager
def cluster(plane: str, nodes: int, folder: Path) -> Iterator[Path]:
    """A running `dovetail up`; gives the folder that is kubectl's home."""
    folder.mkdir()
    config = folder / "config"
    start = [sys.executable, "-c", "from dovetail.cli.main import main; main()", "up", "--no-autoscaler"]
    start += ["--control-plane", plane, "--nodes", str(nodes), "--port", "0", "--kubeconfig", str(config)]
    process = subprocess.Popen(
        start, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "XDG_STATE_HOME": str(folder)}
    )
    try:
        for _ in range(600):
            if config.exists() or process.poll() is not None:
                break
            _pause.wait(0.1)
        if not config.exists():
            raise SystemExit(f"{plane} did not start: {process.communicate()[1].decode()[-2000:]}")
        _pause.wait(4.0)  # the nodes join
        yield folder
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def play(home: Path, lines: Sequence[str]) -> list[Outcome]:
    """Type the lines one after another."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
    environment |= {"HOME": str(home), "KUBECONFIG": str(home / "config")}
    environment["EDITOR"] = "sed -i s/replicas:.2/replicas:\\ 1/"
    outcomes = []
    for line in lines:
        if line.startswith("pause "):
            _pause.wait(float(line.split()[1]))
            continue
        outcomes.append(_typed(line, environment))
    return outcomes


def _typed(line: str, environment: dict[str, str]) -> Outcome:
    words = [str(KUBECTL), *shlex.split(line)]
    try:
        done = subprocess.run(
            words,
            env=environment,
            cwd=HERE,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS_A_LINE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(line, -1, "", f"no answer for {SECONDS_A_LINE} seconds")
    return Outcome(line, done.returncode, done.stdout, done.stderr)


def read(files: Sequence[Path]) -> list[str]:
    lines = [line.strip() for file in files for line in file.read_text().splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def same(real: str, ours: str, any_order: bool) -> bool:
    return real == ours or (any_order and sorted(real.splitlines()) == sorted(ours.splitlines()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--any-order", action="store_true")
    parser.add_argument("--lines", type=int, default=40, help="lines shown of each difference")
    asked = parser.parse_args()
    lines = read(asked.files)
    with (
        tempfile.TemporaryDirectory(prefix="dovetail-differ-") as folder,
        cluster("kubernetes", asked.nodes, Path(folder) / "real") as real,
        cluster("embedded", asked.nodes, Path(folder) / "ours") as ours,
        ThreadPoolExecutor(2) as typists,
    ):
        theirs, mine = typists.map(play, (real, ours), (lines, lines))
    agreed = 0
    for expected, found in zip(theirs, mine, strict=True):
        if same(expected.text(), found.text(), asked.any_order):
            agreed += 1
            continue
        print(f"===== kubectl {expected.line}")
        shown = difflib.unified_diff(expected.text().splitlines(), found.text().splitlines(), lineterm="", n=1)
        print("\n".join([*shown][2 : asked.lines + 2]))
    print(f"{agreed} of {len(theirs)} lines agree ({agreed / max(1, len(theirs)):.1%})")
    return 0 if agreed == len(theirs) else 1


if __name__ == "__main__":
    sys.exit(main())
