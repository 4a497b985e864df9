"""Node groups of a cluster at AWS as a migration reads and changes them, against moto over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws.client import CallRecord, Calls
from dovetail.install.iam import Site
from dovetail.lab.aws.account import AwsAccount, build, client
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.node_groups import create_group
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.migration.aws_groups import AwsGroups, cluster_security_groups
from dovetail.migration.groups import Group, Sizes
from dovetail.migration.permissions import policy

T = TypeVar("T")
REGION = "ap-northeast-2"
OWNED = {"kubernetes.io/cluster/demo": "owned", "k8s.io/cluster-autoscaler/node-template/label/team": "web"}


class Cluster:
    def __init__(self, endpoint: AwsEndpoint, made: AwsAccount) -> None:
        self.endpoint, self.made = endpoint, made
        self.records: list[CallRecord] = []
        self.template = client(endpoint, "ec2").create_launch_template(
            LaunchTemplateName="nodes",
            LaunchTemplateData={
                "InstanceType": "m5.large",
                "ImageId": "ami-12c6146b",
                "SecurityGroupIds": [made.security_group],
                "BlockDeviceMappings": [
                    {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 50, "VolumeType": "gp3", "Encrypted": True}}
                ],
            },
        )["LaunchTemplate"]["LaunchTemplateId"]

    def group(self, name: str, *, tags: dict[str, str], spot_share: int | None = None, size: int = 0) -> None:
        distribution = None
        if spot_share is not None:
            distribution = {"OnDemandBaseCapacity": 0, "OnDemandPercentageAboveBaseCapacity": 100 - spot_share}
        create_group(
            self.endpoint, name, self.template, list(self.made.subnets.values()), sizes=(0, 5, size),
            types=["m5.large", "c5.large"] if spot_share is not None else ["m5.large"], tags=tags,
            distribution=distribution,
        )  # fmt: skip

    def talk(self, body: Callable[[AwsGroups, Calls], Awaitable[T]]) -> T:
        async def main() -> T:
            import boto3

            clock = Clock(asyncio.get_running_loop(), datetime.now(UTC))
            session = boto3.session.Session(aws_access_key_id="lab", aws_secret_access_key="lab", region_name=REGION)
            calls = Calls(
                clock, region=REGION, endpoint=self.endpoint.url, session=session, observe=self.records.append
            )
            try:
                return await body(AwsGroups(calls, "demo"), calls)
            finally:
                calls.close()

        return run_virtual(main())

    def groups(self) -> dict[str, Group]:
        async def body(groups: AwsGroups, calls: Calls) -> dict[str, Group]:
            return {group.name: group for group in await groups.groups()}

        return self.talk(body)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    endpoint = AwsEndpoint(LabOfferings(REGION, families=frozenset({"c5", "m5"})))
    made = build(endpoint, "demo", version="1.34", api_url="https://127.0.0.1:6443", ca=b"certificate")
    yield Cluster(endpoint, made)
    endpoint.close()
    endpoint.forget()


def test_groups_of_the_cluster_are_read_with_what_a_nodepool_needs(cluster: Cluster) -> None:
    cluster.group("plain", tags=OWNED)
    cluster.group("spot", tags=OWNED, spot_share=100)
    cluster.group("mixed", tags=OWNED, spot_share=40)
    cluster.group("stranger", tags={"kubernetes.io/cluster/other": "owned"})
    found = cluster.groups()
    assert "stranger" not in found
    plain = found["plain"]
    assert plain.labels["team"] == "web"
    assert plain.sizes == Sizes(0, 5, 0)
    assert plain.security_groups == (cluster.made.security_group,)
    assert set(plain.subnets) == set(cluster.made.subnets.values())
    assert plain.instance_types == ("m5.large",)
    [device] = plain.node_class_fields["blockDeviceMappings"]
    assert device["ebs"] == {"volumeType": "gp3", "volumeSize": "50Gi", "encrypted": True}
    assert found["spot"].instance_types == ("m5.large", "c5.large")
    kinds = {name: found[name].capacity_types for name in ("plain", "spot", "mixed")}
    assert kinds == {"plain": ("on-demand",), "spot": ("spot",), "mixed": ("on-demand", "spot")}


def test_sizes_are_set_and_an_instance_is_ended_once_with_rights_of_the_printed_policy(cluster: Cluster) -> None:
    cluster.group("plain", tags=OWNED, size=2)

    async def body(groups: AwsGroups, calls: Calls) -> Group:
        await cluster_security_groups(calls, "demo")
        plain = {group.name: group for group in await groups.groups()}["plain"]
        assert len(plain.instances) == 2
        await groups.suspend(plain, ("AZRebalance", "ScheduledActions"))
        await groups.resume(plain, ("ScheduledActions",))
        await groups.set_sizes(plain, plain.frozen)
        await groups.terminate(plain, plain.instances[0])
        return {group.name: group for group in await groups.groups()}["plain"]

    after = cluster.talk(body)
    assert after.sizes == Sizes(0, 2, 1)
    assert after.suspended == {"AZRebalance"}
    assert len(after.instances) == 1
    statements = policy(Site(cluster="demo", region=REGION, account="123456789012"))["Statement"]
    granted = {action.lower() for statement in statements for action in statement["Action"]}
    asked = {f"{record.service}:{record.operation.replace('_', '')}" for record in cluster.records}
    assert {"autoscaling:updateautoscalinggroup", "autoscaling:terminateinstanceinautoscalinggroup"} <= asked
    assert asked <= granted


def test_commands_say_the_same_as_the_calls(cluster: Cluster) -> None:
    async def body(groups: AwsGroups, calls: Calls) -> tuple[str, str, str]:
        own = Group(name="asg", sizes=Sizes(1, 5, 2))
        managed = Group(name="eks-asg", managed="workers", sizes=Sizes(1, 5, 2))
        return (
            groups.set_sizes_command(own, own.frozen),
            groups.set_sizes_command(managed, Sizes(0, 1, 0)),
            groups.terminate_command(own, "aws:///ap-northeast-2a/i-0abc"),
        )

    assert cluster.talk(body) == (
        "aws autoscaling update-auto-scaling-group --auto-scaling-group-name asg --min-size 0 --max-size 2"
        " --desired-capacity 2",
        "aws eks update-nodegroup-config --cluster-name demo --nodegroup-name workers"
        " --scaling-config minSize=0,maxSize=1,desiredSize=0",
        "aws autoscaling terminate-instance-in-auto-scaling-group --instance-id i-0abc"
        " --should-decrement-desired-capacity",
    )
