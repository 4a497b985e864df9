"""Usage of workloads from files, a cluster and Prometheus: metrics, VPAs with their checkpoints, and HPAs."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import click
import msgspec

from dovetail.autoscalers.vpa.api import CHECKPOINTS, VPAS, VerticalPodAutoscaler
from dovetail.autoscalers.vpa.checkpoints import loaded
from dovetail.autoscalers.vpa.histogram import CheckpointError
from dovetail.autoscalers.vpa.metrics import RecommenderMetrics
from dovetail.autoscalers.vpa.metrics_api import POD_METRICS, pod_metrics
from dovetail.autoscalers.vpa.prometheus import PrometheusError, fetch_history
from dovetail.autoscalers.vpa.rightsizing import UsageEvidence, WorkloadKey, workload_of
from dovetail.autoscalers.vpa.settings import PrometheusSettings
from dovetail.autoscalers.vpa.usage import AggregationSettings
from dovetail.cli import cluster_objects
from dovetail.cli.cluster_session import ClusterSession, ask
from dovetail.clock import Clock, run_scaled
from dovetail.errors import UserError
from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError, NotFound
from dovetail.kube.resources import HPAS, Resource
from dovetail.language import message
from dovetail.language.recognition import recognized
from dovetail.model.pod_autoscalers import utilization_resources, workload
from dovetail.model.pods import Pod
from dovetail.model.quantity import QuantityError, milli, whole
from dovetail.offline.objects import Objects

Json = dict[str, Any]

#: Between two reads of the metrics API while observing.
SAMPLE_INTERVAL_S = 15.0
#: What is read beside the objects of a plan.
KINDS = frozenset({"PodMetrics", "VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint", "HorizontalPodAutoscaler"})


def ask_cluster(objects: Objects, kubeconfig: str | None, context: str | None, observe_s: float) -> list[Json]:
    """Add a cluster's objects to `objects`; its HPAs, VPAs, checkpoints, and metrics, read for so long."""
    cluster_objects.read(objects, kubeconfig, context)

    async def question(cluster: ClusterSession) -> list[Json]:
        kube = cluster.kube
        gathered = [item for resource in (HPAS, VPAS, CHECKPOINTS) for item in await _listed(kube, resource)]
        gathered += await _measured(kube)
        end = kube.clock.monotonic() + observe_s
        while kube.clock.monotonic() + SAMPLE_INTERVAL_S <= end:
            await asyncio.sleep(SAMPLE_INTERVAL_S)
            gathered += await _measured(kube)
        return gathered

    return ask(kubeconfig, context, question)


async def _listed(kube: Kube, resource: Resource) -> list[Json]:
    try:
        items = (await kube.list(resource)).items
    except NotFound:
        click.echo(message("note: the cluster has no {resource}", resource=resource.name), err=True)
        return []
    except ApiError as problem:
        _note_unreadable(resource, problem)
        return []
    return [{**item, "kind": resource.kind} for item in items]


async def _measured(kube: Kube) -> list[Json]:
    try:
        items = await pod_metrics(kube)
    except ApiError as problem:
        _note_unreadable(POD_METRICS, problem)
        return []
    return [{**msgspec.to_builtins(item), "kind": POD_METRICS.kind} for item in items]


def _note_unreadable(resource: Resource, problem: ApiError) -> None:
    text = message(
        "note: {resource} cannot be read: {message}", resource=resource.name, message=recognized(problem.message)
    )
    click.echo(text, err=True)


def vpas_by_workload(extras: list[Json]) -> dict[WorkloadKey, VerticalPodAutoscaler]:
    """VPAs by the workload they target."""
    by_target = {}
    for item in extras:
        if item["kind"] != VPAS.kind:
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


def scaled_by(extras: list[Json]) -> dict[WorkloadKey, dict[str, str]]:
    """By workload: the HPA that holds a percentage of the requests of a resource, the first by name."""
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


def evidence_of(pods: list[Pod], extras: list[Json], vpas: dict[WorkloadKey, VerticalPodAutoscaler]) -> UsageEvidence:
    """The usage that PodMetrics and the checkpoints of VPAs tell."""
    evidence = UsageEvidence()
    _add_metrics(evidence, pods, extras)
    _add_checkpoints(evidence, extras, vpas)
    return evidence


def _add_metrics(evidence: UsageEvidence, pods: list[Pod], extras: list[Json]) -> None:
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


def _add_checkpoints(
    evidence: UsageEvidence, extras: list[Json], vpas: dict[WorkloadKey, VerticalPodAutoscaler]
) -> None:
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


def add_prometheus(evidence: UsageEvidence, pods: list[Pod], address: str) -> None:
    """Add what Prometheus knows of the last 8 days."""

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
