"""Provisioning: a place for every pending pod, on machines that are there or at the least price."""

from __future__ import annotations

from dovetail.planner.plan import Plan
from dovetail.planner.snapshot import Snapshot


def provision(snapshot: Snapshot, seed: int = 0, deadline: float | None = None) -> Plan:
    """Place `snapshot.pending`. Without `deadline` the quick answer; with it, up to that many seconds to better it."""
    raise NotImplementedError
