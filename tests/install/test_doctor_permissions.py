"""The policies of the walk-throughs against what doctor asks of the controller's role: no false alarm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from dovetail.install.doctor.checks import report
from dovetail.install.doctor.facts import SourceAnswer, State, Status
from dovetail.install.doctor.permissions import LAUNCH, PASS_ROLE, UNWANTED, ControllerRole, trials
from dovetail.install.policy import PolicyDecision, decide
from dovetail.kube import resources as kinds
from tests.e2e import installation_steps as steps
from tests.install.doctor_facts import EXPECTED_DENIALS, claim, facts, pool

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
        for trial in trials(role)
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
    assert any(trial.purpose == LAUNCH for trial in trials(role))
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
