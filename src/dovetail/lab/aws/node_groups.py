"""Node groups that live: managed node groups get an Auto Scaling group, and nodes of ended instances go.

EKS's part of a managed node group is done here: a launch template with its labels and taints, the group behind it,
leave to join the cluster. What the node group's scaling configuration says is carried to the group when it changes.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from dovetail.cloud.aws.group_tags import LABEL as LABEL_TAG
from dovetail.cloud.aws.group_tags import TAINT as TAINT_TAG
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError, NotFound
from dovetail.kube.resources import NODES
from dovetail.lab.aws import account, eks_images
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint
from dovetail.lab.aws.fargate_profiles import SERVICE as FARGATE_SERVICE
from dovetail.lab.aws.service_account_roles import AUTO_SCALER_POLICY
from dovetail.lab.cluster_config import ClusterConfig, FargateProfileConfig, NodeGroupConfig
from dovetail.lab.eksctl_fields import ConfigRefused
from dovetail.language import message
from dovetail.model.labels import NODEPOOL
from dovetail.model.nodes import Node

LOOK_S = 2.0
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
_GONE = ("shutting-down", "terminated")


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """An instance's bootstrap settings: the cluster, its labels and its taints."""

    cluster: str
    labels: Mapping[str, str] = {}
    taints: tuple[str, ...] = ()
    max_pods: int | None = None

    def user_data(self) -> str:
        """In base64, as a launch template holds it."""
        flags = []
        if self.labels:
            flags.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in self.labels.items()))
        if self.taints:
            flags.append("--register-with-taints=" + ",".join(self.taints))
        if self.max_pods is not None:
            flags.append(f"--max-pods={self.max_pods}")
        extra = f" --kubelet-extra-args '{' '.join(flags)}'" if flags else ""
        return base64.b64encode(f"#!/bin/bash\n/etc/eks/bootstrap.sh {self.cluster}{extra}\n".encode()).decode()


class NodeGroups:
    """Runs beside the account. `unmanaged` are node groups whose nodes the lab itself made."""

    def __init__(
        self, endpoint: AwsEndpoint, made: account.AwsAccount, kube: Kube, unmanaged: frozenset[str] = frozenset()
    ) -> None:
        self._endpoint = endpoint
        self._made = made
        self._kube = kube
        self._unmanaged = unmanaged
        self._sizes: dict[str, Mapping[str, int]] = {}

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await loop.run_in_executor(None, self.reconcile)
            await self._remove_nodes()
            await asyncio.sleep(LOOK_S)

    def reconcile(self) -> None:
        """One look: groups for new managed node groups, sizes, groups of deleted ones, lost instances."""
        backend = self._endpoint.backend("autoscaling")
        nodegroups_by_asg: dict[str, Any] = {}
        for cluster in list(self._endpoint.backend("eks").clusters.values()):
            for nodegroup in list(cluster.nodegroups.values()):
                if nodegroup.nodegroup_name not in self._unmanaged:
                    nodegroups_by_asg[nodegroup.resources["autoScalingGroups"][0]["name"]] = nodegroup
        for name, nodegroup in nodegroups_by_asg.items():
            if name not in backend.autoscaling_groups:
                self._create(name, nodegroup)
            elif self._sizes.get(name) != nodegroup.scaling_config:
                self._resize(name, nodegroup)
        for name in [size for size in self._sizes if size not in nodegroups_by_asg]:
            del self._sizes[name]
            if name in backend.autoscaling_groups:
                self._client("autoscaling").delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)
        self._endpoint.scaling.reconcile(list(backend.autoscaling_groups.values()))

    def _client(self, service: str) -> Any:
        return account.client(self._endpoint, service)

    def _create(self, name: str, nodegroup: Any) -> None:
        role = nodegroup.node_role.rpartition("/")[2]
        labels = {
            **nodegroup.labels,
            "eks.amazonaws.com/nodegroup": nodegroup.nodegroup_name,
            "eks.amazonaws.com/capacityType": nodegroup.capacity_type or "ON_DEMAND",
        }
        taints = tuple(
            f"{taint['key']}={taint.get('value', '')}:{_EFFECTS.get(taint.get('effect', ''), 'NoSchedule')}"
            for taint in nodegroup.taints or ()
        )
        template = create_launch_template(
            self._endpoint, self._made, name, role,
            Bootstrap(cluster=nodegroup.cluster_name, labels=labels, taints=taints),
            image=eks_images.newest(self._endpoint.backend, nodegroup.version, nodegroup.ami_type),
            instance_type=nodegroup.instance_types[0], volume_gib=int(nodegroup.disk_size or 20),
        )  # fmt: skip
        sizes = nodegroup.scaling_config
        spot = (nodegroup.capacity_type or "") == "SPOT"
        admit_role(self._endpoint, nodegroup.cluster_name, nodegroup.node_role)
        tags = {
            "eks:cluster-name": nodegroup.cluster_name,
            "eks:nodegroup-name": nodegroup.nodegroup_name,
            f"kubernetes.io/cluster/{nodegroup.cluster_name}": "owned",
            "k8s.io/cluster-autoscaler/enabled": "true",
            f"k8s.io/cluster-autoscaler/{nodegroup.cluster_name}": "owned",
        }
        create_group(
            self._endpoint, name, template, list(nodegroup.subnets),
            sizes=(sizes.get("minSize", 0), sizes.get("maxSize", 2), sizes.get("desiredSize", 0)),
            types=list(nodegroup.instance_types), tags=tags,
            distribution={"OnDemandBaseCapacity": 0, "OnDemandPercentageAboveBaseCapacity": 0} if spot else None,
        )  # fmt: skip
        self._sizes[name] = dict(sizes)

    def _resize(self, name: str, nodegroup: Any) -> None:
        sizes = nodegroup.scaling_config
        if name in self._sizes:
            self._client("autoscaling").update_auto_scaling_group(
                AutoScalingGroupName=name,
                MinSize=sizes.get("minSize", 0),
                MaxSize=sizes.get("maxSize", 2),
                DesiredCapacity=sizes.get("desiredSize", 0),
            )
        self._sizes[name] = dict(sizes)

    async def _remove_nodes(self) -> None:
        """The cloud controller manager's part: a Node whose instance has ended is deleted. Karpenter does its own."""
        ended = {instance.id for instance in self._endpoint.instances() if instance.state in _GONE}
        if not ended:
            return
        try:
            nodes = (await self._kube.list(NODES, type=Node)).items
            for node in nodes:
                if node.spec.provider_id.rpartition("/")[2] in ended and NODEPOOL not in node.metadata.labels:
                    await self._kube.delete(NODES, node.metadata.name, uid=node.metadata.uid)
        except NotFound:
            return
        except KubeError:
            return  # the next look tries again


def create_launch_template(
    endpoint: AwsEndpoint,
    made: account.AwsAccount,
    name: str,
    role: str,
    bootstrap: Bootstrap,
    *,
    image: str,
    instance_type: str,
    volume_gib: int = 80,
) -> str:
    """A launch template whose instances join the cluster in a role; its id."""
    iam, ec2 = account.client(endpoint, "iam"), account.client(endpoint, "ec2")
    profiles = {profile["InstanceProfileName"] for profile in iam.list_instance_profiles()["InstanceProfiles"]}
    if name not in profiles:
        iam.create_instance_profile(InstanceProfileName=name)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
    template = ec2.create_launch_template(
        LaunchTemplateName=name,
        LaunchTemplateData={
            "ImageId": image,
            "InstanceType": instance_type,
            "UserData": bootstrap.user_data(),
            "IamInstanceProfile": {"Name": name},
            "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [made.security_group]}],
            "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": volume_gib}}],
        },
    )["LaunchTemplate"]
    return str(template["LaunchTemplateId"])


def create_group(
    endpoint: AwsEndpoint,
    name: str,
    template: str,
    subnets: list[str],
    *,
    sizes: tuple[int, int, int],
    types: list[str],
    tags: Mapping[str, str],
    distribution: Mapping[str, Any] | None = None,
) -> None:
    """An Auto Scaling group: one type, or a mixed instances policy."""
    launch = {"LaunchTemplateId": template, "Version": "$Latest"}
    source: dict[str, Any] = {"LaunchTemplate": launch}
    if len(types) > 1 or distribution is not None:
        policy: dict[str, Any] = {
            "LaunchTemplate": {
                "LaunchTemplateSpecification": launch,
                "Overrides": [{"InstanceType": instance_type} for instance_type in types],
            },
            "InstancesDistribution": dict(distribution or {}),
        }
        source = {"MixedInstancesPolicy": policy}
    account.client(endpoint, "autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=name, MinSize=sizes[0], MaxSize=sizes[1], DesiredCapacity=sizes[2],
        VPCZoneIdentifier=",".join(subnets),
        Tags=[
            {"Key": key, "Value": value, "PropagateAtLaunch": True, "ResourceId": name,
             "ResourceType": "auto-scaling-group"}
            for key, value in tags.items()
        ],
        **source,
    )  # fmt: skip


def admit_role(endpoint: AwsEndpoint, cluster: str, role_arn: str) -> None:
    """An access entry: instances of the role may join, as EKS arranges for managed node groups."""
    endpoint.front.entries.setdefault(cluster, {}).setdefault(
        role_arn,
        {
            "clusterName": cluster, "principalArn": role_arn, "type": "EC2_LINUX",
            "username": "system:node:{{EC2PrivateDNSName}}", "kubernetesGroups": ["system:nodes"], "tags": {},
            "accessEntryArn": f"arn:aws:eks:::access-entry/{cluster}/role",
        },
    )  # fmt: skip


def create_configured(endpoint: AwsEndpoint, made: account.AwsAccount, config: ClusterConfig) -> None:
    """The node groups of a ClusterConfig, as eksctl would create them."""
    for group in config.groups:
        if group.managed:
            _create_managed(endpoint, made, group)
        else:
            _create_self_managed(endpoint, made, group)
    for profile in config.fargate_profiles:
        _create_fargate_profile(endpoint, made, profile)


def _create_fargate_profile(endpoint: AwsEndpoint, made: account.AwsAccount, profile: FargateProfileConfig) -> None:
    """With the role that eksctl makes for all profiles of a cluster, unless the profile names another."""
    iam, name = account.client(endpoint, "iam"), f"eksctl-{made.cluster}-fargate-FargatePodExecutionRole"
    if not profile.role_arn and name not in {role["RoleName"] for role in iam.list_roles()["Roles"]}:
        principal = {"Service": FARGATE_SERVICE}
        statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)
        policy = "arn:aws:iam::aws:policy/AmazonEKSFargatePodExecutionRolePolicy"
        iam.attach_role_policy(RoleName=name, PolicyArn=policy)
    account.client(endpoint, "eks").create_fargate_profile(
        clusterName=made.cluster,
        fargateProfileName=profile.name,
        podExecutionRoleArn=profile.role_arn or f"arn:aws:iam::{ACCOUNT}:role/{name}",
        selectors=[{"namespace": namespace, "labels": dict(labels)} for namespace, labels in profile.selectors],
        subnets=list(made.subnets.values()),
        tags=dict(profile.tags),
    )


def _node_role(endpoint: AwsEndpoint, made: account.AwsAccount, group: NodeGroupConfig) -> str:
    """The role of the group's instances: that of all nodes, or one of its own if the group asks for policies.

    As at eksctl, policies that are named stand in place of the default ones. Raises ConfigRefused.
    """
    role = group.role
    if not role:
        return f"eks-{made.cluster}-nodes"
    iam, name = account.client(endpoint, "iam"), f"eksctl-{made.cluster}-nodegroup-{group.name}-NodeInstanceRole"
    inline: dict[str, Any] = {"PolicyAutoScaling": AUTO_SCALER_POLICY} if role.auto_scaler else {}
    if role.policy is not None:
        inline["Policy1"] = role.policy
    try:
        account.create_node_role(iam, name, role.policy_arns or account.NODE_POLICIES)
        for policy, document in inline.items():
            iam.put_role_policy(RoleName=name, PolicyName=policy, PolicyDocument=json.dumps(document))
    except ClientError as problem:
        text = str(problem.response["Error"].get("Message", problem)).rstrip(".")
        raise ConfigRefused(
            message(
                "{line}: node group {name}: {problem}; name policies that exist, or write them into attachPolicy",
                line=role.line,
                name=group.name,
                problem=text,
            )
        ) from problem
    return name


def _subnets(made: account.AwsAccount, group: NodeGroupConfig) -> list[str]:
    return [subnet for zone, subnet in made.subnets.items() if not group.zones or zone in group.zones]


def _template_tags(labels: Mapping[str, str], group: NodeGroupConfig) -> dict[str, str]:
    """Labels and taints as eksctl propagates them, so that an autoscaler knows the nodes of an empty group."""
    if not group.propagate_tags:
        return {}
    return {f"{LABEL_TAG}{key}": value for key, value in labels.items()} | {
        f"{TAINT_TAG}{key}": f"{value}:{effect}" for key, value, effect in group.taints
    }


def _create_managed(endpoint: AwsEndpoint, made: account.AwsAccount, group: NodeGroupConfig) -> None:
    effects = {value: key for key, value in _EFFECTS.items()}
    account.client(endpoint, "eks").create_nodegroup(
        clusterName=made.cluster, nodegroupName=group.name, subnets=_subnets(made, group),
        nodeRole=f"arn:aws:iam::{ACCOUNT}:role/{_node_role(endpoint, made, group)}",
        scalingConfig={"minSize": group.min_size, "maxSize": group.max_size, "desiredSize": group.desired},
        instanceTypes=list(group.instance_types), labels=_eksctl_labels(made, group), tags=dict(group.tags),
        taints=[{"key": key, "value": value, "effect": effects[effect]} for key, value, effect in group.taints],
        capacityType="SPOT" if group.spot else "ON_DEMAND", diskSize=group.volume_gib,
        amiType=eks_images.ami_type(group.instance_types, group.ami_family),
    )  # fmt: skip


def _create_self_managed(endpoint: AwsEndpoint, made: account.AwsAccount, group: NodeGroupConfig) -> None:
    role, labels = _node_role(endpoint, made, group), _eksctl_labels(made, group)
    version = str(endpoint.backend("eks").clusters[made.cluster].version)
    bootstrap = Bootstrap(
        cluster=made.cluster, labels=labels, max_pods=group.max_pods,
        taints=tuple(f"{key}={value}:{effect}" for key, value, effect in group.taints),
    )  # fmt: skip
    template = create_launch_template(
        endpoint, made, f"eksctl-{made.cluster}-nodegroup-{group.name}", role, bootstrap,
        image=eks_images.newest(endpoint.backend, version, eks_images.ami_type(group.instance_types, group.ami_family)),
        instance_type=group.instance_types[0], volume_gib=group.volume_gib,
    )  # fmt: skip
    mixed = group.distribution
    distribution: dict[str, Any] | None = None
    if mixed is not None:
        distribution = {
            "OnDemandBaseCapacity": mixed.on_demand_base,
            "OnDemandPercentageAboveBaseCapacity": mixed.on_demand_percentage,
        }
        if mixed.max_price is not None:
            distribution["SpotMaxPrice"] = f"{mixed.max_price:g}"
        if mixed.spot_allocation_strategy:
            distribution["SpotAllocationStrategy"] = mixed.spot_allocation_strategy
    tags = {
        "alpha.eksctl.io/cluster-name": made.cluster,
        "alpha.eksctl.io/nodegroup-name": group.name,
        "alpha.eksctl.io/nodegroup-type": "unmanaged",
        f"kubernetes.io/cluster/{made.cluster}": "owned",
        **_template_tags(labels, group),
        **group.tags,
    }
    admit_role(endpoint, made.cluster, f"arn:aws:iam::{ACCOUNT}:role/{role}")
    create_group(
        endpoint, group.name, template, _subnets(made, group), tags=tags, types=list(group.instance_types),
        sizes=(group.min_size, group.max_size, group.desired), distribution=distribution,
    )  # fmt: skip
    if group.suspended_processes:
        account.client(endpoint, "autoscaling").suspend_processes(
            AutoScalingGroupName=group.name, ScalingProcesses=list(group.suspended_processes)
        )


def _eksctl_labels(made: account.AwsAccount, group: NodeGroupConfig) -> dict[str, str]:
    return {
        "alpha.eksctl.io/cluster-name": made.cluster,
        "alpha.eksctl.io/nodegroup-name": group.name,
        **group.labels,
    }
