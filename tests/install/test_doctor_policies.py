"""Checks of `dovetail doctor` that read policies: trust, queues, keys, event patterns and network ACLs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail.install.doctor.facts import SourceAnswer, State
from dovetail.kube import resources as kinds
from tests.install.doctor_facts import (
    ALL_RULES,
    ANNOTATED,
    ARN,
    CLASS,
    CLASSES,
    DEPLOYMENTS,
    EC2_TRUST,
    EVENTS,
    FAILED,
    KARPENTER,
    MAPPED,
    SHARED_GROUP,
    WARNING,
    Case,
    api_mode,
    assert_found,
    daemon_set,
    deployment,
    of,
    with_queue,
)

PROVIDER = "arn:aws:iam::111122223333:oidc-provider/oidc/A"
CONTROLLER_ARN = "arn:aws:iam::111122223333:role/controller"
SUBJECT = "system:serviceaccount:kube-system:karpenter"
QUEUE_ARN = "arn:aws:sqs:us-west-2:111122223333:demo"
SPOT_NOTICE = "EC2 Spot Instance Interruption Warning"
MAY_SEND = {"Effect": "Allow", "Principal": {"Service": EVENTS}, "Action": "sqs:SendMessage", "Resource": QUEUE_ARN}
ENTRY = "access entry nodes"


def web_identity(provider: str = PROVIDER, action: str = "sts:AssumeRoleWithWebIdentity", **more: Any) -> Any:
    condition = more.pop("Condition", {"StringEquals": {"oidc/A:sub": SUBJECT, "oidc/A:aud": "sts.amazonaws.com"}})
    statement = {"Effect": "Allow", "Principal": {"Federated": provider}, "Action": action, "Condition": condition}
    return statement | more


def trusting(*statements: Any, arn: str = CONTROLLER_ARN) -> dict[str, Any]:
    """A controller whose role has this trust policy."""
    return ANNOTATED | {"role controller": {"Arn": arn, "AssumeRolePolicyDocument": {"Statement": list(statements)}}}


def annotated(value: str) -> dict[str, Any]:
    metadata = {
        "name": "karpenter",
        "namespace": "kube-system",
        "annotations": {"eks.amazonaws.com/role-arn": value},
    }
    return ANNOTATED | {kinds.SERVICEACCOUNTS.name: [{"metadata": metadata}]}


def associated(*statements: Any) -> dict[str, Any]:
    """A controller with an association of Pod Identity, and its agent."""
    agent = daemon_set("eks-pod-identity-agent")
    return {
        DEPLOYMENTS: [deployment(KARPENTER)],
        kinds.SERVICEACCOUNTS.name: [{"metadata": {"name": "karpenter", "namespace": "kube-system"}}],
        kinds.DAEMONSETS.name: [agent],
        "eks:DescribeCluster": {"arn": "arn:aws:eks:us-west-2:111122223333:cluster/demo"},
        "eks:ListPodIdentityAssociations": [{"namespace": "kube-system", "serviceAccount": "karpenter"}],
        "controller association": {"roleArn": CONTROLLER_ARN},
        "role controller": {"Arn": CONTROLLER_ARN, "AssumeRolePolicyDocument": {"Statement": list(statements)}},
    }


def agent(*actions: str, **condition: Any) -> Any:
    statement = {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": list(actions)}
    return statement | ({"Condition": {"StringEquals": condition}} if condition else {})


def queue(*statements: Any, rules: Any = ALL_RULES, **attributes: str) -> dict[str, Any]:
    held = {"QueueArn": QUEUE_ARN, "Policy": json.dumps({"Statement": list(statements)}), **attributes}
    return {DEPLOYMENTS: [with_queue("demo")], "queue demo": held, "rules of demo": rules}


def rule(**pattern: Any) -> dict[str, str]:
    names = {name.replace("_", "-"): value for name, value in pattern.items()}
    return {"Name": "spot", "Arn": "arn:aws:events:us-west-2:111122223333:rule/spot", "EventPattern": json.dumps(names)}


def acl(*entries: Any) -> dict[str, Any]:
    rows = [
        {"RuleNumber": number, "Protocol": protocol, "RuleAction": action, "Egress": egress, "CidrBlock": block} | ports
        for number, egress, action, protocol, block, ports in entries
    ]
    return {"NetworkAclId": "acl-1", "Associations": [{"SubnetId": "subnet-1"}], "Entries": rows}


ANY: dict[str, Any] = {}
ALLOW_IN, ALLOW_OUT = (100, False, "allow", "-1", "0.0.0.0/0", ANY), (100, True, "allow", "-1", "0.0.0.0/0", ANY)
HTTPS: dict[str, Any] = {"PortRange": {"From": 443, "To": 443}}
NODE_ARN = {"Arn": ARN, "AssumeRolePolicyDocument": EC2_TRUST}
CNI_ROLE = {"name": "aws-node", "namespace": "kube-system", "annotations": {}}


def own_cni_role(role: Any) -> dict[str, Any]:
    metadata = CNI_ROLE | {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/cni"}}
    return {
        CLASSES: [CLASS],
        kinds.DAEMONSETS.name: [daemon_set("aws-node")],
        kinds.SERVICEACCOUNTS.name: [{"metadata": metadata}],
        "eks:DescribeCluster": {"identity": {"oidc": {"issuer": "https://oidc/A"}}},
        "role cni": role,
    }


CASES: list[Case] = [
    ("D01", FAILED, "has type EC2, not EC2_LINUX",
     {CLASSES: [CLASS], "eks:DescribeCluster": api_mode("API"), ENTRY: {"type": "EC2"}}),
    ("D04", FAILED, "the ARN of a role is expected", annotated("controller")),
    ("D04", FAILED, "STS knows no other", trusting(web_identity(), arn="arn:aws:iam::111122223333:role/a/controller")),
    ("D04", FAILED, "allows sts:AssumeRole and not", trusting(web_identity(action="sts:AssumeRole"))),
    ("D04", FAILED, "names the provider", trusting(web_identity(PROVIDER.replace("111122223333", "222222222222")))),
    ("D04", FAILED, "which no token of the provider",
     trusting(web_identity(Condition={"StringEquals": {"oidc/B:sub": SUBJECT}}))),
    ("D04", FAILED, f"not {SUBJECT}",
     trusting(web_identity(Condition={"StringEquals": {"oidc/A:sub": "system:serviceaccount:kube-system:*"}}))),
    ("D04", FAILED, "denies it (closed)", trusting(web_identity(), web_identity(Effect="Deny", Sid="closed"))),
    ("D04", FAILED, "does not allow it sts:TagSession", associated(agent("sts:AssumeRole"))),
    ("D04", FAILED, "does not allow it sts:AssumeRole, sts:TagSession",
     associated(agent("sts:AssumeRole", "sts:TagSession", **{"aws:SourceAccount": "222222222222"}))),
    ("D05", FAILED, "does not allow ec2.amazonaws.com",
     {CLASSES: [CLASS], "role nodes": {"Arn": ARN, "AssumeRolePolicyDocument": {
         "Statement": [*EC2_TRUST["Statement"], {**EC2_TRUST["Statement"][0], "Effect": "Deny"}]}}}),
    ("D05", FAILED, "its policies deny ecr:BatchGetImage: its nodes cannot pull images from ECR",
     {CLASSES: [CLASS], "denied to nodes": [{
         "purpose": "pulling", "action": "ecr:BatchGetImage", "resource": "*", "decision": "explicitDeny",
         "policy": "closed"}]}),
    ("D05", FAILED, "IAM has no such role: pods on new nodes", own_cni_role(SourceAnswer(state=State.ABSENT))),
    ("D05", FAILED, "not system:serviceaccount:kube-system:aws-node",
     own_cni_role({"AssumeRolePolicyDocument": {"Statement": [web_identity()]}})),
    ("D08", FAILED, "does not let events.amazonaws.com send",
     queue(MAY_SEND | {"Condition": {"StringEquals": {"aws:SourceAccount": "222222222222"}}})),
    ("D08", FAILED, "does not let events.amazonaws.com send",
     queue(MAY_SEND, {"Effect": "Deny", "NotPrincipal": {"AWS": "arn:aws:iam::1:root"}, "Action": "sqs:*"})),
    ("D08", WARNING, f"sends {SPOT_NOTICE} to it",
     queue(MAY_SEND, rules=[rule(source=["aws.s3"], detail_type=[SPOT_NOTICE]), *ALL_RULES[1:]])),
    ("D08", WARNING, f"sends {SPOT_NOTICE} to it",
     queue(MAY_SEND, rules=[rule(region=["us-east-1"], detail_type=[SPOT_NOTICE]), *ALL_RULES[1:]])),
    ("D08", FAILED, "its key k is Disabled", queue(MAY_SEND, KmsMasterKeyId="k") | {"key k": {"KeyState": "Disabled"}}),
    ("D08", FAILED, "AWS's own", queue(MAY_SEND, KmsMasterKeyId="alias/aws/sqs")),
    ("D08", FAILED, "use kms:Decrypt: EventBridge cannot encrypt",
     queue(MAY_SEND, KmsMasterKeyId="k") | {"policy of key k": {"Statement": [
         {"Effect": "Allow", "Principal": {"Service": EVENTS}, "Action": "kms:GenerateDataKey*", "Resource": "*"}]}}),
    ("D02", FAILED, "denies outbound TCP at port 443 (rule 90)",
     {CLASSES: [CLASS], "network ACLs": [acl((90, True, "deny", "6", "0.0.0.0/0", HTTPS), ALLOW_IN, ALLOW_OUT)]}),
    ("D02", FAILED, "denies the answers, inbound TCP at ports from 1024 (rule *)",
     {CLASSES: [CLASS], "network ACLs": [acl((100, False, "allow", "6", "0.0.0.0/0", HTTPS), ALLOW_OUT)]}),
    ("D02", FAILED, "enableDnsSupport is false", {CLASSES: [CLASS], "VPC DNS": {"enableDnsSupport": False}}),
    ("D02", FAILED, "outbound traffic at port 443",
     {CLASSES: [CLASS], "security groups of default": [SHARED_GROUP | {"IpPermissionsEgress": [
         {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]}]}),
]  # fmt: skip
HEALTHY: list[tuple[str, dict[str, Any]]] = [
    ("D01", {CLASSES: [CLASS], kinds.CONFIGMAPS.name: [], "configmap kube-system/aws-auth": {
        "mapRoles": "- {rolearn: '" + ARN + "', username: x, groups: []}\n" + MAPPED.replace(ARN, ARN.upper())}}),
    ("D04", trusting(web_identity(Condition={"StringLike": {"oidc/A:sub": "system:serviceaccount:*:karpenter"}}))),
    ("D04", trusting(web_identity(PROVIDER + "2"), web_identity())),
    ("D04", associated(agent("sts:AssumeRole", "sts:TagSession", **{"aws:SourceAccount": "111122223333"}))),
    ("D05", own_cni_role({"AssumeRolePolicyDocument": {"Statement": [
        web_identity(Condition={"StringLike": {"oidc/A:sub": "system:serviceaccount:*:aws-node"}})]}})),
    ("D08", queue(MAY_SEND, {"Effect": "Deny", "Principal": "*", "Action": "sqs:*",
                             "Condition": {"Bool": {"aws:SecureTransport": "false"}}})),
    ("D08", queue(MAY_SEND | {"Condition": {"ArnLike": {"aws:SourceArn": "arn:aws:events:*:111122223333:rule/*"}}})),
    ("D08", queue(MAY_SEND, rules=[rule(source=[{"prefix": "aws."}])])),
    ("D02", {CLASSES: [CLASS], "network ACLs": [
        acl(ALLOW_IN, (90, True, "deny", "-1", "10.9.0.0/16", {}), ALLOW_OUT),
        acl() | {"Associations": [{"SubnetId": "subnet-9"}]}]}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2]}")
def test_a_fault_is_found(case: Case) -> None:
    assert_found(*case)


@pytest.mark.parametrize(("check", "answers"), HEALTHY)
def test_a_policy_that_admits_is_no_fault(check: str, answers: dict[str, Any]) -> None:
    assert [row.message for row in of(check, answers) if row.status in (FAILED, WARNING)] == []


def test_a_network_acl_that_denies_only_the_control_plane_is_found() -> None:
    described = {"resourcesVpcConfig": {"vpcId": "vpc-1", "endpointPrivateAccess": True}}
    answers = {
        CLASSES: [CLASS],
        "eks:DescribeCluster": described,
        "cluster subnets": [{"SubnetId": "subnet-1", "VpcId": "vpc-1", "CidrBlock": "10.0.0.0/20"}],
        "network ACLs": [acl(ALLOW_IN, (90, True, "deny", "-1", "10.0.0.0/16", {}), ALLOW_OUT)],
    }
    assert_found("D02", FAILED, "(rule 90)", answers)
