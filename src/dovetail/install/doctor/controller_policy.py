"""What the controller's policies allow (D03), and the commands that grant what is denied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from dovetail.install.doctor.access import node_roles
from dovetail.install.doctor.aws_answers import ROLE_ANNOTATION
from dovetail.install.doctor.controller import controller, controller_account
from dovetail.install.doctor.facts import (
    Facts,
    Fault,
    NotAvailable,
    SourceAnswer,
    Status,
    condition,
    failure,
    shortened,
    warning,
)
from dovetail.install.doctor.permissions import (
    BROAD_TERMINATION,
    FEATURES,
    INTERRUPTIONS,
    LAUNCH,
    PRICES,
    REMOVAL,
    Denial,
)
from dovetail.install.doctor.principals import is_for_pods
from dovetail.kube.resources import EC2NODECLASSES, SERVICEACCOUNTS
from dovetail.language import message, source

CONSEQUENCES = {
    LAUNCH: source("launches fail with AccessDenied"),
    REMOVAL: source("what it launched cannot be removed"),
    INTERRUPTIONS: source("spot interruptions are not seen"),
    PRICES: source("plans are made with the prices of the controller's release, not with those of today"),
    FEATURES: source("reservations, placement groups or failed status checks are not seen"),
}
AUTH_REASONS = ("CreateFleetAuthCheckFailed", "CreateLaunchTemplateAuthCheckFailed", "RunInstancesAuthCheckFailed")


def denials(facts: Facts, *purposes: str) -> list[Denial]:
    """What IAM's simulator says that the controller's role may not do."""
    if "denied to the controller" not in facts.answers:
        controller(facts)
        raise NotAvailable(message("the controller's role is not known (see D04), so its policies were not simulated"))
    rows = [msgspec.convert(row, Denial) for row in facts.items("denied to the controller")]
    return [row for row in rows if row.purpose in purposes]


def controller_role(facts: Facts) -> str:
    """The name of the controller's role, for remedies; a placeholder where it is not known."""
    try:
        namespace, name = controller_account(facts)
    except NotAvailable:
        return "CONTROLLER_ROLE"
    account = facts.named(SERVICEACCOUNTS.name, name, namespace) or {"metadata": {}}
    arn = (account["metadata"].get("annotations") or {}).get(ROLE_ANNOTATION)
    association = facts.answers.get("controller association")
    arn = arn or (association.data or {}).get("roleArn") if association else arn
    return str(arn or "CONTROLLER_ROLE").rsplit("/", 1)[-1]


def put_policy(facts: Facts) -> str:
    """The command that gives the controller's role all that it needs."""
    roles = sorted({role for _, _, role in node_roles(facts)})
    node_role = f" --node-role {roles[0]}" if roles else ""
    printed = f"dovetail iam --cluster {facts.cluster} --region {facts.region}{node_role}"
    return (
        f"aws iam put-role-policy --role-name {controller_role(facts)} --policy-name dovetail-controller"
        f' --policy-document "$({printed})"'
    )


def grant(facts: Facts, *denied: Denial) -> str:
    """The command that ends denials of one cause at the controller's role."""
    if denied[0].by_boundary or denied[0].is_explicit:
        return end_denial(controller_role(facts), *denied)
    return put_policy(facts)


def end_denial(role: str, *denied: Denial) -> str:
    """The command that ends a Deny, or shows a boundary. A further policy does not undo a Deny: that has to go."""
    denial = denied[0]
    if denial.by_boundary:
        return extend_boundary(role, *denied)
    if denial.policy.startswith("arn:"):
        return f"aws iam detach-role-policy --role-name {role} --policy-arn {denial.policy}"
    if denial.policy:
        return f"aws iam delete-role-policy --role-name {role} --policy-name {denial.policy}"
    return message(
        "aws iam get-account-authorization-details --filter Role LocalManagedPolicy --query "
        "\"RoleDetailList[?RoleName=='{role}']\"  # find the statement with Effect Deny",
        role=role,
    )


def extend_boundary(role: str, *denied: Denial) -> str:
    """A boundary is a guardrail of others: it is shown, and what it lacks."""
    return message(
        "aws iam get-role --role-name {role} --query Role.PermissionsBoundary  # the owner of the boundary adds to "
        "it: {actions}",
        role=role,
        actions=", ".join(dict.fromkeys(row.action for row in denied)),
    )


def narrow_policy(facts: Facts) -> str:
    """A further policy does not narrow one that is too broad: it has to be found and replaced."""
    role = controller_role(facts)
    return message(
        "aws iam list-role-policies --role-name {role} && aws iam list-attached-role-policies "
        "--role-name {role}  # then replace the statement by that of: dovetail iam --cluster "
        "{cluster} --region {region}",
        role=role,
        cluster=facts.cluster,
        region=facts.region,
    )


def check_controller_policy(facts: Facts) -> Iterator[Fault]:
    """The controller's own dry runs, as the EC2NodeClass reports them, and IAM's simulation of its policies.

    The simulation names the policy that denies, so a dry run is reported where it found nothing.
    """
    if not _simulated_denials(facts, LAUNCH):
        yield from _dry_run_faults(facts)
    role = controller_role(facts)
    # Policies of a role that was never meant for a controller: that it has this role at all is the fault (D04).
    described = facts.answers.get(f"role {role}")
    foreign = described is not None and bool(described.data) and not is_for_pods(described.data)
    for rows, resources in _grouped(denials(facts, *CONSEQUENCES)):
        where = message(" on {resource}", resource=shortened(resources)) if resources else ""
        purpose = rows[0].purpose
        status = Status.WARNING if purpose in (PRICES, FEATURES) else Status.FAILED
        yield Fault(
            status,
            f"role/{role}",
            message(
                "{policies} {verb} {actions}{where} with the controller's tags ({decision}): {consequence}",
                policies=_boundary(described) if rows[0].by_boundary else message("its policies"),
                verb=_verb(rows[0]),
                actions=shortened([row.action for row in rows]),
                where=where,
                decision=rows[0].decision,
                consequence=message(CONSEQUENCES[purpose]),
            ),
            grant(facts, *rows),
            symptom=foreign,
        )
    if not denials(facts, BROAD_TERMINATION):
        yield warning(
            f"role/{role}",
            message(
                "its policies allow ec2:TerminateInstances on instances without the cluster's tag: it "
                "may end instances of other clusters"
            ),
            narrow_policy(facts),
        )


def _boundary(described: SourceAnswer | None) -> str:
    """The permissions boundary of a role, with its ARN where the role could be read."""
    role = (described.data if described is not None else None) or {}
    arn = (role.get("PermissionsBoundary") or {}).get("PermissionsBoundaryArn")
    return message("its permissions boundary {arn}", arn=arn) if arn else message("its permissions boundary")


def _verb(denial: Denial) -> str:
    """Of a boundary no more is known than that it does not allow the action: the Deny may be another policy's."""
    if denial.by_boundary:
        return message("does not allow")
    return message("deny") if denial.is_explicit else message("do not allow")


def _simulated_denials(facts: Facts, purpose: str) -> list[Denial]:
    """Denials for a purpose; none where the policies were not simulated."""
    try:
        return denials(facts, purpose)
    except NotAvailable:
        return []


def _dry_run_faults(facts: Facts) -> Iterator[Fault]:
    for node_class in facts.items(EC2NODECLASSES.name):
        row = condition(node_class, "ValidationSucceeded")
        if row and row.get("status") == "False" and row.get("reason") in AUTH_REASONS:
            yield failure(
                f"ec2nodeclass/{node_class['metadata']['name']}",
                message(
                    "condition ValidationSucceeded is False ({reason}): {message}; the controller's IAM "
                    "policy lacks the action",
                    reason=row["reason"],
                    message=row.get("message", ""),
                ),
                put_policy(facts),
                symptom=True,
            )


def _grouped(denied: Iterable[Denial]) -> Iterator[tuple[list[Denial], list[str]]]:
    """Denials of one purpose and one policy, with the resources for which the same actions are denied."""
    by_resource: dict[tuple[object, ...], list[Denial]] = {}
    for row in denied:
        kind = (row.purpose, row.decision, row.policy, row.by_boundary)
        by_resource.setdefault((*kind, row.resource), []).append(row)
    merged: dict[tuple[object, ...], list[list[Denial]]] = {}
    for (*shared, _), rows in by_resource.items():
        merged.setdefault((*shared, *(row.action for row in rows)), []).append(rows)
    for groups in merged.values():
        yield groups[0], [rows[0].resource for rows in groups if rows[0].resource != "*"]
