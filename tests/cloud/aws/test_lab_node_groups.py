"""Auto Scaling groups and managed node groups of the lab, and the Cluster Autoscaler on them from end to end."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dovetail.autoscalers.node_groups import program
from dovetail.autoscalers.node_groups.flags import parse
from dovetail.autoscalers.node_groups.options import discovery, group_options
from dovetail.clock import run_virtual
from dovetail.cloud.aws.auto_scaling_groups import AutoScalingGroups
from dovetail.cloud.aws.client import Calls
from dovetail.kube.resources import CORE_EVENTS, DEPLOYMENTS, NODES, PODS
from dovetail.lab.aws import account, eks_images
from dovetail.lab.aws.ec2 import Ec2, Timing
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint
from dovetail.lab.aws.node_groups import Bootstrap, NodeGroups
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.lab.aws.user_data import read
from dovetail.lab.cluster import Lab

REGION = "ap-northeast-2"


class Site:
    """An account with one launch template."""

    def __init__(self, endpoint: AwsEndpoint, made: account.AwsAccount) -> None:
        self.endpoint, self.made = endpoint, made
        self.autoscaling, self.ec2, self.eks = (
            account.client(endpoint, service) for service in ("autoscaling", "ec2", "eks")
        )
        self.template = self.ec2.create_launch_template(
            LaunchTemplateName="nodes", LaunchTemplateData={"InstanceType": "m5.large", "ImageId": "ami-12c6146b"}
        )["LaunchTemplate"]["LaunchTemplateId"]

    def create(self, name: str, size: int, policy: dict[str, Any] | None = None) -> None:
        launch = {"LaunchTemplateId": self.template}
        source: dict[str, Any] = {"LaunchTemplate": launch}
        if policy is not None:
            overrides = [{"InstanceType": each} for each in policy.pop("types")]
            source = {
                "MixedInstancesPolicy": {
                    "LaunchTemplate": {"LaunchTemplateSpecification": launch, "Overrides": overrides},
                    "InstancesDistribution": policy,
                }
            }
        self.autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=name, MinSize=0, MaxSize=10, DesiredCapacity=size,
            VPCZoneIdentifier=",".join(self.made.subnets.values()), **source,
        )  # fmt: skip

    def group(self, name: str) -> dict[str, Any]:
        found = self.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return dict(found[0])

    def instances(self, name: str) -> list[Any]:
        ids = {each["InstanceId"] for each in self.group(name)["Instances"]}
        return [each for each in self.endpoint.instances() if each.id in ids]

    def activities(self, name: str) -> list[dict[str, Any]]:
        return list(self.autoscaling.describe_scaling_activities(AutoScalingGroupName=name)["Activities"])

    def moto(self, name: str) -> Any:
        return self.endpoint.backend("autoscaling").autoscaling_groups[name]


@pytest.fixture
def site() -> Iterator[Site]:
    endpoint = AwsEndpoint(LabOfferings(REGION, families=frozenset({"m5", "c5", "t3", "t2"})))
    made = account.build(endpoint, "demo", version="1.34", api_url="https://127.0.0.1:6443", ca=b"certificate")
    yield Site(endpoint, made)
    endpoint.close()
    endpoint.forget()


def test_instances_spread_over_zones_and_are_reported(site: Site) -> None:
    site.create("g", 3)
    assert len({each.placement.zone for each in site.instances("g")}) == 3
    assert [each["StatusCode"] for each in site.activities("g")] == ["Successful"] * 3
    site.autoscaling.set_desired_capacity(AutoScalingGroupName="g", DesiredCapacity=1)
    assert len(site.group("g")["Instances"]) == 1
    assert any(each["Description"].startswith("Terminating") for each in site.activities("g"))


def test_a_mixed_policy_splits_and_honours_its_price(site: Site) -> None:
    policy = {"types": ["t2.small", "t3.small"], "OnDemandBaseCapacity": 0, "OnDemandPercentageAboveBaseCapacity": 50}
    site.create("mixed", 4, {**policy, "SpotMaxPrice": "0.2"})
    kinds = [each.lifecycle or "on-demand" for each in site.instances("mixed")]
    assert sorted(kinds) == ["on-demand", "on-demand", "spot", "spot"]
    assert {each.instance_type for each in site.instances("mixed")} <= {"t2.small", "t3.small"}
    site.create("dear", 2, {**policy, "SpotMaxPrice": "0.0001"})
    assert len(site.group("dear")["Instances"]) == 1
    assert "lower than the minimum required" in site.activities("dear")[0]["StatusMessage"]


def test_a_mixed_policy_outlives_a_change_of_the_bounds(site: Site) -> None:
    site.create("mixed", 1, {"types": ["t2.small", "t3.small"], "OnDemandPercentageAboveBaseCapacity": 0})
    site.autoscaling.update_auto_scaling_group(AutoScalingGroupName="mixed", MaxSize=4)
    overrides = site.group("mixed")["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]
    assert [override["InstanceType"] for override in overrides] == ["t2.small", "t3.small"]
    site.autoscaling.set_desired_capacity(AutoScalingGroupName="mixed", DesiredCapacity=3)
    assert [each.lifecycle for each in site.instances("mixed")] == ["spot"] * 3
    template = {"LaunchTemplateId": site.template}
    site.autoscaling.update_auto_scaling_group(AutoScalingGroupName="mixed", LaunchTemplate=template)
    assert "MixedInstancesPolicy" not in site.group("mixed")


def test_capacity_that_runs_out_is_a_failed_activity_and_comes_back(site: Site) -> None:
    site.endpoint.market.refuse(("*", "*", "*"))
    site.create("g", 2)
    assert not site.group("g")["Instances"]
    assert site.group("g")["DesiredCapacity"] == 2
    [failed] = site.activities("g")
    assert failed["StatusCode"] == "Failed" and "sufficient m5.large capacity" in failed["StatusMessage"]
    site.endpoint.market.allow()
    site.autoscaling.set_desired_capacity(AutoScalingGroupName="g", DesiredCapacity=2)
    assert len(site.group("g")["Instances"]) == 2


def test_a_lost_instance_is_replaced_and_rebalancing_ends_one(site: Site) -> None:
    site.create("g", 2)
    lost = site.instances("g")[0].id
    site.ec2.terminate_instances(InstanceIds=[lost])
    site.endpoint.scaling.reconcile([site.moto("g")])
    ids = {each.id for each in site.instances("g")}
    assert len(ids) == 2 and lost not in ids
    ended = site.endpoint.scaling.rebalance(site.moto("g"))
    assert ended in ids and ended not in {each.id for each in site.instances("g")}
    assert len(site.instances("g")) == 2
    site.autoscaling.terminate_instance_in_auto_scaling_group(
        InstanceId=site.instances("g")[0].id, ShouldDecrementDesiredCapacity=True
    )
    assert site.group("g")["DesiredCapacity"] == 1 and len(site.instances("g")) == 1


def test_user_data_is_read_as_it_was_written() -> None:
    text = Bootstrap(cluster="demo", labels={"a": "b", "c": "d"}, taints=("k=v:NoSchedule",), max_pods=20).user_data()
    found = read(base64.b64decode(text))
    assert found is not None
    assert (found.cluster, dict(found.labels), found.max_pods) == ("demo", {"a": "b", "c": "d"}, 20)
    assert found.taints == ({"key": "k", "value": "v", "effect": "NoSchedule"},)


def nodegroup(site: Site, name: str, sizes: tuple[int, int, int], **more: Any) -> None:
    site.eks.create_nodegroup(
        clusterName="demo", nodegroupName=name, subnets=list(site.made.subnets.values()),
        nodeRole=f"arn:aws:iam::{ACCOUNT}:role/eks-demo-nodes",
        scalingConfig=dict(zip(("minSize", "maxSize", "desiredSize"), sizes, strict=True)), **more,
    )  # fmt: skip


def test_a_managed_node_group_scales_with_the_program_from_end_to_end(site: Site) -> None:
    """Created by the AWS API, its nodes join with their labels; pending pods let it grow; idle, it shrinks."""

    async def main() -> None:
        async with Lab.embedded(1) as lab:
            loop = asyncio.get_running_loop()
            site.endpoint.scaling.now = lab.clock.now
            kubelet = lab.client("kubelet")
            instances = Ec2(site.endpoint, site.made, lab.fleet, kubelet, lab.chance, Timing(20.0, 5.0, 5.0))
            groups = NodeGroups(site.endpoint, site.made, kubelet, frozenset({site.made.node_group}))
            await loop.run_in_executor(
                None,
                lambda: nodegroup(
                    site, "workers", (1, 4, 1), instanceTypes=["m5.large"], labels={"team": "web"},
                    taints=[{"key": "dedicated", "value": "web", "effect": "NO_SCHEDULE"}],
                ),
            )  # fmt: skip
            session = site.endpoint.session()
            calls = Calls(lab.clock, region=REGION, endpoint=site.endpoint.url, session=session)
            settings = parse(
                ["--leader-elect=false", "--scale-down-delay-after-add=2m", "--scale-down-unneeded-time=2m",
                 "--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled,"
                 "k8s.io/cluster-autoscaler/demo"]
            )  # fmt: skip
            cloud = AutoScalingGroups(calls, lab.clock, discovery(settings), group_options(settings))
            kube = lab.client("cluster-autoscaler")
            tasks = [
                asyncio.create_task(work)
                for work in (
                    instances.run(),
                    groups.run(),
                    program.run(settings, kube, cloud, lab.clock, lab.chance, write=len),
                )
            ]
            try:
                await asyncio.sleep(120)
                [node] = (await lab.kube.list(NODES)).items
                assert node["metadata"]["labels"]["team"] == "web"
                assert node["metadata"]["labels"]["eks.amazonaws.com/nodegroup"] == "workers"
                info = node["status"]["nodeInfo"]
                assert (info["kubeletVersion"], info["osImage"]) == ("v1.34.3", "Amazon Linux 2023.9.20250929")
                assert any(each["key"] == "dedicated" for each in node["spec"]["taints"])
                toleration = {"key": "dedicated", "operator": "Exists"}
                container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "800m"}}}
                template = {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [container], "tolerations": [toleration]},
                }
                body = {
                    "metadata": {"name": "web"},
                    "spec": {"replicas": 6, "selector": {"matchLabels": {"app": "web"}}, "template": template},
                }
                await lab.kube.create(DEPLOYMENTS, body, "default")
                await asyncio.sleep(150)
                pods = (await lab.kube.list(PODS, "default")).items
                assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 6
                assert len((await lab.kube.list(NODES)).items) == 3
                reasons = {event["reason"] for event in (await lab.kube.list(CORE_EVENTS)).items}
                assert {"TriggeredScaleUp", "ScaledUpGroup"} <= reasons and "NodeEndedByGroup" not in reasons
                [managed] = [group for group in cloud.groups() if group.target_size == 3]
                assert site.endpoint.scaling.rebalance(site.moto(managed.id)) is not None
                await asyncio.sleep(150)
                reported = [
                    item for item in (await lab.kube.list(CORE_EVENTS)).items if item["reason"] == "NodeEndedByGroup"
                ]
                assert any("AZRebalance" in event["message"] for event in reported)
                await lab.kube.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, "default")
                await asyncio.sleep(600)
                assert len((await lab.kube.list(NODES)).items) == 1
                await loop.run_in_executor(
                    None, lambda: site.eks.delete_nodegroup(clusterName="demo", nodegroupName="workers")
                )
                await asyncio.sleep(60)
                assert not (await lab.kube.list(NODES)).items
                assert not [task for task in tasks if task.done()]
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await cloud.close()

    run_virtual(main())


def test_tags_go_with_what_they_are_on(site: Site) -> None:
    def tagged(kind: str) -> list[str]:
        filters = [{"Name": "key", "Values": ["of"]}, {"Name": "resource-type", "Values": [kind]}]
        return [row["ResourceId"] for row in site.ec2.describe_tags(Filters=filters)["Tags"]]

    tags = [{"Key": "of", "Value": "mine"}]
    template = site.ec2.create_launch_template(
        LaunchTemplateName="tagged", LaunchTemplateData={"InstanceType": "m5.large"},
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
    )["LaunchTemplate"]["LaunchTemplateId"]  # fmt: skip
    (instance,) = site.ec2.run_instances(
        ImageId="ami-12c6146b", InstanceType="m5.large", MinCount=1, MaxCount=1,
        BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20, "DeleteOnTermination": True}}],
        TagSpecifications=[{"ResourceType": "volume", "Tags": tags}],
    )["Instances"]  # fmt: skip
    assert tagged("launch-template") == [template] and len(tagged("volume")) == 1
    site.ec2.delete_launch_template(LaunchTemplateId=template)
    site.ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
    assert tagged("launch-template") == tagged("volume") == []


def test_group_image_and_version_agree(site: Site) -> None:
    nodegroup(site, "plain", (0, 1, 0), instanceTypes=["m5.large"])
    nodegroup(site, "arm", (0, 1, 0), instanceTypes=["m6g.large"])
    described = {
        name: site.eks.describe_nodegroup(clusterName="demo", nodegroupName=name)["nodegroup"]
        for name in ("plain", "arm")
    }
    assert {name: group["amiType"] for name, group in described.items()} == {
        "plain": "AL2023_x86_64_STANDARD", "arm": "AL2023_ARM_64_STANDARD",
    }  # fmt: skip
    assert {(group["version"], group["releaseVersion"]) for group in described.values()} == {
        ("1.34", "1.34.3-20261101")
    }
    with pytest.raises(ClientError, match=r"AMI Type AL2_x86_64 is only supported for kubernetes versions 1\.32 or"):
        nodegroup(site, "old", (0, 1, 0), amiType="AL2_x86_64")
    image = eks_images.newest(site.endpoint.backend, "1.34", described["arm"]["amiType"])
    (shown,) = site.ec2.describe_images(ImageIds=[image])["Images"]
    assert shown["Architecture"] == "arm64" and "1.34" in shown["Name"]


@pytest.mark.parametrize(
    ("image", "kubelet", "system"),
    [
        ("eks-optimized-ami-1.30-amazon-linux-2", "v1.30.3", "Amazon Linux 2"),
        ("amazon-eks-node-al2023-x86_64-standard-1.34-v20261101", "v1.34.3", "Amazon Linux 2023.9.20250929"),
        ("bottlerocket-aws-k8s-1.33-x86_64-latest", "v1.33.3", "Bottlerocket OS 1.49.0 (aws-k8s-1.33)"),
        ("my-own-image", "", "Amazon Linux 2023.9.20250929"),
    ],
)
def test_a_node_says_what_its_image_is(image: str, kubelet: str, system: str) -> None:
    found = eks_images.system_of(image)
    assert (found.kubelet_version, found.os_image) == (kubelet, system)


def test_the_scaling_configuration_is_carried_to_the_group(site: Site) -> None:
    nodegroup(site, "workers", (0, 3, 1))
    groups = NodeGroups(site.endpoint, site.made, None, frozenset({site.made.node_group}))
    groups.reconcile()
    described = site.eks.describe_nodegroup(clusterName="demo", nodegroupName="workers")["nodegroup"]
    name = described["resources"]["autoScalingGroups"][0]["name"]
    assert len(site.group(name)["Instances"]) == 1
    site.autoscaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=2)
    groups.reconcile()
    assert site.group(name)["DesiredCapacity"] == 2  # an autoscaler's size is left alone
    site.eks.update_nodegroup_config(
        clusterName="demo", nodegroupName="workers", scalingConfig={"minSize": 0, "maxSize": 5, "desiredSize": 3}
    )
    groups.reconcile()
    assert (site.group(name)["DesiredCapacity"], site.group(name)["MaxSize"]) == (3, 5)


def test_the_fault_az_rebalance_ends_an_instance_of_each_group(site: Site) -> None:
    from dovetail.lab.aws.eventbridge import Bridge
    from dovetail.lab.aws.fault_injection import AwsFaults
    from dovetail.lab.faults.kinds import InjectedFault

    async def main() -> None:
        async with Lab.embedded(1) as lab:
            assert lab.faults is not None
            instances = Ec2(site.endpoint, site.made, lab.fleet, lab.client("kubelet"), lab.chance)
            bridge = Bridge(site.endpoint, site.made.queue, lab.clock)
            strikes = AwsFaults(site.endpoint, bridge, lab.clock, instances, lab.faults).kinds
            before = {each.id for each in site.instances("g")}
            reported = strikes["az-rebalance"](InjectedFault(kind="az-rebalance"))
            after = {each.id for each in site.instances("g")}
            [ended] = before - after
            assert ended in reported and len(after) == 2

    site.create("g", 2)
    run_virtual(main())


def test_suspended_processes_do_not_happen(site: Site) -> None:
    site.create("workers", 2)
    name = {"AutoScalingGroupName": "workers"}
    site.autoscaling.suspend_processes(**name, ScalingProcesses=["AZRebalance"])
    before = {item["InstanceId"] for item in site.group("workers")["Instances"]}
    assert site.endpoint.scaling.rebalance(site.moto("workers")) is None
    assert {item["InstanceId"] for item in site.group("workers")["Instances"]} == before
    site.autoscaling.suspend_processes(**name, ScalingProcesses=["Launch"])
    site.autoscaling.set_desired_capacity(**name, DesiredCapacity=3)
    assert len(site.group("workers")["Instances"]) == 2
    site.autoscaling.suspend_processes(**name, ScalingProcesses=["Terminate"])
    site.autoscaling.set_desired_capacity(**name, DesiredCapacity=1)
    assert len(site.group("workers")["Instances"]) == 2
    site.autoscaling.resume_processes(**name)
    site.endpoint.scaling.reconcile([site.moto("workers")])
    assert len(site.group("workers")["Instances"]) == 1
