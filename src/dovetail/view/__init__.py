"""What people look at: the fleet with its money, pending pods and health, as frozen values that can be compared.

Pure but for `observer`, which feeds it from watches. `dovetail.web` and the terminal view draw it; neither decides.
Unknown is None, and is drawn as unknown.
"""

from dovetail.view.difference import Difference, applied, difference
from dovetail.view.fleet import Fleet
from dovetail.view.model import (
    FleetView,
    HourlyPrice,
    LowerBound,
    Money,
    NodePhase,
    NodeView,
    PendingPod,
    PodView,
    PoolView,
    RecentDecision,
    Sum,
    Totals,
    WatchHealth,
)

__all__ = [
    "Difference",
    "Fleet",
    "FleetView",
    "HourlyPrice",
    "LowerBound",
    "Money",
    "NodePhase",
    "NodeView",
    "PendingPod",
    "PodView",
    "PoolView",
    "RecentDecision",
    "Sum",
    "Totals",
    "WatchHealth",
    "applied",
    "difference",
]
