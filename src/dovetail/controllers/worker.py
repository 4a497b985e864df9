"""A worker reconciles objects, one key at a time, several keys at once.

It is the client's work queue with our rules on top: a reconciliation returns when it wants to run again,
a conflict is simply another run, and every failure is logged.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

from structlog.typing import FilteringBoundLogger

from dovetail.chance import Chance
from dovetail.cloud.provider import CloudError
from dovetail.controllers import logs
from dovetail.controllers.metrics.definitions import Metrics
from dovetail.controllers.supervision import raised_at
from dovetail.kube.backoff import Retries
from dovetail.kube.errors import Conflict, KubeError
from dovetail.kube.resources import Resource
from dovetail.kube.workqueue import WorkQueue

#: What a reconciliation returns: seconds until it wants to run again, or None for "when something changes".
Again = float | None

#: The pause after a conflict: long enough for the watch to bring what we had not seen.
AFTER_CONFLICT = 0.05


#: Failures that Kubernetes or the cloud explains; any other is a defect of ours and logged with its traceback.
EXPLAINED = (KubeError, CloudError)


class Worker:
    """Calls `reconcile(key)`. `base` and `cap` bound the pause after failures, in seconds.

    `resource` is the kind that keys name: log lines carry the object. With `metrics`, queue and reconciliations count.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[str], Awaitable[Again]],
        log: FilteringBoundLogger,
        chance: Chance,
        *,
        workers: int = 20,
        base: float = 1.0,
        cap: float = 60.0,
        resource: Resource | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._log = log
        self._workers = workers
        self._resource = resource
        self._runtime = metrics.runtime if metrics is not None else None
        #: Ids of reconciliations that failed, until that is logged.
        self._failing: dict[str, str] = {}
        self._ids = reconcile_ids(chance, name)
        self._logged: set[tuple[str, str]] = set()
        self._queue: WorkQueue[str] = WorkQueue(Retries(base=base, cap=cap), chance.child("worker", name))
        if self._runtime is not None:
            self._queue.observer = self._runtime.queue(name, lambda: len(self._queue), workers)

    def add(self, key: str, after: float = 0.0) -> None:
        """Reconcile `key`, at the latest `after` seconds from now."""
        self._queue.add_after(key, after)

    async def run(self) -> None:
        await self._queue.work(self._handle, failed=self._failed, workers=self._workers)

    async def _handle(self, key: str) -> None:
        namespace, _, name = key.rpartition("/")
        counted = self._runtime.reconciliation(self.name, EXPLAINED) if self._runtime is not None else nullcontext()
        with logs.reconciling(self.name, self._ids.uid(), name, self._resource, namespace) as identity, counted:
            try:
                again = await self._reconcile(key)
            except Conflict:
                again = AFTER_CONFLICT
            except Exception:
                self._failing[key] = identity
                raise
        if again is not None:
            self._queue.add_after(key, max(again, 0.001))

    def _failed(self, key: str, problem: Exception, pause: float) -> None:
        namespace, _, name = key.rpartition("/")
        unexplained = None if isinstance(problem, EXPLAINED) else problem
        text = repr(problem) if unexplained else str(problem)
        if unexplained is not None:  # its traceback once
            error = (type(problem).__name__, raised_at(problem))
            unexplained = None if error in self._logged else problem
            self._logged.add(error)
        with logs.reconciling(self.name, self._failing.pop(key, ""), name, self._resource, namespace):
            self._log.error("Reconciler error", error=text, retry=pause, exc_info=unexplained)


async def every(
    seconds: float,
    act: Callable[[], Awaitable[None]],
    name: str,
    log: FilteringBoundLogger,
    ids: Chance,
    times: int | None = None,
    again: float | None = None,
) -> None:
    """Call `act` now and then every so many seconds; a failed call is logged and the next one comes all the same.

    Without a number of `times` it goes on until cancelled. After a failure the pause is `again`, if given. Log lines
    of a call carry the controller's `name` and an id of `ids` (see `reconcile_ids`).
    """
    for _ in itertools.count() if times is None else range(times):
        pause = seconds
        with logs.reconciling(name, ids.uid()):
            try:
                await act()
            except EXPLAINED as problem:
                log.error("Reconciler error", error=str(problem))
                pause = seconds if again is None else again
        await asyncio.sleep(pause)


def reconcile_ids(chance: Chance, name: str) -> Chance:
    """The stream of the reconciliation ids of a controller."""
    return chance.child("reconcile", name)
