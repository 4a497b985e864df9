"""IAM roles for service accounts at the lab's AWS: provider, trust policy and service account must agree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dovetail.lab.aws import account
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.lab.aws.pod_credentials import PodCredentials
from dovetail.lab.aws.web_identity import trusts
from dovetail.lab.programs.context import PodIdentity

ISSUER = "https://oidc.eks.ap-northeast-2.amazonaws.com/id/ABC"
HOST = ISSUER.removeprefix("https://")
ROLE = f"arn:aws:iam::{ACCOUNT}:role/controller"
SUBJECT = "system:serviceaccount:karpenter:karpenter"
CLAIMS = {"iss": ISSUER, "sub": SUBJECT, "aud": ["sts.amazonaws.com"]}


def trust(**changes: Any) -> dict[str, Any]:
    statement = {
        "Effect": "Allow",
        "Principal": {"Federated": f"arn:aws:iam::{ACCOUNT}:oidc-provider/{HOST}"},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {"StringEquals": {f"{HOST}:aud": "sts.amazonaws.com", f"{HOST}:sub": SUBJECT}},
    }
    return {"Version": "2012-10-17", "Statement": [{**statement, **changes}]}


def test_a_trust_policy_that_names_issuer_and_service_account_lets_it_in() -> None:
    assert trusts(trust(), HOST, CLAIMS)
    assert trusts(trust(Condition={"StringLike": {f"{HOST}:sub": "system:serviceaccount:karpenter:*"}}), HOST, CLAIMS)
    assert trusts(trust(Condition={}), HOST, CLAIMS)


@pytest.mark.parametrize(
    "changes",
    [
        {"Effect": "Deny"},
        {"Action": "sts:AssumeRole"},
        {"Principal": {"Service": "ec2.amazonaws.com"}},
        {"Principal": {"Federated": f"arn:aws:iam::{ACCOUNT}:oidc-provider/{HOST}DEF"}},
        {"Condition": {"StringEquals": {f"{HOST}:sub": "system:serviceaccount:karpenter:other"}}},
        {"Condition": {"StringEquals": {f"{HOST}:sub": SUBJECT, f"{HOST}:aud": "other"}}},
        {"Condition": {"StringEquals": {"other:sub": SUBJECT}}},
        {"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}},
    ],
)
def test_any_other_trust_policy_does_not(changes: dict[str, Any]) -> None:
    assert not trusts(trust(**changes), HOST, CLAIMS)


@pytest.fixture
def endpoint() -> Iterator[AwsEndpoint]:
    made = AwsEndpoint(LabOfferings("ap-northeast-2", families=frozenset({"m5"})))
    yield made
    made.close()
    made.forget()


def identity(service_account: str = "karpenter", **more: Any) -> PodIdentity:
    return PodIdentity(
        namespace="karpenter",
        pod="karpenter-0",
        service_account=service_account,
        node="ip-10-0-0-1.ec2.internal",
        **more,
    )


def _prepare(endpoint: AwsEndpoint, provider: bool = True, policy: dict[str, Any] | None = None) -> None:
    iam = account.client(endpoint, "iam")
    if provider:
        iam.create_open_id_connect_provider(Url=ISSUER, ClientIDList=["sts.amazonaws.com"], ThumbprintList=["0" * 40])
    iam.create_role(RoleName="controller", AssumeRolePolicyDocument=json.dumps(policy or trust()))
    iam.create_role(RoleName="nodes", AssumeRolePolicyDocument=json.dumps(trust()))


def _caller(endpoint: AwsEndpoint, service_account: str, role_arn: str) -> str:
    nodes = f"arn:aws:iam::{ACCOUNT}:role/nodes"
    credentials = PodCredentials(endpoint, "demo", ISSUER, lambda node: nodes)
    session = credentials.session(identity(service_account, role_arn=role_arn))
    return str(session.client("sts", endpoint_url=endpoint.url).get_caller_identity()["Arn"])


def test_a_pod_has_the_role_of_its_service_account_or_else_of_its_node(endpoint: AwsEndpoint) -> None:
    _prepare(endpoint)
    assert ":assumed-role/controller/karpenter" in _caller(endpoint, "karpenter", ROLE)
    assert ":assumed-role/nodes/ip-10-0-0-1" in _caller(endpoint, "karpenter", "")


@pytest.mark.parametrize(
    ("provider", "policy", "service_account", "role_arn", "code"),
    [
        (False, None, "karpenter", ROLE, "InvalidIdentityToken"),
        (True, trust(Action="sts:AssumeRole"), "karpenter", ROLE, "AccessDenied"),
        (True, None, "other", ROLE, "AccessDenied"),
        (True, None, "karpenter", f"arn:aws:iam::{ACCOUNT}:role/missing", "AccessDenied"),
    ],
)
def test_without_agreement_sts_gives_no_credentials(
    endpoint: AwsEndpoint, provider: bool, policy: dict[str, Any] | None, service_account: str, role_arn: str, code: str
) -> None:
    _prepare(endpoint, provider, policy)
    with pytest.raises(ClientError) as refused:
        _caller(endpoint, service_account, role_arn)
    assert refused.value.response["Error"]["Code"] == code
    assert refused.value.operation_name == "AssumeRoleWithWebIdentity"


def test_a_token_that_the_cluster_did_not_sign_is_refused(endpoint: AwsEndpoint) -> None:
    _prepare(endpoint)
    head, body, _ = endpoint.web_identity.token(ISSUER, "karpenter", "karpenter").split(".")
    with pytest.raises(ClientError, match="not one of this cluster's issuer"):
        _unsigned(endpoint).assume_role_with_web_identity(
            RoleArn=ROLE, RoleSessionName="karpenter", WebIdentityToken=f"{head}.{body}.forged"
        )


def _unsigned(endpoint: AwsEndpoint) -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    session = boto3.session.Session(region_name="ap-northeast-2")
    return session.client("sts", endpoint_url=endpoint.url, config=Config(signature_version=UNSIGNED))
