"""Where instances go: subnets, security groups, and the keys that encrypt their volumes."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.install.doctor.access import eks_cluster
from dovetail.install.doctor.facts import Facts, Fault, Json, condition, failure, warning
from dovetail.kube.resources import EC2NODECLASSES

#: A subnet with fewer free addresses has no room for an instance and its pods.
MIN_FREE_ADDRESSES = 16


def check_network(facts: Facts) -> Iterator[Fault]:
    """D02."""
    for node_class in facts.items(EC2NODECLASSES.name):
        yield from _reported_faults(facts, node_class)
        yield from _subnet_faults(facts, node_class["metadata"]["name"])
        yield from _security_group_faults(facts, node_class["metadata"]["name"])


def _reported_faults(facts: Facts, node_class: Json) -> Iterator[Fault]:
    """What the controller found, where EC2 could not be asked here or gives another answer."""
    name = node_class["metadata"]["name"]
    for kind, field, source in (
        ("SubnetsReady", "subnetSelectorTerms", f"subnets of {name}"),
        ("SecurityGroupsReady", "securityGroupSelectorTerms", f"security groups of {name}"),
    ):
        row = condition(node_class, kind)
        answer = facts.answers.get(source)
        selects_none = answer is not None and answer.data == []
        if row and row.get("status") == "False" and not selects_none:
            yield failure(
                f"ec2nodeclass/{name}",
                f"condition {kind} is False ({row.get('reason', '')}): {row.get('message', '')}",
                f"kubectl edit ec2nodeclass {name}  # spec.{field}",
            )


def _subnet_faults(facts: Facts, name: str) -> Iterator[Fault]:
    subject = f"ec2nodeclass/{name}"
    subnets = facts.items(f"subnets of {name}")
    if not subnets:
        yield failure(
            subject,
            "spec.subnetSelectorTerms selects no subnet, so no instance can be launched",
            f"aws ec2 create-tags --resources SUBNET_ID --tags Key=karpenter.sh/discovery,Value={facts.cluster}",
        )
        return
    network = eks_cluster(facts).get("resourcesVpcConfig") or {}
    vpc = network.get("vpcId")
    foreign = [row["SubnetId"] for row in subnets if vpc and row.get("VpcId") != vpc]
    if foreign:
        yield failure(
            subject,
            f"spec.subnetSelectorTerms selects {', '.join(foreign)} outside the cluster's VPC {vpc}: instances there"
            " cannot join",
            f"aws ec2 delete-tags --resources {' '.join(foreign)} --tags Key=karpenter.sh/discovery",
        )
    if (eks_cluster(facts).get("kubernetesNetworkConfig") or {}).get("ipFamily") == "ipv6":
        return
    full = {
        row["SubnetId"]: row["AvailableIpAddressCount"]
        for row in subnets
        if row.get("AvailableIpAddressCount", MIN_FREE_ADDRESSES) < MIN_FREE_ADDRESSES
    }
    if full:
        listed = ", ".join(f"{subnet} ({free})" for subnet, free in sorted(full.items()))
        make = failure if len(full) == len(subnets) else warning
        yield make(
            subject,
            f"AvailableIpAddressCount is below {MIN_FREE_ADDRESSES} in {len(full)} of {len(subnets)} subnets: {listed};"
            " instances and pods there get no address",
            f"aws ec2 describe-subnets --subnet-ids {' '.join(sorted(full))} --region {facts.region}",
        )


def _security_group_faults(facts: Facts, name: str) -> Iterator[Fault]:
    subject = f"ec2nodeclass/{name}"
    groups = facts.items(f"security groups of {name}")
    if not groups:
        yield failure(
            subject,
            "spec.securityGroupSelectorTerms selects no security group, so no instance can be launched",
            f"aws ec2 create-tags --resources GROUP_ID --tags Key=karpenter.sh/discovery,Value={facts.cluster}",
        )
        return
    vpc = (eks_cluster(facts).get("resourcesVpcConfig") or {}).get("vpcId")
    foreign = [row["GroupId"] for row in groups if vpc and row.get("VpcId") != vpc]
    if foreign:
        yield failure(
            subject,
            f"spec.securityGroupSelectorTerms selects {', '.join(foreign)} outside the cluster's VPC {vpc}: EC2 refuses"
            " the launch",
            f"aws ec2 delete-tags --resources {' '.join(foreign)} --tags Key=karpenter.sh/discovery",
        )
    key = f"kubernetes.io/cluster/{facts.cluster}"
    tagged = [row["GroupId"] for row in groups if any(tag["Key"] == key for tag in row.get("Tags") or ())]
    if len(tagged) > 1:
        yield warning(
            subject,
            f"{len(tagged)} of its security groups ({', '.join(tagged)}) have the tag {key}: load balancer controllers"
            " expect exactly one on a node and register no targets",
            f"aws ec2 delete-tags --resources {' '.join(tagged[1:])} --tags Key={key}",
        )


def check_volume_keys(facts: Facts) -> Iterator[Fault]:
    """D17."""
    for node_class in facts.items(EC2NODECLASSES.name):
        name = node_class["metadata"]["name"]
        for mapping in (node_class.get("spec") or {}).get("blockDeviceMappings") or ():
            key = (mapping.get("ebs") or {}).get("kmsKeyID")
            if not key:
                continue
            described = facts.read(f"key {key}")
            state = "not found" if described is None else described.get("KeyState", "")
            if state != "Enabled":
                undo = "cancel-key-deletion" if state == "PendingDeletion" else "enable-key"
                yield failure(
                    f"ec2nodeclass/{name}",
                    f"spec.blockDeviceMappings kmsKeyID {key} is {state}: EC2 terminates each instance while it"
                    " attaches the volume",
                    f"aws kms {undo} --key-id {key} --region {facts.region}",
                )
