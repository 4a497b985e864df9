"""What moving costs the workload: a charge for each pod, by its priority and its own word."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dovetail.model.pods import Pod

DISRUPTION_COST = "karpenter.sh/disruption-cost"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_INT32 = 2**31
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")


def eviction(pod: Pod, *, managed: bool = False) -> float:
    """1 for an ordinary pod, between -10 and 10. `managed`: deletion costs are ours and say nothing of the user's."""
    text = pod.metadata.annotations.get(DISRUPTION_COST)
    if text is None and not managed:
        text = pod.metadata.annotations.get(DELETION_COST)
    cost = 1.0 + _int32(text) / 2**27 + (pod.spec.priority or 0) / 2**25
    return max(-10.0, min(10.0, cost))


def machine(pods: Iterable[Pod], *, managed: bool = False) -> float:
    """The charge for emptying a machine; 1 for one without pods to move."""
    return 1.0 + sum(max(0.0, eviction(pod, managed=managed)) for pod in pods)


def _int32(text: str | None) -> int:
    """Base 10 and within 32 bits, or nothing: other text counts as no word at all."""
    if text is None or not _NUMBER.fullmatch(text):
        return 0
    value = int(text)
    return value if -_INT32 <= value < _INT32 else 0
