"""Runs the benchmarks: `python -m bench` all of them, `python -m bench client server` some.

Every module here with a `main` is one; each runs in a process of its own, so that none warms or bloats another.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def names() -> list[str]:
    return sorted(
        file.stem
        for file in HERE.glob("*.py")
        if not file.stem.startswith("_") and "def main() -> None" in file.read_text()
    )


def run(name: str) -> int:
    print(f"== {name}", flush=True)
    return subprocess.run([sys.executable, "-m", f"bench.{name}"], cwd=HERE.parent, check=False).returncode


def start(wanted: list[str]) -> int:
    unknown = [name for name in wanted if name not in names()]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}: there are {', '.join(names())}", file=sys.stderr)
        return 2
    return max([run(name) for name in wanted or names()], default=0)


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
