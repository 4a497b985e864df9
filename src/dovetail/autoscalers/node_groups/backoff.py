"""Backoff of node groups whose scale-up failed: for a while they are not asked again."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from dovetail.cloud.node_groups import InstanceError


class BackoffTimes(msgspec.Struct, frozen=True):
    """Seconds."""

    initial_s: float = 300.0
    longest_s: float = 1800.0
    reset_s: float = 10800.0


class BackedOff(msgspec.Struct, frozen=True):
    """How long a group is left alone, and why."""

    duration_s: float
    until: datetime
    last_failure: datetime
    error: InstanceError


class GroupBackoff:
    """By group id. A failure after an earlier backoff has ended doubles it; one within it starts it anew."""

    def __init__(self, times: BackoffTimes | None = None) -> None:
        self.times = times or BackoffTimes()
        self._groups: dict[str, BackedOff] = {}

    def fail(self, group: str, error: InstanceError, now: datetime) -> datetime:
        """Back off from a group; until when."""
        duration = self.times.initial_s
        earlier = self._groups.get(group)
        if earlier is not None and earlier.until < now:
            duration = min(2 * earlier.duration_s, self.times.longest_s)
        until = now + timedelta(seconds=duration)
        self._groups[group] = BackedOff(duration, until, now, error)
        return until

    def status(self, group: str, now: datetime) -> BackedOff | None:
        """The backoff that is in force, if any."""
        backed_off = self._groups.get(group)
        return backed_off if backed_off is not None and backed_off.until > now else None

    def remove(self, group: str) -> None:
        """The group is no longer under control."""
        self._groups.pop(group, None)

    def remove_stale(self, now: datetime) -> None:
        """Forget groups whose last failure is long ago."""
        reset = timedelta(seconds=self.times.reset_s)
        for group in [name for name, backoff in self._groups.items() if backoff.last_failure + reset < now]:
            del self._groups[group]
