"""Service accounts of an eksctl ClusterConfig: the role of each at IAM, and the annotated object in the cluster."""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import ClientError

from dovetail.install import iam as documents
from dovetail.install.iam import bounded_name
from dovetail.lab.aws import account
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint
from dovetail.lab.cluster_config import ClusterConfig, ServiceAccountConfig
from dovetail.lab.eksctl_fields import ConfigRefused
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
    for service_account in config.service_accounts:
        arn = service_account.role_arn or _create_role(endpoint, config, service_account, issuer)
        if not service_account.role_only:
            bodies.append(_service_account(service_account, arn))
    return bodies


def _create_role(
    endpoint: AwsEndpoint, config: ClusterConfig, service_account: ServiceAccountConfig, issuer: str
) -> str:
    iam = account.client(endpoint, "iam")
    stack = f"eksctl-{config.name}-addon-iamserviceaccount-{service_account.namespace}-{service_account.name}-Role1"
    name = service_account.role_name or bounded_name(stack)
    place = documents.Site(
        cluster=config.name, region=config.region, account=ACCOUNT, issuer=issuer,
        namespace=service_account.namespace, service_account=service_account.name,
    )  # fmt: skip
    arns = [*service_account.policy_arns, *([_EBS_CSI_POLICY] if service_account.ebs_csi_controller else [])]
    inline = {"Policy1": service_account.policy} if service_account.policy is not None else {}
    if service_account.auto_scaler:
        inline["PolicyAutoScaling"] = AUTO_SCALER_POLICY
    try:
        trust = json.dumps(documents.controller_trust(place))
        role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]
        for arn in arns:
            iam.attach_role_policy(RoleName=name, PolicyArn=arn)
        for policy, document in inline.items():
            iam.put_role_policy(RoleName=name, PolicyName=policy, PolicyDocument=json.dumps(document))
    except ClientError as problem:
        error_text = problem.response["Error"].get("Message", problem)
        raise ConfigRefused(
            f"{service_account.line}: iam.serviceAccounts: {service_account.name}: {error_text};"
            " a policy has to exist before the cluster does: write it into attachPolicy instead"
        ) from problem
    return str(role["Arn"])


def _service_account(service_account: ServiceAccountConfig, role_arn: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": service_account.name,
            "namespace": service_account.namespace,
            "labels": {**_MANAGED_BY, **service_account.labels},
            "annotations": {**service_account.annotations, ROLE_ANNOTATION: role_arn},
        }
    }
