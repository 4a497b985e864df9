"""Termination in batches: an instance that may not be terminated keeps no other alive."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.instances import CLASS_TAG, CLUSTER_TAG, POOL_TAG, Ec2Instances
from dovetail.cloud.aws.provider import Aws, AwsSettings
from dovetail.cloud.provider import CloudError


class Refused(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code, "Message": ""}}


class Ec2:
    """Refuses a whole call for one instance of it, as EC2 does; `silent` ones are missing in its answer."""

    def __init__(self, refusals: Mapping[str, str], silent: frozenset[str] = frozenset()) -> None:
        self.refusals = refusals
        self.silent = silent
        self.calls: list[int] = []
        self.ended: set[str] = set()

    def client(self, service: str, **_: Any) -> Any:
        return SimpleNamespace(terminate_instances=self.terminate_instances, close=lambda: None)

    def terminate_instances(self, InstanceIds: list[str]) -> dict[str, Any]:
        self.calls.append(len(InstanceIds))
        for name in InstanceIds:
            if name in self.refusals:
                raise Refused(self.refusals[name])
        reported = [name for name in InstanceIds if name not in self.silent or len(InstanceIds) == 1]
        self.ended |= set(reported)
        return {
            "TerminatingInstances": [{"InstanceId": n, "CurrentState": {"Name": "shutting-down"}} for n in reported]
        }


def end(ec2: Ec2, count: int) -> list[BaseException | None]:
    async def main() -> list[BaseException | None]:
        calls = Calls(Clock(asyncio.get_running_loop()), region="eu-west-1", session=ec2)
        instances = Ec2Instances(calls, "demo")
        try:
            names = (f"aws:///a/i-{number}" for number in range(count))
            return await asyncio.gather(*map(instances.end, names), return_exceptions=True)
        finally:
            calls.close()

    return run_virtual(main())


@pytest.mark.parametrize("code", ["OperationNotPermitted", "UnauthorizedOperation", "InternalError", "SomethingNew"])
def test_one_instance_that_may_not_be_terminated_keeps_no_other_alive(code: str) -> None:
    ec2 = Ec2({"i-3": code})
    outcomes = end(ec2, 100)
    assert len(ec2.ended) == 99
    assert [number for number, outcome in enumerate(outcomes) if outcome is not None] == [3]


def test_an_instance_that_the_answer_leaves_out_is_terminated_alone() -> None:
    ec2 = Ec2({}, frozenset({"i-1", "i-2"}))
    assert end(ec2, 4) == [None] * 4
    assert ec2.calls == [4, 1, 1] and len(ec2.ended) == 4


def test_an_instance_that_ec2_does_not_confirm_even_alone_is_an_error() -> None:
    ec2 = Ec2({})
    ec2.terminate_instances = lambda InstanceIds: {"TerminatingInstances": []}  # type: ignore[method-assign]
    (outcome,) = end(ec2, 1)
    assert isinstance(outcome, CloudError) and outcome.reason == "TerminationNotConfirmed"


def test_throttling_splits_no_batch() -> None:
    """Every member meets it: a hundred calls in place of one would only add to it."""
    ec2 = Ec2({"i-3": "RequestLimitExceeded"})
    assert None not in end(ec2, 10)
    assert set(ec2.calls) == {10}


class TwoClusters:
    """An EC2 that does not filter: it lists the instances of two clusters, and one of neither."""

    def __init__(self) -> None:
        self.terminated: list[str] = []
        self._rows = [
            self._row("i-ours", {CLUSTER_TAG: "demo", POOL_TAG: "default", CLASS_TAG: "default"}),
            self._row("i-theirs", {CLUSTER_TAG: "prod", POOL_TAG: "default", CLASS_TAG: "default"}),
            self._row("i-bastion", {"Name": "bastion"}),
        ]

    def client(self, service: str, **_: Any) -> Any:
        return SimpleNamespace(
            describe_instances=lambda **_: {"Reservations": [{"Instances": self._rows}]},
            terminate_instances=self._terminate,
            close=lambda: None,
        )

    def _row(self, name: str, tags: Mapping[str, str]) -> dict[str, Any]:
        return {
            "InstanceId": name,
            "InstanceType": "m5.large",
            "LaunchTime": datetime(2026, 1, 1, tzinfo=UTC),
            "Placement": {"AvailabilityZone": "a"},
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        }

    def _terminate(self, InstanceIds: list[str]) -> dict[str, Any]:
        self.terminated += InstanceIds
        return {"TerminatingInstances": [{"InstanceId": name, "CurrentState": {}} for name in InstanceIds]}


def test_instances_of_another_cluster_are_neither_listed_nor_terminated() -> None:
    """What is listed and has no NodeClaim is an orphan; and a NodeClaim's provider id may have been edited."""
    ec2 = TwoClusters()

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop())
        calls = Calls(clock, region="eu-west-1", session=ec2)
        aws = Aws(AwsSettings(cluster_name="demo", region="eu-west-1"), clock, calls)
        assert [instance.provider_id for instance in await aws.instances()] == ["aws:///a/i-ours"]
        with pytest.raises(CloudError, match="eks:eks-cluster-name=prod") as refusal:
            await aws.terminate("aws:///a/i-theirs")
        assert refusal.value.reason == "InstanceOfOtherCluster"
        await aws.terminate("aws:///a/i-ours")
        assert ec2.terminated == ["i-ours"]
        calls.close()

    run_virtual(main())
