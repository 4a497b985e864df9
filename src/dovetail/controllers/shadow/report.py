"""The report of a dry run, from its recorded decisions: what would have been launched, disrupted and saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.shadow.comparison import ComparisonOutcome
from dovetail.language import message

#: Decisions that differ, shown in the text; the JSON has all of them.
MAX_DIFFERENCES = 20


class LaunchDifference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision for which the cluster's autoscaler launched other nodes. Dollars are per hour."""

    decision: str
    time: str
    outcome: str
    planned: Mapping[str, int]
    actual: Mapping[str, int]
    planned_dollars_per_hour: float
    actual_dollars_per_hour: float | None


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Launches are compared where the price of everything that was launched is known."""

    since: str
    until: str
    provisioning_decisions: int
    planned_nodes: int
    compared_decisions: int
    planned_dollars_per_hour: float
    actual_dollars_per_hour: float
    actual_nodes: int
    unpriced_decisions: int
    refused_pods: int
    disruption_decisions: int
    disrupted_nodes: int
    evictions: int
    ended_disruptions: int
    saved_dollars: float
    removed_by_autoscaler: int
    differences: tuple[LaunchDifference, ...]


def report(decisions: Iterable[Decision]) -> ShadowReport:
    """All of a dry run's decisions, oldest first, in one."""
    entries = tuple(decisions)
    launches = [decision for decision in entries if decision.kind == "provision"]
    disruptions = [decision for decision in entries if decision.kind == "disrupt"]
    over = [decision for decision in entries if decision.kind == "shadow" and decision.reason == "DisruptionOver"]
    compared = [decision for decision in entries if decision.kind == "shadow" and decision.reason != "DisruptionOver"]
    priced = [decision for decision in compared if decision.before is not None]
    return ShadowReport(
        since=entries[0].time if entries else "",
        until=entries[-1].time if entries else "",
        provisioning_decisions=len(launches),
        planned_nodes=sum(len(decision.node_claims) for decision in launches),
        compared_decisions=len(compared),
        planned_dollars_per_hour=sum(decision.cost or 0.0 for decision in priced),
        actual_dollars_per_hour=sum(decision.before or 0.0 for decision in priced),
        actual_nodes=sum(sum(decision.detail.get("actual", {}).values()) for decision in compared),
        unpriced_decisions=len(compared) - len(priced),
        refused_pods=sum(decision.pod_count for decision in entries if decision.kind == "refuse"),
        disruption_decisions=len(disruptions),
        disrupted_nodes=sum(len(decision.removed) for decision in disruptions),
        evictions=sum(decision.evictions for decision in disruptions),
        ended_disruptions=len(over),
        saved_dollars=sum(decision.cost or 0.0 for decision in over),
        removed_by_autoscaler=sum(len(decision.removed) for decision in over),
        differences=tuple(_difference(decision) for decision in compared if decision.reason != ComparisonOutcome.SAME),
    )


def text(made: ShadowReport) -> str:
    """The report for reading."""
    if not made.since:
        return message("no decisions yet: the dry run has seen no pending pod and nothing to disrupt")
    lines = [message("Shadow report, {since} to {until}", since=made.since, until=made.until), ""]
    lines += [
        message(
            "Launches    {provisioning_decisions} decision(s), {planned_nodes} node(s) planned; "
            "{refused_pods} pod(s) refused",
            provisioning_decisions=made.provisioning_decisions,
            planned_nodes=made.planned_nodes,
            refused_pods=made.refused_pods,
        ),
        message(
            "            {compared_decisions} compared: planned ${planned_dollars_per_hour:.4f}/h, "
            "the cluster's autoscaler launched {actual_nodes} node(s) at "
            "${actual_dollars_per_hour:.4f}/h{share}",
            compared_decisions=made.compared_decisions,
            planned_dollars_per_hour=made.planned_dollars_per_hour,
            actual_nodes=made.actual_nodes,
            actual_dollars_per_hour=made.actual_dollars_per_hour,
            share=_share(made),
        ),
    ]
    if made.unpriced_decisions:
        lines.append(
            message(
                "            {unpriced_decisions} left out of the sums: a launched node has no price",
                unpriced_decisions=made.unpriced_decisions,
            )
        )
    lines += [
        message(
            "Disruption  {disruption_decisions} command(s), {disrupted_nodes} node(s), {evictions} eviction(s)",
            disruption_decisions=made.disruption_decisions,
            disrupted_nodes=made.disrupted_nodes,
            evictions=made.evictions,
        ),
        message(
            "            {ended_disruptions} ended: ${saved_dollars:.4f} would have been saved; the "
            "cluster's autoscaler removed {removed_by_autoscaler} of their node(s)",
            ended_disruptions=made.ended_disruptions,
            saved_dollars=made.saved_dollars,
            removed_by_autoscaler=made.removed_by_autoscaler,
        ),
        "",
        *_differing(made.differences),
    ]
    return "\n".join(lines)


def _share(made: ShadowReport) -> str:
    if not made.actual_dollars_per_hour:
        return ""
    share = 100.0 * (1.0 - made.planned_dollars_per_hour / made.actual_dollars_per_hour)
    return message(" (planned is {abs:.1f} % {value})", abs=abs(share), value="cheaper" if share >= 0 else "dearer")


def _differing(differences: Sequence[LaunchDifference]) -> list[str]:
    if not differences:
        return [message("No decision differs.")]
    rows = [
        message(
            "  {time}  {decision}  {outcome:18}  planned {nodes} ${planned_dollars_per_hour:.4f}/h, "
            "launched {nodes_2} ",
            time=difference.time,
            decision=difference.decision,
            outcome=difference.outcome,
            nodes=_nodes(difference.planned),
            planned_dollars_per_hour=difference.planned_dollars_per_hour,
            nodes_2=_nodes(difference.actual),
        )
        + (
            message("at an unknown price")
            if difference.actual_dollars_per_hour is None
            else f"${difference.actual_dollars_per_hour:.4f}/h"
        )
        for difference in differences[-MAX_DIFFERENCES:]
    ]
    more = len(differences) - len(rows)
    return [
        message("{count} decision(s) differ:", count=len(differences)),
        *rows,
        *([message("  and {more} earlier", more=more)] if more else []),
    ]


def _nodes(nodes: Mapping[str, int]) -> str:
    return ", ".join(f"{count}x {name}" for name, count in sorted(nodes.items())) or message("no node")


def _difference(decision: Decision) -> LaunchDifference:
    return LaunchDifference(
        decision=decision.subject,
        time=decision.time,
        outcome=decision.reason,
        planned=decision.detail.get("planned", {}),
        actual=decision.detail.get("actual", {}),
        planned_dollars_per_hour=decision.cost or 0.0,
        actual_dollars_per_hour=decision.before,
    )
