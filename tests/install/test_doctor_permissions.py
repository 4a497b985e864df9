"""The policies of the walk-throughs against what doctor asks of the controller's role: no false alarm."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest
from botocore.exceptions import ClientError

from dovetail.cloud.aws.client import Calls
from dovetail.install.doctor.checks import report
from dovetail.install.doctor.facts import SourceAnswer, State, Status
from dovetail.install.doctor.permissions import (
    LAUNCH,
    PASS_ROLE,
    UNWANTED,
    ControllerRole,
    Denial,
    permission_checks,
    simulate,
)
from dovetail.install.policy import PolicyDecision, decide
from dovetail.kube import resources as kinds
from tests.e2e import installation_steps as steps
from tests.install.doctor_facts import ANNOTATED, EXPECTED_DENIALS, claim, facts, pool

ACCOUNT, CLUSTER, REGION = "123456789012", "demo", "ap-northeast-2"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/KarpenterControllerRole-{CLUSTER}"


def policy(step: str) -> Mapping[str, Any]:
    """The document that a step writes, with its variables filled in."""
    text = next(command for command in steps.commands(step) if "cat << EOF" in command)
    for name, value in {
        "CLUSTER_NAME": CLUSTER,
        "AWS_REGION": REGION,
        "AWS_ACCOUNT_ID": ACCOUNT,
        "AWS_PARTITION": "aws",
    }.items():
        text = text.replace(f"${{{name}}}", value)
    document: Mapping[str, Any] = json.loads(text.partition("\n")[2].removesuffix("EOF\n"))
    return document


def denied(document: Mapping[str, Any], role: ControllerRole) -> set[str]:
    return {
        action
        for trial in permission_checks(role)
        if trial.purpose not in UNWANTED
        for action in trial.actions
        if decide([document], action, trial.resource, trial.context)[0] is not PolicyDecision.ALLOWED
    }


@pytest.mark.parametrize(
    ("step", "names_provisioners", "makes_profiles"),
    [(steps.CONTROLLER_POLICY, True, False), (steps.SECTION_CONTROLLER_POLICY, False, True)],
)
def test_a_policy_of_a_walk_through_is_enough_for_its_nodepools(
    step: str, names_provisioners: bool, makes_profiles: bool
) -> None:
    role = ControllerRole(
        arn=ROLE,
        cluster=CLUSTER,
        region=REGION,
        node_roles=(f"arn:aws:iam::{ACCOUNT}:role/KarpenterNodeRole-{CLUSTER}",),
        names_provisioners=names_provisioners,
        makes_profiles=makes_profiles,
    )
    assert any(trial.purpose == LAUNCH for trial in permission_checks(role))
    assert denied(policy(step), role) == set()


def test_the_policy_of_provisioners_cannot_terminate_the_instances_of_nodepools() -> None:
    role = ControllerRole(arn=ROLE, cluster=CLUSTER, region=REGION)
    assert denied(policy(steps.CONTROLLER_POLICY), role) == {"ec2:TerminateInstances"}


def statuses(*rows: tuple[str, str], decision: str = "implicitDeny") -> dict[str, Status]:
    """The status of each check where these actions are denied to the controller, by purpose."""
    data = [
        {"purpose": purpose, "action": action, "resource": "arn:aws:x", "decision": decision}
        for purpose, action in (*rows, *((row["purpose"], row["action"]) for row in EXPECTED_DENIALS))
    ]
    return {row.id: row.status for row in report(facts(answers={"denied to the controller": data}))}


def test_a_controller_without_any_policy_fails_one_check() -> None:
    """That it may not pass the node role follows; denied by a statement of its own it is a fault of its own."""
    launch, passing = (LAUNCH, "ec2:CreateFleet"), (PASS_ROLE, "iam:PassRole")
    nothing = statuses(launch, passing)
    assert (nothing["D03"], nothing["D05"]) == (Status.FAILED, Status.WARNING)
    alone = statuses(passing)
    assert (alone["D03"], alone["D05"]) == (Status.PASSED, Status.FAILED)
    refused = statuses(launch, passing, decision="explicitDeny")
    assert (refused["D03"], refused["D05"]) == (Status.FAILED, Status.FAILED)


def test_a_missing_role_for_spot_instances_fails_though_spot_instances_run() -> None:
    """They were launched before it was deleted; the next launch fails."""
    spot = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
    running = claim()
    running["metadata"]["labels"] = {"karpenter.sh/capacity-type": "spot"}
    answers = {
        kinds.NODEPOOLS.name: [pool(requirements=[spot])],
        kinds.NODECLAIMS.name: [running],
        "role AWSServiceRoleForEC2Spot": SourceAnswer(state=State.ABSENT),
        "denied to the controller": [
            {
                "purpose": "spot role",
                "action": "iam:CreateServiceLinkedRole",
                "resource": "*",
                "decision": "implicitDeny",
            }
        ],
    }
    rows = [row for row in report(facts(answers=answers)) if row.id == "D08" and row.status is Status.FAILED]
    assert [row.object for row in rows] == ["role/AWSServiceRoleForEC2Spot"]


def statement(effect: str, *actions: str) -> dict[str, Any]:
    return {"Effect": effect, "Action": list(actions), "Resource": "*"}


class BoundedRole:
    """IAM's answers about a role with inline policies and a permissions boundary."""

    def __init__(self, boundary: dict[str, Any], readable: bool = True, **policies: dict[str, Any]) -> None:
        self.boundary, self.readable = {"Statement": [boundary]}, readable
        self.policies = {name: {"Statement": [row]} for name, row in policies.items()}

    async def all(self, service: str, operation: str, field: str, **arguments: Any) -> list[Any]:
        if operation == "simulate_principal_policy":
            return (await self(service, operation, **arguments))[field]
        return list(self.policies) if operation == "list_role_policies" else []

    async def __call__(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "get_role_policy":
            if not self.readable:
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, operation)
            return {"PolicyDocument": self.policies[arguments["PolicyName"]]}
        context = {row["ContextKeyName"]: row["ContextKeyValues"][0] for row in arguments["ContextEntries"]}
        rows = []
        for action in arguments["ActionNames"]:
            request = (action, arguments["ResourceArns"][0], context)
            own, bounded = decide(self.policies.values(), *request)[0], decide([self.boundary], *request)[0]
            decisions = {own, bounded} - {PolicyDecision.ALLOWED} or {PolicyDecision.ALLOWED}
            explicit = PolicyDecision.EXPLICIT_DENY
            decision = explicit if explicit in decisions else decisions.pop()
            rows.append(
                {
                    "EvalActionName": action,
                    "EvalDecision": decision.value,
                    "PermissionsBoundaryDecisionDetail": {
                        "AllowedByPermissionsBoundary": bounded is PolicyDecision.ALLOWED
                    },
                }
            )
        return {"EvaluationResults": rows}


READS_ONLY = statement("Allow", "*:Describe*", "*:Get*", "*:List*")
EVERYTHING, NO_FLEETS = statement("Allow", "*"), statement("Deny", "ec2:CreateFleet")


@pytest.mark.parametrize(
    ("role", "causes"),
    [
        (BoundedRole(READS_ONLY, all=EVERYTHING), {(True, "implicitDeny", "")}),
        (BoundedRole(READS_ONLY, reads=READS_ONLY), {(False, "implicitDeny", ""), (True, "implicitDeny", "")}),
        (
            BoundedRole(READS_ONLY, all=EVERYTHING, none=NO_FLEETS),
            {(False, "explicitDeny", "none"), (True, "implicitDeny", "")},
        ),
        (BoundedRole(EVERYTHING, all=EVERYTHING, none=NO_FLEETS), {(False, "explicitDeny", "none")}),
        (BoundedRole(EVERYTHING, reads=READS_ONLY), {(False, "implicitDeny", "")}),
        (BoundedRole(NO_FLEETS, all=EVERYTHING), {(True, "explicitDeny", "")}),
        # policies that cannot be read are not said to lack anything
        (BoundedRole(READS_ONLY, readable=False, reads=READS_ONLY), {(True, "implicitDeny", "")}),
    ],
)
def test_a_boundary_and_the_policies_beside_it_are_judged_apart(
    role: BoundedRole, causes: set[tuple[bool, str, str]]
) -> None:
    controller = ControllerRole(arn=ROLE, cluster=CLUSTER, region=REGION)
    answer = asyncio.run(simulate(cast("Calls", role), ROLE, permission_checks(controller)))
    denials = [msgspec.convert(row, Denial) for row in answer.data]
    fleets = [row for row in denials if (row.purpose, row.action) == (LAUNCH, "ec2:CreateFleet")]
    assert {(row.by_boundary, row.decision, row.policy) for row in fleets} == causes


def test_a_boundary_is_named_with_the_actions_that_it_lacks_and_is_not_deleted() -> None:
    boundary = f"arn:aws:iam::{ACCOUNT}:policy/guardrail"
    actions = ("ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:CreateTags", "ec2:RunInstances")
    rows = [
        {"purpose": purpose, "action": action, "resource": "*", "decision": "implicitDeny", "by_boundary": True}
        for purpose, action in (*((LAUNCH, action) for action in actions), (PASS_ROLE, "iam:PassRole"))
    ]
    role = dict[str, Any](ANNOTATED["role controller"])
    role["PermissionsBoundary"] = {"PermissionsBoundaryArn": boundary}
    answers = {
        **ANNOTATED,
        "role controller": role,
        "denied to the controller": [*rows, *EXPECTED_DENIALS],
    }
    found = [row for row in report(facts(answers=answers), ["D03", "D05"]) if "boundary" in row.message]
    launch, passing = sorted(found, key=lambda row: row.id)
    shown = "aws iam get-role --role-name controller --query Role.PermissionsBoundary  # "
    assert f"its permissions boundary {boundary} does not allow" in launch.message
    assert launch.remedy.startswith(shown) and launch.remedy.endswith(", ".join(actions))
    assert passing.remedy.startswith(shown) and passing.remedy.endswith("iam:PassRole")
