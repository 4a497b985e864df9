"""Cooldown of scale-down: how long nodes stay after a scale-up, a deletion or a failure.

It holds for the whole cluster, or with --scale-down-delay-type-local for the group that scaled.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

#: How long before the start the last scaling counts as having been, so that no cooldown is in force.
BEFORE_START = timedelta(hours=1)


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """What the flags say. Seconds."""

    after_add_s: float = 600.0
    after_delete_s: float = 0.0
    after_failure_s: float = 180.0
    local: bool = False


class Cooldown:
    """Remembers when what was scaled last. `scaled_up` and `deleted` are reported with the group."""

    def __init__(self, delays: Delays, start: datetime) -> None:
        self.delays = delays
        self.last_scale_up = self.last_deletion = self.last_failure = start - BEFORE_START
        self._scale_ups: dict[str, datetime] = {}
        self._deletions: dict[str, datetime] = {}
        self._failures: dict[str, datetime] = {}

    def scaled_up(self, group: str, now: datetime) -> None:
        self.last_scale_up = self._scale_ups[group] = now

    def began_deletion(self, now: datetime) -> None:
        self.last_deletion = now

    def deleted(self, group: str, now: datetime) -> None:
        self._deletions[group] = now

    def failed(self, now: datetime) -> None:
        """Deletions could not even be begun."""
        self.last_failure = now

    def group_failed(self, group: str, now: datetime) -> None:
        """The cloud refused to delete a node of the group."""
        self._failures[group] = now

    def is_active(self, now: datetime) -> bool:
        """Whether no node may go anywhere in the cluster."""
        if self.delays.local:
            return False
        return (
            self.last_scale_up + timedelta(seconds=self.delays.after_add_s) > now
            or self.last_failure + timedelta(seconds=self.delays.after_failure_s) > now
            or self.last_deletion + timedelta(seconds=self.delays.after_delete_s) > now
        )

    def is_group_active(self, group: str, now: datetime) -> bool:
        """Whether no node of the group may go."""
        if not self.delays.local:
            return False
        return any(
            group in times and times[group] + timedelta(seconds=delay) > now
            for times, delay in (
                (self._scale_ups, self.delays.after_add_s),
                (self._deletions, self.delays.after_delete_s),
                (self._failures, self.delays.after_failure_s),
            )
        )
