"""Service accounts of an eksctl ClusterConfig: the role of each at IAM, and the annotated object in the cluster."""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import ClientError

from dovetail.install import iam as documents
from dovetail.install.iam import bounded_name
from dovetail.lab.aws import account
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint
from dovetail.lab.cluster_config import ClusterConfig, ConfigRefused, ServiceAccountConfig
from dovetail.lab.programs.execution import ROLE_ANNOTATION

_EBS_CSI_POLICY = "arn:aws:iam::aws:policy/service-role/AmazonEBSCSIDriverPolicy"
#: eksctl grants them for every group: `--nodes` may name one without tags.
_AUTO_SCALER_ACTIONS = (
    "autoscaling:Describe*",
    "autoscaling:SetDesiredCapacity",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
    "eks:DescribeNodegroup",
)
AUTO_SCALER_POLICY = documents.document({"Effect": "Allow", "Action": list(_AUTO_SCALER_ACTIONS), "Resource": "*"})
_MANAGED_BY = {"app.kubernetes.io/managed-by": "eksctl"}


def create_roles(endpoint: AwsEndpoint, config: ClusterConfig) -> list[dict[str, Any]]:
    """Make the roles; the ServiceAccounts that name them. Raises ConfigRefused."""
    issuer = str(endpoint.backend("eks").clusters[config.name].identity["oidc"]["issuer"]).removeprefix("https://")
    bodies = []
    for wanted in config.service_accounts:
        arn = wanted.role_arn or _create_role(endpoint, config, wanted, issuer)
        if not wanted.role_only:
            bodies.append(_service_account(wanted, arn))
    return bodies


def _create_role(endpoint: AwsEndpoint, config: ClusterConfig, wanted: ServiceAccountConfig, issuer: str) -> str:
    iam = account.client(endpoint, "iam")
    stack = f"eksctl-{config.name}-addon-iamserviceaccount-{wanted.namespace}-{wanted.name}-Role1"
    name = wanted.role_name or bounded_name(stack)
    place = documents.Site(
        cluster=config.name, region=config.region, account=ACCOUNT, issuer=issuer,
        namespace=wanted.namespace, service_account=wanted.name,
    )  # fmt: skip
    arns = [*wanted.policy_arns, *([_EBS_CSI_POLICY] if wanted.ebs_csi_controller else [])]
    inline = {"Policy1": wanted.policy} if wanted.policy is not None else {}
    if wanted.auto_scaler:
        inline["PolicyAutoScaling"] = AUTO_SCALER_POLICY
    try:
        trust = json.dumps(documents.controller_trust(place))
        role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]
        for arn in arns:
            iam.attach_role_policy(RoleName=name, PolicyArn=arn)
        for policy, document in inline.items():
            iam.put_role_policy(RoleName=name, PolicyName=policy, PolicyDocument=json.dumps(document))
    except ClientError as problem:
        raise ConfigRefused(
            f"{wanted.line}: iam.serviceAccounts: {wanted.name}: {problem.response['Error'].get('Message', problem)};"
            " a policy has to exist before the cluster does: write it into attachPolicy instead"
        ) from problem
    return str(role["Arn"])


def _service_account(wanted: ServiceAccountConfig, role_arn: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": {**_MANAGED_BY, **wanted.labels},
            "annotations": {**wanted.annotations, ROLE_ANNOTATION: role_arn},
        }
    }
