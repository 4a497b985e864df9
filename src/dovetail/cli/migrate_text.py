"""How a migration is shown: the plan with its prices, progress lines, and the same as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from dovetail.language import message
from dovetail.migration.plan import HOURS_PER_MONTH, MigrationPlan

if TYPE_CHECKING:
    from dovetail.migration.carry_out import MigrationProgress, MigrationResult
    from dovetail.migration.drain_blockers import MoveBlocker
    from dovetail.migration.plan import GroupStep


def plan_lines(planned: MigrationPlan, *, verbose: bool) -> Iterator[str]:
    for name in planned.kept:
        yield message("keep  group {group}", group=name)
    for step in planned.steps:
        yield _step_line(step)
        if verbose:
            yield from (f"        kubectl drain {node}" for node in step.nodes)
    titles = {step.group.name: step.group.title for step in planned.steps}
    for proposal in planned.proposals:
        yield message(
            "make  NodePool {name} for {groups}",
            name=proposal.node_pool["metadata"]["name"],
            groups=", ".join(titles[name] for name in proposal.groups),
        )
        yield from (message("      note: {note}", note=note) for note in proposal.notes)
    if verbose:
        import yaml

        objects = [dict(body) for proposal in planned.proposals for body in proposal.objects]
        yield yaml.safe_dump_all(objects, sort_keys=False).rstrip()
    counts = Counter((node["instanceType"], node["capacityType"], node["zone"]) for node in planned.new_nodes)
    for (instance_type, capacity_type, zone), count in sorted(counts.items()):
        yield message(
            "new   {count} × {instance_type} ({capacity_type}, {zone})",
            count=count,
            instance_type=instance_type,
            capacity_type=capacity_type,
            zone=zone,
        )
    if planned.steps:
        yield price_line(planned)
    yield from blocker_lines(planned.blockers)


def _step_line(step: GroupStep) -> str:
    return message(
        "move  group {group} to NodePool {pool}: {nodes} nodes, {pods} pods, ${price:.4f}/h",
        group=step.group.title,
        pool=step.node_pool,
        nodes=len(step.nodes),
        pods=step.evictions,
        price=step.per_hour,
    )


def price_line(planned: MigrationPlan) -> str:
    before, after = planned.before * HOURS_PER_MONTH, planned.after * HOURS_PER_MONTH
    share = f" ({(after / before - 1.0) * 100:+.0f} %)" if before else ""
    text = message(
        "price ${before:,.2f} a month before, ${after:,.2f} after{share}", before=before, after=after, share=share
    )
    if planned.lower_bound is not None:
        text += message(", lower bound ${bound:,.2f}", bound=planned.lower_bound * HOURS_PER_MONTH)
    if planned.unpriced:
        text += message("; without {count} nodes of unknown price", count=planned.unpriced)
    return text


def blocker_lines(blockers: Iterable[MoveBlocker]) -> Iterator[str]:
    for blocker in blockers:
        yield message(
            "refused  {code}  {object}: {why}; {remedy}",
            code=blocker.code,
            object=blocker.object,
            why=blocker.why,
            remedy=blocker.remedy,
        )


def plan_data(planned: MigrationPlan) -> dict[str, Any]:
    """English, whatever the language of the texts."""
    return {
        "groups": [
            {
                "name": step.group.name,
                "managedNodeGroup": step.group.managed,
                "minSize": step.group.sizes.least,
                "maxSize": step.group.sizes.most,
                "desiredCapacity": step.group.sizes.desired,
                "nodePool": step.node_pool,
                "nodes": list(step.nodes),
                "evictions": step.evictions,
                "perHour": round(step.per_hour, 6),
            }
            for step in planned.steps
        ],
        "kept": list(planned.kept),
        "objects": [dict(body) for proposal in planned.proposals for body in proposal.objects],
        "newNodes": [dict(node) for node in planned.new_nodes],
        "evictions": planned.evictions,
        "pricePerMonth": {
            "before": round(planned.before * HOURS_PER_MONTH, 2),
            "after": round(planned.after * HOURS_PER_MONTH, 2),
            "lowerBound": None if planned.lower_bound is None else round(planned.lower_bound * HOURS_PER_MONTH, 2),
            "unpricedNodes": planned.unpriced,
        },
        "refusals": [blocker_data(blocker) for blocker in planned.blockers],
    }


def blocker_data(blocker: MoveBlocker) -> dict[str, str]:
    return {"code": blocker.code, "object": blocker.object, "message": blocker.why, "remedy": blocker.remedy}


def progress_data(progress: MigrationProgress) -> dict[str, str]:
    return {"action": progress.action, "text": progress.text, "command": progress.command}


def result_data(result: MigrationResult) -> dict[str, Any]:
    refusals = [blocker_data(blocker) for blocker in result.blockers]
    return {"result": result.outcome.value, "message": result.why, "refusals": refusals}
