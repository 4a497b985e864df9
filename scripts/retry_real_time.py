"""Run failed tests of `make test` once more, alone, and name them: only those that drive processes in real time.

A page's commands, a browser or a lab in a process of its own race with whatever else the host does. Tests in virtual
time race with nothing: when one of them fails, or many tests fail, nothing is retried.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
REAL_TIME = (
    "tests/cli/",
    "tests/clients/",
    "tests/docs/",
    "tests/e2e/",
    "tests/install/",
    "tests/lab/programs/",
    "tests/tui/",
    "tests/web/",
)
#: More failures than this are no coincidence.
MAX_RETRIED = 5


def refusal(failed: Iterable[str]) -> str | None:
    """Why these tests are not retried; None if they are."""
    names = list(failed)
    if not names:
        return "no failed test is recorded"
    if len(names) > MAX_RETRIED:
        return f"{len(names)} tests failed, and at most {MAX_RETRIED} are retried"
    virtual = [name for name in names if not name.startswith(REAL_TIME)]
    if virtual:
        return f"{virtual[0]} runs in virtual time"
    return None


def main(root: Path = ROOT) -> int:
    recorded = root / LAST_FAILED
    failed = sorted(json.loads(recorded.read_text())) if recorded.exists() else []
    why = refusal(failed)
    if why is not None:
        print(f"no retry: {why}", file=sys.stderr)
        return 1
    print("retrying, alone:", *failed, sep="\n  ", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-rA", "--show-capture=no", *failed], cwd=root).returncode


if __name__ == "__main__":
    sys.exit(main())
