"""IAM at the lab's AWS: policies of a role decide what its sessions may do, and refusals are AWS's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, CredentialRetrievalError

from dovetail.install import iam as documents
from dovetail.install.policy import PolicyDecision, decide
from dovetail.lab.aws import account
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.lab.aws.pod_credentials import PodCredentials
from tests.lab.programs.test_web_identity import identity

ROLE = f"arn:aws:iam::{ACCOUNT}:role/controller"
SITE = documents.Site(cluster="demo", region="ap-northeast-2", account=ACCOUNT, queue="demo")
TAGS = {
    "kubernetes.io/cluster/demo": "owned",
    "eks:eks-cluster-name": "demo",
    "karpenter.sh/nodepool": "default",
    "karpenter.k8s.aws/ec2nodeclass": "default",
}


@pytest.fixture(scope="module")
def served() -> Iterator[AwsEndpoint]:
    endpoint = AwsEndpoint(LabOfferings("ap-northeast-2", families=frozenset({"m5"})))
    yield endpoint
    endpoint.close()
    endpoint.forget()


@pytest.fixture
def endpoint(served: AwsEndpoint) -> Iterator[AwsEndpoint]:
    trust = documents.document({"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:*"})
    account.client(served, "iam").create_role(RoleName="controller", AssumeRolePolicyDocument=json.dumps(trust))
    yield served
    served.forget()


def allow(endpoint: AwsEndpoint, *statements: dict[str, Any], name: str = "p") -> None:
    policy = documents.document(*statements)
    account.client(endpoint, "iam").put_role_policy(
        RoleName="controller", PolicyName=name, PolicyDocument=json.dumps(policy)
    )


def as_controller(endpoint: AwsEndpoint, service: str) -> Any:
    credentials = account.client(endpoint, "sts").assume_role(RoleArn=ROLE, RoleSessionName="s1")["Credentials"]
    import boto3

    return boto3.session.Session(
        aws_access_key_id=credentials["AccessKeyId"],
        aws_secret_access_key=credentials["SecretAccessKey"],
        aws_session_token=credentials["SessionToken"],
        region_name="ap-northeast-2",
    ).client(service, endpoint_url=endpoint.url)


def refusal(call: Any, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


@pytest.mark.parametrize(
    ("service", "operation", "arguments", "code", "action", "resource"),
    [
        ("ec2", "describe_subnets", {}, "UnauthorizedOperation", "ec2:DescribeSubnets", ""),
        ("iam", "get_instance_profile", {"InstanceProfileName": "x"}, "AccessDenied", "iam:GetInstanceProfile",
         f"arn:aws:iam::{ACCOUNT}:instance-profile/x"),
        ("eks", "describe_cluster", {"name": "demo"}, "AccessDeniedException", "eks:DescribeCluster",
         f"arn:aws:eks:ap-northeast-2:{ACCOUNT}:cluster/demo"),
        ("eks", "describe_access_entry", {"clusterName": "demo", "principalArn": f"arn:aws:iam::{ACCOUNT}:role/n"},
         "AccessDeniedException", "eks:DescribeAccessEntry",
         f"arn:aws:eks:ap-northeast-2:{ACCOUNT}:access-entry/demo/role/{ACCOUNT}/n/x"),
        ("ssm", "get_parameter", {"Name": "/aws/service/eks/x"}, "AccessDeniedException", "ssm:GetParameter",
         "arn:aws:ssm:ap-northeast-2::parameter/aws/service/eks/x"),
        ("sqs", "get_queue_url", {"QueueName": "demo"}, "AccessDenied", "sqs:GetQueueUrl",
         f"arn:aws:sqs:ap-northeast-2:{ACCOUNT}:demo"),
        ("pricing", "get_products", {"ServiceCode": "AmazonEC2"}, "AccessDeniedException", "pricing:GetProducts", ""),
    ],
)  # fmt: skip
def test_a_role_without_policies_may_do_nothing(
    endpoint: AwsEndpoint,
    service: str,
    operation: str,
    arguments: dict[str, Any],
    code: str,
    action: str,
    resource: str,
) -> None:
    said = refusal(getattr(as_controller(endpoint, service), operation), **arguments)
    assert said[0] == code
    on_resource = f" on resource: {resource}" if resource else ""
    assert said[1].removeprefix("You are not authorized to perform this operation. ") == (
        f"User: arn:aws:sts::{ACCOUNT}:assumed-role/controller/s1 is not authorized to perform: {action}{on_resource}"
        f" because no identity-based policy allows the {action} action"
    )
    # the account's own credentials may do everything
    if (service, operation) in (("ec2", "describe_subnets"), ("pricing", "get_products")):
        assert getattr(account.client(endpoint, service), operation)(**arguments)


def test_policies_allow_and_an_explicit_deny_wins(endpoint: AwsEndpoint) -> None:
    queue = account.client(endpoint, "sqs").create_queue(QueueName="demo")["QueueUrl"]
    allow(endpoint, {"Effect": "Allow", "Action": "sqs:*", "Resource": f"arn:aws:sqs:*:{ACCOUNT}:demo"})
    sqs = as_controller(endpoint, "sqs")
    assert sqs.get_queue_url(QueueName="demo")["QueueUrl"] == queue
    assert refusal(sqs.get_queue_url, QueueName="other")[0] == "AccessDenied"
    allow(endpoint, {"Effect": "Deny", "Action": "sqs:Receive*", "Resource": "*"}, name="deny")
    assert "with an explicit deny in an identity-based policy" in refusal(sqs.receive_message, QueueUrl=queue)[1]
    assert sqs.get_queue_url(QueueName="demo")["QueueUrl"] == queue


def test_an_attached_policy_counts_by_its_default_version(endpoint: AwsEndpoint) -> None:
    iam = account.client(endpoint, "iam")
    grant = documents.document({"Effect": "Allow", "Action": "ec2:DescribeVpcs", "Resource": "*"})
    arn = iam.create_policy(PolicyName="p", PolicyDocument=json.dumps(grant))["Policy"]["Arn"]
    iam.attach_role_policy(RoleName="controller", PolicyArn=arn)
    ec2 = as_controller(endpoint, "ec2")
    assert "Vpcs" in ec2.describe_vpcs()
    nothing = documents.document({"Effect": "Deny", "Action": "*", "Resource": "*"})
    iam.create_policy_version(PolicyArn=arn, PolicyDocument=json.dumps(nothing), SetAsDefault=True)
    assert refusal(ec2.describe_vpcs)[0] == "UnauthorizedOperation"


def launch(ec2: Any, **tags: str) -> Any:
    rows = [{"Key": key, "Value": value} for key, value in {**TAGS, **tags}.items()]
    kinds = ("fleet", "instance", "volume")
    return ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": "nodes", "Version": "$Latest"},
                "Overrides": [{"InstanceType": "m5.large", "AvailabilityZone": "ap-northeast-2a"}],
            }
        ],
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
        TagSpecifications=[{"ResourceType": kind, "Tags": rows} for kind in kinds],
    )


def prepare_template(endpoint: AwsEndpoint, role: str) -> None:
    iam, ec2 = account.client(endpoint, "iam"), account.client(endpoint, "ec2")
    trust = documents.node_trust(SITE)
    iam.create_role(RoleName=role, AssumeRolePolicyDocument=json.dumps(trust))
    iam.create_instance_profile(InstanceProfileName="nodes")
    iam.add_role_to_instance_profile(InstanceProfileName="nodes", RoleName=role)
    rows = [{"Key": key, "Value": value} for key, value in TAGS.items()]
    ec2.create_launch_template(
        LaunchTemplateName="nodes",
        LaunchTemplateData={
            "ImageId": "ami-12c6146b",
            "IamInstanceProfile": {"Name": "nodes"},
            "TagSpecifications": [{"ResourceType": "network-interface", "Tags": rows}],
        },
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": rows}],
    )


def test_a_launch_needs_the_fleet_the_instances_their_tags_and_the_role(endpoint: AwsEndpoint) -> None:
    prepare_template(endpoint, SITE.node_role)
    ec2 = as_controller(endpoint, "ec2")
    grants = documents.controller_policies(SITE)
    everything = {"NodeLifecycle", "IAMIntegration"}
    for name in everything:
        allow(endpoint, *grants[name]["Statement"], name=name)
    assert launch(ec2)["Instances"]
    assert "ec2:CreateFleet on resource" in refusal(lambda: launch(ec2, **{"kubernetes.io/cluster/demo": "no"}))[1]
    # without PassRole the fleet is made, and each launch fails
    iam = account.client(endpoint, "iam")
    iam.delete_role_policy(RoleName="controller", PolicyName="IAMIntegration")
    answer = launch(ec2)
    assert not answer.get("Instances")
    (problem,) = answer["Errors"]
    assert problem["ErrorCode"] == "UnauthorizedOperation"
    assert f"iam:PassRole on resource: {SITE.role_arn(SITE.node_role)}" in problem["ErrorMessage"]


def test_another_clusters_instance_is_out_of_reach(endpoint: AwsEndpoint) -> None:
    allow(endpoint, *documents.controller_policies(SITE)["NodeLifecycle"]["Statement"])
    admin = account.client(endpoint, "ec2")
    made = admin.run_instances(ImageId="ami-12c6146b", MinCount=2, MaxCount=2, InstanceType="m5.large")["Instances"]
    ours, theirs = (row["InstanceId"] for row in made)
    admin.create_tags(Resources=[ours], Tags=[{"Key": key, "Value": value} for key, value in TAGS.items()])
    ec2 = as_controller(endpoint, "ec2")
    assert ec2.terminate_instances(InstanceIds=[ours])["TerminatingInstances"]
    assert f"instance/{theirs}" in refusal(ec2.terminate_instances, InstanceIds=[theirs])[1]
    assert refusal(ec2.create_tags, Resources=[theirs], Tags=[{"Key": "Name", "Value": "x"}])[0] == (
        "UnauthorizedOperation"
    )


def test_the_simulator_answers_from_the_same_policies(endpoint: AwsEndpoint) -> None:
    iam = account.client(endpoint, "iam")
    allow(
        endpoint,
        {"Sid": "Yes", "Effect": "Allow", "Action": "ec2:*", "Resource": "*"},
        {"Sid": "No", "Effect": "Deny", "Action": "ec2:TerminateInstances", "Resource": "*",
         "Condition": {"StringNotEquals": {"ec2:ResourceTag/team": "a"}}},
    )  # fmt: skip

    def decisions(**more: Any) -> list[str]:
        names = ["ec2:CreateFleet", "ec2:TerminateInstances", "iam:PassRole"]
        answer = iam.simulate_principal_policy(PolicySourceArn=ROLE, ActionNames=names, **more)
        return [row["EvalDecision"] for row in answer["EvaluationResults"]]

    assert decisions() == ["allowed", "explicitDeny", "implicitDeny"]
    context = [{"ContextKeyName": "ec2:ResourceTag/team", "ContextKeyValues": ["a"], "ContextKeyType": "string"}]
    assert decisions(ContextEntries=context) == ["allowed", "allowed", "implicitDeny"]
    assert refusal(iam.simulate_principal_policy, PolicySourceArn=ROLE + "x", ActionNames=["a:b"])[0] == "NoSuchEntity"
    custom = iam.simulate_custom_policy(
        PolicyInputList=[json.dumps(documents.document({"Effect": "Allow", "Action": "a:*", "Resource": "r"}))],
        ActionNames=["a:b"],
        ResourceArns=["r", "s"],
    )
    assert [row["EvalDecision"] for row in custom["EvaluationResults"]] == ["allowed", "implicitDeny"]


def test_pod_identity_gives_the_role_of_the_association(endpoint: AwsEndpoint) -> None:
    iam, eks = account.client(endpoint, "iam"), account.client(endpoint, "eks")
    where = {"clusterName": "demo", "namespace": "karpenter", "serviceAccount": "karpenter"}
    made = eks.create_pod_identity_association(**where, roleArn=ROLE, tags={"a": "b"})["association"]
    assert refusal(eks.create_pod_identity_association, **where, roleArn=ROLE)[0] == "ResourceInUseException"
    (listed,) = eks.list_pod_identity_associations(clusterName="demo", namespace="karpenter")["associations"]
    assert listed["associationId"] == made["associationId"]
    assert not eks.list_pod_identity_associations(clusterName="demo", namespace="other")["associations"]
    credentials = PodCredentials(endpoint, "demo", "https://issuer", lambda node: ROLE)
    assert credentials.associated_role("karpenter", "karpenter") == ROLE
    assert credentials.associated_role("karpenter", "default") == ""

    def caller(has_agent: bool, service_account: str = "karpenter") -> str:
        session = credentials.session(identity(service_account, asks_agent=True, has_agent=has_agent))
        return str(session.client("sts", endpoint_url=endpoint.url).get_caller_identity()["Arn"])

    with pytest.raises(CredentialRetrievalError, match="no eks-pod-identity-agent runs on"):
        caller(False)
    with pytest.raises(CredentialRetrievalError, match="no Pod Identity association of karpenter/other"):
        caller(True, "other")
    with pytest.raises(CredentialRetrievalError, match=r"must allow pods\.eks\.amazonaws\.com"):
        caller(True)
    iam.update_assume_role_policy(RoleName="controller", PolicyDocument=json.dumps(documents.controller_trust(SITE)))
    assert caller(True).startswith(f"arn:aws:sts::{ACCOUNT}:assumed-role/controller/eks-demo-karpenter-0")
    eks.delete_pod_identity_association(clusterName="demo", associationId=made["associationId"])
    assert refusal(eks.describe_pod_identity_association, clusterName="demo", associationId=made["associationId"])[
        0
    ] == ("ResourceNotFoundException")


@pytest.mark.parametrize(
    ("condition", "context", "held"),
    [
        ({"StringLike": {"ec2:ResourceTag/Name": "*karpenter*"}}, {"ec2:ResourceTag/Name": "a/karpenter/b"}, True),
        ({"StringLike": {"ec2:ResourceTag/Name": "*karpenter*"}}, {"ec2:ResourceTag/Name": "ip-10-0-0-1"}, False),
        ({"StringEquals": {"aws:requestedregion": "x"}}, {"aws:RequestedRegion": "x"}, True),
        ({"StringNotEquals": {"k": "a"}}, {}, True),
        ({"StringNotEquals": {"k": "a"}}, {"k": ["a", "b"]}, False),
        ({"ForAnyValue:StringEquals": {"k": "a"}}, {"k": ["a", "b"]}, True),
        ({"ForAllValues:StringEquals": {"k": "a"}}, {"k": ["a", "b"]}, False),
        ({"Null": {"k": "true"}}, {}, True),
        ({"Null": {"k": "true"}}, {"k": "v"}, False),
        ({"NumericLessThan": {"k": "5"}}, {"k": "4"}, True),
        ({"StringEquals": {"k": "${aws:PrincipalTag/eks-cluster-name}"}},
         {"k": "demo", "aws:PrincipalTag/eks-cluster-name": "demo"}, True),
        ({"StringEquals": {"k": "${aws:PrincipalTag/eks-cluster-name}"}}, {"k": "demo"}, False),
        ({"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}, {"aws:SourceIp": "10.0.0.1"}, False),
    ],
)  # fmt: skip
def test_conditions(condition: dict[str, Any], context: dict[str, str | list[str]], held: bool) -> None:
    policy = documents.document({"Effect": "Allow", "Action": "a:b", "Resource": "*", "Condition": condition})
    assert decide([policy], "a:b", "r", context)[0] is (
        PolicyDecision.ALLOWED if held else PolicyDecision.IMPLICIT_DENY
    )


def test_not_action_and_not_resource() -> None:
    policy = documents.document({"Effect": "Allow", "NotAction": "iam:*", "NotResource": "secret/*"})
    assert decide([policy], "ec2:X", "r", {})[0] is PolicyDecision.ALLOWED
    assert decide([policy], "iam:X", "r", {})[0] is PolicyDecision.IMPLICIT_DENY
    assert decide([policy], "ec2:X", "secret/a", {})[0] is PolicyDecision.IMPLICIT_DENY


@pytest.mark.parametrize("provider", ["arn:aws:iam::123456789012:oidc-provider/", "arn:aws:iam:::oidc-provider/x", "x"])
def test_a_trust_policy_with_an_empty_account_or_issuer_is_refused(endpoint: AwsEndpoint, provider: str) -> None:
    statement = {"Effect": "Allow", "Principal": {"Federated": provider}, "Action": "sts:AssumeRoleWithWebIdentity"}
    document = json.dumps(documents.document(statement))
    iam = account.client(endpoint, "iam")
    code, message = refusal(iam.create_role, RoleName="x", AssumeRolePolicyDocument=document)
    assert (code, message) == ("MalformedPolicyDocument", f'Invalid principal in policy: "FEDERATED":"{provider}"')
    good = document.replace(provider, f"arn:aws:iam::{ACCOUNT}:oidc-provider/oidc.eks.amazonaws.com/id/A")
    assert iam.create_role(RoleName="x", AssumeRolePolicyDocument=good)["Role"]["RoleName"] == "x"


def test_a_policy_with_an_empty_partition_is_refused(endpoint: AwsEndpoint) -> None:
    def put(resource: str) -> tuple[str, dict[str, str]]:
        statement = {"Effect": "Allow", "Action": "iam:PassRole", "Resource": resource}
        return "p", {"RoleName": "controller", "PolicyDocument": json.dumps(documents.document(statement))}

    call = account.client(endpoint, "iam").put_role_policy
    for resource, text in (
        ("arn::iam::123456789012:role/x", 'Partition "" is not valid for resource "arn::iam::123456789012:role/x".'),
        ("role/x", 'Resource role/x must be in ARN format or "*".'),
    ):
        name, arguments = put(resource)
        assert refusal(call, PolicyName=name, **arguments) == ("MalformedPolicyDocument", text)
    for resource in ("*", "arn:aws:iam::123456789012:role/x", "arn:*:ec2:*::image/*"):
        name, arguments = put(resource)
        call(PolicyName=name, **arguments)
