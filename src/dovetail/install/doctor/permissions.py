"""What the controller's role has to be allowed, as requests for IAM's policy simulator.

The simulator evaluates every policy of the role, its boundary and the organisation's policies. A denial that names
context keys which a request here does not set is no evidence, and is left out; not so where a denial is what is hoped
for: a policy that asks for more than the request has is narrow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from dovetail.cloud.aws.client import Calls
from dovetail.install.doctor.aws_call import ask
from dovetail.install.doctor.facts import SourceAnswer, State
from dovetail.install.iam import EKS_CLUSTER, NODECLASS, NODEPOOL, REGION_TAG
from dovetail.install.policy import PolicyDecision, decide
from dovetail.model.labels import PROVISIONER_NAME

RIGHT = "iam:SimulatePrincipalPolicy"
LAUNCH, REMOVAL, INTERRUPTIONS, PRICES, FEATURES = "launch", "removal", "interruptions", "prices", "features"
PASS_ROLE, VOLUME_KEY, SPOT_ROLE_CREATION = "pass role", "volume key", "spot role"
#: What nodes do with their role: join, pull images, and hold addresses for pods.
JOINING, PULLING, ADDRESSES = "joining", "pulling", "addresses"
#: Requests that ought to be denied.
BROAD_TERMINATION, BROAD_PASS_ROLE = "terminate any instance", "pass any role"
UNWANTED = (BROAD_TERMINATION, BROAD_PASS_ROLE)
READS = (
    "Images",
    "Instances",
    "InstanceTypeOfferings",
    "InstanceTypes",
    "LaunchTemplates",
    "SecurityGroups",
    "Subnets",
)
#: What Dovetail reads beside: without it reservations, placement groups and status checks are not seen.
FEATURE_READS = ("CapacityReservations", "InstanceStatus", "PlacementGroups")


class PermissionCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Actions on one resource, and why they are asked for."""

    purpose: str
    actions: Sequence[str]
    resource: str = "*"
    context: Mapping[str, str] = {}


class Denial(msgspec.Struct, frozen=True):
    """`decision` is IAM's word: implicitDeny, or explicitDeny; `policy` is the name or ARN of the one that denies."""

    purpose: str
    action: str
    resource: str
    decision: str
    policy: str = ""
    #: Whether it is the role's permissions boundary that does not allow it; its policies have a denial of their own.
    by_boundary: bool = False

    @property
    def is_explicit(self) -> bool:
        return self.decision == "explicitDeny"


class ControllerRole(msgspec.Struct, frozen=True, kw_only=True):
    """The controller's role, and what it works with."""

    arn: str
    cluster: str
    region: str
    queue_arn: str = ""
    node_roles: Sequence[str] = ()
    makes_profiles: bool = False
    reads_aliases: bool = False
    keys: Sequence[str] = ()
    spot: bool = False
    #: Whether it is Dovetail's: Karpenter's versions differ in what they read beside.
    dovetail: bool = False
    #: Whether its instances are named as Karpenter named those of a Provisioner: policies of that time ask for it.
    names_provisioners: bool = False

    @property
    def partition(self) -> str:
        return self.arn.split(":")[1]

    @property
    def suffix(self) -> str:
        """What names of services end with in China."""
        return ".cn" if self.partition == "aws-cn" else ""

    @property
    def account(self) -> str:
        return self.arn.split(":")[4]


def permission_checks(role: ControllerRole) -> list[PermissionCheck]:
    """One simulation for each thing that the role is needed for, and for the rights that it should not have."""
    return [*_ec2_trials(role), *_feature_trials(role), *_pass_role_trials(role), *_key_and_spot_trials(role)]


def _request_context(role: ControllerRole) -> dict[str, str]:
    """The context of a request that carries the controller's tags, for what has them."""
    tags = {
        f"kubernetes.io/cluster/{role.cluster}": "owned",
        EKS_CLUSTER: role.cluster,
        NODEPOOL: "default",
        NODECLASS: "default",
        REGION_TAG: role.region,
    }
    tagged = {f"aws:{kind}/{key}": value for kind in ("RequestTag", "ResourceTag") for key, value in tags.items()}
    return tagged | {f"ec2:ResourceTag/{key}": value for key, value in tags.items()} | _region_context(role)


def _region_context(role: ControllerRole) -> dict[str, str]:
    return {"aws:RequestedRegion": role.region}


def _ec2_trials(role: ControllerRole) -> list[PermissionCheck]:
    """Launch, tag and terminate instances, and read what a launch needs; terminate no others."""
    ec2 = f"arn:{role.partition}:ec2:{role.region}:{role.account}"
    region, tagged = _region_context(role), _request_context(role)
    launch = ("ec2:CreateFleet", "ec2:RunInstances")
    name = f"{PROVISIONER_NAME}/default" if role.names_provisioners else "default/default-any"
    return [
        PermissionCheck(purpose=LAUNCH, actions=launch, resource=f"{ec2}:instance/*", context=tagged),
        PermissionCheck(purpose=LAUNCH, actions=launch, resource=f"{ec2}:subnet/*", context=tagged),
        PermissionCheck(
            purpose=LAUNCH,
            actions=("ec2:CreateLaunchTemplate",),
            resource=f"{ec2}:launch-template/*",
            context=tagged,
        ),
        PermissionCheck(
            purpose=REMOVAL, actions=("ec2:DeleteLaunchTemplate",), resource=f"{ec2}:launch-template/*", context=tagged
        ),
        PermissionCheck(
            purpose=LAUNCH,
            actions=("ec2:CreateTags",),
            resource=f"{ec2}:instance/*",
            context={**tagged, "ec2:CreateAction": "CreateFleet"},
        ),
        PermissionCheck(
            purpose=REMOVAL,
            actions=("ec2:TerminateInstances",),
            resource=f"{ec2}:instance/*",
            context={**tagged, **{f"{prefix}:ResourceTag/Name": name for prefix in ("aws", "ec2")}},
        ),
        PermissionCheck(purpose=LAUNCH, actions=[f"ec2:Describe{kind}" for kind in READS], context=region),
        PermissionCheck(
            purpose=LAUNCH,
            actions=("eks:DescribeCluster",),
            resource=f"arn:{role.partition}:eks:{role.region}:{role.account}:cluster/{role.cluster}",
            context=region,
        ),
        PermissionCheck(
            purpose=PRICES, actions=("ec2:DescribeSpotPriceHistory", "pricing:GetProducts"), context=region
        ),
        PermissionCheck(
            purpose=BROAD_TERMINATION,
            actions=("ec2:TerminateInstances",),
            resource=f"{ec2}:instance/*",
            context={"aws:ResourceTag/kubernetes.io/cluster/another": "owned", **region},
        ),
    ]


def _feature_trials(role: ControllerRole) -> list[PermissionCheck]:
    """What only some clusters use: AMI aliases, the queue, Dovetail's own reads, instance profiles."""
    region, tagged = _region_context(role), _request_context(role)
    made: list[PermissionCheck] = []
    if role.reads_aliases:
        parameter = f"arn:{role.partition}:ssm:{role.region}::parameter/aws/service/eks/optimized-ami"
        made.append(PermissionCheck(purpose=LAUNCH, actions=("ssm:GetParameter",), resource=parameter, context=region))
    if role.queue_arn:
        actions = ("sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage")
        made.append(PermissionCheck(purpose=INTERRUPTIONS, actions=actions, resource=role.queue_arn, context=region))
    if role.dovetail:
        made.append(
            PermissionCheck(purpose=FEATURES, actions=[f"ec2:Describe{kind}" for kind in FEATURE_READS], context=region)
        )
    if role.makes_profiles:
        profile = (
            f"arn:{role.partition}:iam::{role.account}:instance-profile/karpenter/{role.region}/{role.cluster}/any"
        )
        actions = ("iam:AddRoleToInstanceProfile", "iam:CreateInstanceProfile", "iam:GetInstanceProfile")
        made.append(PermissionCheck(purpose=LAUNCH, actions=actions, resource=profile, context=tagged))
        removal = ("iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile")
        made.append(PermissionCheck(purpose=REMOVAL, actions=removal, resource=profile, context=tagged))
    return made


def _pass_role_trials(role: ControllerRole) -> list[PermissionCheck]:
    """Pass the node roles to EC2, and no other role to another service."""
    region = _region_context(role)
    passed = {"iam:PassedToService": f"ec2.amazonaws.com{role.suffix}", **region}
    made = [
        PermissionCheck(purpose=PASS_ROLE, actions=("iam:PassRole",), resource=node_role, context=passed)
        for node_role in role.node_roles
    ]
    other = f"arn:{role.partition}:iam::{role.account}:role/any-other-role"
    anywhere = {**passed, "iam:PassedToService": "lambda.amazonaws.com"}
    made.append(PermissionCheck(purpose=BROAD_PASS_ROLE, actions=("iam:PassRole",), resource=other, context=anywhere))
    return made


def _key_and_spot_trials(role: ControllerRole) -> list[PermissionCheck]:
    """Use the keys of encrypted volumes, and create the service-linked role of spot."""
    region = _region_context(role)
    through_ec2 = {
        "kms:ViaService": f"ec2.{role.region}.amazonaws.com{role.suffix}",
        "kms:CallerAccount": role.account,
        "kms:GrantIsForAWSResource": "true",
        **region,
    }
    actions = ("kms:CreateGrant", "kms:Decrypt", "kms:GenerateDataKeyWithoutPlaintext")
    made = [
        PermissionCheck(purpose=VOLUME_KEY, actions=actions, resource=key, context=through_ec2) for key in role.keys
    ]
    if role.spot:
        made.append(
            PermissionCheck(
                purpose=SPOT_ROLE_CREATION,
                actions=("iam:CreateServiceLinkedRole",),
                resource=f"arn:{role.partition}:iam::{role.account}:role/aws-service-role/spot.amazonaws.com/*",
                context={"iam:AWSServiceName": "spot.amazonaws.com", **region},
            )
        )
    return made


def node_trials() -> list[PermissionCheck]:
    """What a node does with its own role."""
    return [
        PermissionCheck(purpose=JOINING, actions=("ec2:DescribeInstances", "eks:DescribeCluster")),
        PermissionCheck(
            purpose=PULLING,
            actions=("ecr:GetAuthorizationToken", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"),
        ),
        PermissionCheck(purpose=ADDRESSES, actions=("ec2:AssignPrivateIpAddresses", "ec2:CreateNetworkInterface")),
    ]


async def simulate(calls: Calls, arn: str, permission_checks: Sequence[PermissionCheck]) -> SourceAnswer:
    """All denials of a role; the first refused simulation stands for all."""
    answers = await asyncio.gather(*(_simulated(calls, arn, trial) for trial in permission_checks))
    refused = next((answer for answer in answers if answer.state is not State.READ), None)
    if refused is not None:
        return refused
    denials = [
        (trial, msgspec.convert(denial, Denial))
        for trial, answer in zip(permission_checks, answers, strict=True)
        for denial in answer.data
    ]
    needed = [denial for trial, denial in denials if trial.purpose not in UNWANTED]
    if any(denial.is_explicit or denial.by_boundary for denial in needed):
        policies = await _policies(calls, arn.rsplit("/", 1)[-1])
        causes = [cause for trial, denial in denials for cause in _causes(policies, trial, denial)]
    else:
        causes = [denial for _, denial in denials]
    return SourceAnswer(data=msgspec.to_builtins(causes), right=RIGHT)


class RolePolicies(msgspec.Struct, frozen=True):
    """The policies of a role that could be read: inline ones by name, attached ones by ARN."""

    documents: Mapping[str, Mapping[str, Any]]
    #: Whether these are all.
    complete: bool


def _causes(policies: RolePolicies, trial: PermissionCheck, denial: Denial) -> list[Denial]:
    """What has to change before the action is allowed: the role's policies, its boundary, or both.

    The simulator says of the boundary whether it allows the action, and nothing of the policies beside it.
    """
    denying = _denying(policies, trial, denial) if denial.is_explicit else ""
    if not denial.by_boundary:
        policy = denying or _mentioning(policies, denial.action)
        return [msgspec.structs.replace(denial, policy=policy)] if denial.is_explicit else [denial]
    own = msgspec.structs.replace(denial, by_boundary=False)
    implicit = PolicyDecision.IMPLICIT_DENY.value
    if denying:  # the simulator's word is that of this policy; the boundary may have no Deny at all
        return [msgspec.structs.replace(own, policy=denying), msgspec.structs.replace(denial, decision=implicit)]
    decision, _ = decide(policies.documents.values(), denial.action, trial.resource, trial.context)
    if policies.complete and decision is not PolicyDecision.ALLOWED:
        return [msgspec.structs.replace(own, decision=implicit), denial]
    return [denial]


async def _policies(calls: Calls, role: str) -> RolePolicies:
    made: dict[str, Any] = {}
    inline = await ask(calls, "iam", "list_role_policies", "iam:ListRolePolicies", "PolicyNames", RoleName=role)
    for name in inline.data or ():
        answer = await ask(
            calls, "iam", "get_role_policy", "iam:GetRolePolicy", "PolicyDocument", RoleName=role, PolicyName=name
        )
        made[name] = answer.data
    attached = await ask(
        calls, "iam", "list_attached_role_policies", "iam:ListAttachedRolePolicies", "AttachedPolicies", RoleName=role
    )
    for row in attached.data or ():
        arn = row["PolicyArn"]
        policy = await ask(calls, "iam", "get_policy", "iam:GetPolicy", "Policy", PolicyArn=arn)
        version = (policy.data or {}).get("DefaultVersionId")
        if version:
            answer = await ask(
                calls, "iam", "get_policy_version", "iam:GetPolicyVersion", "PolicyVersion", PolicyArn=arn,
                VersionId=version,
            )  # fmt: skip
            made[arn] = (answer.data or {}).get("Document")
    read = {name: document for name, document in made.items() if document}
    listed = len(inline.data or ()) + len(attached.data or ())
    complete = inline.state is State.READ and attached.state is State.READ and len(read) == listed
    return RolePolicies(read, complete)


def _denying(policies: RolePolicies, trial: PermissionCheck, denial: Denial) -> str:
    """The first policy with a Deny that holds for the request."""
    for name, document in policies.documents.items():
        decision, _ = decide([document], denial.action, trial.resource, trial.context)
        if decision is PolicyDecision.EXPLICIT_DENY:
            return name
    return ""


def _mentioning(policies: RolePolicies, action: str) -> str:
    """The first policy with a Deny for the action; conditions and resources are not compared."""
    for name, document in policies.documents.items():
        for statement in _list(document.get("Statement")):
            patterns = [str(pattern).lower() for pattern in _list(statement.get("Action"))]
            if statement.get("Effect") == "Deny" and any(fnmatchcase(action.lower(), pattern) for pattern in patterns):
                return name
    return ""


def _list(value: Any) -> list[Any]:
    """IAM writes a single element without its list."""
    return value if isinstance(value, list) else [value] if value else []


async def _simulated(calls: Calls, arn: str, trial: PermissionCheck) -> SourceAnswer:
    entries = [
        {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
        for key, value in trial.context.items()
    ]
    answer = await ask(
        calls,
        "iam",
        "simulate_principal_policy",
        RIGHT,
        "EvaluationResults",
        PolicySourceArn=arn,
        ActionNames=list(trial.actions),
        ResourceArns=[trial.resource],
        ContextEntries=entries,
    )
    if answer.state is not State.READ:
        return answer
    denials = [
        msgspec.to_builtins(_denial(trial, row))
        for row in answer.data or ()
        if row["EvalDecision"] != "allowed" and (trial.purpose in UNWANTED or not _inconclusive(row, trial.context))
    ]
    return SourceAnswer(data=denials, right=RIGHT)


def _denial(trial: PermissionCheck, row: Mapping[str, Any]) -> Denial:
    boundary = (row.get("PermissionsBoundaryDecisionDetail") or {}).get("AllowedByPermissionsBoundary", True)
    return Denial(
        trial.purpose, row["EvalActionName"], trial.resource, row["EvalDecision"], by_boundary=boundary is False
    )


def _inconclusive(row: Mapping[str, Any], context: Mapping[str, str]) -> bool:
    """Whether a policy asks for something that the trial does not say."""
    return bool(set(row.get("MissingContextValues") or ()) - set(context))
