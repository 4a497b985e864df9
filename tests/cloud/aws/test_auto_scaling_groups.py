"""Auto Scaling groups as node groups: against moto over HTTP, and the tags and flags that describe them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws import group_tags
from dovetail.cloud.aws.auto_scaling_groups import AutoScalingGroups, GroupDiscovery, is_placeholder
from dovetail.cloud.aws.client import CallRecord, Calls
from dovetail.cloud.aws.group_tags import NodesFlag, SpecError, parse_discovery, parse_nodes_flag
from dovetail.cloud.aws.group_templates import MixedPolicy, TypeInfo, capacity_of
from dovetail.cloud.aws.managed_node_groups import described
from dovetail.cloud.node_groups import GroupOptions, InstanceState, NodeGroupError, SizeRefused
from dovetail.lab.aws.account import AwsAccount, build, client
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.offerings import LabOfferings

T = TypeVar("T")
REGION = "ap-northeast-2"
OURS = ({"k8s.io/cluster-autoscaler/enabled": "", "k8s.io/cluster-autoscaler/demo": "owned"},)


class Groups:
    """An account with Auto Scaling groups."""

    def __init__(self, endpoint: AwsEndpoint, made: AwsAccount) -> None:
        self.endpoint, self.world = endpoint, made
        self.autoscaling, self.ec2 = client(endpoint, "autoscaling"), client(endpoint, "ec2")
        self.records: list[CallRecord] = []
        self.template = self.ec2.create_launch_template(
            LaunchTemplateName="nodes",
            LaunchTemplateData={
                "InstanceType": "m5.large",
                "ImageId": "ami-12c6146b",
                "UserData": base64.b64encode(b"#!/bin/bash\n/etc/eks/bootstrap.sh demo").decode(),
            },
        )["LaunchTemplate"]["LaunchTemplateId"]

    def make(self, name: str, size: int = 0, tags: dict[str, str] | None = None, **more: Any) -> None:
        zones = list(self.world.subnets)[:1]
        launch = {} if "MixedInstancesPolicy" in more else {"LaunchTemplate": {"LaunchTemplateId": self.template}}
        self.autoscaling.create_auto_scaling_group(
            **{
                "AutoScalingGroupName": name,
                "MinSize": 0,
                "MaxSize": 5,
                "DesiredCapacity": size,
                "AvailabilityZones": zones,
                **launch,
                "Tags": [
                    {
                        "Key": key,
                        "Value": value,
                        "ResourceId": name,
                        "ResourceType": "auto-scaling-group",
                        "PropagateAtLaunch": True,
                    }
                    for key, value in (tags or {}).items()
                ],
                **more,
            }
        )

    def run(self, talk: Callable[[AutoScalingGroups, Clock], Awaitable[T]], **discovery: Any) -> T:
        async def main() -> T:
            import boto3

            clock = Clock(asyncio.get_running_loop(), datetime.now(UTC))
            session = boto3.session.Session(aws_access_key_id="lab", aws_secret_access_key="lab", region_name=REGION)
            calls = Calls(
                clock, region=REGION, endpoint=self.endpoint.url, session=session, observe=self.records.append
            )
            try:
                cloud = AutoScalingGroups(calls, clock, GroupDiscovery(**(discovery or {"tags": OURS})))
                await cloud.refresh()
                return await talk(cloud, clock)
            finally:
                calls.close()

        return run_virtual(main())

    def desired(self, name: str) -> int:
        found = self.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return int(found[0]["DesiredCapacity"])

    def clear(self) -> None:
        for group in self.autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]:
            self.autoscaling.delete_auto_scaling_group(
                AutoScalingGroupName=group["AutoScalingGroupName"], ForceDelete=True
            )
        self.records.clear()


@pytest.fixture(scope="module")
def _account() -> Iterator[Groups]:
    endpoint = AwsEndpoint(LabOfferings(REGION, families=frozenset({"c5", "m5", "r5"})))
    made = build(endpoint, "demo", version="1.34", api_url="https://127.0.0.1:6443", ca=b"certificate")
    yield Groups(endpoint, made)
    endpoint.close()
    endpoint.forget()


@pytest.fixture
def account(_account: Groups) -> Iterator[Groups]:
    _account.clear()
    yield _account


TAGS = {"k8s.io/cluster-autoscaler/enabled": "true", "k8s.io/cluster-autoscaler/demo": "owned"}


def test_groups_are_found_by_all_their_tags(account: Groups) -> None:
    account.make("ours", 1, TAGS)
    account.make("half", 1, {"k8s.io/cluster-autoscaler/enabled": "true"})
    account.make("other", 1, {**TAGS, "k8s.io/cluster-autoscaler/demo": "shared"})

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> list[str]:
        return [group.id for group in cloud.groups()]

    assert account.run(talk) == ["ours"]
    both = account.run(talk, tags=OURS, named=(NodesFlag("half", 2, 9),))
    assert both == ["half", "ours"]


def test_a_named_group_has_the_flags_bounds(account: Groups) -> None:
    account.make("named", 1)

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> tuple[int, int, int]:
        [group] = cloud.groups()
        return group.min_size, group.max_size, group.target_size

    assert account.run(talk, named=(NodesFlag("named", 1, 9),)) == (1, 9, 1)


def test_growing_shrinking_and_refusing(account: Groups) -> None:
    account.make("ours", 1, TAGS)

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> None:
        [group] = cloud.groups()
        await cloud.increase(group, 2)
        assert account.desired("ours") == 3
        assert cloud.groups()[0].target_size == 3
        with pytest.raises(SizeRefused, match="size increase too large"):
            await cloud.increase(cloud.groups()[0], 3)
        with pytest.raises(SizeRefused, match="attempt to delete existing nodes"):
            await cloud.decrease_target(cloud.groups()[0], 1)
        await cloud.refresh(force=True)
        [group] = cloud.groups()
        doomed = group.instances[0].provider_id
        assert cloud.group_of(doomed) == group
        await cloud.delete(group, [doomed])
        assert account.desired("ours") == 2
        await cloud.refresh()
        assert doomed not in [each.provider_id for each in cloud.groups()[0].instances]
        with pytest.raises(NodeGroupError, match="belong to another group"):
            await cloud.delete(cloud.groups()[0], ["aws:///a/i-stranger"])
        for each in cloud.groups()[0].instances:
            await cloud.refresh()
            await cloud.delete(cloud.groups()[0], [each.provider_id])
        await cloud.refresh()
        with pytest.raises(SizeRefused, match="min size reached"):
            await cloud.delete(cloud.groups()[0], [doomed])

    account.run(talk)


def test_reads_are_cached_for_a_minute_and_after_a_delete_not_at_all(account: Groups) -> None:
    account.make("ours", 2, TAGS)

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> None:
        def reads() -> int:
            return sum(record.operation == "describe_auto_scaling_groups" for record in account.records)

        before = reads()
        await asyncio.sleep(59)
        await cloud.refresh()
        assert reads() == before
        await asyncio.sleep(2)
        await cloud.refresh()
        assert reads() == before + 1
        [group] = cloud.groups()
        await cloud.delete(group, [group.instances[0].provider_id])
        await cloud.refresh()
        assert reads() == before + 2

    account.run(talk)


def test_instances_that_a_group_ends_of_its_own_choice_are_reported_with_the_cause(account: Groups) -> None:
    """AZRebalance and a desired capacity that is lowered by hand; not what was terminated by name."""
    account.make("ours", 4, TAGS)
    group = account.endpoint.backend("autoscaling").autoscaling_groups["ours"]

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> list[tuple[str, bool]]:
        [ours] = cloud.groups()
        await cloud.delete(ours, [ours.instances[0].provider_id])
        await cloud.refresh(force=True)
        assert cloud.group_initiated_terminations() == []
        rebalanced = account.endpoint.scaling.rebalance(group)
        await cloud.refresh(force=True)
        [ending] = cloud.group_initiated_terminations()
        assert rebalanced and ending.provider_id.endswith(rebalanced)
        account.autoscaling.set_desired_capacity(AutoScalingGroupName="ours", DesiredCapacity=2)
        await cloud.refresh(force=True)
        [cut] = cloud.group_initiated_terminations()
        return [(ending.group, ending.rebalancing), (cut.group, cut.rebalancing)]

    assert account.run(talk) == [("ours", True), ("ours", False)]


def test_a_group_without_nodes_has_a_template(account: Groups) -> None:
    account.make(
        "ours",
        0,
        {
            **TAGS,
            "k8s.io/cluster-autoscaler/node-template/label/team": "web",
            "k8s.io/cluster-autoscaler/node-template/taint/dedicated": "web:NoSchedule",
            "k8s.io/cluster-autoscaler/node-template/taint/broken": "NoSchedule",
            "k8s.io/cluster-autoscaler/node-template/resources/ephemeral-storage": "20Gi",
            "k8s.io/cluster-autoscaler/node-template/resources/bad": "much",
        },
    )

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> None:
        [group] = cloud.groups()
        template = await cloud.template(group)
        node = template.node
        assert node.metadata.labels["team"] == "web"
        assert node.metadata.labels["node.kubernetes.io/instance-type"] == "m5.large"
        assert node.metadata.labels["topology.kubernetes.io/region"] == REGION
        assert [(taint.key, taint.value, taint.effect) for taint in node.spec.taints] == [
            ("dedicated", "web", "NoSchedule")
        ]
        assert node.status.capacity["cpu"] == "2"
        assert node.status.capacity["memory"] == str(8 * (1 << 30))
        assert node.status.capacity["ephemeral-storage"] == "20Gi"
        assert "bad" not in node.status.capacity
        assert node.ready
        assert [pod.metadata.namespace for pod in template.pods] == ["kube-system"]

    account.run(talk)


def test_a_mixed_policy_takes_its_first_type(account: Groups) -> None:
    policy = {
        "LaunchTemplate": {
            "LaunchTemplateSpecification": {"LaunchTemplateId": account.template, "Version": "$Latest"},
            "Overrides": [{"InstanceType": "c5.xlarge"}, {"InstanceType": "m5.xlarge"}],
        },
    }
    account.make("mixed", 0, TAGS, MixedInstancesPolicy=policy)

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> str:
        template = await cloud.template(cloud.groups()[0])
        return template.node.metadata.labels["node.kubernetes.io/instance-type"]

    assert account.run(talk) == "c5.xlarge"


def test_prices_are_known_for_the_region(account: Groups) -> None:
    async def talk(cloud: AutoScalingGroups, clock: Clock) -> float:
        return cloud.prices()["m5.large"]

    assert 0.05 < account.run(talk) < 0.3


class Scripted:
    """Calls with answers of our own: what moto does not do."""

    region = REGION

    def __init__(self, group: dict[str, Any], activities: list[dict[str, Any]]) -> None:
        self.group, self.activities = group, activities
        self.made: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, service: str, operation: str, **arguments: Any) -> Any:
        self.made.append((operation, arguments))
        if operation == "describe_scaling_activities":
            return {"Activities": self.activities}
        if operation == "set_desired_capacity":
            self.group["DesiredCapacity"] = arguments["DesiredCapacity"]
        return {"AutoScalingGroups": [self.group]}

    async def all(self, service: str, operation: str, field: str, **arguments: Any) -> list[Any]:
        return list((await self(service, operation, **arguments))[field])

    def close(self) -> None:
        return None


def scripted(desired: int, real: int, activities: list[dict[str, Any]]) -> Scripted:
    return Scripted(
        {
            "AutoScalingGroupName": "g",
            "MinSize": 0,
            "MaxSize": 9,
            "DesiredCapacity": desired,
            "AvailabilityZones": ["z"],
            "Instances": [
                {"InstanceId": f"i-{n}", "AvailabilityZone": "z", "LifecycleState": "InService"} for n in range(real)
            ],
        },
        activities,
    )


def converse(calls: Scripted, talk: Callable[[AutoScalingGroups, Clock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), datetime(2026, 1, 1, tzinfo=UTC))
        cloud = AutoScalingGroups(calls, clock, GroupDiscovery(named=(NodesFlag("g", 0, 9),)))
        await talk(cloud, clock)

    run_virtual(main())


def test_missing_instances_are_placeholders_and_fail_with_the_activity() -> None:
    calls = scripted(3, 1, [])

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> None:
        await cloud.refresh()
        [group] = cloud.groups()
        assert [is_placeholder(each.provider_id) for each in group.instances] == [False, True, True]
        assert {each.state for each in group.instances[1:]} == {InstanceState.CREATING}
        assert group.instances[1].error is None
        calls.activities = [
            {"StartTime": clock.now() + timedelta(seconds=5), "StatusCode": "Failed", "StatusMessage": "no m5.large"}
        ]
        await asyncio.sleep(11)  # a group that waits is read sooner
        await cloud.refresh()
        error = cloud.groups()[0].instances[1].error
        assert error is not None
        assert str(error) == "OutOfResource.placeholder-cannot-be-fulfilled"
        assert "no m5.large" in error.message
        await cloud.delete(cloud.groups()[0], [each.provider_id for each in cloud.groups()[0].instances[1:]])
        assert calls.group["DesiredCapacity"] == 1

    converse(calls, talk)


def test_activities_that_cannot_be_read_are_no_failure() -> None:
    class Throttled(Scripted):
        async def __call__(self, service: str, operation: str, **arguments: Any) -> Any:
            if operation == "describe_scaling_activities":
                raise TimeoutError("no answer")
            return await super().__call__(service, operation, **arguments)

    plain = scripted(2, 1, [])
    calls = Throttled(plain.group, [])

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> None:
        await cloud.refresh()
        placeholder = cloud.groups()[0].instances[1]
        assert is_placeholder(placeholder.provider_id)
        assert placeholder.error is None

    converse(calls, talk)


def test_a_mixed_policy_has_the_requirements_of_its_launch_template() -> None:
    """Looked up once: a group without a node asks for its template in every loop."""

    class Described(Scripted):
        async def __call__(self, service: str, operation: str, **arguments: Any) -> Any:
            if operation == "describe_launch_template_versions":
                wanted = {"VCpuCount": {"Min": 2}, "MemoryMiB": {"Min": 2048}}
                self.made.append((operation, arguments))
                return {"LaunchTemplateVersions": [{"LaunchTemplateData": {"InstanceRequirements": wanted}}]}
            if operation == "get_instance_types_from_instance_requirements":
                return {"InstanceTypes": [{"InstanceType": "m5.4xlarge"}]}
            if operation == "describe_instance_types":
                return {}
            return await super().__call__(service, operation, **arguments)

    plain = scripted(0, 0, [])
    plain.group["AvailabilityZones"] = [f"{REGION}a"]
    plain.group["MixedInstancesPolicy"] = {
        "LaunchTemplate": {"LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "$Latest"}}
    }
    calls = Described(plain.group, [])

    def lookups() -> int:
        return sum(operation == "describe_launch_template_versions" for operation, _ in calls.made)

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> None:
        await cloud.refresh()
        [group] = cloud.groups()
        capacity = (await cloud.template(group)).node.status.capacity
        assert (capacity["cpu"], capacity["memory"]) == ("2", str(2048 << 20))
        before = lookups()
        await cloud.template(group)
        assert lookups() == before
        await asyncio.sleep(1201)
        await cloud.template(group)
        assert lookups() == 2 * before

    converse(calls, talk)


def test_failures_of_before_the_last_change_say_nothing() -> None:
    old = {"StartTime": datetime(2025, 12, 31, tzinfo=UTC), "StatusCode": "Failed", "StatusMessage": "old"}
    calls = scripted(1, 0, [old])

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> None:
        await cloud.refresh()
        assert cloud.groups()[0].instances[0].error is None

    converse(calls, talk)


def test_an_instance_that_came_meanwhile_survives_the_withdrawal_of_a_placeholder() -> None:
    """The race of a placeholder's deletion: the size never falls below the instances that are there."""
    calls = scripted(2, 1, [])

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> None:
        await cloud.refresh()
        [group] = cloud.groups()
        calls.group["Instances"].append({"InstanceId": "i-9", "AvailabilityZone": "z", "LifecycleState": "Pending"})
        await cloud.delete(group, [group.instances[1].provider_id])
        assert calls.group["DesiredCapacity"] == 2
        assert not [name for name, _ in calls.made if name == "set_desired_capacity"]

    converse(calls, talk)


def test_an_instance_that_ends_already_is_not_ended_again() -> None:
    calls = scripted(1, 1, [])
    calls.group["Instances"][0]["LifecycleState"] = "Terminating:Wait"

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> None:
        await cloud.refresh()
        [group] = cloud.groups()
        await cloud.delete(group, [group.instances[0].provider_id])
        assert not [name for name, _ in calls.made if name.startswith("terminate")]

    converse(calls, talk)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1:10:grp", NodesFlag("grp", 1, 10)),
        ("0:3:a:b", NodesFlag("a:b", 0, 3)),
        ("1:grp", None),
        ("a:2:g", None),
        ("1:b:g", None),
        ("-1:2:g", None),
        ("5:2:g", None),
        ("1:2:", None),
    ],
)
def test_the_nodes_flag(text: str, expected: NodesFlag | None) -> None:
    if expected is None:
        with pytest.raises(SpecError, match="--nodes="):
            parse_nodes_flag(text)
    else:
        assert parse_nodes_flag(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("asg:tag=k1,k2", {"k1": "", "k2": ""}),
        ("asg:tag=k1=v1,k2", {"k1": "v1", "k2": ""}),
        ("asg:tag=a/b=c=d", {"a/b": "c=d"}),
        ("asg", None),
        ("mig:tag=k", None),
        ("asg:tag", None),
        ("asg:notatag=k", None),
        ("asg:tag=", None),
    ],
)
def test_the_discovery_flag(text: str, expected: dict[str, str] | None) -> None:
    if expected is None:
        with pytest.raises(SpecError, match="--node-group-auto-discovery="):
            parse_discovery(text)
    else:
        assert parse_discovery(text) == expected


def test_several_discovery_flags_become_one_filter() -> None:
    filters = group_tags.discovery_filters([{"a": "", "b": "x"}, {"c": ""}])
    assert filters == [
        {"Name": "tag-key", "Values": ["a"]},
        {"Name": "tag:b", "Values": ["x"]},
        {"Name": "tag-key", "Values": ["c"]},
    ]


def test_tags_become_labels_and_options() -> None:
    prefix = "k8s.io/cluster-autoscaler/node-template/"
    tags = {
        f"{prefix}label/foo": "bar",
        f"{prefix}label/": "dropped",
        "eks:cluster-name": "demo",
        "bar": "baz",
        f"{prefix}autoscaling-options/scaledownutilizationthreshold": "0.4",
        f"{prefix}autoscaling-options/scaledowngpuutilizationthreshold": "not-a-float",
        f"{prefix}autoscaling-options/scaledownunneededtime": "1h",
        f"{prefix}autoscaling-options/scaledownunreadytime": "soon",
        f"{prefix}autoscaling-options/ignoredaemonsetsutilization": "true",
        f"{prefix}autoscaling-options/": "dropped",
    }
    assert group_tags.labels(tags) == {"foo": "bar", "cluster-name": "demo"}
    found = group_tags.options(tags, GroupOptions(scale_down_unready_s=7.0))
    assert found == GroupOptions(
        scale_down_utilization_threshold=0.4,
        scale_down_unneeded_s=3600.0,
        scale_down_unready_s=7.0,
        ignore_daemonsets_utilization=True,
    )
    assert group_tags.options({}, GroupOptions()) == GroupOptions()


def test_requirements_give_their_minima() -> None:
    info = TypeInfo("m5.4xlarge", 16, 65536, 0)
    requirements = {
        "VCpuCount": {"Min": 4},
        "MemoryMiB": {"Min": 8192},
        "AcceleratorManufacturers": ["nvidia"],
        "AcceleratorTypes": ["gpu"],
        "AcceleratorCount": {"Min": 2},
    }
    found = capacity_of(info, MixedPolicy(requirements=requirements))
    assert (found["cpu"], found["memory"], found["nvidia.com/gpu"]) == ("4", str(8192 << 20), "2")
    assert capacity_of(info, MixedPolicy(instance_types=("a",), requirements=requirements))["cpu"] == "16"


def test_what_eks_says_of_a_managed_group() -> None:
    found = described(
        {
            "nodegroupName": "ng",
            "diskSize": 20,
            "labels": {"team": "web", "amiType": "ours"},
            "capacityType": "SPOT",
            "amiType": "AL2_x86_64",
            "version": "1.34",
            "taints": [{"key": "k", "value": "v", "effect": "NO_SCHEDULE"}],
            "tags": {"a": "b"},
        }
    )
    assert found.labels["eks.amazonaws.com/nodegroup"] == "ng"
    assert (found.labels["team"], found.labels["eks.amazonaws.com/capacityType"]) == ("web", "SPOT")
    assert (found.labels["diskSize"], found.labels["amiType"]) == ("20", "ours")  # the owner's own label wins
    assert [(taint.key, taint.effect) for taint in found.taints] == [("k", "NoSchedule")]


def test_a_group_that_cannot_be_read_again_is_an_error_of_the_group() -> None:
    """Whatever boto3 raises between the look and the change: the caller knows errors of groups alone."""

    class Unreachable(Scripted):
        async def __call__(self, service: str, operation: str, **arguments: Any) -> Any:
            if "AutoScalingGroupNames" in arguments and len(self.made) > 1:
                raise EndpointConnectionError(endpoint_url="https://autoscaling")
            return await super().__call__(service, operation, **arguments)

    calls = Unreachable(scripted(2, 1, []).group, [])

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> None:
        await cloud.refresh()
        [group] = cloud.groups()
        with pytest.raises(NodeGroupError, match="it was not read"):
            await cloud.decrease_target(group, 1)
        with pytest.raises(NodeGroupError, match="it was not read"):
            await cloud.delete(group, [group.instances[1].provider_id])

    converse(calls, talk)


def test_a_group_that_the_role_may_not_change_is_reported_with_the_tags_of_the_policy() -> None:
    """As after --nodes with a group that has not the tags of the policy: the words come before what AWS answers."""

    class Forbidden(Scripted):
        async def __call__(self, service: str, operation: str, **arguments: Any) -> Any:
            if operation == "set_desired_capacity":
                denied = {
                    "Code": "AccessDenied",
                    "Message": "not authorized to perform: autoscaling:SetDesiredCapacity",
                }
                raise ClientError({"Error": denied}, "SetDesiredCapacity")
            return await super().__call__(service, operation, **arguments)

    calls = Forbidden(scripted(1, 1, []).group, [])

    async def talk(cloud: AutoScalingGroups, clock: Clock) -> None:
        await cloud.refresh()
        [group] = cloud.groups()
        with pytest.raises(NodeGroupError) as refused:
            await cloud.increase(group, 1)
        assert "tags k8s.io/cluster-autoscaler/enabled and" in str(refused.value)
        assert str(refused.value).endswith("AccessDenied: not authorized to perform: autoscaling:SetDesiredCapacity")

    converse(calls, talk)
