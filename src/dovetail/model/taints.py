"""Taints and the tolerations that excuse a pod from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.model.nodes import Taint
from dovetail.model.pods import Toleration
from dovetail.model.selector import integer

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"

DISRUPTED = Taint(key="karpenter.sh/disrupted", effect=NO_SCHEDULE)
UNREGISTERED = Taint(key="karpenter.sh/unregistered", effect=NO_EXECUTE)

#: Taints that go away by themselves while a node starts.
EPHEMERAL = frozenset(
    {
        (NOT_READY, NO_SCHEDULE),
        (NOT_READY, NO_EXECUTE),
        (UNREACHABLE, NO_SCHEDULE),
        (UNINITIALIZED, NO_SCHEDULE),
        (UNREGISTERED.key, NO_EXECUTE),
    }
)
EPHEMERAL_PREFIXES = ("readiness.k8s.io/",)


def text(taint: Taint) -> str:
    """`key=value:effect`, without the value where there is none."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def same(a: Taint, b: Taint) -> bool:
    """Taints are distinguished by key and effect; the value is not part of their identity."""
    return a.key == b.key and a.effect == b.effect


def ephemeral(taint: Taint) -> bool:
    """Whether a starting node sheds this taint by itself."""
    return (taint.key, taint.effect) in EPHEMERAL or taint.key.startswith(EPHEMERAL_PREFIXES)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration excuses one taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            return _compares(toleration, taint)
        case _:
            return False


def _compares(toleration: Toleration, taint: Taint) -> bool:
    mine, its = integer(toleration.value), integer(taint.value)
    if mine is None or its is None or (str(mine), str(its)) != (toleration.value, taint.value):
        return False
    return its < mine if toleration.operator == "Lt" else its > mine


def untolerated(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    effects: Sequence[str] = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE),
) -> list[Taint]:
    """The taints of those effects that nothing excuses, in order."""
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(tolerates(toleration, taint) for toleration in tolerations)
    ]


def merge(taints: Sequence[Taint], more: Iterable[Taint]) -> tuple[Taint, ...]:
    """The taints, and those of `more` that are not among them yet."""
    merged = list(taints)
    for taint in more:
        if not any(same(taint, taint_) for taint_ in merged):
            merged.append(taint)
    return tuple(merged)
