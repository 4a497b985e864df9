"""Safe mode: when the cluster view or the cloud cannot be trusted, no node is removed voluntarily.

Each cause is raised and lifted by the controller that observes it; while any stands, voluntary disruption waits,
provisioning continues, and health, metrics, events, history and log show it. It ends by itself with its last cause;
a cause that only a new attempt could lift lapses after a while, so that the attempt is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

import msgspec
from structlog.typing import FilteringBoundLogger

from dovetail.clock import Clock
from dovetail.cloud.provider import UNAUTHORIZED, CloudError, InstanceNotFound
from dovetail.controllers.metrics.definitions import Metrics
from dovetail.language import source


class SafeModeCause(StrEnum):
    LAUNCHES_FAIL = "launches-fail"
    REGISTRATIONS_FAIL = "registrations-fail"
    STALE_VIEW = "stale-view"
    NOT_AUTHORISED = "not-authorised"
    CLOUD_DENIES = "cloud-denies"
    CLOUD_EMPTY = "cloud-empty"
    MANY_UNHEALTHY = "many-unhealthy"
    BROKEN_INVARIANT = "broken-invariant"


#: Causes with which a pending pod would get no node.
DISABLING = frozenset(
    {
        SafeModeCause.STALE_VIEW,
        SafeModeCause.NOT_AUTHORISED,
        SafeModeCause.CLOUD_DENIES,
        SafeModeCause.LAUNCHES_FAIL,
        SafeModeCause.REGISTRATIONS_FAIL,
    }
)
#: Causes that attempts report, and after how many seconds without another they lapse.
LAPSING, LAPSE_S = (
    frozenset(
        {
            SafeModeCause.LAUNCHES_FAIL,
            SafeModeCause.REGISTRATIONS_FAIL,
            SafeModeCause.CLOUD_DENIES,
            SafeModeCause.BROKEN_INVARIANT,
        }
    ),
    900.0,
)
#: A view this old, in seconds, is no evidence for removing anything.
STALE_AFTER_S = 60.0
#: The share of unhealthy nodes above which the cause is not the nodes.
UNHEALTHY_SHARE = 0.2
#: How many launches in a row must have failed; of how many nodes how many must not have joined.
LAUNCH_FAILURES, JOINS, JOIN_FAILURES = 5, 4, 3


class ActiveCause(msgspec.Struct, frozen=True):
    """A cause that stands: why, and when it was last seen."""

    why: str
    seen: float


class SafeMode:
    """The standing causes, each with its explanation."""

    def __init__(self, clock: Clock, metrics: Metrics, log: FilteringBoundLogger) -> None:
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._standing: dict[SafeModeCause, ActiveCause] = {}
        self._failed = 0
        self._denied: dict[str, str] = {}
        self._joined: deque[bool] = deque(maxlen=JOINS)
        for cause in SafeModeCause:
            metrics.safe_mode.labels(cause).set(0)

    @property
    def safe_mode(self) -> bool:
        """Whether voluntary disruption must wait."""
        return bool(self._standing)

    def stops(self, reason: str) -> bool:
        """Whether a disruption for this reason must wait. A repair has its own limit of unhealthy nodes."""
        causes = self._standing.keys() - ({SafeModeCause.MANY_UNHEALTHY} if reason == "Unhealthy" else set())
        return bool(causes)

    def causes(self) -> dict[SafeModeCause, str]:
        return {cause: standing.why for cause, standing in self._standing.items()}

    def set(self, cause: SafeModeCause, why: str | None) -> None:
        """Raise a cause with its explanation, or lift it with None."""
        stood = cause in self._standing
        if why is not None:
            self._standing[cause] = ActiveCause(why, self._clock.monotonic())
        else:
            self._standing.pop(cause, None)
        if stood != (why is not None):
            self._metrics.safe_mode.labels(cause).set(int(why is not None))
            if why is not None:
                self._log.error("entering safe mode, voluntary disruption stops", cause=cause, error=why)
            else:
                self._log.info("cause of safe mode is gone", cause=cause, safe_mode=self.safe_mode)

    def review(self) -> None:
        """Let causes lapse that were not observed for a while."""
        oldest = self._clock.monotonic() - LAPSE_S
        for cause in [
            cause for cause, standing in self._standing.items() if cause in LAPSING and standing.seen < oldest
        ]:
            self._failed = 0 if cause is SafeModeCause.LAUNCHES_FAIL else self._failed
            if cause is SafeModeCause.REGISTRATIONS_FAIL:
                self._joined.clear()
            if cause is SafeModeCause.CLOUD_DENIES:
                self._denied.clear()
            self.set(cause, None)

    @contextmanager
    def cloud(self, action: str) -> Iterator[None]:
        """Around a cloud call that terminations need: a denial stands until the call succeeds."""
        try:
            yield
        except InstanceNotFound:
            self._allowed(action)
            raise
        except CloudError as problem:
            if problem.reason == UNAUTHORIZED:
                self._denied[action] = problem.message
                self.set(SafeModeCause.CLOUD_DENIES, self._denials())
            raise
        else:
            self._allowed(action)

    def _allowed(self, action: str) -> None:
        if self._denied.pop(action, None) is not None:
            self.set(SafeModeCause.CLOUD_DENIES, self._denials())

    def _denials(self) -> str | None:
        denial = source("the cloud does not allow us to {action}: {why}")
        return "; ".join(denial.format(action=action, why=why) for action, why in self._denied.items()) or None

    def launch(self, succeeded: bool, why: str = "") -> None:
        """The outcome of a launch. One success is proof enough that launches work again."""
        self._failed = 0 if succeeded else self._failed + 1
        if succeeded:
            self.set(SafeModeCause.LAUNCHES_FAIL, None)
        elif self._failed >= LAUNCH_FAILURES:
            text = source("the last {count} launches failed: {why}").format(count=self._failed, why=why)
            self.set(SafeModeCause.LAUNCHES_FAIL, text)

    def registration(self, joined: bool, why: str = "") -> None:
        """Whether a launched node joined the cluster."""
        self._joined.append(joined)
        failed = self._joined.count(False)
        if joined and failed < JOIN_FAILURES:
            self.set(SafeModeCause.REGISTRATIONS_FAIL, None)
        elif not joined and failed >= JOIN_FAILURES:
            text = source("{failed} of the last {count} nodes never joined: {why}")
            self.set(SafeModeCause.REGISTRATIONS_FAIL, text.format(failed=failed, count=len(self._joined), why=why))

    def view(self, age: float, failures: str = "") -> None:
        """How old the view is."""
        stale = source("the view is {age:.0f} s old: {failures}").format(age=age, failures=failures)
        self.set(SafeModeCause.STALE_VIEW, stale if age > STALE_AFTER_S else None)

    def health(self, unhealthy: int, total: int) -> None:
        """How many of our nodes are not ready."""
        many = total > 0 and unhealthy > max(1, UNHEALTHY_SHARE * total)
        text = source("{unhealthy} of {total} nodes are not ready").format(unhealthy=unhealthy, total=total)
        self.set(SafeModeCause.MANY_UNHEALTHY, text if many else None)
