"""Explanations: why each node stays and each group does not grow, with a code and a remedy, and what each group costs.

They lie beside the status, in the same ConfigMap, for `dovetail explain` to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from dovetail.autoscalers.node_groups import drain, unremovable
from dovetail.autoscalers.node_groups.scale_down import ScaleDownPlanner
from dovetail.autoscalers.node_groups.scale_up import (
    IN_BACKOFF,
    MAX_SIZE_REACHED,
    MAX_TOTAL_REACHED,
    NOT_READY,
    ScaleUpPlan,
)
from dovetail.autoscalers.node_groups.unremovable import Unremovable
from dovetail.language import source
from dovetail.model.meta import stamp

KEY = "explanations"
#: Nodes that are explained: a ConfigMap holds no more than 1 MiB.
MAX_NODES = 1000
_REFUSALS: Mapping[str, tuple[str, str]] = {
    IN_BACKOFF: (
        "InBackoff",
        source("see the scaling activities of its Auto Scaling group; it is tried again by itself"),
    ),
    MAX_SIZE_REACHED: ("MaxNodeGroupSizeReached", source("raise the group's maximum size")),
    NOT_READY: (
        "NotReadyForScaleUp",
        source("see its nodes that are not ready, and whether its launch template exists"),
    ),
    MAX_TOTAL_REACHED: ("MaxNodesTotalReached", source("raise --max-nodes-total")),
}
_QUOTA = ("QuotaExceeded", source("raise --cores-total, --memory-total or --gpu-total"))
_UNFIT = (
    "PodDoesNotFit",
    source("change the pod's requests, selectors or tolerations, or offer a group that meets them"),
)


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """`pod` is the one that keeps a node."""

    code: str
    message: str
    remedy: str = ""
    pod: str = ""


class GroupView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """`per_hour` is of the nodes whose price is known, `unpriced` counts the others."""

    nodes: int = 0
    per_hour: float = 0.0
    unpriced: int = 0
    refused: Explanation | None = None


class Explanations(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Of one loop."""

    time: str
    nodes: dict[str, Explanation] = {}
    groups: dict[str, GroupView] = {}
    #: The group of each node.
    members: dict[str, str] = {}


def refusal(reason: str) -> Explanation:
    """Why a group was not used, by the text that events have."""
    code, remedy = _REFUSALS.get(reason) or (_QUOTA if reason.startswith("exceeded quota") else _UNFIT)
    return Explanation(code=code, message=reason, remedy=remedy)


def of_node(cause: Unremovable) -> Explanation:
    """Why a node stays."""
    blocking = cause.blocking
    if blocking is None:
        return Explanation(code=cause.reason.value, message="", remedy=unremovable.REMEDIES[cause.reason])
    return Explanation(
        code=f"{cause.reason.value}.{blocking.reason.value}",
        message=blocking.message,
        remedy=drain.REMEDIES[blocking.reason],
        pod=blocking.pod.metadata.key,
    )


def explanations(
    planner: ScaleDownPlanner,
    plan: ScaleUpPlan | None,
    members: Iterable[tuple[str, str, float | None]],
    groups: Iterable[str],
    now: datetime,
) -> Explanations:
    """`members`: names of nodes with their group and their price per hour, where it is known."""
    nodes = {name: of_node(planner.unremovable.cause(unremovable_node)) for name, unremovable_node in _by_name(planner)}
    for name, unneeded in planner.unneeded.items():
        nodes[name] = Explanation(
            code="Unneeded",
            message=source("unneeded since {time}").format(time=stamp(unneeded.since)),
            remedy=source("it goes after --scale-down-unneeded-time, or after a cooldown that a scale-up began"),
        )
    counts: dict[str, list[float | None]] = {group: [] for group in groups}
    belongs: dict[str, str] = {}
    for name, group, price in members:
        belongs[name] = group
        counts.setdefault(group, []).append(price)
    skipped = plan.skipped if plan is not None else {}
    return Explanations(
        time=stamp(now),
        nodes=dict(list(nodes.items())[:MAX_NODES]),
        groups={
            group: GroupView(
                nodes=len(prices),
                per_hour=round(sum(price for price in prices if price is not None), 6),
                unpriced=sum(price is None for price in prices),
                refused=refusal(skipped[group][0]) if skipped.get(group) else None,
            )
            for group, prices in counts.items()
        },
        members=dict(list(belongs.items())[:MAX_NODES]),
    )


def _by_name(planner: ScaleDownPlanner) -> list[tuple[str, Unremovable]]:
    return sorted((unremovable_node.node, unremovable_node) for unremovable_node in planner.unremovable)


def text(explained: Explanations) -> str:
    return msgspec.json.encode(explained).decode()
