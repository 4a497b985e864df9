"""The node role (D05): it exists, instances may use it, and it has the policies that nodes need."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from dovetail.install.doctor.access import eks_cluster, is_associated, node_roles, partition
from dovetail.install.doctor.aws_answers import ROLE_ANNOTATION, oidc_issuer, usual_node_role
from dovetail.install.doctor.controller_policy import controller_role, denials, end_denial, grant, narrow_policy
from dovetail.install.doctor.facts import Facts, Fault, State, failure, shortened, warning
from dovetail.install.doctor.permissions import (
    ADDRESSES,
    BROAD_PASS_ROLE,
    JOINING,
    PASS_ROLE,
    PULLING,
    Denial,
)
from dovetail.install.doctor.principals import (
    policy_document,
    service_is_allowed,
    token_refusal,
    trust_statements,
    trusted_services,
)
from dovetail.kube.resources import DAEMONSETS, EC2NODECLASSES, SERVICEACCOUNTS
from dovetail.language import message

JOIN_POLICIES = frozenset(("AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy"))
PULL_POLICIES = frozenset(
    (
        "AmazonEC2ContainerRegistryReadOnly",
        "AmazonEC2ContainerRegistryPullOnly",
        "AmazonEC2ContainerRegistryPowerUser",
        "AmazonEC2ContainerRegistryFullAccess",
    )
)
#: The Amazon VPC CNI's DaemonSet and service account.
CNI, CNI_POLICY = "aws-node", "AmazonEKS_CNI_Policy"
#: Managed policies that grant neither joining nor pulling; any other policy may grant it, and is not read.
UNRELATED_POLICIES = frozenset(
    ("AmazonSSMManagedInstanceCore", "CloudWatchAgentServerPolicy", "AmazonEBSCSIDriverPolicy", CNI_POLICY)
)
EC2_TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
)


#: What a new node role gets.
FIRST_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonEKS_CNI_Policy")


def check_node_role(facts: Facts) -> Iterator[Fault]:
    for node_class in facts.items(EC2NODECLASSES.name):
        name, spec = node_class["metadata"]["name"], node_class.get("spec") or {}
        if ":" in (spec.get("role") or ""):
            yield failure(
                f"ec2nodeclass/{name}",
                message("spec.role is {role!r}: the name of a role is expected, not its ARN", role=spec["role"]),
                f"kubectl patch ec2nodeclass {name} --type=merge -p"
                f' \'{{"spec":{{"role":"{spec["role"].rsplit("/", 1)[-1]}"}}}}\'',
            )
        if spec.get("instanceProfile"):
            yield from _profile_faults(facts, name, spec["instanceProfile"])
    judged: set[str] = set()
    for name, _, role in node_roles(facts):
        if role not in judged:
            judged.add(role)
            yield from _role_faults(facts, name, role)
    yield from _cni_role_faults(facts)
    yield from _pass_role_faults(facts)


def _profile_faults(facts: Facts, name: str, profile: str) -> Iterator[Fault]:
    described = facts.read(f"instance profile {profile}")
    if described is not None and described.get("Roles"):
        return
    roles = sorted({role for _, _, role in node_roles(facts)})
    role = roles[0] if roles else usual_node_role(facts.cluster)
    add = f"aws iam add-role-to-instance-profile --instance-profile-name {profile} --role-name {role}"
    create = f"aws iam create-instance-profile --instance-profile-name {profile} && {add}"
    cause = (
        message("IAM has no such instance profile")
        if described is None
        else message("the instance profile has no role, so its instances cannot join")
    )
    yield failure(
        f"ec2nodeclass/{name}",
        message("spec.instanceProfile {profile}: {cause}", profile=profile, cause=cause),
        create if described is None else add,
    )


def _pass_role_faults(facts: Facts) -> Iterator[Fault]:
    """Only where the controller's permissions were simulated; D03 says so where they were not."""
    answer = facts.answers.get("denied to the controller")
    if answer is None or answer.state is not State.READ:
        return
    role = controller_role(facts)
    for denial in denials(facts, PASS_ROLE):
        yield failure(
            f"role/{role}",
            message(
                "its permissions boundary does not allow iam:PassRole on {resource} to ec2.amazonaws.com: "
                "no instance gets the node role",
                resource=denial.resource,
            )
            if denial.by_boundary
            else message(
                "its policies do not allow iam:PassRole on {resource} to ec2.amazonaws.com ({decision}): "
                "no instance gets the node role",
                resource=denial.resource,
                decision=denial.decision,
            ),
            grant(facts, denial),
            symptom=not denial.is_explicit,  # as every other action where the controller has no policy at all
        )
    if not denials(facts, BROAD_PASS_ROLE):
        yield warning(
            f"role/{role}",
            message(
                "its policies allow iam:PassRole on every role to every service: the controller may hand "
                "any role of the account to any program"
            ),
            narrow_policy(facts),
        )


def _role_faults(facts: Facts, name: str, role: str) -> Iterator[Fault]:
    described = facts.read(f"role {role}")
    if described is None:
        yield failure(
            f"ec2nodeclass/{name}",
            message("spec.role {role}: IAM has no such role, so no instance profile can be made", role=role),
            _role_remedy(facts, name, role),
        )
        return
    services = [service for service in trusted_services(described) if service.startswith("ec2.amazonaws.com")]
    statements = trust_statements(described)
    if not any(service_is_allowed(statements, service, "sts:AssumeRole", None, {}) for service in services):
        cause = (
            message("does not allow ec2.amazonaws.com sts:AssumeRole")
            if services
            else message("does not name ec2.amazonaws.com")
        )
        yield failure(
            f"role/{role}",
            message(
                "its trust policy {cause}, so no instance of EC2NodeClass {name} can use it",
                cause=cause,
                name=name,
            ),
            f"aws iam update-assume-role-policy --role-name {role} --policy-document '{EC2_TRUST}'",
        )
    yield from _denied_faults(facts, role)
    yield from _lacking_policy_faults(facts, role)


def _lacking_policy_faults(facts: Facts, role: str) -> Iterator[Fault]:
    """Managed policies that a role without any of its own needs."""
    attached = {row["PolicyName"] for row in facts.items(f"policies of {role}")}
    if facts.items(f"inline policies of {role}") or attached - JOIN_POLICIES - PULL_POLICIES - UNRELATED_POLICIES:
        return  # a policy of the operator's own may grant what the managed ones do
    for policies, purpose in (
        (JOIN_POLICIES, message("join the cluster")),
        (PULL_POLICIES, message("pull images from ECR")),
    ):
        if not attached & policies:
            first = "AmazonEKSWorkerNodePolicy" if policies is JOIN_POLICIES else "AmazonEC2ContainerRegistryPullOnly"
            lacking = message(
                "it has none of the policies {policies}: its nodes cannot {purpose}",
                policies=", ".join(sorted(policies)),
                purpose=purpose,
            )
            if policies is JOIN_POLICIES and CNI_POLICY in attached:
                lacking = message(
                    "it has none of the policies {policies}: its nodes join by what {cni_policy} allows, and pods on "
                    "them get no credentials of Pod Identity",
                    policies=", ".join(sorted(policies)),
                    cni_policy=CNI_POLICY,
                )
            yield failure(
                f"role/{role}",
                lacking,
                f"aws iam attach-role-policy --role-name {role} --policy-arn {_managed(facts, first)}",
                safe=True,
            )
    if CNI_POLICY not in attached and _cni_uses_node_role(facts):
        yield failure(
            f"role/{role}",
            message(
                "neither it nor the service account kube-system/aws-node has {cni_policy}: pods get no "
                "addresses and nodes stay NotReady",
                cni_policy=CNI_POLICY,
            ),
            f"aws iam attach-role-policy --role-name {role} --policy-arn {_managed(facts, CNI_POLICY)}",
            safe=True,
        )


def _denied_faults(facts: Facts, role: str) -> Iterator[Fault]:
    """What a Deny or a boundary keeps from the node role, whatever else grants it; only where it was simulated."""
    answer = facts.answers.get(f"denied to {role}")
    if answer is None or answer.state is not State.READ:
        return
    rows = [msgspec.convert(row, Denial) for row in answer.data or ()]
    purposes = {
        JOINING: message("join the cluster"),
        PULLING: message("pull images from ECR"),
        ADDRESSES: message("get addresses for pods"),
    }
    for purpose, effect in purposes.items():
        denied = [row for row in rows if row.purpose == purpose and (row.is_explicit or row.by_boundary)]
        if denied and (purpose != ADDRESSES or _cni_uses_node_role(facts)):
            first = denied[0]
            yield failure(
                f"role/{role}",
                message(
                    "{policies} {verb} {actions}: its nodes cannot {purpose}",
                    policies=message("its permissions boundary") if first.by_boundary else message("its policies"),
                    verb=message("does not allow") if first.by_boundary else message("deny"),
                    actions=shortened([row.action for row in denied if row.by_boundary == first.by_boundary]),
                    purpose=effect,
                ),
                end_denial(role, *denied),
            )
            return  # the policy that denies one of them is the first to go


def _cni_role_faults(facts: Facts) -> Iterator[Fault]:
    """The Amazon VPC CNI's own role, by the annotation of its service account: it exists, and trusts the account."""
    account = facts.named(SERVICEACCOUNTS.name, CNI, "kube-system") or {"metadata": {}}
    arn = (account["metadata"].get("annotations") or {}).get(ROLE_ANNOTATION, "")
    if not arn or facts.named(DAEMONSETS.name, CNI, "kube-system") is None:
        return
    role = facts.read(f"role {arn.rsplit('/', 1)[-1]}") if ":role/" in arn else None
    issuer = oidc_issuer(eks_cluster(facts))
    provider = f"{arn.partition(':role/')[0]}:oidc-provider/{issuer}"
    cause = ""
    if role is None or role.get("Arn", arn) != arn:
        cause = message("IAM has no such role")
    elif issuer:
        document = policy_document(role.get("AssumeRolePolicyDocument"))
        refusal = token_refusal(document, provider, f"kube-system:{CNI}")
        cause = message("that role's trust policy {refusal}", refusal=refusal) if refusal else ""
    if cause:
        yield failure(
            f"serviceaccount/kube-system/{CNI}",
            message(
                "annotation {role_annotation} names {arn}, and {cause}: pods on new nodes get no addresses, and the "
                "nodes stay NotReady",
                role_annotation=ROLE_ANNOTATION,
                arn=arn,
                cause=cause,
            ),
            message(
                "kubectl annotate serviceaccount {name} -n kube-system {role_annotation}- && kubectl rollout restart "
                "daemonset/{name} -n kube-system  # the node role is used then: {policy}",
                name=CNI,
                role_annotation=ROLE_ANNOTATION,
                policy=CNI_POLICY,
            ),
        )


def _managed(facts: Facts, policy: str) -> str:
    """The ARN of a policy of AWS's, in the partition of the cluster: GovCloud and China have their own."""
    return f"arn:{partition(facts)}:iam::aws:policy/{policy}"


def _role_remedy(facts: Facts, name: str, role: str) -> str:
    """The usual role where it exists: the name is misspelt. Else the role, with what its nodes need."""
    usual = usual_node_role(facts.cluster)
    answer = facts.answers.get(f"role {usual}")
    if usual != role and answer is not None and answer.data:
        return f'kubectl patch ec2nodeclass {name} --type=merge -p \'{{"spec":{{"role":"{usual}"}}}}\''
    attach = f"aws iam attach-role-policy --role-name {role} --policy-arn "
    create = f"aws iam create-role --role-name {role} --assume-role-policy-document '{EC2_TRUST}'"
    return " && ".join([create, *(attach + _managed(facts, policy) for policy in FIRST_POLICIES)])


def _cni_uses_node_role(facts: Facts) -> bool:
    """Whether the Amazon VPC CNI runs here and has no role of its own."""
    if facts.named(DAEMONSETS.name, CNI, "kube-system") is None:
        return False
    account = facts.named(SERVICEACCOUNTS.name, CNI, "kube-system") or {"metadata": {}}
    if (account["metadata"].get("annotations") or {}).get(ROLE_ANNOTATION):
        return False
    return not is_associated(facts, ("kube-system", CNI))
