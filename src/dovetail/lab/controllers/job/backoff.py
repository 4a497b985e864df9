"""How long a job waits after failures: 10, 20, 40 … seconds since its last pod was lost, until one succeeds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dovetail.kube.backoff import doubled
from dovetail.lab.controllers.timestamps import parse
from dovetail.lab.controllers.views import PodFields

FIRST = 10.0
LONGEST = 600.0


class JobBackoff(NamedTuple):
    """The failures since the last success, and when the last of them was."""

    failures: int = 0
    last: datetime | None = None

    def after(self, good: Sequence[PodFields], bad: Sequence[PodFields]) -> JobBackoff:
        """The state after pods have ended."""
        instants = sorted(ended_at(pod) for pod in bad)
        if not good:
            return JobBackoff(self.failures + len(bad), instants[-1]) if bad else self
        success = max(ended_at(pod) for pod in good)
        since = [instant for instant in instants if instant > success]
        return JobBackoff(len(since), since[-1]) if since else JobBackoff()

    def left(self, now: datetime) -> float:
        """Seconds until the next pod may be made."""
        if not self.failures or self.last is None:
            return 0.0
        return max(0.0, doubled(FIRST, LONGEST, self.failures) - (now - self.last).total_seconds())


def ended_at(pod: PodFields) -> datetime:
    """When a pod ended: by its containers, else since it is not ready, else since it was deleted."""
    ends = [
        container_status.state.terminated and container_status.state.terminated.finished_at
        for container_status in pod.status.container_statuses
    ]
    if ends and all(ends):
        return max(parse(end) for end in ends if end)
    ready = pod.status.condition("Ready")
    if ready is not None and ready.status == "False" and ready.last_transition_time:
        return parse(ready.last_transition_time)
    meta = pod.metadata
    if meta.deletion_timestamp is not None:
        return parse(meta.deletion_timestamp) - timedelta(seconds=meta.deletion_grace_period_seconds or 0)
    return parse(meta.creation_timestamp or "")
