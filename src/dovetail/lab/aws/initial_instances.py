"""The nodes that a lab starts with, at AWS: instances, the Auto Scaling group behind them, and the node group of EKS.

EC2 knows them by the ids that their Nodes have. Once registered the node group is like any other: its size can be
changed, and a lost instance is replaced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail.lab.aws import eks_images
from dovetail.lab.aws.account import AwsAccount, client
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.node_groups import Bootstrap, create_group
from dovetail.lab.instances import SimulatedInstance

NODE_GROUP = "system"
GROUP_LABEL, CAPACITY_LABEL = "eks.amazonaws.com/nodegroup", "eks.amazonaws.com/capacityType"


def labelled(instances: Sequence[SimulatedInstance]) -> list[SimulatedInstance]:
    """With the labels that EKS gives the nodes of a node group."""
    labels = {GROUP_LABEL: NODE_GROUP, CAPACITY_LABEL: "ON_DEMAND"}
    return [msgspec.structs.replace(instance, labels={**instance.labels, **labels}) for instance in instances]


class Registered(msgspec.Struct, frozen=True):
    """`nodes`: the node of each instance id. `labels`: what EKS knows of the nodes beside their group's name."""

    nodes: Mapping[str, str]
    labels: Mapping[str, str]


def register(
    endpoint: AwsEndpoint, made: AwsAccount, instances: Sequence[SimulatedInstance], version: str
) -> Registered:
    """Run them in EC2 as the cluster's first node group."""
    arm = bool(instances) and all(instance.arch == "arm64" for instance in instances)
    kind = f"AL2023_{'ARM_64' if arm else 'x86_64'}_STANDARD"
    image = eks_images.newest(endpoint.backend, version, kind)
    nodes = _run(endpoint, made, instances, image)
    if not made.node_group:
        return Registered(nodes, {})
    nodegroup = endpoint.backend("eks").clusters[made.cluster].nodegroups[made.node_group]
    types = sorted({instance.instance_type for instance in instances}) or list(nodegroup.instance_types)
    nodegroup.instance_types = types
    nodegroup.ami_type = kind
    count = len(instances)
    nodegroup.scaling_config = {"minSize": min(1, count), "maxSize": max(3, count), "desiredSize": count}
    _complete_template(endpoint, made, types[0], image)
    _group(endpoint, made, nodegroup, list(nodes))
    labels = {
        "eks.amazonaws.com/nodegroup-image": image,
        "eks.amazonaws.com/sourceLaunchTemplateId": made.launch_template,
        "eks.amazonaws.com/sourceLaunchTemplateVersion": "1",
    }
    return Registered(nodes, labels)


def _run(endpoint: AwsEndpoint, made: AwsAccount, instances: Sequence[SimulatedInstance], image: str) -> dict[str, str]:
    ec2, backend = client(endpoint, "ec2"), endpoint.backend("ec2")
    by_place: defaultdict[tuple[str, str], list[SimulatedInstance]] = defaultdict(list)
    for simulated in instances:
        by_place[simulated.zone, simulated.instance_type].append(simulated)
    tags = {
        "Name": f"{made.cluster}-{NODE_GROUP}-Node",
        "eks:cluster-name": made.cluster,
        "eks:nodegroup-name": NODE_GROUP,
        f"kubernetes.io/cluster/{made.cluster}": "owned",
    }
    nodes: dict[str, str] = {}
    for (zone, instance_type), group in by_place.items():
        reservation = ec2.run_instances(
            ImageId=image,
            InstanceType=instance_type,
            SubnetId=made.subnets[zone],
            SecurityGroupIds=[made.security_group],
            MinCount=len(group),
            MaxCount=len(group),
        )["ReservationId"]
        for instance, simulated in zip(backend.reservations[reservation].instances, group, strict=True):
            instance.id = simulated.provider_id.rpartition("/")[2]
            instance.nics[0].private_ip_address = simulated.ip
            instance.add_tags(tags)
            nodes[instance.id] = simulated.name
    return nodes


def _complete_template(endpoint: AwsEndpoint, made: AwsAccount, instance_type: str, image: str) -> None:
    """What EKS puts into a node group's launch template: with it the group can launch more."""
    iam, profile = client(endpoint, "iam"), f"eks-{made.cluster}-{NODE_GROUP}"
    iam.create_instance_profile(InstanceProfileName=profile)
    iam.add_role_to_instance_profile(InstanceProfileName=profile, RoleName=f"eks-{made.cluster}-nodes")
    labels = {GROUP_LABEL: NODE_GROUP, CAPACITY_LABEL: "ON_DEMAND"}
    template = endpoint.backend("ec2").launch_templates[made.launch_template]
    template.versions[0].data |= {
        "ImageId": image,
        "InstanceType": instance_type,
        "IamInstanceProfile": {"Name": profile},
        "UserData": _text(Bootstrap(cluster=made.cluster, labels=labels).user_data()),
    }


def _text(encoded: str) -> Any:
    from moto.core.types import Base64EncodedString

    return Base64EncodedString(encoded)


def _group(endpoint: AwsEndpoint, made: AwsAccount, nodegroup: Any, instance_ids: Sequence[str]) -> None:
    """The Auto Scaling group that the node group names, with the instances that run already."""
    from moto.autoscaling.models import InstanceState

    name, sizes = nodegroup.resources["autoScalingGroups"][0]["name"], nodegroup.scaling_config
    tags = {
        "eks:cluster-name": made.cluster,
        "eks:nodegroup-name": NODE_GROUP,
        f"kubernetes.io/cluster/{made.cluster}": "owned",
        "k8s.io/cluster-autoscaler/enabled": "true",
        f"k8s.io/cluster-autoscaler/{made.cluster}": "owned",
    }
    create_group(
        endpoint, name, made.launch_template, list(nodegroup.subnets),
        sizes=(0, sizes["maxSize"], 0), types=list(nodegroup.instance_types[:1]), tags=tags,
    )  # fmt: skip
    group = endpoint.backend("autoscaling").autoscaling_groups[name]
    present = {instance.id: instance for instance in endpoint.instances()}
    for instance_id in instance_ids:
        instance = present[instance_id]
        instance.autoscaling_group = group
        instance.add_tags({"aws:autoscaling:groupName": name})
        group.instance_states.append(InstanceState(instance, protected_from_scale_in=False))
    group.min_size, group.desired_capacity = sizes["minSize"], sizes["desiredSize"]
