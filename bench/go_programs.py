"""Karpenter's programs for the benchmarks, built by Go into a cache: `bench/karpenter` pins the modules.

Nothing of them lies in this tree. Go downloads what it does not have yet; where it cannot, the error says what is
missing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

#: The Go module that pins Karpenter, and the program that solves one problem with its scheduler.
MODULE_FOLDER = Path(__file__).parent / "karpenter"
TOOLCHAIN = "go1.26.9"


def build(name: str, package: str, *flags: str) -> Path:
    """The program of a package as `name` in the cache; some minutes of building at first."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    target = Path(os.environ.get("DOVETAIL_CACHE", home / "dovetail"), "karpenter", name)
    if not target.exists():
        print(f"building {package} of Karpenter with Go (some minutes) …", file=sys.stderr)
        target.parent.mkdir(parents=True, exist_ok=True)
        _go("build", *flags, "-o", str(target), package)
    return target


@cache
def module_source(module: str) -> Path:
    """The folder with the source of a pinned module, downloaded if it is not there."""
    return Path(json.loads(_go("mod", "download", "-json", module))["Dir"])


def _go(*arguments: str) -> str:
    if shutil.which("go") is None:
        raise SystemExit(
            f"go: not found; this benchmark builds Karpenter with Go 1.21 or later, which fetches {TOOLCHAIN}"
        )
    environment = {**os.environ, "GOTOOLCHAIN": TOOLCHAIN}
    done = subprocess.run(["go", *arguments], cwd=MODULE_FOLDER, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(
            f"go {' '.join(arguments)}: failed in {MODULE_FOLDER}\n{done.stdout}{done.stderr}"
            "Go downloads the modules that go.mod pins once: it needs GOPROXY, or a module cache that has them."
        )
    return done.stdout
