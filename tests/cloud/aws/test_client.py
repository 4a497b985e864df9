"""Calls: what goes on between the loop and botocore's threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws.client import CallRecord, Calls
from dovetail.cloud.aws.provider import Aws, AwsSettings


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


def test_credentials_that_ran_out_are_fetched_anew_unless_the_session_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for given in (True, False):
        session = Session("ExpiredToken")
        monkeypatch.setattr(boto3.session, "Session", lambda session=session, **_: session)

        async def main(given: bool = given, session: Session = session) -> int:
            calls = Calls(Clock(asyncio.get_running_loop()), region="eu-west-1", session=session if given else None)
            with pytest.raises(Failing):
                await calls("ec2", "describe_subnets")
            assert await calls("ec2", "describe_subnets") == "answer"
            calls.close()
            return session.made

        assert run_virtual(main()) == (1 if given else 2)


class Fleets:
    """An EC2 that launches whatever is asked for, and fails with these codes first."""

    def __init__(self, *codes: str) -> None:
        self.codes = list(codes)

    def client(self, service: str, **_: Any) -> Any:
        def create_fleet(TargetCapacitySpecification: Any) -> str:
            if self.codes:
                raise Failing(self.codes.pop(0))
            return "answer"

        return SimpleNamespace(create_fleet=create_fleet, close=lambda: None)


def launched(session: Fleets, calls: int, each: int, **settings: Any) -> float:
    """How long so many calls for so many instances each take."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        aws = Calls(Clock(loop), region="eu-west-1", session=session, **settings)
        for _ in range(calls):
            await aws("ec2", "create_fleet", TargetCapacitySpecification={"TotalTargetCapacity": each})
        aws.close()
        return loop.time()

    return run_virtual(main())


def test_instances_are_limited_only_after_ec2_really_throttled() -> None:
    """Three thousand instances took more than forty minutes under a limit that the account did not have."""
    assert launched(Fleets(), calls=25, each=120) == 0.0
    slowed = launched(Fleets("RequestLimitExceeded"), calls=5, each=20)
    assert 60.0 < slowed < 110.0, "one instance a second: half of what comes back to EC2's own bucket"


def test_the_share_of_ec2s_buckets_is_a_setting_and_zero_is_no_limit() -> None:
    half, all_of_it, none = (launched(Fleets(), calls=60, each=1, share=share) for share in (0.5, 1.0, 0.0))
    assert half > all_of_it > none == 0.0


def test_the_provider_hands_the_share_on_to_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Fleets()
    monkeypatch.setattr(boto3.session, "Session", lambda **_: session)

    async def main(share: float) -> float:
        loop = asyncio.get_running_loop()
        aws = Aws(AwsSettings(cluster_name="demo", region="eu-west-1", ec2_share=share), Clock(loop))
        for _ in range(60):
            await aws.calls("ec2", "create_fleet", TargetCapacitySpecification={"TotalTargetCapacity": 1})
        aws.calls.close()
        return loop.time()

    assert run_virtual(main(0.0)) == 0.0 < run_virtual(main(0.5))


def test_a_service_that_does_not_answer_takes_no_thread_from_another() -> None:
    """A burst of IAM calls into a network without a route must not hold up CreateFleet."""
    stuck = threading.Event()

    class Stuck:
        def client(self, service: str, **_: Any) -> Any:
            def ask() -> str:
                if service == "iam":
                    stuck.wait(10)
                return service

            return SimpleNamespace(ask=ask, close=lambda: None)

    async def main() -> None:
        calls = Calls(Clock(asyncio.get_running_loop()), region="eu-west-1", session=Stuck())
        waiting = [asyncio.create_task(calls("iam", "ask")) for _ in range(20)]
        try:
            assert await asyncio.wait_for(calls("ec2", "ask"), 5) == "ec2"
        finally:
            stuck.set()
            await asyncio.gather(*waiting)
            calls.close()

    asyncio.run(main())


def test_a_call_that_waits_keeps_no_process_alive() -> None:
    """The long poll of the interruption queue lasts twenty seconds; a pod that stops has fewer."""
    program = """
import asyncio, threading
from types import SimpleNamespace
from dovetail.clock import Clock
from dovetail.cloud.aws.client import Calls

begun = threading.Event()

def wait():
    begun.set()
    threading.Event().wait(60)

class Session:
    def client(self, service, **_):
        return SimpleNamespace(ask=wait, close=lambda: None)

async def main():
    calls = Calls(Clock(asyncio.get_running_loop()), region="eu-west-1", session=Session())
    poll = asyncio.create_task(calls("sqs", "ask"))
    await asyncio.to_thread(begun.wait)
    poll.cancel()
    calls.close()

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_a_record_tells_status_latency_and_attempts() -> None:
    async def main() -> list[CallRecord]:
        records: list[CallRecord] = []
        calls = Calls(
            Clock(asyncio.get_running_loop()),
            region="eu-west-1",
            session=Session("InternalError"),
            observe=records.append,
        )
        await calls("ec2", "describe_subnets")
        calls.close()
        return records

    first, last = run_virtual(main())
    assert (first.error, first.attempt, first.request_seconds) == ("InternalError", 1, None)
    assert (last.error, last.attempt, last.status) == ("", 2, 200)
    assert last.request_seconds is not None and last.request_seconds >= 0.5
