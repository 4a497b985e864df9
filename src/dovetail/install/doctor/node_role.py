"""The node role (D05): it exists, instances may use it, and it has the policies that nodes need."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dovetail.install.doctor.access import is_associated, node_roles, partition, trusted_services
from dovetail.install.doctor.aws_answers import ROLE_ANNOTATION, usual_node_role
from dovetail.install.doctor.controller_policy import controller_role, denials, grant, narrow_policy
from dovetail.install.doctor.facts import Facts, Fault, State, failure, warning
from dovetail.install.doctor.permissions import BROAD_PASS_ROLE, PASS_ROLE
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
CNI_POLICY = "AmazonEKS_CNI_Policy"
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
    if not any(service.startswith("ec2.amazonaws.com") for service in trusted_services(described)):
        yield failure(
            f"role/{role}",
            message(
                "its trust policy does not name ec2.amazonaws.com, so no instance of EC2NodeClass {name} can use it",
                name=name,
            ),
            f"aws iam update-assume-role-policy --role-name {role} --policy-document '{EC2_TRUST}'",
        )
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
    if facts.named(DAEMONSETS.name, "aws-node", "kube-system") is None:
        return False
    account = facts.named(SERVICEACCOUNTS.name, "aws-node", "kube-system") or {"metadata": {}}
    if (account["metadata"].get("annotations") or {}).get(ROLE_ANNOTATION):
        return False
    return not is_associated(facts, ("kube-system", "aws-node"))
