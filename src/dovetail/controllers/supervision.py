"""Supervision: each controller runs by itself, and one that fails is restarted with backoff.

An unexpected error is logged with its traceback once, counted every time, and ends neither the process nor another
controller. A restarted controller begins anew, as after a restart of the process. The process counts as alive until a
controller has failed so often in a row that restarting it does not help.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from structlog.typing import FilteringBoundLogger

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.cloud.provider import CloudError
from dovetail.controllers.metrics.definitions import Metrics
from dovetail.kube.backoff import Retries
from dovetail.kube.errors import KubeError

#: The pause before a controller is restarted, in seconds.
RESTARTS = Retries(base=1.0, cap=60.0)
#: A controller that ran for so many seconds has recovered: its next failure is the first again.
RECOVERED_AFTER_S = 300.0
#: So many failures in a row, about five minutes of them, and restarting the process is all that may help.
MAX_FAILURES_IN_A_ROW = 10


class Supervisor:
    """Runs what must not end, and knows what does not recover."""

    def __init__(self, clock: Clock, chance: Chance, metrics: Metrics, log: FilteringBoundLogger) -> None:
        self._clock = clock
        self._chance = chance
        self._metrics = metrics
        self._log = log
        self._began: dict[str, float] = {}
        self._in_a_row: dict[str, int] = {}
        self._last: dict[str, str] = {}
        self._logged: set[tuple[str, str, str]] = set()

    async def supervise(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Call `run`, and again after a pause whenever it fails; returns when it does."""
        while True:
            began = self._began[name] = self._clock.monotonic()
            try:
                await run()
                return
            except Exception as problem:  # whatever it is: logged, counted, and the controller begins anew
                lasted = self._clock.monotonic() - began
                failures = 1 if lasted >= RECOVERED_AFTER_S else self._in_a_row.get(name, 0) + 1
                self._in_a_row[name] = failures
                pause = RESTARTS.pause(failures, self._chance)
                self.report(name, problem, restart=round(pause, 1))
            await asyncio.sleep(pause)

    def report(self, name: str, problem: Exception, **more: object) -> None:
        """Log an unexpected error, with its traceback the first time, and count it."""
        for error in leaves(problem):
            self._metrics.controller_failures.labels(name).inc()
            self._last[name] = f"{type(error).__name__}: {error}"
            key = (name, type(error).__name__, raised_at(error))
            expected = isinstance(error, KubeError | CloudError)
            traceback = {} if expected or key in self._logged else {"exc_info": error}
            self._logged.add(key)
            self._log.error("controller failed", controller=name, error=self._last[name], **traceback, **more)

    def unrecovered(self) -> list[str]:
        """The controllers that restarting has not helped, each with its last error."""
        oldest = self._clock.monotonic() - RECOVERED_AFTER_S
        return [
            f"controller {name} failed {count} times in a row: {self._last[name]}"
            for name, count in self._in_a_row.items()
            if count >= MAX_FAILURES_IN_A_ROW and self._began[name] > oldest
        ]


def leaves(problem: BaseException) -> Iterator[Exception]:
    """The errors of which a group, or a group of groups, is made."""
    if isinstance(problem, BaseExceptionGroup):
        for exception in problem.exceptions:
            yield from leaves(exception)
    elif isinstance(problem, Exception):
        yield problem


def raised_at(error: Exception) -> str:
    """Where an error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
