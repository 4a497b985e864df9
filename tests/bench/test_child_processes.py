"""A run that is killed stops what it started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.child_processes import TERMINATED

PROGRAM = """
import asyncio
from bench.child_processes import run

async def main():
    try:
        print("runs", flush=True)
        await asyncio.sleep(600)
    finally:
        await asyncio.to_thread(print, "stopped what it started", flush=True)

run(main())
"""


def test_a_run_that_is_reported_to_end_unwinds() -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.terminate()
        assert process.communicate(timeout=60)[0] == "stopped what it started\n"
    assert process.returncode == TERMINATED
