"""What `dovetail rightsize` prints: a table with the costs below it, or the same as data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import yaml

from dovetail.autoscalers.vpa.rightsizing import MIN_SAMPLES
from dovetail.autoscalers.vpa.rightsizing_cost import HOURS_A_MONTH, FleetCost, RightsizingReport
from dovetail.autoscalers.vpa.rightsizing_writes import as_patches
from dovetail.language import message
from dovetail.language.columns import table
from dovetail.model.quantity import whole

#: Of nodes or pods with something in common, so many are named.
MAX_NAMED = 3


def print_report(report: RightsizingReport, output: str, *, of_files: bool) -> None:
    if output == "text":
        click.echo("\n".join(_text(report, of_files)))
    elif output == "json":
        click.echo(json.dumps(as_json(report), indent=1))
    else:
        dump = yaml.safe_dump_all if output == "patch" else yaml.safe_dump
        shown: Any = as_patches(report) if output == "patch" else as_json(report)
        click.echo(dump(shown, sort_keys=False), nl=False)


def _text(report: RightsizingReport, of_files: bool) -> Iterator[str]:
    yield from _workload_table(report)
    yield ""
    yield from _cost_lines(report.cost, proposed=any(item.is_proposal for item in report.workloads))
    yield from _left_alone(report, of_files)


def _workload_table(report: RightsizingReport) -> Iterator[str]:
    """A line for each container: requests and usage now, the proposal, and what it saves."""

    def memory(text: str) -> str:
        return f"{whole(text) / 2**20:.0f}Mi" if text else "-"

    used, proposed = message("USED"), message("PROPOSED")
    titles = (message("WORKLOAD"), message("PODS"), message("CONTAINER"), message("CPU NOW"), used, proposed,
              message("MEM NOW"), used, proposed, message("ABOVE"), message("SAVES $/MONTH"))  # fmt: skip
    rows: list[tuple[str, ...]] = [titles]
    for item in report.workloads:
        for number, container in enumerate(item.containers):
            saving = "" if item.saving_per_month is None or number else f"{item.saving_per_month:.2f}"
            above = max(container.above.values(), default=None)
            rows.append(
                (
                    str(item.key) if not number else "",
                    str(item.pods) if not number else "",
                    container.name,
                    container.requests.get("cpu", "-"),
                    container.used.get("cpu", "-"),
                    container.proposed.get("cpu", "-"),
                    memory(container.requests.get("memory", "")),
                    memory(container.used.get("memory", "")),
                    memory(container.proposed.get("memory", "")),
                    "-" if above is None else f"{above:.1%}",
                    saving,
                )
            )
    yield from table(rows)


def _cost_lines(cost: FleetCost, *, proposed: bool) -> Iterator[str]:
    """The fleet's cost with both kinds of requests, the nodes without a price, and pods that fit nowhere."""
    after = [(message("planned with the proposed requests"), cost.planned_after)] if proposed else []
    for label, per_hour in (
        (message("nodes now"), cost.nodes_now),
        (message("planned with the requests of now"), cost.planned_now),
        *after,
        (message("lower bound of that"), cost.lower_bound_after),
    ):
        text = (
            message("unknown")
            if per_hour is None
            else message("${dollars:.2f}/month", dollars=per_hour * HOURS_A_MONTH)
        )
        yield f"{label}: {text}"
    if cost.unpriced_nodes:
        yield message(
            "no price is known of {names}: spot, or no label says whether spot or on-demand",
            names=_named(cost.unpriced_nodes),
        )
    if not proposed:
        yield message("no workload has a proposal, so nothing is saved")
    elif cost.planned_now and cost.planned_after is not None:
        saved = round((cost.planned_now - cost.planned_after) * HOURS_A_MONTH, 2)
        share = abs(saved) / (cost.planned_now * HOURS_A_MONTH)
        if saved < 0:
            text = message("the proposals cost ${dollars:.2f}/month more ({share:.0%})", dollars=-saved, share=share)
        else:
            text = message("the proposals save ${dollars:.2f}/month ({share:.0%})", dollars=saved, share=share)
        yield text
    if cost.kept_nodes:
        yield message(
            "every plan keeps and pays {names}: some of their pods fit no new node", names=_named(cost.kept_nodes)
        )
    for label, pods in (
        (message("with the requests of now"), cost.unschedulable_now),
        (message("with the proposals"), cost.unschedulable_after),
    ):
        if pods:
            yield message("no place {label}: {names}; `dovetail plan` says why", label=label, names=_named(pods))


def _named(names: tuple[str, ...]) -> str:
    """The first of many nodes or pods, and how many more there are."""
    first, more = ", ".join(names[:MAX_NAMED]), len(names) - MAX_NAMED
    return first if more <= 0 else message("{names} and {more} more", names=first, more=more)


def _left_alone(report: RightsizingReport, of_files: bool) -> Iterator[str]:
    """The workloads of which something is not proposed, why, and what would change that."""
    unknown = [item for item in report.workloads if item.unknown]
    if unknown:
        yield ""
        yield message("not known, and left as they are:")
        for item in unknown:
            yield f"  {item.key}: {item.unknown}"
        if of_files:
            more = message("more usage: PodMetrics of several times, VPA checkpoints, or --prometheus URL")
        else:
            more = message("more usage: --observe 1h, --prometheus URL, or a VerticalPodAutoscaler that records it")
        too_short = any(item.samples >= MIN_SAMPLES for item in unknown)
        yield f"{more}; {message('--min-history is content with less')}" if too_short else more
    scaled = [item for item in report.workloads if item.scaled_by]
    if scaled:
        yield ""
        yield message("left as they are, because an HPA holds a percentage of them:")
        for item in scaled:
            for resource, name in item.scaled_by.items():
                yield message(
                    "  {workload}: {resource} requests, HorizontalPodAutoscaler {name}; with an averageValue in place "
                    "of averageUtilization they can be proposed",
                    workload=str(item.key),
                    resource=resource,
                    name=name,
                )


def as_json(report: RightsizingReport) -> dict[str, Any]:
    cost = report.cost

    def monthly(per_hour: float | None) -> float | None:
        return None if per_hour is None else round(per_hour * HOURS_A_MONTH, 2)

    return {
        "cost": {
            "unit": "USD/month",
            "nodesNow": monthly(cost.nodes_now),
            "nodesWithoutPrice": list(cost.unpriced_nodes),
            "plannedNow": monthly(cost.planned_now),
            "plannedAfter": monthly(cost.planned_after),
            "lowerBoundAfter": monthly(cost.lower_bound_after),
            "nodesKept": list(cost.kept_nodes),
            "unschedulableNow": list(cost.unschedulable_now),
            "unschedulableAfter": list(cost.unschedulable_after),
        },
        "workloads": [
            {
                "namespace": item.key.namespace,
                "kind": item.key.kind,
                "name": item.key.name,
                "pods": item.pods,
                "historyHours": round(item.history_s / 3600, 2),
                "samples": item.samples,
                **({"unknown": item.unknown} if item.unknown else {}),
                **({"scaledBy": item.scaled_by} if item.scaled_by else {}),
                "savingPerMonth": None if item.saving_per_month is None else round(item.saving_per_month, 2),
                "containers": [
                    {
                        "name": container.name,
                        "requests": container.requests,
                        "used": container.used,
                        "proposed": container.proposed,
                        "proposedLimits": container.proposed_limits,
                        "shareAboveProposal": {name: round(share, 4) for name, share in container.above.items()},
                    }
                    for container in item.containers
                ],
            }
            for item in report.workloads
        ],
    }
