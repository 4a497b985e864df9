"""What could not be had lately.

An offering that was refused is not asked for again for a while, and planning treats it as if it did not
exist. The memory is short on purpose: capacity comes back, and a wrong memory costs money.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import msgspec

from dovetail.clock import Clock
from dovetail.model.instance_type import InstanceType, Offering

#: How long a refusal is remembered, in seconds.
MEMORY = 180.0

#: (instance type, zone, capacity type or the id of one reservation); `*` stands for any.
Key = tuple[str, str, str]


def inside(capacity_type: str, group: str) -> str:
    """The capacity type of instances that are launched into a placement group: others may be had where they are not."""
    return f"{capacity_type}@{group}" if group else capacity_type


class UnavailableOfferings:
    """A memory of refusals. `generation` moves whenever the answer may have changed, so that callers can cache."""

    def __init__(self, clock: Clock, memory: float = MEMORY) -> None:
        self._clock = clock
        self._memory = memory
        self._until: dict[Key, float] = {}
        self._generation = 0

    @property
    def generation(self) -> int:
        self._forget()
        return self._generation

    def mark(self, key: Key, seconds: float | None = None) -> None:
        """Remember that `key` was refused just now."""
        self._until[key] = self._clock.monotonic() + (self._memory if seconds is None else seconds)
        self._generation += 1

    def has(self, instance_type: str, zone: str, capacity_type: str) -> bool:
        self._forget()
        if not self._until:
            return False
        return any(
            (t, z, c) in self._until for t in (instance_type, "*") for z in (zone, "*") for c in (capacity_type, "*")
        )

    def keys(self) -> tuple[Key, ...]:
        self._forget()
        return tuple(sorted(self._until))

    def apply(self, types: Iterable[InstanceType], group: str = "") -> tuple[InstanceType, ...]:
        """The types with refused offerings shown as unavailable; types without any are passed through as they are.

        With a placement group, what was refused inside it counts too.
        """
        self._forget()
        if not self._until:
            return tuple(types)
        return tuple(self._applied(t, group) for t in types)

    def _applied(self, t: InstanceType, group: str) -> InstanceType:
        offerings = tuple(self.shown(t.name, o, group) for o in t.offerings)
        if all(map(operator.is_, offerings, t.offerings)):
            return t
        return msgspec.structs.replace(t, offerings=offerings)

    def shown(self, name: str, offering: Offering, group: str = "") -> Offering:
        """An offering of a type as it is for sale now."""
        kind = offering.capacity_type
        kinds = filter(None, {kind, offering.reservation_id, inside(kind, group)})
        if offering.available and any(self.has(name, offering.zone, kind) for kind in kinds):
            return msgspec.structs.replace(offering, available=False)
        return offering

    def _forget(self) -> None:
        now = self._clock.monotonic()
        gone = [key for key, until in self._until.items() if until <= now]
        for key in gone:
            del self._until[key]
        self._generation += len(gone)
