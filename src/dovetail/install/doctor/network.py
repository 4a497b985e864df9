"""Where instances go: the subnets and security groups that EC2NodeClasses select (D02)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dovetail.install.doctor.access import eks_cluster
from dovetail.install.doctor.facts import Facts, Fault, Json, condition, failure, warning
from dovetail.kube.resources import EC2NODECLASSES
from dovetail.language import message

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
                message(
                    "condition {kind} is False ({reason}): {message}",
                    kind=kind,
                    reason=row.get("reason", ""),
                    message=row.get("message", ""),
                ),
                message("kubectl edit ec2nodeclass {name}  # spec.{field}", name=name, field=field),
                symptom=True,
            )


def _subnet_faults(facts: Facts, name: str) -> Iterator[Fault]:
    subject = f"ec2nodeclass/{name}"
    subnets = facts.items(f"subnets of {name}")
    if not subnets:
        yield failure(
            subject,
            message("spec.subnetSelectorTerms selects no subnet, so no instance can be launched"),
            f"aws ec2 create-tags --resources SUBNET_ID --tags Key=karpenter.sh/discovery,Value={facts.cluster}",
        )
        return
    zones = {str(row.get("AvailabilityZone")) for row in subnets}
    if len(zones) < 2:
        yield warning(
            subject,
            message(
                "spec.subnetSelectorTerms selects subnets in {next} alone: if this zone fails, or has no "
                "capacity, no instance can be launched",
                next=next(iter(zones)),
            ),
            f"aws ec2 create-tags --resources SUBNET_ID --tags Key=karpenter.sh/discovery,Value={facts.cluster}"
            f" --region {facts.region}",
        )
    network = eks_cluster(facts).get("resourcesVpcConfig") or {}
    vpc = network.get("vpcId")
    foreign = [row["SubnetId"] for row in subnets if vpc and row.get("VpcId") != vpc]
    if foreign:
        yield failure(
            subject,
            message(
                "spec.subnetSelectorTerms selects {foreign} outside the cluster's VPC {vpc}: instances "
                "there cannot join",
                foreign=", ".join(foreign),
                vpc=vpc,
            ),
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
            message(
                "AvailableIpAddressCount is below {min_free_addresses} in {count} of {count_2} subnets: "
                "{listed}; instances and pods there get no address",
                min_free_addresses=MIN_FREE_ADDRESSES,
                count=len(full),
                count_2=len(subnets),
                listed=listed,
            ),
            f"aws ec2 describe-subnets --subnet-ids {' '.join(sorted(full))} --region {facts.region}",
        )


def _security_group_faults(facts: Facts, name: str) -> Iterator[Fault]:
    subject = f"ec2nodeclass/{name}"
    groups = facts.items(f"security groups of {name}")
    if not groups:
        yield failure(
            subject,
            message("spec.securityGroupSelectorTerms selects no security group, so no instance can be launched"),
            f"aws ec2 create-tags --resources GROUP_ID --tags Key=karpenter.sh/discovery,Value={facts.cluster}",
        )
        return
    vpc = (eks_cluster(facts).get("resourcesVpcConfig") or {}).get("vpcId")
    foreign = [row["GroupId"] for row in groups if vpc and row.get("VpcId") != vpc]
    if foreign:
        yield failure(
            subject,
            message(
                "spec.securityGroupSelectorTerms selects {foreign} outside the cluster's VPC {vpc}: EC2 "
                "refuses the launch",
                foreign=", ".join(foreign),
                vpc=vpc,
            ),
            f"aws ec2 delete-tags --resources {' '.join(foreign)} --tags Key=karpenter.sh/discovery",
        )
    else:
        yield from _path_faults(facts, subject, groups)
    key = f"kubernetes.io/cluster/{facts.cluster}"
    tagged = [row["GroupId"] for row in groups if any(tag["Key"] == key for tag in row.get("Tags") or ())]
    if len(tagged) > 1:
        yield warning(
            subject,
            message(
                "{count} of its security groups ({tagged}) have the tag {key}: load balancer controllers "
                "expect exactly one on a node and register no targets",
                count=len(tagged),
                tagged=", ".join(tagged),
                key=key,
            ),
            f"aws ec2 delete-tags --resources {' '.join(tagged[1:])} --tags Key={key}",
        )


def _path_faults(facts: Facts, subject: str, groups: Sequence[Json]) -> Iterator[Fault]:
    """Nodes reach the API server at 443, and it reaches their kubelets at 10250."""
    network = eks_cluster(facts).get("resourcesVpcConfig") or {}
    shared = network.get("clusterSecurityGroupId")
    ids = {str(row["GroupId"]) for row in groups}
    if not shared or shared in ids:
        return
    plane = facts.items("control plane groups")
    plane_ids = {str(row["GroupId"]) for row in plane}
    admits_nodes = any(_admits(row, 443, ids) for row in plane)
    admits_plane = any(_admits(row, 10250, plane_ids) for row in groups)
    if admits_nodes and admits_plane:
        return
    first = sorted(ids)[0]
    if not admits_nodes:
        rule = message(
            "no group of the control plane ({plane_ids}) admits its groups at port 443",
            plane_ids=", ".join(sorted(plane_ids)),
        )
        target, port, source = shared, 443, first
    else:
        rule = message("none of its groups ({ids}) admits the control plane at port 10250", ids=", ".join(sorted(ids)))
        target, port, source = first, 10250, shared
    yield warning(
        subject,
        message(
            "spec.securityGroupSelectorTerms does not select the cluster's security group {shared}, "
            "and {rule}: nodes {effect}",
            shared=shared,
            rule=rule,
            effect=message("cannot join") if port == 443 else message("have no logs, exec and webhooks"),
        ),
        f"aws ec2 authorize-security-group-ingress --group-id {target} --protocol tcp --port {port} --source-group"
        f" {source} --region {facts.region}",
    )


def _admits(group: Json, port: int, sources: set[str]) -> bool:
    """Whether an ingress rule admits one of the groups, or addresses at all, at this port.

    Whose addresses a range holds is not judged.
    """
    for rule in group.get("IpPermissions") or ():
        everything = str(rule.get("IpProtocol")) == "-1"
        in_range = (rule.get("FromPort") or 0) <= port <= (rule.get("ToPort") or 65535)
        if not everything and (rule.get("IpProtocol") not in ("tcp", "6") or not in_range):
            continue
        if rule.get("IpRanges") or rule.get("Ipv6Ranges") or rule.get("PrefixListIds"):
            return True
        if any(row.get("GroupId") in sources for row in rule.get("UserIdGroupPairs") or ()):
            return True
    return False
