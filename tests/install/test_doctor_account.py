"""Checks of `dovetail doctor`: roles, policies, subnets, keys: the AWS account. Each fault gives a finding."""

from __future__ import annotations

import pytest

from dovetail.install.doctor.collect import AWS_AUTH, MUTATING
from dovetail.install.doctor.facts import SourceAnswer, State
from dovetail.kube import resources as kinds
from tests.install.doctor_facts import (
    ANNOTATED,
    ARN,
    CLASS,
    CLASSES,
    CLOSED_TABLE,
    CLUSTER_TAG,
    DEPLOYMENTS,
    EC2_TRUST,
    ENCRYPTED,
    EXPECTED_DENIALS,
    FAILED,
    KARPENTER,
    KEY_USE,
    MAPPED,
    NOT_CHECKED,
    OWN_GROUP,
    SHARED,
    SHARED_GROUP,
    TRUSTING_ROLE,
    VOLUME_KEY,
    WARNING,
    Case,
    a_class,
    api_mode,
    assert_found,
    controller_pod,
    daemon_set,
    denial,
    deployment,
    endpoints,
    not_ready,
    subnet,
    without_queue,
)

CASES: list[Case] = [
    (
        "D02",
        FAILED,
        "(sg-1) admits its groups (sg-1) at port 443",
        {
            CLASSES: [CLASS],
            "eks:DescribeCluster": SHARED,
            "control plane groups": [{"GroupId": "sg-1", "IpPermissions": []}],
        },
    ),
    (
        "D02",
        FAILED,
        "has a rule for outbound traffic",
        {CLASSES: [CLASS], "security groups of default": [{**SHARED_GROUP, "IpPermissionsEgress": []}]},
    ),
    (
        "D03",
        FAILED,
        "its permissions boundary does not allow ec2:CreateFleet",
        {
            DEPLOYMENTS: [deployment(KARPENTER)],
            "denied to the controller": [
                {**denial("launch", "ec2:CreateFleet"), "by_boundary": True},
                *EXPECTED_DENIALS,
            ],
        },
    ),
    (
        "D04",
        FAILED,
        "has the audiences other and not sts.amazonaws.com",
        {**ANNOTATED, "identity provider": {"ClientIDList": ["other"]}},
    ),
    (
        "D04",
        FAILED,
        "1 of its pods were created before serviceaccount karpenter was given the role",
        {
            **ANNOTATED,
            "role controller": TRUSTING_ROLE,
            MUTATING.name: [{"metadata": {"name": "pod-identity-webhook"}}],
            kinds.PODS.name: [
                controller_pod("arn:former"),
                controller_pod("arn:aws:iam::111122223333:role/controller"),
            ],
        },
    ),
    ("D01", FAILED, "does not map", {CLASSES: [CLASS], AWS_AUTH: {"mapRoles": "[]"}}),
    ("D01", FAILED, "not YAML", {CLASSES: [CLASS], AWS_AUTH: {"mapRoles": "- [a: {"}}),
    (
        "D01",
        FAILED,
        "groups system:nodes",
        {CLASSES: [CLASS], AWS_AUTH: {"mapRoles": MAPPED.replace(", system:nodes", "")}},
    ),
    (
        "D01",
        FAILED,
        "username",
        {CLASSES: [CLASS], AWS_AUTH: {"mapRoles": MAPPED.replace("{{EC2PrivateDNSName}}", "x")}},
    ),
    (
        "D01",
        FAILED,
        "type STANDARD",
        {
            CLASSES: [CLASS],
            "eks:DescribeCluster": api_mode("API_AND_CONFIG_MAP"),
            "access entry nodes": {"type": "STANDARD"},
        },
    ),
    (
        "D01",
        FAILED,
        "has none for this role",
        {
            CLASSES: [CLASS],
            "eks:DescribeCluster": api_mode("API"),
            "access entry nodes": SourceAnswer(state=State.ABSENT),
        },
    ),
    (
        "D01",
        WARNING,
        "deleting the node group",
        {CLASSES: [CLASS], "node groups": [{"nodegroupName": "g", "nodeRole": ARN}]},
    ),
    (
        "D01",
        NOT_CHECKED,
        "eks:DescribeAccessEntry",
        {
            CLASSES: [CLASS],
            "eks:DescribeCluster": api_mode("API"),
            "access entry nodes": SourceAnswer(state=State.REFUSED, right="eks:DescribeAccessEntry"),
        },
    ),
    ("D02", FAILED, "selects no subnet", {CLASSES: [CLASS], "subnets of default": []}),
    ("D02", FAILED, "selects no security group", {CLASSES: [CLASS], "security groups of default": []}),
    (
        "D02",
        FAILED,
        "outside the cluster's VPC",
        {CLASSES: [CLASS], "subnets of default": [{"SubnetId": "s", "VpcId": "vpc-2"}]},
    ),
    (
        "D02",
        FAILED,
        "below 16",
        {
            CLASSES: [CLASS],
            "subnets of default": [{"SubnetId": "s", "VpcId": "vpc-1", "AvailableIpAddressCount": 3}],
        },
    ),
    (
        "D02",
        WARNING,
        "expect exactly one",
        {
            CLASSES: [CLASS],
            "security groups of default": [
                {**SHARED_GROUP, "Tags": CLUSTER_TAG},
                {"GroupId": "sg-2", "VpcId": "vpc-1", "Tags": CLUSTER_TAG},
            ],
        },
    ),
    (
        "D02",
        WARNING,
        "us-west-2a alone",
        {CLASSES: [CLASS], "subnets of default": [subnet("subnet-1", "a")]},
    ),
    (
        "D02",
        WARNING,
        "admits its groups (sg-1) at port 443",
        {CLASSES: [CLASS], "eks:DescribeCluster": OWN_GROUP, "control plane groups": [{"GroupId": "sg-9"}]},
    ),
    (
        "D03",
        FAILED,
        "do not allow ec2:CreateFleet on arn",
        {
            DEPLOYMENTS: [deployment(KARPENTER)],
            "denied to the controller": [denial("launch", "ec2:CreateFleet"), *EXPECTED_DENIALS],
        },
    ),
    (
        "D03",
        WARNING,
        "instances of other clusters",
        {DEPLOYMENTS: [deployment(KARPENTER)], "denied to the controller": EXPECTED_DENIALS[1:]},
    ),
    (
        "D03",
        NOT_CHECKED,
        "iam:SimulatePrincipalPolicy",
        {
            DEPLOYMENTS: [deployment(KARPENTER)],
            "denied to the controller": SourceAnswer(state=State.REFUSED, right="iam:SimulatePrincipalPolicy"),
        },
    ),
    ("D03", FAILED, "says why", {CLASSES: [not_ready("ValidationSucceeded", "CreateFleetAuthCheckFailed")]}),
    ("D04", NOT_CHECKED, "no controller is installed", {}),
    (
        "D04",
        FAILED,
        "no Pod Identity association",
        {
            DEPLOYMENTS: [deployment(KARPENTER)],
            kinds.SERVICEACCOUNTS.name: [{"metadata": {"name": "karpenter", "namespace": "kube-system"}}],
        },
    ),
    (
        "D04",
        FAILED,
        "does not name pods.eks.amazonaws.com",
        {
            DEPLOYMENTS: [deployment(KARPENTER)],
            kinds.SERVICEACCOUNTS.name: [{"metadata": {"name": "karpenter", "namespace": "kube-system"}}],
            "eks:ListPodIdentityAssociations": [{"namespace": "kube-system", "serviceAccount": "karpenter"}],
            "controller association": {"roleArn": "arn:aws:iam::111122223333:role/controller"},
            "role controller": {"AssumeRolePolicyDocument": EC2_TRUST},
        },
    ),
    (
        "D05",
        FAILED,
        "iam:PassRole on arn",
        {"denied to the controller": [denial("pass role", "iam:PassRole"), *EXPECTED_DENIALS]},
    ),
    ("D05", WARNING, "iam:PassRole on every role to every service", {"denied to the controller": EXPECTED_DENIALS[:1]}),
    ("D05", FAILED, "not its ARN", {CLASSES: [a_class(role=ARN)]}),
    ("D05", FAILED, "no such role", {CLASSES: [CLASS], "role nodes": SourceAnswer(state=State.ABSENT)}),
    (
        "D05",
        FAILED,
        "does not name ec2.amazonaws.com",
        {CLASSES: [CLASS], "role nodes": {"Arn": ARN, "AssumeRolePolicyDocument": {}}},
    ),
    (
        "D05",
        FAILED,
        "cannot pull images",
        {CLASSES: [CLASS], "policies of nodes": [{"PolicyName": "AmazonEKSWorkerNodePolicy"}]},
    ),
    (
        "D05",
        FAILED,
        "AmazonEKS_CNI_Policy",
        {
            CLASSES: [CLASS],
            kinds.DAEMONSETS.name: [daemon_set("aws-node")],
        },
    ),
    ("D17", FAILED, "does not exist", {CLASSES: [ENCRYPTED], "key k": SourceAnswer(state=State.ABSENT)}),
    (
        "D17",
        FAILED,
        "admits neither the role",
        {
            CLASSES: [ENCRYPTED],
            "key k": VOLUME_KEY,
            "policy of key k": {"Statement": [{**KEY_USE, "Principal": {"AWS": "arn:aws:iam::1:role/other"}}]},
        },
    ),
    (
        "D17",
        FAILED,
        "is not allowed kms:CreateGrant",
        {
            CLASSES: [ENCRYPTED],
            "key k": VOLUME_KEY,
            "policy of key k": {"Statement": [{**KEY_USE, "Principal": {"AWS": "arn:aws:iam::1:root"}}]},
            "denied to the controller": [denial("volume key", "kms:CreateGrant", VOLUME_KEY["Arn"])],
        },
    ),
    (
        "D17",
        FAILED,
        "the key's policy denies its use",
        {
            CLASSES: [ENCRYPTED],
            "key k": VOLUME_KEY,
            "policy of key k": {"Statement": [{**KEY_USE, "Effect": "Deny", "Principal": "*"}]},
        },
    ),
    (
        "D18",
        FAILED,
        "no endpoint for ec2, ecr.api, ecr.dkr, s3, sts",
        {CLASSES: [CLASS], "route tables": [CLOSED_TABLE]},
    ),
    (
        "D18",
        FAILED,
        "which the controller calls",
        {
            CLASSES: [CLASS],
            DEPLOYMENTS: [without_queue()],
            "route tables": [CLOSED_TABLE],
            "VPC endpoints": endpoints("ec2", "ecr.api", "ecr.dkr", "s3", "sts"),
        },
    ),
    (
        "D18",
        WARNING,
        "ISOLATED_VPC is not true",
        {
            CLASSES: [CLASS],
            DEPLOYMENTS: [without_queue()],
            "route tables": [CLOSED_TABLE],
            "VPC endpoints": endpoints("ec2", "ecr.api", "ecr.dkr", "s3", "sts", "ssm", "eks"),
        },
    ),
    (
        "D17",
        FAILED,
        "is Disabled",
        {
            CLASSES: [a_class(blockDeviceMappings=[{"ebs": {"kmsKeyID": "k"}}])],
            "key k": {"KeyState": "Disabled"},
        },
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2]}")
def test_a_fault_is_found(case: Case) -> None:
    assert_found(*case)
