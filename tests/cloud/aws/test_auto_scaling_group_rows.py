"""Discovery, options, tags, templates, placeholders and the cloud config, for the cases upstream's own tests fix."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws import group_tags
from dovetail.cloud.aws.auto_scaling_groups import AutoScalingGroups, GroupDiscovery, is_placeholder
from dovetail.cloud.aws.cloud_config import CloudConfigError, ServiceEndpoint, service_endpoints
from dovetail.cloud.aws.group_tags import SpecError, parse_discovery, parse_nodes_flag
from dovetail.cloud.aws.group_templates import MixedPolicy, mixed_policy, mixed_sizes
from dovetail.cloud.node_groups import GroupOptions
from tests.cloud.aws.test_auto_scaling_groups import Scripted, converse, scripted

PREFIX = "k8s.io/cluster-autoscaler/node-template/"
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("text", ["a", "a:b:c", "1:", "1:2:"])
def test_nodes_flags_that_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--nodes="):
        parse_nodes_flag(text)


@pytest.mark.parametrize(
    ("specs", "tags"),
    [
        (
            [
                "asg:tag=tag,anothertag",
                "asg:tag=cooltag,anothertag",
                "asg:tag=label=value,anothertag",
                "asg:tag=my:label=value,my:otherlabel=othervalue",
            ],
            [
                {"tag": "", "anothertag": ""},
                {"cooltag": "", "anothertag": ""},
                {"label": "value", "anothertag": ""},
                {"my:label": "value", "my:otherlabel": "othervalue"},
            ],
        ),
        (["asg:tag=mylabel=value,myotherlabel=othervalue"], [{"mylabel": "value", "myotherlabel": "othervalue"}]),
    ],
)
def test_discovery_flags(specs: list[str], tags: list[dict[str, str]]) -> None:
    assert [parse_discovery(text) for text in specs] == tags


@pytest.mark.parametrize("text", ["tag=tag,anothertag", "mig:tag=tag,anothertag", "asg:tag=", "asg:=tag", "asg:tag"])
def test_discovery_flags_that_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--node-group-auto-discovery="):
        parse_discovery(text)


DEFAULTS = GroupOptions(
    scale_down_utilization_threshold=0.1,
    scale_down_gpu_utilization_threshold=0.2,
    scale_down_unneeded_s=1.0,
    scale_down_unready_s=60.0,
)


@pytest.mark.parametrize(
    ("tags", "changes"),
    [
        ({}, (0.1, 0.2, 1.0, 60.0)),
        (
            {
                "scaledownutilizationthreshold": "not-a-float",
                "scaledownunneededtime": "not-a-duration",
                "ScaleDownUnreadyTime": "",
            },
            (0.1, 0.2, 1.0, 60.0),
        ),
        ({"scaledownutilizationthreshold": "0.42", "scaledownunneededtime": "1h"}, (0.42, 0.2, 3600.0, 60.0)),
        (
            {
                "scaledownutilizationthreshold": "0.6",
                "scaledowngpuutilizationthreshold": "0.7",
                "scaledownunneededtime": "1m",
                "scaledownunreadytime": "1h",
                "notyetspecified": "42",
            },
            (0.6, 0.7, 60.0, 3600.0),
        ),
    ],
)
def test_options_of_a_group(tags: dict[str, str], changes: tuple[float, ...]) -> None:
    found = group_tags.options({f"{PREFIX}autoscaling-options/{key}": value for key, value in tags.items()}, DEFAULTS)
    assert (
        found.scale_down_utilization_threshold,
        found.scale_down_gpu_utilization_threshold,
        found.scale_down_unneeded_s,
        found.scale_down_unready_s,
    ) == changes


def test_option_tags() -> None:
    tags = {
        f"{PREFIX}autoscaling-options/scaledownutilizationthreshold": "0.42",
        f"{PREFIX}autoscaling-options/": "no name",
        f"prefix-{PREFIX}autoscaling-options/scaledownunneededtime": "1h",
        "bar": "baz",
    }
    assert group_tags.option_tags(tags) == {"scaledownutilizationthreshold": "0.42"}


@pytest.mark.parametrize(
    ("tags", "labels"),
    [
        ({f"{PREFIX}label/foo": "bar", "bar": "baz"}, {"foo": "bar"}),
        (
            {f"{PREFIX}label/foo": "bar", "eks:nodegroup-name": "bar2", "eks:cluster-name": "bar4", "bar": "baz"},
            {"foo": "bar", "nodegroup-name": "bar2", "cluster-name": "bar4"},
        ),
        ({f"{PREFIX}label/k8s.amazonaws.com/accelerator": "v100"}, {"k8s.amazonaws.com/accelerator": "v100"}),
        ({}, {}),
    ],
)
def test_labels_of_tags(tags: dict[str, str], labels: dict[str, str]) -> None:
    assert group_tags.labels(tags) == labels


@pytest.mark.parametrize(
    ("name", "value", "taint"),
    [
        ("dedicated", "foo:NoSchedule", ("dedicated", "foo", "NoSchedule")),
        ("group", "bar:NoExecute", ("group", "bar", "NoExecute")),
        ("app", "fizz:PreferNoSchedule", ("app", "fizz", "PreferNoSchedule")),
        ("nvidia.com/gpu", "present:NoSchedule", ("nvidia.com/gpu", "present", "NoSchedule")),
        ("blank", "", None),
        ("nosplit", "some_value", None),
        ("effect", "x:Never", None),
    ],
)
def test_taints_of_tags(name: str, value: str, taint: tuple[str, str, str] | None) -> None:
    found = group_tags.taints({f"{PREFIX}taint/{name}": value, "bar": "baz:NoSchedule"})
    assert [(each.key, each.value, each.effect) for each in found] == ([taint] if taint else [])


@pytest.mark.parametrize(
    ("value", "is_read"), [("100m", True), ("100M", True), ("20G", True), ("5", True), ("many", False), ("", False)]
)
def test_resources_of_tags(value: str, is_read: bool) -> None:
    found = group_tags.resources({f"{PREFIX}resources/custom-resource": value})
    assert found == ({"custom-resource": value} if is_read else {})


class Described(Scripted):
    """A group of one launch template, and EC2's and EKS's answers about it."""

    def __init__(self, instance_type: str, zones: list[str], tags: dict[str, str], managed: dict[str, Any] | None):
        group = scripted(0, 0, []).group
        group["AvailabilityZones"] = zones
        group["LaunchTemplate"] = {"LaunchTemplateName": "launcher", "Version": "1"}
        group["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
        super().__init__(group, [])
        self.instance_type, self.managed = instance_type, managed
        self.region = "us-east-1"

    async def __call__(self, service: str, operation: str, **arguments: Any) -> Any:
        if operation == "describe_launch_template_versions":
            assert (arguments["LaunchTemplateName"], arguments["Versions"]) == ("launcher", ["1"])
            return {"LaunchTemplateVersions": [{"LaunchTemplateData": {"InstanceType": self.instance_type}}]}
        if operation == "describe_instance_types":
            return {}
        if operation == "describe_nodegroup":
            return {"nodegroup": self.managed}
        return await super().__call__(service, operation, **arguments)


def template_of(
    instance_type: str, zones: list[str], tags: dict[str, str], managed: dict[str, Any] | None = None
) -> Any:
    found: list[Any] = []

    async def talk(cloud: Any, clock: Clock) -> None:
        await cloud.refresh()
        found.append((await cloud.template(cloud.groups()[0])).node)

    converse(Described(instance_type, zones, tags, managed), talk)
    return found[0]


@pytest.mark.parametrize("zones", [["us-east-1a"], ["us-east-1a", "us-west-1b"]])
def test_a_template_lies_in_the_first_zone(zones: list[str]) -> None:
    node = template_of("t3.micro", zones, {f"{PREFIX}taint/dedicated": "foo:NoSchedule"})
    labels = node.metadata.labels
    assert labels["topology.kubernetes.io/zone"] == labels["topology.ebs.csi.aws.com/zone"] == "us-east-1a"
    assert labels["topology.kubernetes.io/region"] == "us-east-1"
    assert labels["node.kubernetes.io/instance-type"] == "t3.micro"
    assert (labels["kubernetes.io/arch"], labels["kubernetes.io/os"]) == ("amd64", "linux")
    assert [taint.key for taint in node.spec.taints] == ["dedicated"]
    assert "vpc.amazonaws.com/PrivateIPv4Address" not in node.status.capacity


@pytest.mark.parametrize(
    ("instance_type", "zones", "problem"),
    [("t3.micro", [], "availability zone"), ("nonexistent.xlarge", ["us-east-1a"], "nonexistent.xlarge")],
)
def test_a_group_without_a_template_says_why(instance_type: str, zones: list[str], problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        template_of(instance_type, zones, {})


def test_a_template_has_the_resources_of_its_tags() -> None:
    tags = {f"{PREFIX}resources/ephemeral-storage": "20", f"{PREFIX}resources/custom-resource": "5"}
    capacity = template_of("c5.xlarge", ["us-east-1a"], tags).status.capacity
    assert (capacity["ephemeral-storage"], capacity["custom-resource"]) == ("20", "5")
    assert (capacity["cpu"], capacity["pods"]) == ("4", "110")


MANAGED_TAGS = {"eks:nodegroup-name": "nodegroup-1", "eks:cluster-name": "cluster-1"}


@pytest.mark.parametrize(
    ("labels", "taints"),
    [
        ({"one": "1", "two": "2"}, [{"key": "k", "value": "v", "effect": "NO_SCHEDULE"}]),
        ({}, []),
        (None, None),
    ],
)
def test_what_eks_says_of_a_managed_group_wins_over_tags(labels: Any, taints: Any) -> None:
    managed = {"nodegroupName": "nodegroup-1", "labels": labels, "taints": taints}
    node = template_of("c5.xlarge", ["us-east-1a"], {**MANAGED_TAGS, f"{PREFIX}label/two": "3"}, managed)
    found = node.metadata.labels
    assert (found["nodegroup-name"], found["cluster-name"]) == ("nodegroup-1", "cluster-1")
    assert found["two"] == ("2" if labels else "3")
    assert [(taint.key, taint.value) for taint in node.spec.taints] == ([("k", "v")] if taints else [])


@pytest.mark.parametrize(
    ("desired", "failed_at_s", "readable", "unfulfillable"),
    [
        (10, None, True, False),
        (0, None, True, False),
        (1, None, False, False),
        (1, 10, True, True),
        (1, -10, True, False),
    ],
)
def test_placeholders(desired: int, failed_at_s: int | None, readable: bool, unfulfillable: bool) -> None:
    """Activities count from the last change of the group; where none is missing they are not asked for."""

    class Answering(Scripted):
        async def __call__(self, service: str, operation: str, **arguments: Any) -> Any:
            if operation == "describe_scaling_activities" and not readable:
                raise TimeoutError("timeout")
            return await super().__call__(service, operation, **arguments)

    plain = scripted(desired, 0, [])
    calls = Answering(plain.group, [])
    if failed_at_s is not None:
        calls.activities = [{"StatusCode": "Failed", "StartTime": START + timedelta(seconds=failed_at_s)}]

    async def talk(cloud: Any, clock: Clock) -> None:
        await cloud.refresh()
        [group] = cloud.groups()
        assert len(group.instances) == group.target_size == desired
        assert all(is_placeholder(member.provider_id) for member in group.instances)
        assert [member.error is not None for member in group.instances] == [unfulfillable] * desired
        asked = [operation for operation, _ in calls.made if operation == "describe_scaling_activities"]
        assert bool(asked) is (desired > 0 and readable)

    converse(calls, talk)


def test_a_group_named_twice_is_one_group_and_the_first_flag_counts() -> None:
    calls = scripted(1, 1, [])

    async def talk(cloud: Any, clock: Clock) -> None:
        await cloud.refresh()
        assert [(group.id, group.min_size, group.max_size) for group in cloud.groups()] == [("g", 1, 10)]

    flags = (parse_nodes_flag("1:10:g"), parse_nodes_flag("1:9:g"))

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), START)
        await talk(AutoScalingGroups(calls, clock, GroupDiscovery(named=flags)), clock)

    run_virtual(main())


@pytest.mark.parametrize(
    ("types", "shown"),
    [
        ((), ""),
        (("m5.large",), ""),
        (("m5.large", "m5a.large", "m5.large"), ""),
        (("unknown.large", "m5.large"), ""),
        (("t2.small", "t3.small"), "t2.small (1 vCPU, 2 GiB) and t3.small (2 vCPU, 2 GiB)"),
        (("m5.4xlarge", "m5.large", "r5.large"), "m5.large (2 vCPU, 8 GiB) and m5.4xlarge (16 vCPU, 64 GiB)"),
        (("m5.large", "r5.large"), "m5.large (2 vCPU, 8 GiB) and r5.large (2 vCPU, 16 GiB)"),
    ],
)
def test_mixed_sizes_of_a_policy(types: tuple[str, ...], shown: str) -> None:
    assert mixed_sizes(MixedPolicy(instance_types=types)) == shown
    assert mixed_sizes(None) == ""


@pytest.mark.parametrize(
    ("cores", "memory", "shown"),
    [
        ({"Min": 4, "Max": 4}, {"Min": 16384, "Max": 16384}, ""),
        ({"Min": 4, "Max": 4}, {"Min": 16200, "Max": 16384}, ""),
        ({"Min": 2, "Max": 16}, {"Min": 8192, "Max": 8192}, "2 to 16 vCPU and 8 GiB"),
        ({"Min": 4, "Max": 4}, {"Min": 8192, "Max": 65536}, "4 vCPU and 8 to 64 GiB"),
        ({"Min": 4, "Max": 4}, {"Min": 8192}, "4 vCPU and 8 or more GiB"),
        ({"Min": 2}, {"Min": 512, "Max": 512}, "2 or more vCPU and 0.5 GiB"),
    ],
)
def test_mixed_sizes_of_requirements(cores: dict[str, int], memory: dict[str, int], shown: str) -> None:
    """Requirements admit every type in their range, so the group mixes more sizes than one with a list."""
    overrides = [{"InstanceRequirements": {"VCpuCount": cores, "MemoryMiB": memory}}]
    described = {"LaunchTemplate": {"LaunchTemplateSpecification": {"LaunchTemplateId": "lt"}, "Overrides": overrides}}
    expected = f"InstanceRequirements with {shown}" if shown else ""
    assert mixed_sizes(mixed_policy(described)) == expected


def test_a_group_tells_the_sizes_that_it_mixes() -> None:
    calls = scripted(0, 0, [])
    overrides = [{"InstanceType": "t2.small"}, {"InstanceType": "t3.small"}]
    calls.group["MixedInstancesPolicy"] = {"LaunchTemplate": {"Overrides": overrides}}

    async def talk(cloud: Any, clock: Clock) -> None:
        await cloud.refresh()
        assert cloud.groups()[0].mixed_sizes.startswith("t2.small (1 vCPU")

    converse(calls, talk)


def override(number: str = "1", **fields: str) -> str:
    lines = "\n".join(f"\t{name} = {value}" for name, value in fields.items())
    return f'[global]\n[ServiceOverride "{number}"]\n{lines}\n'


def of(service: str, region: str, **more: str) -> dict[str, str]:
    return {"Service": service, "Region": region, "URL": f"https://{service}.foo.bar", "SigningRegion": "s", **more}


@pytest.mark.parametrize("missing", ["Service", "Region", "URL", "SigningRegion"])
def test_an_override_without_a_field_is_refused(missing: str) -> None:
    fields = of("s3", "r", SigningMethod="sign")
    del fields[missing]
    with pytest.raises(CloudConfigError, match=f"{missing.lower()} is missing"):
        service_endpoints(override(**fields), "r")


@pytest.mark.parametrize(
    ("text", "region", "endpoints"),
    [
        ("[global]\n", "r", {}),
        (override(**{**of("s3", "r"), "Service": '"s3      "'}), "r", {"s3": "https://s3.foo.bar"}),
        (
            override(**of("s3", "r", SigningMethod="v4")) + override("2", **of("ec2", "r")),
            "r",
            {"s3": "https://s3.foo.bar", "ec2": "https://ec2.foo.bar"},
        ),
        (override(**of("s3", "r1")) + override("2", **of("ec2", "r2")), "r1", {"s3": "https://s3.foo.bar"}),
        (
            override(**of("s3", "r1")) + override("2", **of("s3", "r2", SigningName='"name"')),
            "r2",
            {"s3": "https://s3.foo.bar"},
        ),
    ],
)
def test_overrides(text: str, region: str, endpoints: dict[str, str]) -> None:
    found = service_endpoints(text, region)
    assert found == {service: ServiceEndpoint(url, "s") for service, url in endpoints.items()}


def test_a_service_has_one_endpoint_in_a_region() -> None:
    with pytest.raises(CloudConfigError, match="has an endpoint already"):
        service_endpoints(override(**of("s3", "r")) + override("2", **of("s3", "r")), "r")
