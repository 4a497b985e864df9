"""Network ACLs of the subnets that EC2NodeClasses select (part of D02): nodes reach the API server and AWS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

from dovetail.install.doctor.access import eks_cluster
from dovetail.install.doctor.facts import Facts, Fault, Json, failure, shortened
from dovetail.language import message

HTTPS = 443
#: A port of the range from which Linux calls, and to which the answers go.
REPLY = 40000
EVERYWHERE = ip_network("0.0.0.0/0")
#: The rule that each ACL ends with.
LAST_RULE = 32767
TCP = "6"

Network = IPv4Network | IPv6Network


def network_acl_faults(facts: Facts, subject: str, subnets: Sequence[Json]) -> Iterator[Fault]:
    """An ACL keeps no state: the calls have to pass, and their answers."""
    selected = {str(row["SubnetId"]) for row in subnets}
    for acl in facts.items("network ACLs"):
        held = sorted({str(row.get("SubnetId")) for row in acl.get("Associations") or ()} & selected)
        if not held:
            continue
        for egress, port in ((True, HTTPS), (False, REPLY)):
            rule = _denying(acl, egress, port, [EVERYWHERE]) or _denying(acl, egress, port, _control_plane(facts))
            if rule is not None:
                yield _fault(facts, subject, acl, held, rule)
                break


def _control_plane(facts: Facts) -> list[Network]:
    """Where the API server has its addresses inside the VPC; none where nodes reach it from outside."""
    if not (eks_cluster(facts).get("resourcesVpcConfig") or {}).get("endpointPrivateAccess"):
        return []
    return [ip_network(row["CidrBlock"]) for row in facts.items("cluster subnets") if row.get("CidrBlock")]


def _denying(acl: Json, egress: bool, port: int, networks: Sequence[Network]) -> Json | None:
    """The rule that keeps TCP at a port from each of the networks; None where one of them can be reached."""
    rules = [_first(acl, egress, port, network) for network in networks]
    return rules[0] if rules and all(rule["RuleAction"] == "deny" for rule in rules) else None


def _first(acl: Json, egress: bool, port: int, network: Network) -> Json:
    """The rule that decides: the first that denies the whole network, or allows a part of it."""
    entries = [row for row in acl.get("Entries") or () if bool(row.get("Egress")) == egress]
    for entry in sorted(entries, key=lambda row: int(row["RuleNumber"])):
        protocol, ports = str(entry.get("Protocol", "-1")), entry.get("PortRange") or {}
        if protocol not in ("-1", TCP) or not _covers_port(protocol, ports, port) or not entry.get("CidrBlock"):
            continue
        other = ip_network(entry["CidrBlock"], strict=False)
        if network.version != other.version:
            continue
        whole = other.prefixlen <= network.prefixlen and network.network_address in other
        if whole or (entry["RuleAction"] == "allow" and other.overlaps(network)):
            return entry  # type: ignore[no-any-return]
    return {"RuleAction": "deny", "RuleNumber": LAST_RULE, "Egress": egress}


def _covers_port(protocol: str, ports: Json, port: int) -> bool:
    return protocol == "-1" or not ports or int(ports.get("From", 0)) <= port <= int(ports.get("To", 65535))


def _fault(facts: Facts, subject: str, acl: Json, subnets: Sequence[str], rule: Json) -> Fault:
    name, number = str(acl["NetworkAclId"]), int(rule["RuleNumber"])
    direction = "--egress" if rule["Egress"] else "--ingress"
    if number < LAST_RULE:
        command = f"delete-network-acl-entry --network-acl-id {name} {direction} --rule-number {number}"
    else:
        taken = {int(row["RuleNumber"]) for row in acl.get("Entries") or () if bool(row["Egress"]) == rule["Egress"]}
        free = next(candidate for candidate in range(100, LAST_RULE) if candidate not in taken)
        command = (
            f"create-network-acl-entry --network-acl-id {name} {direction} --rule-number {free} --protocol -1"
            " --rule-action allow --cidr-block 0.0.0.0/0"
        )
    denied = (
        message("outbound TCP at port {port}", port=HTTPS)
        if rule["Egress"]
        else message("the answers, inbound TCP at ports from 1024")
    )
    return failure(
        subject,
        message(
            "network ACL {name} of {subnets} denies {denied} (rule {rule}): instances there reach neither the API "
            "server nor AWS, and cannot join",
            name=name,
            subnets=shortened(subnets),
            denied=denied,
            rule="*" if number == LAST_RULE else number,
        ),
        f"aws ec2 {command} --region {facts.region}",
    )
