"""The start on AWS: nothing is led before EC2 answers, is the right one, and prices were asked for once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from structlog.typing import FilteringBoundLogger

from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.aws.start_checks import check_ec2_answers, check_identity
from dovetail.cloud.provider import CloudError

#: Between two tries, the first and the longest.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0
#: Prices are waited for so long; without an answer the packaged ones stand until the next refresh.
PRICES_WITHIN_S = 30.0


class AwsStart:
    """Waits for what must hold before the election, and tells what it waits for."""

    def __init__(self, aws: Aws, cluster_name: str, log: FilteringBoundLogger) -> None:
        self._aws = aws
        self._cluster_name = cluster_name
        self._log = log
        self._waiting_for = "EC2 has not been asked yet"

    async def ready(self, provider_ids: Sequence[str]) -> None:
        """Raises StartRefused where EC2 is not that of the cluster's nodes."""
        calls = self._aws.calls
        await self._until(lambda: check_ec2_answers(calls))
        await self._until(lambda: check_identity(calls, self._cluster_name, provider_ids))
        self._waiting_for = "prices"
        try:
            async with asyncio.timeout(PRICES_WITHIN_S):
                await self._aws.refresh_prices()
        except (CloudError, TimeoutError) as problem:
            self._log.warning("prices not refreshed at start, packaged ones stand", error=str(problem))

    def waiting_for(self) -> str:
        return self._waiting_for

    def outage(self) -> str | None:
        return self._aws.calls.outage.why()

    async def _until(self, check: Callable[[], Awaitable[None]]) -> None:
        pause = FIRST_PAUSE_S
        while True:
            try:
                return await check()
            except CloudError as problem:
                self._waiting_for = problem.message
                self._log.error("waiting for AWS", error=problem.message, retry=pause)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE_S, 2 * pause)
