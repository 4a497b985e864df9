"""Every AWS operation fails in turn, in every way, for ten minutes under load: the process lives and recovers.

Nothing Ready is deleted, nothing is launched twice, and pods run soon after the fault ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from dovetail.kube import resources as kinds
from tests.controllers.aws_world import Account, AwsWorld, account, run_scenario

pytestmark = pytest.mark.timeout(600)

FAULT_S = 600.0
OPERATIONS = (
    "ec2 describe_instances",
    "ec2 create_fleet",
    "ec2 describe_subnets",
    "ec2 describe_security_groups",
    "ec2 describe_images",
    "ec2 describe_launch_templates",
    "ec2 describe_instance_types",
    "ec2 describe_instance_type_offerings",
    "ec2 describe_instance_status",
    "ssm get_parameter",
    "eks describe_cluster",
    "iam get_instance_profile",
)


#: Those that the normal suite sweeps.
USUAL = ("ec2 describe_instances", "ec2 create_fleet", "iam get_instance_profile")


def _denied(name: str) -> Any:
    raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, name)


def _broken(name: str) -> Any:
    raise ClientError({"Error": {"Code": "503"}, "ResponseMetadata": {"HTTPStatusCode": 503}}, name)


def _unreachable(name: str) -> Any:
    raise EndpointConnectionError(endpoint_url=f"https://{name}")


def _slow(name: str) -> Any:
    raise ReadTimeoutError(endpoint_url=f"https://{name}")


def _empty(name: str) -> Any:
    return {}


def _garbage(name: str) -> Any:
    return {
        "Reservations": [{}],
        "Subnets": [{}],
        "InstanceTypes": [None],
        "cluster": None,
        "Messages": [{}],
        "Images": [{}],
        "LaunchTemplates": [{}],
        "Instances": [{}],
        "Parameter": {},
        "InstanceStatuses": [{}],
        "SecurityGroups": [{}],
        "PriceList": ["{"],
        "SpotPriceHistory": [{}],
        "InstanceTypeOfferings": [{}],
        "TerminatingInstances": [{}],
        "InstanceProfile": {},
    }


FAULTS: tuple[Callable[[str], Any], ...] = (_denied, _broken, _unreachable, _slow, _empty, _garbage)


@pytest.fixture(scope="module")
def aws() -> Iterator[Account]:
    yield from account("m5")


def _sweep() -> Iterator[Any]:
    """Each operation in one way; the normal suite takes the few that NodeClaims depend on most."""
    for operation, way in zip(OPERATIONS, cycle(FAULTS)):
        marks = () if operation in USUAL else (pytest.mark.slow,)
        yield pytest.param(operation, way, marks=marks, id=f"{operation.split()[1]}-{way.__name__[1:]}")


class Fault:
    """An operation of a world's process fails, until it is mended; `hits` counts how often."""

    def __init__(self, world: AwsWorld, operation: str, fault: Callable[[str], Any]) -> None:
        self.hits = 0
        self._world = world
        self._plain = world.calls._run
        service, name = operation.split()

        async def run(of: str, call: Any, **arguments: Any) -> Any:
            if (of, getattr(call, "__name__", "")) == (service, name):
                self.hits += 1
                return fault(name)
            return await self._plain(of, call, **arguments)

        world.calls._run = run  # type: ignore[method-assign, assignment]

    def mend(self) -> None:
        self._world.calls._run = self._plain  # type: ignore[method-assign]


@pytest.mark.parametrize(("operation", "way"), list(_sweep()))
def test_an_operation_that_fails_for_ten_minutes_from_the_start_stops_nothing_for_ever(
    aws: Account, operation: str, way: Callable[[str], Any]
) -> None:
    async def scenario(world: AwsWorld) -> None:
        await world.node_class()
        await world.pool()
        world.start()
        await world.pods(2, prefix="before", cpu="1500m")
        await world.until(lambda: world.running("before"))
        await asyncio.sleep(30)
        ready = {node["metadata"]["uid"] for node in await world.list(kinds.NODES)}
        await world.stop()
        world.start()  # with nothing remembered
        fault = Fault(world, operation, way)
        await world.pods(1, prefix="during", cpu="1500m")
        await asyncio.sleep(FAULT_S)
        assert fault.hits, "it was really called"
        assert world._process is not None and not world._process.done(), "the process lives"
        assert ready <= {node["metadata"]["uid"] for node in await world.list(kinds.NODES)}, "nothing Ready is deleted"
        fault.mend()
        await world.pods(1, prefix="after", cpu="1500m")
        await world.until(world.running, within=900)
        await asyncio.sleep(120)
        claims = [claim["status"].get("providerID", "") for claim in await world.list(kinds.NODECLAIMS)]
        assert len(aws.living()) == len(claims) == len(set(claims)), "nothing is launched twice"

    run_scenario(aws, scenario)
