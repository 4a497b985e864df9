"""Tasks that are due from time to time, each by itself: a failure of one keeps none of the others from its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from dovetail.clock import Clock
from dovetail.cloud.aws.errors import asked
from dovetail.cloud.provider import CloudError, Remedy

#: After a failure a chore is due again so much later, twice as late after each further one, up to its period.
RETRY_AFTER_S = 60.0


class PeriodicTask:
    """`act` is due every `period` seconds; it says nothing and raises what AWS raises."""

    def __init__(self, clock: Clock, name: str, period: float, act: Callable[[], Awaitable[None]]) -> None:
        self.name = name
        self._clock = clock
        self._period = period
        self._act = act
        self._due = clock.monotonic()
        self._failures = 0
        self._acting = asyncio.Lock()

    async def act(self) -> CloudError | None:
        """Act if it is due; the failure, if it failed."""
        async with self._acting:
            if self._clock.monotonic() < self._due:
                return None
            try:
                await asked(self._act())
            except CloudError as problem:
                pause = min(self._period, RETRY_AFTER_S * 2**self._failures)
                self._failures += 1
                self._due = self._clock.monotonic() + pause
                return problem
            self._failures, self._due = 0, self._clock.monotonic() + self._period
            return None


async def act(chores: Sequence[PeriodicTask]) -> None:
    """All that is due, at once; afterwards what failed, in one error."""
    outcomes = await asyncio.gather(*(chore.act() for chore in chores))
    failures = {chore.name: problem for chore, problem in zip(chores, outcomes, strict=True) if problem is not None}
    if not failures:
        return
    words = "; ".join(f"{name}: {problem.message}" for name, problem in failures.items())
    first = next(iter(failures.values()))
    reason = first.reason if len(failures) == 1 else "UpkeepFailed"
    raise CloudError(reason, words, Remedy.RETRY) from first
