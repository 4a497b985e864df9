"""Every AWS operation fails in turn, in every way, for ten minutes under load: the process lives and recovers.

Nothing Ready is deleted, nothing is launched twice, and pods run soon after the fault ends.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from dovetail.cloud.aws import provider
from dovetail.cloud.provider import CloudError
from dovetail.kube import resources as kinds
from tests.controllers.aws_world import Account, AwsWorld, account, run_scenario

pytestmark = pytest.mark.timeout(900)

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


#: Operations that end instances and NodeClasses, read the queue, keep prices, tags and templates, or prepare launches.
#: With OPERATIONS these are all that the controllers call; `test_the_sweeps_leave_no_operation_out` compares.
ENDING_OPERATIONS = (
    "ec2 terminate_instances",
    "ec2 create_tags",
    "ec2 create_launch_template",
    "ec2 delete_launch_template",
    "ec2 describe_spot_price_history",
    "ec2 run_instances",
    "pricing get_products",
    "sqs get_queue_url",
    "sqs receive_message",
    "sqs delete_message_batch",
    "iam list_instance_profiles",
    "iam create_instance_profile",
    "iam add_role_to_instance_profile",
    "iam remove_role_from_instance_profile",
    "iam delete_instance_profile",
)
#: Operations that only a NodeClass with such a field needs.
SELECTED_BY: dict[str, dict[str, Any]] = {
    "ec2 describe_capacity_reservations": {"capacityReservationSelectorTerms": [{"tags": {"team": "shop"}}]},
    "ec2 describe_placement_groups": {"placementGroupSelector": {"name": "racks"}},
}
#: Operations outside of the controllers' loops: the test that makes each fail, and the call as that test names it.
FAILED_ELSEWHERE = {
    "describe_access_entry": ("cloud/aws/test_awsauth.py", "GET /clusters/demo/access-entries"),
    "reboot_instances": ("cloud/aws/test_provider.py", 'Rule("ec2", "RebootInstances"'),
    "get_caller_identity": ("cloud/aws/test_start_checks.py", 'Rule("sts", "GetCallerIdentity"'),
}
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
        "CapacityReservations": [{}],
        "PlacementGroups": [{"State": "available"}],
    }


FAULTS: tuple[Callable[[str], Any], ...] = (_denied, _broken, _unreachable, _slow, _empty, _garbage)


@pytest.fixture(scope="module")
def aws() -> Iterator[Account]:
    yield from account("m5")


#: How long one way lasts in the rotation, in seconds: all of them in ten minutes.
WAY_S = FAULT_S / len(FAULTS)


def _rotation(world: AwsWorld) -> Callable[[str], Any]:
    """One way after the other."""
    began = world.lab.clock.monotonic()
    return lambda name: FAULTS[int((world.lab.clock.monotonic() - began) / WAY_S) % len(FAULTS)](name)


def _sweep() -> Iterator[Any]:
    """Each operation in one way; the normal suite takes the few that NodeClaims depend on most."""
    for operation, way in zip(OPERATIONS, cycle(FAULTS)):
        marks = () if operation in USUAL else (pytest.mark.slow,)
        yield pytest.param(operation, way, marks=marks, id=f"{operation.split()[1]}-{way.__name__[1:]}")
    for operation in SELECTED_BY:
        for way in (_denied, _slow, _empty, _garbage):
            yield pytest.param(operation, way, marks=pytest.mark.slow, id=f"{operation.split()[1]}-{way.__name__[1:]}")


class Fault:
    """An operation of a world's process fails, until it is mended; `hits` counts how often.

    A read of the queue that is not to fail returns at once, and takes its twenty seconds in the world's time.
    """

    def __init__(self, world: AwsWorld, operation: str, fault: Callable[[str], Any]) -> None:
        self.hits = 0
        self.mended = False
        plain = world.calls._run
        service, name = operation.split()

        async def run(of: str, call: Any, **arguments: Any) -> Any:
            called = getattr(call, "__name__", "")
            if (of, called) == (service, name) and not self.mended:
                self.hits += 1
                return fault(name)
            if called != "receive_message":
                return await plain(of, call, **arguments)
            answer = await plain(of, call, **{**arguments, "WaitTimeSeconds": 0})
            if not answer.get("Messages"):
                await asyncio.sleep(arguments["WaitTimeSeconds"])
            return answer

        world.calls._run = run  # type: ignore[method-assign, assignment]

    def mend(self) -> None:
        self.mended = True


@pytest.mark.parametrize(("operation", "way"), list(_sweep()))
def test_an_operation_that_fails_for_ten_minutes_from_the_start_stops_nothing_for_ever(
    aws: Account, operation: str, way: Callable[[str], Any]
) -> None:
    async def scenario(world: AwsWorld) -> None:
        aws.endpoint.groups.put("racks", "cluster")
        await world.node_class(**SELECTED_BY.get(operation, {}))
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


async def _upkeep(world: AwsWorld) -> None:
    """What the program does for the leader every minute, beside the controllers."""
    while True:
        with suppress(CloudError):
            await world.cloud.refresh()
        await asyncio.sleep(60.0)


def _interrupt(aws: Account, provider_id: str) -> None:
    detail = {"instance-id": provider_id.rsplit("/", 1)[-1], "instance-action": "terminate"}
    body = {"source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning", "detail": detail}
    sqs = aws.session.client("sqs", endpoint_url=aws.endpoint.url)
    sqs.send_message(QueueUrl=aws.world.queue_url, MessageBody=json.dumps(body))


async def _claims_by_pod(world: AwsWorld) -> dict[str, dict[str, Any]]:
    """NodeClaims by the prefix of the pods on their nodes."""
    claims = {claim["status"].get("nodeName", ""): claim for claim in await world.list(kinds.NODECLAIMS)}
    pods = await world.list(kinds.PODS)
    return {
        pod["metadata"]["labels"]["app"]: claims[pod["spec"]["nodeName"]]
        for pod in pods
        if pod["spec"]["nodeName"] in claims and "app" in pod["metadata"].get("labels", {})
    }


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(
            operation,
            marks=() if operation == "ec2 terminate_instances" else (pytest.mark.slow,),
            id=operation.split()[1],
        )
        for operation in ENDING_OPERATIONS
    ],
)
def test_an_operation_that_fails_in_every_way_delays_what_ends_and_loses_nothing(aws: Account, operation: str) -> None:
    async def scenario(world: AwsWorld) -> None:
        await world.node_class()
        await world.node_class("spare", tags={"team": "spare"})
        await world.pool()
        await world.pool("spare", labels={"pool": "spare"}, uses="spare")
        world.start()
        Fault(world, operation, _denied).mend()  # only the queue's time is changed
        await world.pods(1, prefix="kept", cpu="1500m")
        await world.pods(1, prefix="deleted", cpu="1500m")
        await world.pods(1, prefix="interrupted", cpu="1500m")
        await world.pods(1, prefix="spare", cpu="1500m", nodeSelector={"pool": "spare"})
        await world.until(world.running)
        await asyncio.sleep(30)
        claims = await _claims_by_pod(world)
        await world.stop()
        world.start()  # with nothing remembered
        fault = Fault(world, operation, _rotation(world))
        upkeep = asyncio.ensure_future(_upkeep(world))
        for prefix in ("deleted", "interrupted", "spare"):
            await world.kube.delete(kinds.PODS, f"{prefix}0", "default")
        await world.kube.delete(kinds.NODEPOOLS, "spare")
        await world.kube.delete(kinds.NODECLAIMS, claims["deleted"]["metadata"]["name"])
        await world.kube.delete(kinds.EC2NODECLASSES, "spare")
        _interrupt(aws, claims["interrupted"]["status"]["providerID"])
        await world.node_class("late", tags={"team": "late"})
        await world.pool("late", labels={"pool": "late"}, uses="late")
        await world.pods(1, prefix="late", cpu="1500m", nodeSelector={"pool": "late"})
        await asyncio.sleep(FAULT_S)
        assert fault.hits, "it was really called"
        assert world._process is not None and not world._process.done(), "the process lives"
        fault.mend()
        await world.until(world.running, within=900)

        async def ended() -> bool:
            names = {claim["metadata"]["name"] for claim in await world.list(kinds.NODECLAIMS)}
            gone = {claims[prefix]["metadata"]["name"] for prefix in ("deleted", "interrupted", "spare")}
            classes = {each["metadata"]["name"] for each in await world.list(kinds.EC2NODECLASSES)}
            return not names & gone and "spare" not in classes

        await world.until(ended, within=1800)
        await asyncio.sleep(120)
        upkeep.cancel()
        left = [claim["status"].get("providerID", "") for claim in await world.list(kinds.NODECLAIMS)]
        assert claims["kept"]["status"]["providerID"] in left, "nothing Ready is deleted"
        assert len(aws.living()) == len(left) == len(set(left)) == 2, "nothing is launched twice, nothing stays"
        assert world.autoscaler.supervisor.unrecovered() == []

    run_scenario(aws, scenario, interruption_queue=aws.world.queue)


def test_the_sweeps_leave_no_operation_out() -> None:
    """Every operation that the provider's modules name is swept, or fails in a test of its own."""
    modules = Path(provider.__file__).parent.glob("*.py")
    of_node_groups = ("auto_scaling_groups.py", "group_templates.py", "managed_node_groups.py", "group_tags.py")
    named = {
        operation
        for module in modules
        if module.name not in of_node_groups
        for operation in re.findall(
            r'"((?:describe|get|create|delete|terminate|reboot|list|add|remove|run|receive)_\w+)"', module.read_text()
        )
    }
    swept = {operation.split()[1] for operation in (*OPERATIONS, *ENDING_OPERATIONS, *SELECTED_BY)}
    assert named == swept | set(FAILED_ELSEWHERE)
    tests = Path(__file__).parents[1]
    assert [call for file, call in FAILED_ELSEWHERE.values() if call not in (tests / file).read_text()] == []
