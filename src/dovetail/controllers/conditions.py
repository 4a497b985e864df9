"""Status conditions, by the rules that every Karpenter kind follows.

Dependents that were not reported yet are Unknown since the object's creation. The root follows from its
dependents and is never set by hand. A transition time moves only when the status does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from dovetail.model.kinds.conditions import StatusCondition
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import Condition, stamp

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


class ConditionSet(msgspec.Struct, frozen=True):
    """Which conditions decide a root."""

    dependents: tuple[str, ...]
    root: str = "Ready"


CLAIM = ConditionSet(("Launched", "Registered", "Initialized"))
POOL = ConditionSet(("ValidationSucceeded", "NodeClassReady"))


class Conditions:
    """The conditions of one object, being brought up to date. `changed` says whether anything differs."""

    def __init__(
        self,
        family: ConditionSet,
        existing: Iterable[Condition | StatusCondition],
        *,
        now: datetime,
        created: datetime | None,
        generation: int,
    ) -> None:
        self._family = family
        self._now = now.replace(microsecond=0)
        self._created = created or self._now
        self._generation = generation
        self._before = {condition.type: _plain(condition) for condition in existing}
        self._current = dict(self._before)
        for kind in family.dependents:
            if kind not in self._current:
                self._put(kind, UNKNOWN, "AwaitingReconciliation", "object is awaiting reconciliation")
        self._follow()

    def get(self, kind: str) -> Condition | None:
        return self._current.get(kind)

    def status(self, kind: str) -> str:
        """`True`, `False` or `Unknown`; a missing condition is Unknown."""
        condition = self._current.get(kind)
        return condition.status if condition else UNKNOWN

    def since(self, kind: str) -> datetime:
        condition = self._current.get(kind)
        return condition.last_transition_time or self._created if condition else self._created

    def true(self, kind: str, reason: str = "", message: str = "") -> None:
        self._set(kind, TRUE, reason or kind, message)

    def false(self, kind: str, reason: str, message: str) -> None:
        self._set(kind, FALSE, reason, message)

    def unknown(self, kind: str, reason: str, message: str) -> None:
        self._set(kind, UNKNOWN, reason, message)

    def clear(self, kind: str) -> None:
        if self._current.pop(kind, None) is not None:
            self._follow()

    @property
    def changed(self) -> bool:
        return self._current != self._before

    def all(self) -> tuple[Condition, ...]:
        return tuple(self._current[kind] for kind in sorted(self._current))

    def manifest(self) -> list[dict[str, Any]]:
        """As a status carries them, sorted by type."""
        return [manifest(condition) for condition in self.all()]

    def _set(self, kind: str, status: str, reason: str, message: str) -> None:
        self._put(kind, status, reason, message)
        self._follow()

    def _put(self, kind: str, status: str, reason: str, message: str) -> None:
        before = self._current.get(kind)
        if before is not None and before.status == status:
            moved = before.last_transition_time
        elif before is None and kind in self._family.dependents:
            moved = self._created
        else:
            moved = self._now
        self._current[kind] = Condition(
            type=kind,
            status=status,
            reason=reason,
            message=message,
            last_transition_time=moved,
            observed_generation=self._generation,
        )

    def _follow(self) -> None:
        """The root follows its dependents."""
        missing = [self._current[kind] for kind in sorted(self._family.dependents) if self.status(kind) != TRUE]
        detail = ", ".join(f"{condition.type}={condition.status}" for condition in missing)
        if not missing:
            self._put(self._family.root, TRUE, self._family.root, "")
        elif any(condition.status == FALSE for condition in missing):
            self._put(self._family.root, FALSE, "UnhealthyDependents", detail)
        else:
            self._put(self._family.root, UNKNOWN, "ReconcilingDependents", detail)


def of_claim(claim: NodeClaim, now: datetime) -> Conditions:
    """A claim's conditions, to be brought up to date."""
    meta = claim.metadata
    return Conditions(
        CLAIM, claim.status.conditions, now=now, created=meta.creation_timestamp, generation=meta.generation
    )


def _plain(condition: Condition | StatusCondition) -> Condition:
    if isinstance(condition, Condition):
        return condition
    return Condition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        last_transition_time=condition.last_transition_time,
        observed_generation=condition.observed_generation,
    )


def manifest(condition: Condition) -> dict[str, Any]:
    """A condition as it is written: every field of the schema, even the empty ones."""
    moved = condition.last_transition_time
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": stamp(moved) if moved else None,
        "observedGeneration": condition.observed_generation,
    }


def instant(text: str) -> datetime | None:
    """The instant of a timestamp, in UTC where it has no zone; None where it is unreadable."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def truncated(message: str, limit: int = 1024) -> str:
    """A message that fits an event or a condition."""
    return message if len(message) <= limit else message[: limit - 3] + "..."


def status_patch(resource_version: str, conditions: Conditions, **fields: Any) -> Mapping[str, Any]:
    """A merge patch of a status; the version makes it lose to any write in between, since lists are replaced whole."""
    return {
        "metadata": {"resourceVersion": resource_version},
        "status": {**fields, "conditions": conditions.manifest()},
    }
