"""Where instances go: the subnets and security groups that EC2NodeClasses select (D02)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from dovetail.install.doctor.access import eks_cluster
from dovetail.install.doctor.facts import Facts, Fault, Json, condition, failure, warning
from dovetail.install.doctor.network_acls import network_acl_faults
from dovetail.kube.resources import EC2NODECLASSES
from dovetail.language import message

#: A subnet with fewer free addresses has no room for an instance and its pods.
MIN_FREE_ADDRESSES = 16


def check_network(facts: Facts) -> Iterator[Fault]:
    """D02."""
    classes = facts.items(EC2NODECLASSES.name)
    for node_class in classes:
        name = node_class["metadata"]["name"]
        yield from _reported_faults(facts, node_class)
        yield from _subnet_faults(facts, name)
        yield from _security_group_faults(facts, name)
        yield from network_acl_faults(facts, f"ec2nodeclass/{name}", facts.items(f"subnets of {name}"))
    if classes:
        yield from _name_resolution_faults(facts)


def _name_resolution_faults(facts: Facts) -> Iterator[Fault]:
    vpc = (eks_cluster(facts).get("resourcesVpcConfig") or {}).get("vpcId")
    if vpc and (facts.read("VPC DNS") or {}).get("enableDnsSupport") is False:
        yield failure(
            f"vpc/{vpc}",
            message("enableDnsSupport is false: its instances resolve no name, and cannot join"),
            f"aws ec2 modify-vpc-attribute --vpc-id {vpc} --enable-dns-support --region {facts.region}",
        )


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


def _own(facts: Facts, field: str) -> list[Json]:
    """The cluster's own subnets, or its own security group, as far as they were read."""
    network = eks_cluster(facts).get("resourcesVpcConfig") or {}
    if field == "subnetSelectorTerms":
        described = facts.answers.get("cluster subnets")
        rows = {row["SubnetId"]: row for row in (described.data if described is not None else None) or ()}
        ids = network.get("subnetIds") or list(rows)
    else:
        described = facts.answers.get("control plane groups")
        rows = {row["GroupId"]: row for row in (described.data if described is not None else None) or ()}
        ids = [network["clusterSecurityGroupId"]] if network.get("clusterSecurityGroupId") else list(rows)[:1]
    return [{**rows.get(resource, {}), "id": resource} for resource in ids]


def _terms(facts: Facts, name: str, field: str) -> Sequence[Json]:
    node_class = facts.named(EC2NODECLASSES.name, name) or {}
    return (node_class.get("spec") or {}).get(field) or ()


def _patch(name: str, field: str, terms: Sequence[Json]) -> str:
    patch = json.dumps({"spec": {field: terms}}, separators=(",", ":"))
    return f"kubectl patch ec2nodeclass {name} --type=merge -p '{patch}'"


def _selection(facts: Facts, name: str, field: str) -> str:
    """The command by which the cluster's own subnets or group are selected.

    The selector is corrected where they all have its tags with other values; else they get the tags, or are named.
    """
    own = _own(facts, field)
    ids = [row["id"] for row in own] or ["SUBNET_ID" if field == "subnetSelectorTerms" else "GROUP_ID"]
    tags = next((term["tags"] for term in _terms(facts, name, field) if term.get("tags")), None)
    if tags is None:
        return _patch(name, field, [{"id": resource} for resource in ids])
    values = {key: {_tag(row, key) for row in own} for key in tags}
    if own and all(len(there) == 1 and None not in there for there in values.values()):
        return _patch(name, field, [{"tags": {key: next(iter(there)) for key, there in values.items()}}])
    tag_arguments = " ".join(
        f"Key={key},Value={facts.cluster if value == '*' else value}" for key, value in tags.items()
    )
    return f"aws ec2 create-tags --resources {' '.join(ids)} --tags {tag_arguments} --region {facts.region}"


def _tag(row: Json, key: str) -> str | None:
    return next((str(tag["Value"]) for tag in row.get("Tags") or () if tag["Key"] == key), None)


def _deselection(facts: Facts, name: str, field: str, foreign: Sequence[str]) -> str:
    """The command after which resources of another VPC are not selected: they lose the tags, or are not named."""
    terms = _terms(facts, name, field)
    keys = list(dict.fromkeys(key for term in terms for key in term.get("tags") or ()))
    if not keys or any(term.get("id") in foreign for term in terms):
        return _patch(name, field, [{"id": row["id"]} for row in _own(facts, field)])
    listed = " ".join(f"Key={key}" for key in keys)
    return f"aws ec2 delete-tags --resources {' '.join(foreign)} --tags {listed} --region {facts.region}"


def _another_zone(facts: Facts, name: str, zones: set[str], selected: Sequence[str]) -> str:
    """The command that selects the cluster's subnets of other zones as well."""
    field = "subnetSelectorTerms"
    more = [row["id"] for row in _own(facts, field) if row.get("AvailabilityZone") not in {*zones, None}]
    tags = next((term["tags"] for term in _terms(facts, name, field) if term.get("tags")), None)
    if tags is None and more:
        return _patch(name, field, [{"id": resource} for resource in (*selected, *more)])
    pairs = (tags or {"karpenter.sh/discovery": facts.cluster}).items()
    tag_arguments = " ".join(f"Key={key},Value={facts.cluster if value == '*' else value}" for key, value in pairs)
    where = " ".join(more) or "SUBNET_ID"
    return f"aws ec2 create-tags --resources {where} --tags {tag_arguments} --region {facts.region}"


def _subnet_faults(facts: Facts, name: str) -> Iterator[Fault]:
    subject = f"ec2nodeclass/{name}"
    subnets = facts.items(f"subnets of {name}")
    if not subnets:
        yield failure(
            subject,
            message("spec.subnetSelectorTerms selects no subnet, so no instance can be launched"),
            _selection(facts, name, "subnetSelectorTerms"),
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
            _another_zone(facts, name, zones, [str(row["SubnetId"]) for row in subnets]),
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
            _deselection(facts, name, "subnetSelectorTerms", foreign),
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
            _selection(facts, name, "securityGroupSelectorTerms"),
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
            _deselection(facts, name, "securityGroupSelectorTerms", foreign),
        )
    else:
        yield from _path_faults(facts, subject, groups)
    key = f"kubernetes.io/cluster/{facts.cluster}"
    shared = (eks_cluster(facts).get("resourcesVpcConfig") or {}).get("clusterSecurityGroupId")
    tagged = [row["GroupId"] for row in groups if any(tag["Key"] == key for tag in row.get("Tags") or ())]
    tagged.sort(key=lambda group: group != shared)  # EKS gives its own group the tag, and gives it back
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
            f"aws ec2 delete-tags --resources {' '.join(tagged[1:])} --tags Key={key} --region {facts.region}",
        )


def _path_faults(facts: Facts, subject: str, groups: Sequence[Json]) -> Iterator[Fault]:
    """Nodes reach the API server at 443, it reaches their kubelets at 10250, and nodes reach everything else."""
    ids = sorted(str(row["GroupId"]) for row in groups)
    outbound = [row["IpPermissionsEgress"] for row in groups if "IpPermissionsEgress" in row]
    if len(outbound) == len(groups) and not any(_admit(rules, 443, None) for rules in outbound):
        yield failure(
            subject,
            message("none of its security groups ({ids}) has a rule for outbound traffic at port 443: nodes reach "
                    "neither the API server nor AWS, and cannot join", ids=", ".join(ids)),
            f"aws ec2 authorize-security-group-egress --group-id {ids[0]} --ip-permissions"
            f" 'IpProtocol=-1,IpRanges=[{{CidrIp=0.0.0.0/0}}]' --region {facts.region}",
        )  # fmt: skip
    network = eks_cluster(facts).get("resourcesVpcConfig") or {}
    shared = network.get("clusterSecurityGroupId")
    if not shared:
        return
    plane = facts.items("control plane groups")
    plane_ids = {str(row["GroupId"]) for row in plane}
    source = shared if shared in ids else ids[0]
    # Without the private endpoint nodes reach the API server by its public address.
    if network.get("endpointPrivateAccess", True) and not any(_admits(row, 443, set(ids)) for row in plane):
        make = failure if shared in ids else warning  # rules of other groups may be those of a proxy
        yield make(
            subject,
            message(
                "no security group of the control plane ({plane_ids}) admits its groups ({ids}) at port 443: nodes "
                "cannot join",
                plane_ids=", ".join(sorted(plane_ids)),
                ids=", ".join(ids),
            ),
            _ingress(facts, shared, 443, source),
        )
    if not any(_admits(row, 10250, plane_ids) for row in groups):
        yield warning(
            subject,
            message(
                "none of its security groups ({ids}) admits the control plane at port 10250: nodes have no logs, exec "
                "and webhooks",
                ids=", ".join(ids),
            ),
            _ingress(facts, source, 10250, shared),
        )


def _ingress(facts: Facts, group: str, port: int, source: str) -> str:
    """The command for a rule as EKS makes it: all traffic inside the cluster's group, else one port."""
    protocol = "-1" if group == source else f"tcp --port {port}"
    return (
        f"aws ec2 authorize-security-group-ingress --group-id {group} --protocol {protocol} --source-group {source}"
        f" --region {facts.region}"
    )


def _admits(group: Json, port: int, sources: set[str]) -> bool:
    """Whether an ingress rule admits one of the groups, or addresses at all, at this port."""
    return _admit(group.get("IpPermissions") or (), port, sources)


def _admit(rules: Sequence[Json], port: int, groups: set[str] | None) -> bool:
    """Whether rules admit TCP at a port for one of the groups, or for any.

    Whose addresses a range holds is not judged.
    """
    for rule in rules:
        everything = str(rule.get("IpProtocol")) == "-1"
        in_range = (rule.get("FromPort") or 0) <= port <= (rule.get("ToPort") or 65535)
        if not everything and (rule.get("IpProtocol") not in ("tcp", "6") or not in_range):
            continue
        if rule.get("IpRanges") or rule.get("Ipv6Ranges") or rule.get("PrefixListIds"):
            return True
        if any(groups is None or row.get("GroupId") in groups for row in rule.get("UserIdGroupPairs") or ()):
            return True
    return False
