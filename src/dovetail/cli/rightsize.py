"""`dovetail rightsize`: what requests cost, and what they would cost if they followed usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dovetail.autoscalers.vpa.rightsizing_writes import DEFAULT_UPDATE_MODE, UPDATE_MODES
from dovetail.errors import UserError
from dovetail.language import data_in_english, message

if TYPE_CHECKING:
    from typing import Any

    from dovetail.autoscalers.vpa.api import VerticalPodAutoscaler
    from dovetail.autoscalers.vpa.rightsizing import WorkloadAdvice, WorkloadKey
    from dovetail.autoscalers.vpa.rightsizing_cost import Planned, RightsizingReport
    from dovetail.offline.objects import Objects
    from dovetail.planner.snapshot import NodeState, Snapshot

    Json = dict[str, Any]


@click.command()
@click.option("-f", "--filename", "paths", multiple=True, metavar="PATH",
              help="A file or folder with workloads, PodMetrics, HPAs, VPAs and their checkpoints.")  # fmt: skip
@click.option("--kubeconfig", metavar="FILE", help="Read a cluster; by default kubectl's, or the lab that runs here.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--observe", default="0s", metavar="DURATION", help="Read the metrics API for so long first.")
@click.option("--prometheus", metavar="URL", help="Read usage of the last 8 days from Prometheus.")
@click.option("--min-history", default="24h", show_default=True, metavar="DURATION",
              help="Leave workloads alone whose usage is known for less time.")  # fmt: skip
@click.option("--catalog", metavar="FILE", help="Instance types as a JSON array, instead of the packaged catalogue.")
@click.option("--region", help="Region of the packaged catalogue; else the input's, AWS_REGION, or ap-northeast-2.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml", "patch"]), default="text", show_default=True)
@click.option("--apply", "applied", type=click.Choice(["patch", "vpa"]),
              help="Set the proposed requests, or create VerticalPodAutoscalers for the workloads.")  # fmt: skip
@click.option("--update-mode", type=click.Choice(UPDATE_MODES), show_default=DEFAULT_UPDATE_MODE,
              help="updateMode of the VerticalPodAutoscalers that --apply vpa creates.")  # fmt: skip
def rightsize(
    paths: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    observe: str,
    prometheus: str | None,
    min_history: str,
    catalog: str | None,
    region: str | None,
    seed: int,
    output: str,
    applied: str | None,
    update_mode: str | None,
) -> None:
    """Say what requests cost, and what the fleet would cost if they were what VPA recommends.

    Usage comes from PodMetrics and VPA checkpoints, of files or of a cluster; without --apply nothing is written to the
    cluster. Requests of which an HPA holds a percentage are left as they are. -o patch prints partial objects: patches
    of a kustomization, not manifests to apply.
    """
    from dovetail.autoscalers.vpa.rightsizing_cost import price
    from dovetail.cli import usage_evidence
    from dovetail.cli.rightsizing_report import print_report
    from dovetail.offline.objects import read

    history_s, observe_s = _seconds("--min-history", min_history), _seconds("--observe", observe)
    of_files = bool(paths) and not (kubeconfig or context)
    _check(prometheus, update_mode, applied, of_files=of_files, observe_s=observe_s)
    objects = read(paths, kept=usage_evidence.KINDS)
    extras = list(objects.others)
    if not of_files:
        extras += usage_evidence.ask_cluster(objects, kubeconfig, context, observe_s)
    vpas = usage_evidence.vpas_by_workload(extras)
    snapshot = _snapshot(objects, catalog, region)
    with data_in_english("json" if output == "yaml" else output):
        advice = _advice(snapshot, extras, vpas, prometheus, history_s)
    report = price(snapshot, advice, lambda chosen: _planned(chosen, seed), _quoted, _node_price)
    print_report(report, output, of_files=of_files)
    if "patch" in (output, applied):
        _note_unpatched(report)
    if applied:
        _apply(report, set(vpas), applied, update_mode or DEFAULT_UPDATE_MODE, kubeconfig, context)


def _check(
    prometheus: str | None, update_mode: str | None, applied: str | None, *, of_files: bool, observe_s: float
) -> None:
    """Refuse flags that mean nothing together."""
    if prometheus and not prometheus.startswith(("http://", "https://")):
        raise UserError(
            message("--prometheus: {url} is no address of Prometheus; write http://host:9090", url=prometheus)
        )
    if update_mode is not None and applied != "vpa":
        raise UserError(
            message("--update-mode is of the objects that --apply vpa creates; add it, or leave the mode out")
        )
    if applied and of_files:
        raise UserError(message("--apply writes to a cluster; name it with --kubeconfig or --context, or leave out -f"))
    if observe_s and of_files:
        raise UserError(
            message("--observe reads a cluster's metrics API; name the cluster with --kubeconfig or --context")
        )


def _snapshot(objects: Objects, catalog: str | None, region: str | None) -> Snapshot:
    from dovetail.cloud.aws.catalog import load
    from dovetail.offline import snapshot
    from dovetail.offline.region import region_of

    named = "" if catalog else region_of(region, objects)
    types = snapshot.catalogue(catalog) if catalog else load(named)
    return snapshot.snapshot(objects, types, any_type=bool(catalog), region=named)


def _advice(
    snapshot: Snapshot,
    extras: list[Json],
    vpas: dict[WorkloadKey, VerticalPodAutoscaler],
    prometheus: str | None,
    min_history_s: float,
) -> list[WorkloadAdvice]:
    """What VPA would set, by what the cluster, the files and Prometheus tell of usage."""
    from dovetail.autoscalers.vpa.estimators import EstimatorSettings
    from dovetail.autoscalers.vpa.rightsizing import advise
    from dovetail.autoscalers.vpa.rightsizing_cost import all_pods, daemon_pods
    from dovetail.cli import usage_evidence

    pods = [*all_pods(snapshot), *daemon_pods(snapshot)]
    if not pods:
        raise UserError(message("no pods to look at: name files with workloads, or a cluster that runs some"))
    evidence = usage_evidence.evidence_of(pods, extras, vpas)
    if prometheus:
        usage_evidence.add_prometheus(evidence, pods, prometheus)
    return advise(
        pods,
        evidence,
        vpas,
        estimators=EstimatorSettings(),
        scaled_by=usage_evidence.scaled_by(extras),
        min_history_s=min_history_s,
    )


def _note_unpatched(report: RightsizingReport) -> None:
    """Name the workloads whose proposal no patch can set."""
    from dovetail.autoscalers.vpa.rightsizing_writes import unpatched

    for key in unpatched(report):
        note = message(
            "note: {workload} has a proposal, but the requests of a {kind} cannot be changed; set them where the "
            "next one is made",
            workload=str(key),
            kind=key.kind,
        )
        click.echo(note, err=True)


def _apply(
    report: RightsizingReport,
    targeted: set[WorkloadKey],
    applied: str,
    update_mode: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Write what was proposed, say of each object what became of it, and fail if one was refused."""
    from dovetail.autoscalers.vpa.rightsizing_writes import Written, write_patches, write_vpas
    from dovetail.cli.cluster_session import ClusterSession, ask

    async def question(cluster: ClusterSession) -> list[Written]:
        if applied == "patch":
            return await write_patches(cluster.kube, report)
        return await write_vpas(cluster.kube, report, targeted, update_mode)

    states = {
        "changed": message("changed"),
        "created": message("created"),
        "exists": message("exists, left as it is"),
        "refused": message("refused"),
    }
    done = ask(kubeconfig, context, question)
    for item in done:
        why = f": {item.why}" if item.why else ""
        click.echo(f"{item.object} {states[item.state]}{why}", err=True)
    if not done:
        click.echo(nothing_to_apply(report, applied), err=True)
    if any(item.state == "refused" for item in done):
        raise click.exceptions.Exit(1)


def nothing_to_apply(report: RightsizingReport, applied: str) -> str:
    if applied == "vpa" and any(workload.is_proposal for workload in report.workloads):
        return message("nothing to apply: every workload with a proposal has a VerticalPodAutoscaler")
    return message("nothing to apply: no workload has a proposal")


def _seconds(flag: str, text: str) -> float:
    from dovetail.model.duration import DurationError, nanoseconds

    try:
        seconds = nanoseconds(text) / 1e9
    except DurationError as error:
        raise UserError(message("{flag}: {error}; write it as 24h or 90m", flag=flag, error=error)) from error
    if seconds < 0:
        raise UserError(message("{flag}: {text} is less than nothing; write it as 24h or 90m", flag=flag, text=text))
    return seconds


def _planned(snapshot: Snapshot, seed: int) -> Planned:
    from dovetail.autoscalers.vpa.rightsizing_cost import Planned
    from dovetail.planner.optimise.improve import default_deadline, default_optimiser
    from dovetail.planner.provision import provision

    pods = len(snapshot.pending)
    plan = provision(snapshot, seed=seed, deadline=default_deadline(pods), optimiser=default_optimiser(pods))
    return Planned(
        per_hour=plan.cost.per_hour, lower_bound=plan.cost.lower_bound, unschedulable=tuple(sorted(plan.unschedulable))
    )


def _quoted(snapshot: Snapshot) -> float | None:
    from dovetail.planner.provision import quote

    return quote(snapshot)


def _node_price(node: NodeState) -> float | None:
    """What a node was launched at, or the list price of its type where it belongs to a node group."""
    from dovetail.view.prices import price

    if node.price is not None:
        return node.price
    listed = price(node.labels, None)
    return None if listed is None else listed.per_hour
