"""Calls: what goes on between the loop and botocore's threads."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws.calls import Bucket, Calls


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


def test_tokens_come_back_over_time_and_whoever_finds_none_waits_for_them() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        bucket, times = Bucket(Clock(loop), size=2.0, refill=0.5), []
        for count in (1.0, 1.0, 1.0, 2.0):
            await bucket.take(count)
            times.append(loop.time())
        await asyncio.sleep(100)
        await bucket.take(2.0)
        bucket.drain()
        await bucket.take()
        return [*times, loop.time() - times[-1] - 100]

    assert run_virtual(main()) == [0.0, 0.0, 2.0, 6.0, 2.0]


class Failing(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code, "Message": ""}}


class Session:
    """Its clients fail with these codes one after the other, and then answer."""

    def __init__(self, *codes: str) -> None:
        self.codes = list(codes)
        self.made = 0

    def client(self, service: str, **_: Any) -> Any:
        self.made += 1

        def describe_subnets() -> str:
            if self.codes:
                raise Failing(self.codes.pop(0))
            return "answer"

        return SimpleNamespace(describe_subnets=describe_subnets, close=lambda: None)


def asked(session: Session, times: int = 1) -> tuple[list[str], float]:
    """What calls made one after the other come to, and after how many seconds."""

    async def main() -> tuple[list[str], float]:
        loop = asyncio.get_running_loop()
        calls, answers = Calls(Clock(loop), region="eu-west-1", session=session), []
        for _ in range(times):
            try:
                answers.append(await calls("ec2", "describe_subnets"))
            except Failing as problem:
                answers.append(str(problem))
        calls.close()
        return answers, loop.time()

    return run_virtual(main())


def test_a_call_that_failed_in_passing_is_made_four_times_with_growing_pauses() -> None:
    answers, seconds = asked(Session("InternalError", "InternalError"))
    assert answers == ["answer"] and 1.5 <= seconds <= 1.8
    stubborn = Session(*["InternalError"] * 9)
    assert asked(stubborn)[0] == ["InternalError"] and len(stubborn.codes) == 5
    assert asked(Session("InvalidSubnetID.NotFound")) == (["InvalidSubnetID.NotFound"], 0.0)


def test_after_a_throttled_call_the_bucket_is_empty_whatever_we_thought_was_in_it() -> None:
    """Ten tokens come back each second: thirty calls take some three seconds instead of none."""
    assert asked(Session(), times=30)[1] == 0.0
    assert asked(Session("RequestLimitExceeded"), times=30)[1] == pytest.approx(3.0, abs=0.2)


def test_credentials_that_ran_out_are_fetched_anew_unless_the_session_is_somebodys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for given in (True, False):
        session = Session("ExpiredToken")
        monkeypatch.setattr(boto3.session, "Session", lambda session=session, **_: session)

        async def main(given: bool = given, session: Session = session) -> int:
            calls = Calls(
                Clock(asyncio.get_running_loop()), region="eu-west-1", session=session if given else None
            )
            with pytest.raises(Failing):
                await calls("ec2", "describe_subnets")
            assert await calls("ec2", "describe_subnets") == "answer"
            calls.close()
            return session.made

        assert run_virtual(main()) == (1 if given else 2)
