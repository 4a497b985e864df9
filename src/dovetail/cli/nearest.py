"""Which cluster a command asks when nobody says: kubectl's, and where kubectl has none, the lab that runs here."""

from __future__ import annotations

import os
from pathlib import Path

from dovetail.lab.residence import find


def kubeconfig(named: str | None) -> str | None:
    """The file to read; None is what kubectl would choose."""
    if named is not None or os.environ.get("KUBECONFIG") or (Path.home() / ".kube" / "config").exists():
        return named
    running = find() if "KUBERNETES_SERVICE_HOST" not in os.environ else None
    return None if running is None else running.kubeconfig
