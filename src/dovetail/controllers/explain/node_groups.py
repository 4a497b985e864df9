"""A node group of Cluster Autoscaler: its size, and why it does not grow or shrink. From the status ConfigMap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.controllers.explain.answer import Answer, Event, Unknown, event_lines, shortened

Json = Mapping[str, Any]

#: Where both Cluster Autoscalers write their status.
STATUS_CONFIG_MAP = "cluster-autoscaler-status"


def nodegroup(status: Json, name: str, events: Sequence[Event] = ()) -> Answer:
    """`status` is the ConfigMap's YAML, read."""
    groups = status.get("nodeGroups") or ()
    found = next((group for group in groups if group.get("name") == name), None)
    if found is None:
        names = ", ".join(shortened([str(group.get("name")) for group in groups], 10))
        raise Unknown(f"nodegroup/{name} is not in {STATUS_CONFIG_MAP}; there are: {names or 'none'}")
    health, up, down = (found.get(each) or {} for each in ("health", "scaleUp", "scaleDown"))
    target, least, most = health.get("cloudProviderTarget"), health.get("minSize"), health.get("maxSize")
    counts = ((health.get("nodeCounts") or {}).get("registered")) or {}
    size = f"{counts.get('total', 0)} node(s), target {target} (min {least}, max {most})"
    remedy = ""
    if up.get("status") == "Backoff":
        info = up.get("backoffInfo") or {}
        said = info.get("errorMessage") or info.get("errorCode") or "its last scale-up failed"
        line = f"does not grow for a while: {said}"
        remedy = "see the activity of its Auto Scaling group; it is tried again by itself"
    elif health.get("status") == "Unhealthy":
        line = f"is unhealthy and not scaled: {counts.get('ready', 0)} of {counts.get('total', 0)} node(s) are ready"
        remedy = "see its nodes that are not ready"
    elif up.get("status") == "InProgress":
        line = f"is growing: {size}"
    elif target is not None and most is not None and target >= most:
        line = f"is at its largest: {size}"
        remedy = "raise its maximum size"
    elif down.get("status") == "CandidatesPresent":
        line = f"has {down.get('candidates', 0)} node(s) to remove once they have been unneeded for long enough: {size}"
    else:
        line = f"is as large as needed: {size}"
        line += ", and cannot shrink further" if target is not None and target == least else ""
    reported = [event for event in events if event.reason in _EVENTS]
    pods = [event for event in reported if event.reason == "NotTriggerScaleUp"]
    return Answer(
        subject=f"nodegroup/{name}",
        line=line + (f"; {remedy}" if remedy else ""),
        object=f"nodegroup/{name}" if remedy else "",
        remedy=remedy,
        details=(
            size,
            f"health {health.get('status')} since {health.get('lastTransitionTime')}",
            f"scale-up {up.get('status')} since {up.get('lastTransitionTime')}",
            f"scale-down {down.get('status')} since {down.get('lastTransitionTime')}",
            *shortened([f"pod {event.key}: {event.message}" for event in pods[-20:]], 10),
        ),
        deep=tuple(event_lines(reported)),
        facts={"health": dict(health), "scaleUp": dict(up), "scaleDown": dict(down)},
    )


_EVENTS = frozenset(
    {"NotTriggerScaleUp", "TriggeredScaleUp", "ScaledUpGroup", "FailedToScaleUpGroup", "ScaleDown", "ScaleDownFailed"}
)
