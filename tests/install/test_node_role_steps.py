"""A node role that lacks a step of its installation: the controller names it in an event on the NodeClaim and pods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dovetail.cloud.provider import NodeRole
from dovetail.kube.resources import CONFIGMAPS, DAEMONSETS
from dovetail.lab.aws.account import client
from tests.controllers import aws_world
from tests.controllers.aws_world import Account, AwsWorld

ROLE = "KarpenterNodeRole-demo"


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    yield from aws_world.account("m5")


@contextmanager
def without(account: Account, *policies: str) -> Iterator[None]:
    iam = client(account.endpoint, "iam")
    arns = [f"arn:aws:iam::aws:policy/{policy}" for policy in policies]
    for arn in arns:
        iam.detach_role_policy(RoleName=ROLE, PolicyArn=arn)
    try:
        yield
    finally:
        for arn in arns:
            iam.attach_role_policy(RoleName=ROLE, PolicyArn=arn)


async def start(world: AwsWorld) -> None:
    await world.node_class()
    await world.pool()
    await world.pods(1)
    world.start()


def test_the_missing_mapping_is_named_in_an_event(account: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        await world.kube.patch(CONFIGMAPS, "aws-auth", {"data": {"mapRoles": "[]"}}, "kube-system")
        await start(world)
        await world.says("NodeNotJoined", "aws-auth", ROLE, within=300.0)
        assert world.count("describe_access_entry") >= 1

    aws_world.run_scenario(account, scenario)


def test_the_mapping_is_named_where_the_controller_may_not_ask_for_the_role(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Policies of Karpenter before 0.32 have no iam:GetInstanceProfile."""

    async def unknown(*_: object) -> NodeRole | None:
        return None

    async def scenario(world: AwsWorld) -> None:
        await world.kube.patch(CONFIGMAPS, "aws-auth", {"data": {"mapRoles": "[]"}}, "kube-system")
        monkeypatch.setattr("dovetail.cloud.aws.provider.Aws.node_role", unknown)
        await start(world)
        await world.says("NodeNotJoined", "aws-auth", "instance profile demo_", within=300.0)

    aws_world.run_scenario(account, scenario)


def test_an_instance_that_may_not_look_itself_up_does_not_join(account: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        await start(world)
        await world.says("NodeNotJoined", "AmazonEKSWorkerNodePolicy", ROLE, within=300.0)

    with without(account, "AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy"):
        aws_world.run_scenario(account, scenario)


@pytest.mark.parametrize("policy", ["AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"])
def test_a_node_without_a_network_is_not_ready_until_its_role_has_the_policy(account: Account, policy: str) -> None:
    async def scenario(world: AwsWorld) -> None:
        container = {"name": "aws-node", "image": "amazon-k8s-cni"}
        labels = {"k8s-app": "aws-node"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "nodeSelector": {"no": "node"}}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        await world.kube.create(DAEMONSETS, {"metadata": {"name": "aws-node"}, "spec": spec}, "kube-system")
        await start(world)
        with without(account, policy):
            await world.says("NodeNetworkNotReady", policy, within=400.0)
            assert not await world.running()
        await world.until(world.running, within=60.0)

    aws_world.run_scenario(account, scenario)
