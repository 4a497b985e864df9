"""Which repair policy applies to a node, from when on, and how urgently."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.clock import EPOCH
from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.provider import RepairAction, RepairPolicy
from dovetail.cloud.simulated.provider import REPAIRS
from dovetail.controllers.disruption.repair_policies import Diagnosis, PoliciesError, RepairPolicies
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node


def policy(kind: str = "Sick", status: str = "True", seconds: float = 60.0, **more: Any) -> RepairPolicy:
    return RepairPolicy(condition_type=kind, condition_status=status, toleration_seconds=seconds, **more)


FALLBACK = policy("Ready", "False", 600.0)


def node(*conditions: tuple[str, str, str, float], born: float = 0.0) -> Node:
    """Conditions by type, status, reason and the seconds since the epoch of their transition."""
    return msgspec.convert(
        {
            "metadata": {"name": "n", "creationTimestamp": EPOCH + timedelta(seconds=born)},
            "status": {
                "conditions": [
                    {
                        "type": kind,
                        "status": status,
                        "reason": reason,
                        "lastTransitionTime": EPOCH + timedelta(seconds=at),
                    }
                    for kind, status, reason, at in conditions
                ]
            },
        },
        Node,
    )


def claim(rebooted: float | None = None) -> NodeClaim:
    at = None if rebooted is None else EPOCH + timedelta(seconds=rebooted)
    ended = [{"type": "Rebooting", "status": "False", "reason": "RebootSucceeded", "lastTransitionTime": at}]
    return msgspec.convert({"status": {"conditions": ended if at else []}}, NodeClaim)


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def diagnose(policies: tuple[RepairPolicy, ...], unhealthy: Node, seconds: float) -> Diagnosis | None:
    return RepairPolicies(policies).diagnose(unhealthy, claim(), at(seconds))


def test_a_condition_is_repaired_once_it_has_outlasted_its_toleration() -> None:
    sick = node(("Sick", "True", "Broken", 100.0))
    policies = (FALLBACK, policy(reason_regex="."))
    assert diagnose(policies, sick, 159.0) is None
    found = diagnose(policies, sick, 160.0)
    assert (
        found is not None and found.condition_reason == "Sick/Broken" and found.due == at(160.0) and found.score == 0.0
    )


def test_nothing_is_older_than_its_node_or_than_the_last_reboot() -> None:
    sick, policies = (
        node(("Sick", "True", "Broken", 0.0), born=50.0),
        RepairPolicies((FALLBACK, policy(reason_regex="."))),
    )
    assert policies.diagnose(sick, claim(), at(109.0)) is None
    assert policies.diagnose(sick, claim(), at(110.0)) is not None
    assert policies.diagnose(sick, claim(rebooted=200.0), at(259.0)) is None
    assert policies.diagnose(sick, claim(rebooted=200.0), at(260.0)) is not None


def test_a_reason_that_no_policy_of_its_condition_knows_falls_to_the_one_without_an_expression() -> None:
    policies = (FALLBACK, policy(reason_regex="^Disk"))
    other = diagnose(policies, node(("Sick", "True", "Fan", 0.0)), 600.0)
    assert other is not None and other.condition == "Sick" and other.due == at(600.0)
    assert diagnose(policies, node(("Sick", "True", "Fan", 0.0)), 599.0) is None
    assert diagnose(policies, node(("Sick", "False", "Fan", 0.0)), 9999.0) is None


def test_a_policy_that_knows_the_reason_keeps_the_other_out_even_before_its_time() -> None:
    policies = (policy("Ready", "False", 10.0), policy(seconds=600.0, reason_regex="Disk"))
    assert diagnose(policies, node(("Sick", "True", "BadDisk", 0.0)), 300.0) is None


def test_the_most_severe_action_wins_and_the_shortest_drain_of_all_due_policies() -> None:
    policies = (
        FALLBACK,
        policy("A", reason_regex=".", action=RepairAction.REBOOT, priority=90, grace_seconds=5.0),
        policy("B", reason_regex=".", priority=10, grace_seconds=30.0),
        policy("C", reason_regex=".", priority=20),
    )
    sick = node(("A", "True", "x", 0.0), ("B", "True", "x", 0.0), ("C", "True", "x", 30.0))
    found = diagnose(policies, sick, 70.0)
    assert found is not None and (found.action, found.condition, found.grace) == (RepairAction.REPLACE, "B", 5.0)
    later = diagnose(policies, sick, 100.0)
    assert later is not None and later.condition == "C", "the higher priority of the same action"


def test_waiting_half_an_hour_is_worth_a_rank() -> None:
    policies = (FALLBACK, policy("A", reason_regex=".", priority=7), policy("B", reason_regex=".", priority=50))
    old = diagnose(policies, node(("A", "True", "x", 0.0)), 60.0 + 1800.0)
    fresh = diagnose(policies, node(("B", "True", "x", 1800.0)), 60.0 + 1800.0)
    assert old is not None and fresh is not None
    assert old.score == fresh.score == 2.0, "priorities count by rank: 0, 7, 50 are 0, 1, 2"


@pytest.mark.parametrize(
    ("policies", "fault"),
    [
        ((), "one policy without a reason expression"),
        ((FALLBACK, FALLBACK), "there are 2"),
        ((policy(action=RepairAction.REBOOT),), "must have the action ReplaceNode"),
        ((policy(""),), "no condition type"),
        ((policy("A", "Maybe"),), "'Maybe'"),
        ((policy(seconds=-1.0),), "negative toleration"),
        ((policy(grace_seconds=-1.0),), "negative termination"),
        ((policy(priority=101),), "101"),
        ((FALLBACK, policy(reason_regex="(")), "reason expression"),
    ],
)
def test_invalid_policies_are_refused_with_what_is_wrong(policies: tuple[RepairPolicy, ...], fault: str) -> None:
    with pytest.raises(PoliciesError, match=fault.replace("(", r"\(")):
        RepairPolicies(policies)


def test_the_policies_of_both_clouds_are_valid() -> None:
    assert RepairPolicies(REPAIRS)
    assert RepairPolicies(Aws.repair_policies(Aws.__new__(Aws)))
