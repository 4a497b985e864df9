"""Calls: what goes on between the loop and botocore's threads."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from dovetail.clock import Clock
from dovetail.cloud.aws.calls import Calls


class OneAtATime:
    """A session that notices when two threads make clients with it at once, which boto3's cannot bear."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self.made: list[str] = []
        self.clashes = 0

    def client(self, service: str, **_: Any) -> Any:
        alone = self._busy.acquire(blocking=False)
        self.clashes += not alone
        threading.Event().wait(0.01)
        self.made.append(service)
        if alone:
            self._busy.release()
        return SimpleNamespace(ask=lambda: service, close=lambda: None)


def test_clients_are_made_one_at_a_time_and_once_each() -> None:
    async def main() -> None:
        session = OneAtATime()
        calls = Calls(Clock(asyncio.get_running_loop()), region="eu-west-1", session=session)
        asked = ("iam", "eks", "ssm", "sqs") * 3
        try:
            assert await asyncio.gather(*(calls(service, "ask") for service in asked)) == list(asked)
        finally:
            calls.close()
        assert sorted(session.made) == ["eks", "iam", "sqs", "ssm"]
        assert session.clashes == 0

    asyncio.run(main())
