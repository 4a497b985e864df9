"""What instances reach through endpoints (part of D18): the API server, and AWS where policies of endpoints decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network

from dovetail.install.doctor.access import eks_cluster, partition
from dovetail.install.doctor.aws_answers import ROLE_ANNOTATION
from dovetail.install.doctor.facts import Facts, Fault, Json, failure, shortened, warning
from dovetail.install.doctor.principals import listed, policy_document
from dovetail.install.policy import PolicyDecision, decide
from dovetail.kube.resources import SERVICEACCOUNTS
from dovetail.language import message

#: What instances ask of the services whose endpoints a VPC usually has.
ACTIONS: Mapping[str, Sequence[str]] = {
    "ec2": ("ec2:DescribeInstances", "ec2:AssignPrivateIpAddresses"),
    "ecr.api": ("ecr:GetAuthorizationToken",),
    "ecr.dkr": ("ecr:BatchGetImage",),
    "s3": ("s3:GetObject",),
    "sts": ("sts:AssumeRoleWithWebIdentity",),
}
WHOLE_INTERNET = 0


# The API server


def api_server_faults(
    facts: Facts, subject: str, open_subnets: Sequence[tuple[Json, Json]], closed: Sequence[Json]
) -> Iterator[Fault]:
    """Where it has no private address: instances come from the addresses of NAT gateways, or from their own.

    `open_subnets`: those that lead out, each with its default route.
    """
    network = eks_cluster(facts).get("resourcesVpcConfig") or {}
    if network.get("endpointPrivateAccess", True):
        return
    remedy = (
        f"aws eks update-cluster-config --name {facts.cluster} --resources-vpc-config endpointPrivateAccess=true"
        f" --region {facts.region}"
    )
    if closed:
        yield failure(
            subject,
            message(
                "resourcesVpcConfig.endpointPrivateAccess of the cluster is false, and {subnets} has no way out of the "
                "VPC: instances there do not reach the API server, and cannot join",
                subnets=shortened([str(row["SubnetId"]) for row in closed]),
            ),
            remedy,
        )
    admitted = [ip_network(text, strict=False) for text in network.get("publicAccessCidrs") or ()]
    if not admitted or any(cidr.prefixlen == WHOLE_INTERNET for cidr in admitted):
        return
    for subnet, route in open_subnets:
        addresses = _nat_addresses(facts, str(route.get("NatGatewayId") or ""))
        if any(ip_address(address) in cidr for address in addresses for cidr in admitted):
            continue
        make = failure if addresses else warning  # the addresses of other ways out are not known
        yield make(
            subject,
            message(
                "resourcesVpcConfig.publicAccessCidrs of the cluster ({cidrs}) does not have the public address of "
                "instances in {subnet} ({addresses}), and endpointPrivateAccess is false: they do not reach the API "
                "server, and cannot join",
                cidrs=shortened(list(map(str, network["publicAccessCidrs"]))),
                subnet=subnet["SubnetId"],
                addresses=", ".join(addresses) or message("unknown"),
            ),
            remedy,
        )
        return


def _nat_addresses(facts: Facts, gateway: str) -> list[str]:
    if not gateway:
        return []
    for row in facts.items("NAT gateways"):
        if row.get("NatGatewayId") == gateway:
            return [str(held["PublicIp"]) for held in row.get("NatGatewayAddresses") or () if held.get("PublicIp")]
    return []


# Policies of endpoints


def endpoint_policy_faults(facts: Facts, tables: set[str]) -> Iterator[Fault]:
    """Endpoints that instances use, and whose policy keeps them from what they need. `tables`: their route tables."""
    for row in facts.items("VPC endpoints"):
        service = str(row.get("ServiceName")).split(f".{facts.region}.", 1)[-1]
        if service not in ACTIONS or not row.get("PolicyDocument") or not _is_used(row, tables):
            continue
        if service == "sts" and not _has_role_annotations(facts):
            continue
        resource = f"arn:{partition(facts)}:s3:::prod-{facts.region}-starport-layer-bucket/layer"
        denied = [action for action in ACTIONS[service] if not _allows(row, action, resource)]
        if denied:
            yield failure(
                f"vpc-endpoint/{row['VpcEndpointId']}",
                message(
                    "the policy of the endpoint for {service} does not allow {actions}{resource}: instances that reach "
                    "{service} through it cannot join or pull images",
                    service=service,
                    actions=", ".join(denied),
                    resource=message(" on {resource}", resource=resource.removesuffix("layer") + "*")
                    if service == "s3"
                    else "",
                ),
                f"aws ec2 modify-vpc-endpoint --vpc-endpoint-id {row['VpcEndpointId']} --reset-policy"
                f" --region {facts.region}",
            )


def _is_used(endpoint: Json, tables: set[str]) -> bool:
    """A gateway serves its route tables; an interface the whole VPC, where it has the service's name."""
    if str(endpoint.get("State", "available")).lower() != "available":
        return False
    if endpoint.get("VpcEndpointType") == "Gateway":
        return bool(tables & set(endpoint.get("RouteTableIds") or ()))
    return endpoint.get("PrivateDnsEnabled", True) is not False


def _allows(endpoint: Json, action: str, resource: str) -> bool:
    """Statements with conditions, or of some principals, are not judged: they take nothing away."""
    judged = []
    for statement in listed(policy_document(endpoint["PolicyDocument"]).get("Statement")):
        everywhere = statement.get("Principal") in ("*", {"AWS": "*"}) and not statement.get("Condition")
        if statement.get("Effect") == "Allow" or everywhere:
            judged.append({**statement, "Condition": {}})
    named = resource if action.startswith("s3:") else None
    return decide([{"Statement": judged}], action, named, {})[0] is PolicyDecision.ALLOWED


def _has_role_annotations(facts: Facts) -> bool:
    return any(
        ROLE_ANNOTATION in (account["metadata"].get("annotations") or {})
        for account in facts.items(SERVICEACCOUNTS.name)
    )
