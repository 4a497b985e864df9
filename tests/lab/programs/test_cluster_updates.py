"""`aws eks update-cluster-config` and `aws ec2 modify-vpc-endpoint` at the lab's AWS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dovetail.lab.aws.account import AwsAccount, build, client
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.offerings import LabOfferings


@pytest.fixture
def endpoint() -> Iterator[AwsEndpoint]:
    made = AwsEndpoint(LabOfferings("ap-northeast-2", frozenset({"m5"})))
    yield made
    made.close()
    made.forget()


@pytest.fixture
def made(endpoint: AwsEndpoint) -> AwsAccount:
    return build(endpoint, "demo", version="1.34", api_url="https://127.0.0.1:6443", ca=b"ca")


def described(eks: Any) -> dict[str, Any]:
    cluster: dict[str, Any] = eks.describe_cluster(name="demo")["cluster"]
    return cluster


def refusal(eks: Any, **update: Any) -> str:
    with pytest.raises(ClientError) as caught:
        eks.update_cluster_config(name="demo", **update)
    assert caught.value.response["Error"]["Code"] == "InvalidParameterException"
    return str(caught.value.response["Error"]["Message"])


def test_an_update_of_the_network_keeps_what_it_leaves_out(endpoint: AwsEndpoint, made: AwsAccount) -> None:
    eks = client(endpoint, "eks")
    before = described(eks)["resourcesVpcConfig"]
    asked = {"endpointPrivateAccess": False, "publicAccessCidrs": ["203.0.113.0/24"]}
    update = eks.update_cluster_config(name="demo", resourcesVpcConfig=asked)["update"]
    assert described(eks)["resourcesVpcConfig"] == {**before, **asked}
    assert before["vpcId"] == made.vpc
    assert (update["type"], update["status"]) == ("EndpointAccessUpdate", "Successful")
    assert eks.describe_update(name="demo", updateId=update["id"])["update"] == update
    assert eks.list_updates(name="demo")["updateIds"] == [update["id"]]


def test_an_authentication_mode_only_goes_forward(endpoint: AwsEndpoint, made: AwsAccount) -> None:
    eks = client(endpoint, "eks")
    assert described(eks)["accessConfig"]["authenticationMode"] == "API_AND_CONFIG_MAP"
    eks.update_cluster_config(name="demo", accessConfig={"authenticationMode": "API"})
    assert described(eks)["accessConfig"]["authenticationMode"] == "API"
    text = refusal(eks, accessConfig={"authenticationMode": "CONFIG_MAP"})
    assert text == "Unsupported authentication mode update from API to CONFIG_MAP"


def test_updates_that_eks_refuses(endpoint: AwsEndpoint, made: AwsAccount) -> None:
    eks = client(endpoint, "eks")
    closed = {"endpointPublicAccess": False, "endpointPrivateAccess": False}
    assert refusal(eks, resourcesVpcConfig=closed) == "Private and public endpoint access cannot be false"
    same = {"endpointPublicAccess": True}
    assert refusal(eks, resourcesVpcConfig=same) == "Cluster is already at the desired configuration"
    assert "invalid: nowhere" in refusal(eks, resourcesVpcConfig={"publicAccessCidrs": ["nowhere"]})
    with pytest.raises(eks.exceptions.ResourceNotFoundException):
        eks.update_cluster_config(name="none", resourcesVpcConfig=same)
    with pytest.raises(eks.exceptions.ResourceNotFoundException):
        eks.describe_update(name="demo", updateId="none")


def test_the_policy_of_an_endpoint_is_reset(endpoint: AwsEndpoint, made: AwsAccount) -> None:
    ec2 = client(endpoint, "ec2")
    closed = json.dumps({"Statement": []})
    row = ec2.create_vpc_endpoint(
        VpcId=made.vpc,
        ServiceName="com.amazonaws.ap-northeast-2.sts",
        VpcEndpointType="Interface",
        PolicyDocument=closed,
    )["VpcEndpoint"]

    def policy() -> Any:
        (found,) = ec2.describe_vpc_endpoints(VpcEndpointIds=[row["VpcEndpointId"]])["VpcEndpoints"]
        return json.loads(found["PolicyDocument"])

    assert policy() == {"Statement": []}
    ec2.modify_vpc_endpoint(VpcEndpointId=row["VpcEndpointId"], ResetPolicy=True)
    (statement,) = policy()["Statement"]
    assert statement == {"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}
