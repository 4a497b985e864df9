"""Safe mode: when we cannot trust what we see or what we can do, nothing is removed that could stay.

Each cause is raised and lifted by whoever can see it; while any stands, voluntary disruption waits,
provisioning goes on, and health, metrics, events and log say so. It ends by itself with its last cause.
"""

from __future__ import annotations

from enum import StrEnum

from structlog.typing import FilteringBoundLogger

from dovetail.clock import Clock
from dovetail.controllers.metrics import Metrics


class Cause(StrEnum):
    LAUNCHES_FAIL = "launches-fail"
    STALE_VIEW = "stale-view"
    NOT_AUTHORISED = "not-authorised"
    MANY_UNHEALTHY = "many-unhealthy"
    BROKEN_INVARIANT = "broken-invariant"


#: A view this old, in seconds, is no ground for removing anything.
STALE_AFTER = 60.0
#: The share of unhealthy machines above which something bigger is wrong.
UNHEALTHY_SHARE = 0.2
#: Launches looked at, and how many of them must have failed.
LAUNCH_WINDOW, LAUNCH_FAILURES = 10, 5


class Safety:
    """The standing causes, each with its explanation and the moment it came."""

    def __init__(self, clock: Clock, metrics: Metrics, log: FilteringBoundLogger) -> None:
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._standing: dict[Cause, tuple[str, float]] = {}
        self._launches: list[bool] = []
        for cause in Cause:
            metrics.safe_mode.labels(cause).set(0)

    @property
    def safe_mode(self) -> bool:
        """Whether voluntary disruption must wait."""
        return bool(self._standing)

    def causes(self) -> dict[Cause, str]:
        return {cause: why for cause, (why, _) in self._standing.items()}

    def set(self, cause: Cause, why: str | None) -> None:
        """Raise a cause with its explanation, or lift it with None."""
        standing = cause in self._standing
        if why is not None:
            self._standing[cause] = (why, self._standing[cause][1] if standing else self._clock.monotonic())
        else:
            self._standing.pop(cause, None)
        if standing != (why is not None):
            self._metrics.safe_mode.labels(cause).set(int(why is not None))
            if why is not None:
                self._log.error("entering safe mode, voluntary disruption stops", cause=cause, error=why)
            else:
                self._log.info("cause of safe mode is gone", cause=cause, safe_mode=self.safe_mode)

    def launch(self, succeeded: bool, why: str = "") -> None:
        """The outcome of a launch. One success is proof enough that machines can be had again."""
        self._launches = [] if succeeded else [*self._launches[1 - LAUNCH_WINDOW :], False]
        if succeeded:
            self.set(Cause.LAUNCHES_FAIL, None)
        elif len(self._launches) >= LAUNCH_FAILURES:
            self.set(Cause.LAUNCHES_FAIL, f"the last {len(self._launches)} launches failed: {why}")

    def view(self, age: float, failures: str = "") -> None:
        """How old the view is."""
        stale = f"the view is {age:.0f} s old: {failures}" if age > STALE_AFTER else None
        self.set(Cause.STALE_VIEW, stale)

    def health(self, unhealthy: int, total: int) -> None:
        """How many of our machines are not ready."""
        many = total > 0 and unhealthy > max(1, UNHEALTHY_SHARE * total)
        self.set(Cause.MANY_UNHEALTHY, f"{unhealthy} of {total} machines are not ready" if many else None)
