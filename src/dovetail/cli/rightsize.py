"""`dovetail rightsize`: what requests cost, and what they would cost if they followed usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dovetail.autoscalers.vpa.rightsizing_writes import DEFAULT_UPDATE_MODE, UPDATE_MODES
from dovetail.errors import UserError
from dovetail.language import data_in_english, message
from dovetail.language.recognition import recognized
from dovetail.model import yaml_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.autoscalers.vpa.rightsizing import FleetCost, Planned, RightsizingReport, UsageEvidence, WorkloadKey
    from dovetail.model.pods import Pod
    from dovetail.offline.objects import Objects
    from dovetail.planner.snapshot import NodeState, Snapshot

    Json = dict[str, Any]

#: Between two reads of the metrics API while observing.
SAMPLE_INTERVAL_S = 15.0
#: Of nodes or pods with something in common, so many are named.
MAX_NAMED = 3
#: What usage is read from, beside metrics.
_READ = frozenset({"PodMetrics", "VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint", "HorizontalPodAutoscaler"})
_POLICIES = frozenset({"VerticalPodAutoscaler"})


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
    from dovetail.autoscalers.vpa.estimators import EstimatorSettings
    from dovetail.autoscalers.vpa.rightsizing import (
        UsageEvidence,
        advise,
        all_pods,
        daemon_pods,
        price,
    )
    from dovetail.cloud.aws.catalog import load
    from dovetail.offline import snapshot as snapshot_module
    from dovetail.offline.objects import read
    from dovetail.offline.region import region_of

    history_s, observe_s = _seconds("--min-history", min_history), _seconds("--observe", observe)
    if prometheus and not prometheus.startswith(("http://", "https://")):
        raise UserError(
            message("--prometheus: {url} is no address of Prometheus; write http://host:9090", url=prometheus)
        )
    if update_mode is not None and applied != "vpa":
        raise UserError(
            message("--update-mode is of the objects that --apply vpa creates; add it, or leave the mode out")
        )
    if applied and paths and not (kubeconfig or context):
        raise UserError(message("--apply writes to a cluster; name it with --kubeconfig or --context, or leave out -f"))
    objects = read(paths)
    extras = list(_extras(paths))
    if not paths or kubeconfig or context:
        extras += _ask_cluster(objects, kubeconfig, context, observe_s)
    elif observe_s:
        raise UserError(
            message("--observe reads a cluster's metrics API; name the cluster with --kubeconfig or --context")
        )
    region = "" if catalog else region_of(region, objects)
    types = snapshot_module.catalogue(catalog) if catalog else load(region)
    snapshot = snapshot_module.snapshot(objects, types, any_type=bool(catalog), region=region)
    pods = [*all_pods(snapshot), *daemon_pods(snapshot)]
    if not pods:
        raise UserError(message("no pods to look at: name files with workloads, or a cluster that runs some"))
    evidence = UsageEvidence()
    vpas = _vpas(extras)
    _add_metrics(evidence, pods, extras)
    _add_checkpoints(evidence, extras, vpas)
    if prometheus:
        _add_prometheus(evidence, pods, prometheus)
    with data_in_english("json" if output == "yaml" else output):
        advice = advise(
            pods,
            evidence,
            vpas,
            estimators=EstimatorSettings(),
            scaled_by=_scaled_by(extras),
            min_history_s=history_s,
        )
    report = price(snapshot, advice, lambda chosen: _planned(chosen, seed), _quoted, _node_price)
    _print(report, output, of_files=bool(paths) and not (kubeconfig or context))
    if "patch" in (output, applied):
        _note_unpatched(report)
    if applied:
        _apply(report, set(vpas), applied, update_mode or DEFAULT_UPDATE_MODE, kubeconfig, context)


def _print(report: RightsizingReport, output: str, *, of_files: bool) -> None:
    from dovetail.autoscalers.vpa.rightsizing import as_json, as_patches

    if output == "text":
        click.echo("\n".join(_text(report, of_files)))
    elif output == "json":
        import json

        click.echo(json.dumps(as_json(report), indent=1))
    else:
        import yaml

        dump = yaml.safe_dump_all if output == "patch" else yaml.safe_dump
        shown: Any = as_patches(report) if output == "patch" else as_json(report)
        click.echo(dump(shown, sort_keys=False), nl=False)


def _note_unpatched(report: RightsizingReport) -> None:
    """Name the workloads whose proposal no patch can set."""
    from dovetail.autoscalers.vpa.rightsizing import unpatched

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


def _extras(paths: tuple[str, ...]) -> Iterator[Json]:
    """Metrics, VPAs and checkpoints of the files, which planning does not look at."""
    import yaml

    from dovetail.offline.manifests import texts

    for name, text in texts([path for path in paths if path != "-"]):
        try:
            documents = yaml_document.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError as error:
            raise UserError(f"{name}: " + message("not YAML: {problem}", problem=error)) from error
        for document in documents:
            yield from _items(document)


def _items(document: Any) -> Iterator[Json]:
    if not isinstance(document, dict):
        return
    kind = str(document.get("kind") or "")
    if kind.endswith("List"):
        for item in document.get("items") or ():
            if isinstance(item, dict):
                yield from _items({"kind": kind.removesuffix("List"), **item} if kind != "List" else item)
    elif kind in _READ:
        yield document


def _ask_cluster(objects: Objects, kubeconfig: str | None, context: str | None, observe_s: float) -> list[Json]:
    import asyncio

    import msgspec

    from dovetail.autoscalers.vpa.api import CHECKPOINTS, VPAS
    from dovetail.autoscalers.vpa.metrics_api import POD_METRICS, pod_metrics
    from dovetail.cli import cluster_objects
    from dovetail.cli.cluster_session import ClusterSession, ask
    from dovetail.kube.errors import ApiError, NotFound
    from dovetail.kube.resources import HPAS, Resource

    cluster_objects.read(objects, kubeconfig, context)

    async def question(cluster: ClusterSession) -> list[Json]:
        async def listed(resource: Resource) -> list[Json]:
            try:
                items = (await cluster.kube.list(resource)).items
            except NotFound:
                click.echo(message("note: the cluster has no {resource}", resource=resource.name), err=True)
                return []
            except ApiError as problem:
                click.echo(
                    message(
                        "note: {resource} cannot be read: {message}",
                        resource=resource.name,
                        message=recognized(problem.message),
                    ),
                    err=True,
                )
                return []
            return [{**item, "kind": resource.kind} for item in items]

        async def measured() -> list[Json]:
            try:
                items = await pod_metrics(cluster.kube)
            except ApiError as problem:
                click.echo(
                    message(
                        "note: {pod_metrics} cannot be read: {message}",
                        pod_metrics=POD_METRICS.name,
                        message=recognized(problem.message),
                    ),
                    err=True,
                )
                return []
            return [{**msgspec.to_builtins(item), "kind": POD_METRICS.kind} for item in items]

        gathered = [*await listed(HPAS), *await listed(VPAS), *await listed(CHECKPOINTS), *await measured()]
        clock = cluster.kube.clock
        end = clock.monotonic() + observe_s
        while clock.monotonic() + SAMPLE_INTERVAL_S <= end:
            await asyncio.sleep(SAMPLE_INTERVAL_S)
            gathered += await measured()
        return gathered

    return ask(kubeconfig, context, question)


def _vpas(extras: list[Json]) -> dict[Any, Any]:
    """VPAs by the workload they target."""
    import msgspec

    from dovetail.autoscalers.vpa.api import VerticalPodAutoscaler
    from dovetail.autoscalers.vpa.rightsizing import WorkloadKey

    by_target = {}
    for item in extras:
        if item["kind"] not in _POLICIES:
            continue
        try:
            vpa = msgspec.convert(item, VerticalPodAutoscaler, strict=False)
        except msgspec.ValidationError as error:
            name = (item.get("metadata") or {}).get("name")
            raise UserError(f"VerticalPodAutoscaler {name!r}: {error}") from error
        ref = vpa.spec.target_ref
        if ref is not None:
            by_target[WorkloadKey(vpa.metadata.namespace or "default", ref.kind, ref.name)] = vpa
    return by_target


def _scaled_by(extras: list[Json]) -> dict[WorkloadKey, dict[str, str]]:
    """By workload: the HPA that holds a percentage of the requests of a resource, the first by name."""
    from dovetail.autoscalers.vpa.rightsizing import WorkloadKey
    from dovetail.model.pod_autoscalers import utilization_resources, workload

    by_target: dict[WorkloadKey, dict[str, str]] = {}
    hpas = [(_hpa_name(item), item) for item in extras if item["kind"] == "HorizontalPodAutoscaler"]
    for hpa_name, hpa in sorted(hpas, key=lambda named: named[0]):
        kind, name, namespace = workload(hpa, "scaleTargetRef")
        for resource in sorted(utilization_resources(hpa)):
            by_target.setdefault(WorkloadKey(namespace, kind, name), {}).setdefault(resource, hpa_name)
    return by_target


def _hpa_name(hpa: Json) -> str:
    """One that is named by the API server is shown by the beginning of its name."""
    metadata = hpa.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    name = fields.get("name") or fields.get("generateName")
    if not name:
        raise UserError(message("{kind} without a name; every object needs metadata.name", kind=hpa["kind"]))
    return str(name)


def _add_metrics(evidence: UsageEvidence, pods: list[Pod], extras: list[Json]) -> None:
    from datetime import datetime

    from dovetail.model.quantity import QuantityError, milli, whole

    pods_by_key = {f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}": pod for pod in pods}
    readings: list[tuple[float, Any, str, int | None, int | None]] = []
    for item in extras:
        if item["kind"] != "PodMetrics":
            continue
        metadata = item.get("metadata") or {}
        pod = pods_by_key.get(f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}")
        if pod is None or not item.get("timestamp"):
            continue
        stamp = item["timestamp"]
        try:
            time_s = (stamp if isinstance(stamp, datetime) else datetime.fromisoformat(str(stamp))).timestamp()
            for container in item.get("containers") or ():
                usage = container.get("usage") or {}
                cpu = milli(usage["cpu"]) if "cpu" in usage else None
                memory = whole(usage["memory"]) if "memory" in usage else None
                readings.append((time_s, pod, container.get("name") or "", cpu, memory))
        except (ValueError, QuantityError) as error:
            raise UserError(f"PodMetrics {metadata.get('name')!r}: {error}") from error
    readings.sort(key=lambda reading: reading[0])
    for time_s, pod, container, cpu, memory in readings:
        evidence.add_samples(pod, container, [(time_s, cpu, memory)])


def _add_checkpoints(evidence: UsageEvidence, extras: list[Json], vpas: dict[Any, Any]) -> None:
    from dovetail.autoscalers.vpa.checkpoints import loaded
    from dovetail.autoscalers.vpa.histogram import CheckpointError
    from dovetail.autoscalers.vpa.usage import AggregationSettings

    by_name = {f"{key.namespace}/{vpa.metadata.name}": key for key, vpa in vpas.items()}
    for item in extras:
        if item["kind"] != "VerticalPodAutoscalerCheckpoint":
            continue
        metadata, spec = item.get("metadata") or {}, item.get("spec") or {}
        key = by_name.get(f"{metadata.get('namespace') or 'default'}/{spec.get('vpaObjectName')}")
        if key is None:
            continue
        try:
            usage = loaded(item.get("status") or {}, AggregationSettings(), 0.0)
        except CheckpointError as problem:
            click.echo(
                message("note: checkpoint {name} is left out: {problem}", name=metadata.get("name"), problem=problem),
                err=True,
            )
            continue
        evidence.add_checkpoint(key, spec.get("containerName") or "", usage)


def _add_prometheus(evidence: UsageEvidence, pods: list[Pod], address: str) -> None:
    import asyncio

    from dovetail.autoscalers.vpa.metrics import RecommenderMetrics
    from dovetail.autoscalers.vpa.prometheus import PrometheusError, fetch_history
    from dovetail.autoscalers.vpa.rightsizing import workload_of
    from dovetail.autoscalers.vpa.settings import PrometheusSettings
    from dovetail.clock import Clock, run_scaled

    async def main() -> list[Any]:
        clock = Clock(asyncio.get_running_loop())
        return await fetch_history(PrometheusSettings(address=address), clock, RecommenderMetrics(clock, 60.0))

    try:
        histories = run_scaled(main())
    except PrometheusError as problem:
        raise UserError(f"--prometheus: {problem}") from problem
    owners = {f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}": workload_of(pod) for pod in pods}
    for history in histories:
        key = owners.get(f"{history.namespace}/{history.name}")
        if key is not None:
            evidence.add_history(key, history)


def _planned(snapshot: Snapshot, seed: int) -> Planned:
    from dovetail.autoscalers.vpa.rightsizing import Planned
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


def _text(report: RightsizingReport, of_files: bool) -> Iterator[str]:
    yield from _workload_table(report)
    yield ""
    yield from _cost_lines(report.cost, proposed=any(item.is_proposal for item in report.workloads))
    yield from _left_alone(report, of_files)


def _workload_table(report: RightsizingReport) -> Iterator[str]:
    """A line for each container: requests and usage now, the proposal, and what it saves."""
    from dovetail.language.columns import table
    from dovetail.model.quantity import whole

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
    from dovetail.autoscalers.vpa.rightsizing import HOURS_A_MONTH

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
    from dovetail.autoscalers.vpa.rightsizing import MIN_SAMPLES

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
