"""Taints and tolerations, as the planner asks about them: of a set of taints at once."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.model.nodes import Taint
from dovetail.model.pods import Toleration
from dovetail.model.taints import PREFER_NO_SCHEDULE, tolerates


def bears(tolerations: Iterable[Toleration], taints: Iterable[Taint], prefer: bool) -> bool:
    """Whether every taint is tolerated. `prefer`: PreferNoSchedule taints do not count."""
    held = tuple(tolerations)
    binding = [taint for taint in taints if not (prefer and taint.effect == PREFER_NO_SCHEDULE)]
    return all(any(tolerates(each, taint) for each in held) for taint in binding)
