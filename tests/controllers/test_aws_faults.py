"""AWS refuses, throttles and answers wrongly: the pod still gets its node, or a reason with a remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.cloud.aws import catalog
from dovetail.cloud.aws.errors import SPOT_ROLE_CODE
from dovetail.kube import resources as kinds
from dovetail.lab.aws.injected_errors import ErrorRule
from tests.controllers.aws_world import ON_DEMAND, Account, AwsWorld, account, run_scenario

pytestmark = pytest.mark.timeout(300)

ANY = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
FAMILIES = ("c5", "m5", "r5", "x8aedz")
ELSEWHERE = {"nodeSelector": {"pool": "other"}}


@pytest.fixture(scope="module")
def _account() -> Iterator[Account]:
    yield from account(*FAMILIES)


@pytest.fixture
def aws(_account: Account) -> Account:
    return _account


async def _claims(world: AwsWorld) -> list[dict[str, Any]]:
    return await world.list(kinds.NODECLAIMS)


async def _launched(world: AwsWorld, begins: str) -> str:
    """The Launched condition of the only NodeClaim, once it begins so."""

    async def logged() -> str:
        (claim,) = await _claims(world)
        text = (await world.conditions(kinds.NODECLAIMS, claim["metadata"]["name"]))["Launched"]
        return text if text.startswith(begins) else ""

    return str(await world.until(logged, within=60))


async def _ready(world: AwsWorld) -> bool:
    return (await world.conditions(kinds.EC2NODECLASSES, "default")).get("Ready", "").startswith("True")


async def _begin(world: AwsWorld, *requirements: dict[str, Any]) -> None:
    await world.node_class()
    await world.pool("default", *requirements)
    world.start()


def test_throttled_at_every_second_call_it_launches_what_is_needed_and_nothing_twice(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        aws.endpoint.trouble.add(ErrorRule("ec2", "*", "RequestLimitExceeded", "Request limit exceeded.", every=2))
        await _begin(world)
        await world.pods(6, cpu="1500m")
        await world.until(world.running)
        assert len(aws.living()) == len(await _claims(world))
        assert any(record.error == "RequestLimitExceeded" for record in world.records)

    run_scenario(aws, scenario)


def test_with_capacity_in_one_offering_alone_the_pod_gets_that_one(aws: Account) -> None:
    only = ("r5.2xlarge", "ap-northeast-2c", "on-demand")

    async def scenario(world: AwsWorld) -> None:
        place = catalog.region("ap-northeast-2")
        for zone, types in place.types.items():
            for name in types:
                for kind in ("on-demand", "spot"):
                    if (name, zone, kind) != only:
                        aws.endpoint.market.refuse((name, zone, kind))
        await _begin(world, ANY)
        await world.pods(2)
        await world.until(world.running)
        (instance,) = aws.living()
        assert (instance.instance_type, instance.placement.zone, instance.lifecycle) == (*only[:2], None)

    run_scenario(aws, scenario)


def test_capacity_nowhere_is_published_with_a_remedy_and_tried_again(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        aws.endpoint.market.refuse(("*", "*", "*"))
        await _begin(world)
        await world.pods(1)
        await world.says("InsufficientCapacityError", "NO_OFFERING", "allow more zones and types", name="p0")
        aws.endpoint.market.allow()
        await world.until(world.running)

    run_scenario(aws, scenario)


def test_a_partial_list_of_images_replaces_no_node_and_holds_up_no_launch(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        await _begin(world)
        await world.pods(1)
        await world.until(world.running)
        (claim,) = await _claims(world)
        images = aws.endpoint.backend("ec2").amis
        kept = images.pop(claim["status"]["imageID"])
        await asyncio.sleep(90)
        assert (await world.conditions(kinds.EC2NODECLASSES, "default"))["Ready"].startswith("True")
        await world.pods(1, prefix="more", cpu="1500m")
        await world.until(world.running)
        images[kept.id] = kept
        await asyncio.sleep(300)
        conditions = {
            condition["type"] for claim in await _claims(world) for condition in claim["status"]["conditions"]
        }
        assert "Ready" in conditions and "Drifted" not in conditions

    run_scenario(aws, scenario)


def test_a_missing_image_is_named_on_the_nodeclaim_and_the_pod(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        images = aws.endpoint.backend("ec2").amis
        for name in [name for name, image in images.items() if "x86_64-standard" in (image.name or "")]:
            del images[name]
        await _begin(world)
        await world.pods(1)
        await world.says("AMINotFound", "no image of EC2NodeClass 'default' suits", "BAD_NODECLASS", name="p0")
        assert "select images" in await _launched(world, "Unknown/AMINotFound")

    run_scenario(aws, scenario)


def test_a_launch_template_deleted_by_another_actor_costs_no_failed_launch(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        await _begin(world)
        await world.pods(1)
        await world.until(world.running)
        ec2 = aws.endpoint.backend("ec2")
        ec2.launch_templates.clear()
        ec2.launch_template_name_to_ids.clear()
        await world.pods(1, prefix="more", cpu="1500m")
        await world.until(world.running, within=60)
        assert "failed to launch" not in await world.events()

    run_scenario(aws, scenario)


def test_without_price_lists_the_packaged_prices_serve_and_an_unpriced_type_is_reported(
    aws: Account,
) -> None:
    async def scenario(world: AwsWorld) -> None:
        aws.endpoint.trouble.add(ErrorRule("pricing", "*", "InternalErrorException", "no", status=500))
        aws.endpoint.trouble.add(ErrorRule("ec2", "DescribeSpotPriceHistory", "InternalError", "no", status=500))
        await _begin(world, ANY)
        unpriced = {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["x8aedz"]}
        await world.pool("unpriced", unpriced, labels={"pool": "other"})
        await world.pods(1)
        await world.pods(1, prefix="dear", **ELSEWHERE)
        await world.until(lambda: world.running("p"))
        await world.says("NO_PRICE", name="dear0")

    run_scenario(aws, scenario)


def test_a_full_subnet_sends_the_pod_to_another_zone_and_full_subnets_everywhere_are_reported(aws: Account) -> None:
    full = "InsufficientFreeAddressesInSubnet"

    async def scenario(world: AwsWorld) -> None:
        market = aws.endpoint.market
        market.refuse(("*", "ap-northeast-2a", "*"), full)
        await _begin(world)
        await world.pods(1)
        await world.until(world.running)
        (instance,) = aws.living()
        assert instance.placement.zone != "ap-northeast-2a"
        market.refuse(("*", "*", "*"), full)
        await world.pods(1, prefix="more", cpu="1500m")
        await world.says("SUBNET_FULL", "add subnets, or larger ones", name="more0")
        market.allow()
        await world.until(world.running)

    run_scenario(aws, scenario)


def test_a_missing_ssm_parameter_is_reported_on_nodeclass_and_pod_until_it_is_back(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        parameters = aws.endpoint.backend("ssm")._parameters
        gone = {name: parameters.pop(name) for name in list(parameters) if "/1.34/amazon-linux-2023/" in name}
        await _begin(world)
        await world.node_class("other", amiSelectorTerms=[{"alias": "bottlerocket@latest"}])
        await world.pool("other", ON_DEMAND, uses="other", labels={"pool": "other"})
        await world.pods(1, nodeSelector={"karpenter.sh/nodepool": "default"})
        await world.pods(1, prefix="other", **ELSEWHERE)
        await world.until(lambda: world.running("other"))
        await world.says(
            "NodePool default is not ready: EC2NodeClass default: ", "al2023@latest", "SSM", "BAD_NODECLASS", name="p0"
        )
        ready = (await world.conditions(kinds.EC2NODECLASSES, "default"))["AMIsReady"]
        assert ready.startswith("False/AMINotFound") and "pin a version" in ready
        parameters.update(gone)
        await world.until(world.running)

    run_scenario(aws, scenario)


def test_expired_credentials_are_reported_and_provisioning_resumes_when_they_are_renewed(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        await _begin(world)
        await world.pods(1)
        await world.until(world.running)
        expired = "The security token included in the request is expired"
        aws.endpoint.trouble.add(ErrorRule("*", "*", "ExpiredToken", expired))
        await world.pods(1, prefix="more", cpu="1500m")
        await world.says("Unauthorized", "ExpiredToken", "renew the credentials", "UNAUTHORIZED", name="more0")
        await asyncio.sleep(120)
        shown = (await world.conditions(kinds.EC2NODECLASSES, "default"))["SubnetsReady"]
        assert "renew the credentials" in shown
        assert len(aws.living()) == 1, "nothing is terminated for want of an answer"
        aws.endpoint.trouble.clear()
        await world.until(world.running)

    run_scenario(aws, scenario)


def test_a_missing_permission_is_published_without_its_encoded_part_which_the_log_keeps(aws: Account) -> None:
    blob = "QWxs" * 300
    message = f"You are not authorized to perform this operation. Encoded authorization failure message: {blob}"

    async def scenario(world: AwsWorld) -> None:
        await _begin(world)
        await world.until(lambda: _ready(world))
        aws.endpoint.trouble.add(ErrorRule("ec2", "CreateFleet", "UnauthorizedOperation", message, status=403))
        await world.pods(1)
        await world.says("Unauthorized", "allow the action in the controller's IAM policy", name="p0")
        launched = await _launched(world, "Unknown/Unauthorized")
        assert "decode-authorization-message" in launched and blob not in launched
        assert any(blob in line.get("error", "") for line in world.lines)
        aws.endpoint.trouble.clear()
        await world.until(world.running)

    run_scenario(aws, scenario)


def test_a_nodeclass_whose_launches_are_denied_is_not_ready_and_pods_show_why(aws: Account) -> None:
    blob = "QWxs" * 300
    message = f"You are not authorized to perform this operation. Encoded authorization failure message: {blob}"

    async def scenario(world: AwsWorld) -> None:
        aws.endpoint.trouble.add(ErrorRule("ec2", "RunInstances", "UnauthorizedOperation", message, status=403))
        await _begin(world)
        await world.pods(1)
        await world.says("isn't authorized to call ec2:RunInstances", name="p0")
        shown = (await world.conditions(kinds.EC2NODECLASSES, "default"))["ValidationSucceeded"]
        assert shown.startswith("False/RunInstancesAuthCheckFailed") and blob not in shown
        assert any(blob in line.get("error", "") for line in world.lines)
        assert not await _claims(world)
        aws.endpoint.trouble.clear()
        note = {"metadata": {"annotations": {"note": "try again"}}}
        await world.kube.patch(kinds.EC2NODECLASSES, "default", note)
        await world.until(world.running, within=60)

    run_scenario(aws, scenario)


def test_without_the_spot_role_on_demand_is_launched_and_the_role_is_named(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        aws.endpoint.market.refuse(("*", "*", "spot"), SPOT_ROLE_CODE)
        await _begin(world, ANY)
        await world.pods(1)
        await world.says("aws iam create-service-linked-role --aws-service-name spot.amazonaws.com", "UNAUTHORIZED")
        await world.until(world.running)
        assert [instance.lifecycle for instance in aws.living()] == [None]

    run_scenario(aws, scenario)


def test_a_spot_quota_that_is_reached_leaves_on_demand(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        aws.endpoint.market.refuse(("*", "*", "spot"), "MaxSpotInstanceCountExceeded")
        await _begin(world, ANY)
        await world.pods(1)
        await world.says("All Standard Spot Instance Requests", "QUOTA")
        await world.until(world.running)
        assert [instance.lifecycle for instance in aws.living()] == [None]

    run_scenario(aws, scenario)


def test_a_vcpu_quota_that_is_reached_is_named_and_provisioning_resumes_when_it_is_raised(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        aws.endpoint.market.refuse(("*", "*", "on-demand"), "VcpuLimitExceeded")
        await _begin(world)
        await world.pods(1)
        await world.says("Running On-Demand Standard instances", "QUOTA", name="p0")
        aws.endpoint.market.allow()
        await world.until(world.running)

    run_scenario(aws, scenario)


def test_a_denied_kms_key_is_named_as_the_cause_of_ended_instances_and_costs_few_launches(aws: Account) -> None:
    disk = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi", "encrypted": True, "kmsKeyID": "key-1"}}

    async def scenario(world: AwsWorld) -> None:
        aws.endpoint.market.denied_keys.add("key-1")
        await world.node_class(blockDeviceMappings=[disk])
        await world.pool()
        await world.node_class("other")
        await world.pool("other", ON_DEMAND, uses="other", labels={"pool": "other"})
        world.start()
        await world.pods(1, nodeSelector={"karpenter.sh/nodepool": "default"})
        await world.pods(1, prefix="other", **ELSEWHERE)
        await world.says("InstanceTerminated", "Client.InternalError", "KMS key", "NEVER_JOINED", name="p0", within=120)
        await world.until(lambda: world.running("other"))
        await world.says("NodePool default is left out for a while", "KMS key", name="p0")
        await asyncio.sleep(600)
        assert world.count("create_fleet") <= 6
        aws.endpoint.market.denied_keys.clear()
        await world.until(world.running)

    run_scenario(aws, scenario)


def test_a_nodeclass_only_an_operator_can_mend_does_not_hold_pods_that_another_nodepool_can_serve(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        await world.node_class("denied", amiSelectorTerms=[{"alias": "bottlerocket@latest"}])
        await world.pool("denied", ON_DEMAND, uses="denied", weight=50)
        await world.node_class()
        await world.pool()
        images = aws.endpoint.backend("ec2").amis
        for name in [name for name, image in images.items() if "bottlerocket" in image.name and "x86_64" in image.name]:
            del images[name]
        world.start()
        await world.pods(1)
        await world.until(world.running, within=120)
        (claim,) = await _claims(world)
        assert claim["metadata"]["labels"]["karpenter.sh/nodepool"] == "default"

    run_scenario(aws, scenario)
