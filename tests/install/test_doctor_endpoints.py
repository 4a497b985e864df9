"""D18 where instances have a way out: addresses that the API server does not admit, and policies of endpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail.install.doctor.facts import Status
from dovetail.kube import resources as kinds
from tests.install.doctor_facts import CLASS, CLASSES, CLOSED_TABLE, FAILED, OPEN_TABLE, WARNING, endpoints, of, subnet

INTERNET_TABLE = {
    **OPEN_TABLE,
    "Routes": [{"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1"}],
}
PUBLIC = [{**subnet("subnet-1", "a"), "MapPublicIpOnLaunch": True}]
LAYERS = "arn:aws:s3:::prod-us-west-2-starport-layer-bucket/*"


def admitting(*cidrs: str, private: bool = False, nat: str = "203.0.113.9", **answers: Any) -> dict[str, Any]:
    network = {"vpcId": "vpc-1", "endpointPublicAccess": True, "endpointPrivateAccess": private}
    gateway = {"NatGatewayId": "nat-1", "NatGatewayAddresses": [{"PublicIp": nat}]}
    return {
        CLASSES: [CLASS],
        "eks:DescribeCluster": {"resourcesVpcConfig": {**network, "publicAccessCidrs": list(cidrs)}},
        "NAT gateways": [gateway],
        **answers,
    }


@pytest.mark.parametrize(
    "answers",
    [
        admitting("0.0.0.0/0"),
        admitting("198.51.100.0/24", "203.0.113.9/32"),
        admitting("198.51.100.0/24", private=True),
    ],
    ids=["everywhere", "the NAT gateway", "a private address"],
)
def test_instances_that_reach_the_api_server(answers: dict[str, Any]) -> None:
    assert [row.status for row in of("D18", answers)] == [Status.PASSED]


def test_the_address_of_the_nat_gateway_is_not_admitted() -> None:
    (row,) = of("D18", admitting("198.51.100.0/24"))
    assert (row.status, row.object) == (FAILED, "ec2nodeclass/default")
    assert "publicAccessCidrs of the cluster (198.51.100.0/24)" in row.message
    assert "instances in subnet-1 (203.0.113.9)" in row.message
    assert row.remedy == (
        "aws eks update-cluster-config --name demo --resources-vpc-config endpointPrivateAccess=true --region us-west-2"
    )


def test_addresses_of_instances_of_their_own_are_not_known() -> None:
    answers = admitting("198.51.100.0/24", **{"route tables": [INTERNET_TABLE], "subnets of default": PUBLIC})
    (row,) = of("D18", answers)
    assert (row.status, "(unknown)" in row.message) == (WARNING, True)


def test_closed_subnets_do_not_reach_a_public_address() -> None:
    services = endpoints("ec2", "ecr.api", "ecr.dkr", "s3", "sts")
    answers = admitting("0.0.0.0/0", **{"route tables": [CLOSED_TABLE], "VPC endpoints": services})
    (row,) = of("D18", answers)
    assert row.status is FAILED
    assert "endpointPrivateAccess of the cluster is false, and subnet-1, subnet-2 has no way out" in row.message


def endpoint(service: str, *statements: dict[str, Any], **more: Any) -> dict[str, Any]:
    document = json.dumps({"Statement": list(statements)})
    return {**endpoints(service)[0], "VpcEndpointId": "vpce-1", "PolicyDocument": document, **more}


def with_endpoint(row: dict[str, Any], *, annotated: bool = True) -> dict[str, Any]:
    annotations = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/a"} if annotated else {}
    account = {"metadata": {"name": "a", "namespace": "a", "annotations": annotations}}
    table = {**OPEN_TABLE, "RouteTableId": "rtb-1"}
    accounts = kinds.SERVICEACCOUNTS.name
    return {CLASSES: [CLASS], "route tables": [table], "VPC endpoints": [row], accounts: [account]}


def allow(*actions: str, resource: str = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Principal": "*", "Action": list(actions), "Resource": resource, **more}


GATEWAY = {"VpcEndpointType": "Gateway", "RouteTableIds": ["rtb-1"]}
DENIED = {
    "images' layers in S3": (endpoint("s3", allow("s3:*", resource="arn:aws:s3:::ours/*"), **GATEWAY), "s3:GetObject"),
    "no token for ECR": (endpoint("ecr.api", allow("ecr:DescribeRepositories")), "ecr:GetAuthorizationToken"),
    "a Deny for all": (
        endpoint("ec2", allow("*"), {"Effect": "Deny", "Principal": "*", "Action": "ec2:Assign*", "Resource": "*"}),
        "ec2:AssignPrivateIpAddresses",
    ),
    "no role for pods": (endpoint("sts", allow("sts:GetCallerIdentity")), "sts:AssumeRoleWithWebIdentity"),
}
SOUND = {
    "all": endpoint("s3", allow("*"), **GATEWAY),
    "the layers alone": endpoint("s3", allow("s3:GetObject", resource=LAYERS), **GATEWAY),
    "a condition": endpoint("ecr.api", allow("ecr:*", Condition={"StringEquals": {"aws:PrincipalOrgID": "o-1"}})),
    "another route table": endpoint("s3", **{**GATEWAY, "RouteTableIds": ["rtb-2"]}),
    "without the service's name": endpoint("ecr.api", PrivateDnsEnabled=False),
    "another service": endpoint("logs"),
}


@pytest.mark.parametrize("name", DENIED)
def test_a_policy_that_keeps_instances_from_a_service(name: str) -> None:
    row, action = DENIED[name]
    (finding,) = of("D18", with_endpoint(row))
    assert (finding.status, finding.object) == (FAILED, "vpc-endpoint/vpce-1")
    assert f"does not allow {action}" in finding.message
    assert finding.remedy == "aws ec2 modify-vpc-endpoint --vpc-endpoint-id vpce-1 --reset-policy --region us-west-2"


@pytest.mark.parametrize("name", SOUND)
def test_a_policy_that_lets_instances_do_what_they_need(name: str) -> None:
    assert [row.status for row in of("D18", with_endpoint(SOUND[name]))] == [Status.PASSED]


def test_pods_without_roles_need_no_token_exchange() -> None:
    row, _ = DENIED["no role for pods"]
    assert [row.status for row in of("D18", with_endpoint(row, annotated=False))] == [Status.PASSED]
