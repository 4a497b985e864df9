"""Karpenter's kwok provider: its binary, built once from the Go module into a cache, and its definitions.

`bench/karpenter` pins the module; nothing of it is copied into this tree.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml

MODULE = "sigs.k8s.io/karpenter"
HERE = Path(__file__).parent.parent / "karpenter"
ENVIRONMENT = {**os.environ, "GOTOOLCHAIN": "go1.26.9"}


def binary() -> Path:
    """The provider as one program; some minutes of building at first."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    base = os.environ.get("DOVETAIL_CACHE", home / "dovetail")
    target = Path(base, "karpenter", "kwok-1.15.0")
    if not target.exists():
        print("building Karpenter's kwok provider (some minutes) …", file=sys.stderr)
        target.parent.mkdir(parents=True, exist_ok=True)
        command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", str(target), f"{MODULE}/kwok"]
        subprocess.run(command, cwd=HERE, env=ENVIRONMENT, check=True)
    return target


@cache
def source() -> Path:
    """Where Go keeps the module."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", MODULE]
    done = subprocess.run(command, cwd=HERE, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    return Path(done.stdout.strip())


def definitions() -> list[dict[str, Any]]:
    """Its custom resource definitions: both sides run under them."""
    files = sorted([*source().glob("pkg/apis/crds/*.yaml"), *source().glob("kwok/apis/crds/*.yaml")])
    return [each for file in files for each in yaml.safe_load_all(file.read_text()) if each]


def types() -> list[dict[str, Any]]:
    """The instance types it comes with."""
    found: list[dict[str, Any]] = json.loads((source() / "kwok/cloudprovider/instance_types.json").read_text())
    return found
