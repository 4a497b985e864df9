"""Which cluster a command asks when none is named: kubectl's, and where kubectl has none, the lab that runs here."""

from __future__ import annotations

import os
from pathlib import Path

from dovetail.cli.problem import Problem
from dovetail.runfile import NotOneLab, RunningLab, choose, running


def lab(name: str | None) -> RunningLab:
    """The lab that is meant; a Problem says which there are."""
    try:
        return choose(name)
    except NotOneLab as problem:
        raise Problem(str(problem)) from problem


def kubeconfig(named: str | None, name: str | None = None) -> str | None:
    """The file to read: `named`, or that of the lab called `name`; None is what kubectl would choose."""
    if name is not None:
        if named is not None:
            raise Problem("--name and --kubeconfig both say which cluster; leave one of them out")
        return lab(name).kubeconfig
    if named is not None or os.environ.get("KUBECONFIG") or (Path.home() / ".kube" / "config").exists():
        return named
    if "KUBERNETES_SERVICE_HOST" in os.environ or not running():
        return None
    return lab(None).kubeconfig
