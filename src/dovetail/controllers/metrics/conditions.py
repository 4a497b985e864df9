"""Conditions that objects have now, since when, and for how long deleted ones have been terminating."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from dovetail.clock import Clock
from dovetail.cluster.state import ClusterState
from dovetail.controllers.metrics.condition_kinds import ConditionKind, Seen, seen, watched
from dovetail.controllers.metrics.exposition import gauge, labelled

Labelled = list[tuple[str, Seen]]


def statuses(cluster_state: ClusterState, clock: Clock) -> Iterator[str]:
    """By kind, and those of Karpenter's own kinds once more by the names that all kinds share."""
    now = clock.now()
    general: Labelled = []
    for kind, reflector in watched(cluster_state):
        objects = [seen(kind, obj) for obj in tuple(reflector.store.all())]
        yield from _family(f"operator_{kind.name}_", [(_named(kind, obj), obj) for obj in objects], now)
        if kind.general:
            group = {"kind": kind.resource.kind, "group": kind.resource.group}
            general += [(labelled({"name": obj.name, **group}), obj) for obj in objects]
    yield from _family("operator_", general, now)


def _named(kind: ConditionKind, seen: Seen) -> str:
    return labelled({"name": seen.name, **dict(zip(kind.called, seen.values, strict=True))})


def _family(prefix: str, objects: Labelled, now: datetime) -> Iterator[str]:
    standing = [
        (
            f'{labels},type="{condition.type}",status="{condition.status}",{labelled({"reason": condition.reason})}',
            condition,
        )
        for labels, status in objects
        for condition in status.conditions.values()
    ]
    counted = ((labels, 1.0) for labels, _ in standing)
    yield from gauge(f"{prefix}status_condition_count", "Conditions that objects have.", counted)
    since = ((labels, condition.last_transition_time) for labels, condition in standing)
    yield from gauge(
        f"{prefix}status_condition_current_status_seconds",
        "For how long a condition has been as it is.",
        _seconds(since, now),
    )
    terminating = ((labels, status.deleted) for labels, status in objects)
    yield from gauge(
        f"{prefix}termination_current_time_seconds",
        "For how long an object has been terminating.",
        _seconds(terminating, now),
    )


def _seconds(since: Iterable[tuple[str, datetime | None]], now: datetime) -> Iterator[tuple[str, float]]:
    return ((labels, (now - moment).total_seconds()) for labels, moment in since if moment is not None)
