"""Repair policies: which of a cloud's policies a node's conditions call for, and how urgently.

A condition is covered if some policy names its type and status. Of the policies of that pair those whose expression
matches the reason apply; where none does, the one policy without an expression applies. A policy acts once its
condition has outlasted the toleration. The most severe action that is due wins, and the shortest drain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from dovetail.cloud.provider import RepairAction, RepairPolicy
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import Condition, stamp
from dovetail.model.nodes import Node

#: A node that has waited so long past its toleration is as urgent as a fresh one a rank higher.
AGEING = timedelta(minutes=30)
STATUSES = frozenset({"True", "False", "Unknown"})


class PoliciesError(ValueError):
    """Invalid repair policies, each fault in its own sentence."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about a node. `grace` bounds its drain: None leaves it to the NodeClaim."""

    action: RepairAction
    condition: str
    status: str
    reason: str
    since: datetime
    due: datetime
    score: float
    grace: float | None = None

    @property
    def condition_reason(self) -> str:
        return f"{self.condition}/{self.reason}"

    @property
    def forecast(self) -> str:
        """The node condition, the remedy, and when it is due."""
        condition_text = f"{self.condition}={self.status}" + (f" ({self.reason})" if self.reason else "")
        remedy = "restart" if self.action is RepairAction.REBOOT else "replacement"
        return f"{condition_text}: {remedy} due at {stamp(self.due)}"


class _Finding(msgspec.Struct, frozen=True):
    policy: RepairPolicy
    condition: Condition
    since: datetime
    rank: int

    @property
    def due(self) -> datetime:
        return self.since + timedelta(seconds=self.policy.toleration_seconds)

    def score(self, now: datetime) -> float:
        return self.rank + (now - self.due) / AGEING

    def weight(self) -> tuple[bool, int, float, str]:
        """Which finding decides for the node: the smallest does."""
        gentle = self.policy.action is not RepairAction.REPLACE
        return gentle, -self.policy.priority, self.due.timestamp(), self.condition.type


class RepairPolicies:
    """A cloud's policies, checked and compiled once."""

    def __init__(self, policies: Sequence[RepairPolicy]) -> None:
        faults = list(_faults(policies))
        if faults:
            raise PoliciesError("; ".join(faults))
        self._pairs: dict[tuple[str, str], list[tuple[re.Pattern[str], RepairPolicy]]] = {}
        for policy in policies:
            entries = self._pairs.setdefault((policy.condition_type, policy.condition_status), [])
            if policy.reason_regex:
                entries.append((re.compile(policy.reason_regex), policy))
        self._fallback = next(policy for policy in policies if not policy.reason_regex)
        self._ranks = {priority: rank for rank, priority in enumerate(sorted({policy.priority for policy in policies}))}

    def is_unhealthy(self, node: Node) -> bool:
        """Whether any condition is covered, however young."""
        return any((condition.type, condition.status) in self._pairs for condition in node.status.conditions)

    def diagnose(self, node: Node, claim: NodeClaim, now: datetime) -> Diagnosis | None:
        """What is due now, if anything is."""
        diagnosis = self.due_repair(node, claim, now)
        return diagnosis if diagnosis is not None and diagnosis.due <= now else None

    def due_repair(self, node: Node, claim: NodeClaim, now: datetime) -> Diagnosis | None:
        """What is due now, or the first that will be; None for a healthy node."""
        findings = self._findings(node, claim, now)
        if not findings:
            return None
        moment = max(now, min(finding.due for finding in findings))
        due = [finding for finding in findings if finding.due <= moment]
        decisive = min(due, key=_Finding.weight)
        bounds = [finding.policy.grace_seconds for finding in due if finding.policy.grace_seconds is not None]
        return Diagnosis(
            action=decisive.policy.action,
            condition=decisive.condition.type,
            status=decisive.condition.status,
            reason=decisive.condition.reason,
            since=decisive.since,
            due=decisive.due,
            score=max(finding.score(now) for finding in due),
            grace=min(bounds, default=None),
        )

    def _findings(self, node: Node, claim: NodeClaim, now: datetime) -> list[_Finding]:
        rebooted = claim.condition("Rebooting")
        ended = rebooted.last_transition_time if rebooted is not None and rebooted.status == "False" else None
        created = node.metadata.creation_timestamp
        matching = []
        for condition in node.status.conditions:
            since = max(
                (moment for moment in (condition.last_transition_time, created, ended) if moment is not None),
                default=now,
            )
            matching += [
                _Finding(policy, condition, since, self._ranks[policy.priority]) for policy in self._applying(condition)
            ]
        return matching

    def _applying(self, condition: Condition) -> list[RepairPolicy]:
        entries = self._pairs.get((condition.type, condition.status))
        if entries is None:
            return []
        return [policy for pattern, policy in entries if pattern.search(condition.reason)] or [self._fallback]


def _faults(policies: Sequence[RepairPolicy]) -> list[str]:
    """Everything that is wrong with a set of policies."""
    faults = [
        f"policy {number} ({fault})" for number, policy in enumerate(policies) for fault in _policy_faults(policy)
    ]
    fallbacks = [policy for policy in policies if not policy.reason_regex]
    if len(fallbacks) != 1:
        faults.append(f"there must be one policy without a reason expression, and there are {len(fallbacks)}")
    elif fallbacks[0].action is not RepairAction.REPLACE:
        faults.append(f"the policy without a reason expression must have the action {RepairAction.REPLACE}")
    return faults


def _policy_faults(policy: RepairPolicy) -> list[str]:
    faults = []
    if not policy.condition_type:
        faults.append("no condition type")
    if policy.condition_status not in STATUSES:
        faults.append(f"condition status {policy.condition_status!r}")
    if policy.toleration_seconds < 0:
        faults.append("negative toleration")
    if policy.grace_seconds is not None and policy.grace_seconds < 0:
        faults.append("negative termination grace period")
    if not 0 <= policy.priority <= 100:
        faults.append(f"priority {policy.priority} outside 0 to 100")
    try:
        re.compile(policy.reason_regex)
    except re.error as problem:
        faults.append(f"reason expression {policy.reason_regex!r}: {problem}")
    return faults
