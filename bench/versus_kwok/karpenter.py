"""Karpenter's kwok provider: its binary, built once from the Go module into a cache, and its definitions.

`bench/karpenter` pins the module; nothing of it is copied into this tree.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from bench.go_programs import build, module_source

MODULE = "sigs.k8s.io/karpenter"


def binary() -> Path:
    """The provider as one program."""
    return build("kwok-1.15.0", f"{MODULE}/kwok", "-trimpath", "-ldflags", "-s -w")


def source() -> Path:
    """Where Go keeps the module."""
    return module_source(MODULE)


def definitions() -> list[dict[str, Any]]:
    """Its custom resource definitions: both sides run under them."""
    files = sorted([*source().glob("pkg/apis/crds/*.yaml"), *source().glob("kwok/apis/crds/*.yaml")])
    return [each for file in files for each in yaml.safe_load_all(file.read_text()) if each]


def types() -> list[dict[str, Any]]:
    """The instance types it comes with."""
    found: list[dict[str, Any]] = json.loads((source() / "kwok/cloudprovider/instance_types.json").read_text())
    return found
