"""Columns of what runs pods: deployments and their like, jobs, autoscalers, budgets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dovetail.lab.apiserver.gocompat import gotime
from dovetail.lab.apiserver.printers.cells import (
    ColumnHeader,
    age,
    containers,
    created,
    human,
    labels,
    selector,
    shown_selector,
)

Json = dict[str, Any]
NAME = ColumnHeader("Name", format="name")
AGE = ColumnHeader("Age")
CONTAINERS = (ColumnHeader("Containers", priority=1), ColumnHeader("Images", priority=1))
SELECTOR = ColumnHeader("Selector", priority=1)


def _parts(obj: Json) -> tuple[str, Json, Json]:
    return obj["metadata"]["name"], obj.get("spec") or {}, obj.get("status") or {}


DEPLOYMENTS = (
    NAME,
    ColumnHeader("Ready"),
    ColumnHeader("Up-to-date"),
    ColumnHeader("Available"),
    AGE,
    *CONTAINERS,
    SELECTOR,
)


def deployment(obj: Json, now: datetime) -> list[Any]:
    name, spec, status = _parts(obj)
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas') or 0}"
    names, images = containers(spec.get("template"))
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    return [name, ready, updated, available, created(obj, now), names, images, selector(spec.get("selector"))]


def _count(name: str) -> ColumnHeader:
    return ColumnHeader(name, "integer")


REPLICAS = (NAME, _count("Desired"), _count("Current"), _count("Ready"), AGE, *CONTAINERS, SELECTOR)


def replicaset(obj: Json, now: datetime) -> list[Any]:
    name, spec, status = _parts(obj)
    names, images = containers(spec.get("template"))
    counts = [spec.get("replicas") or 0, status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name, *counts, created(obj, now), names, images, shown_selector(spec.get("selector"))]


def replicationcontroller(obj: Json, now: datetime) -> list[Any]:
    name, spec, status = _parts(obj)
    names, images = containers(spec.get("template"))
    counts = [spec.get("replicas") or 0, status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name, *counts, created(obj, now), names, images, labels(spec.get("selector"))]


STATEFULSETS = (NAME, ColumnHeader("Ready"), AGE, *CONTAINERS)


def statefulset(obj: Json, now: datetime) -> list[Any]:
    name, spec, status = _parts(obj)
    names, images = containers(spec.get("template"))
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas') or 0}"
    return [name, ready, created(obj, now), names, images]


DAEMONSETS = (
    NAME,
    _count("Desired"),
    _count("Current"),
    _count("Ready"),
    _count("Up-to-date"),
    _count("Available"),
    ColumnHeader("Node Selector"),
    AGE,
    *CONTAINERS,
    SELECTOR,
)


def daemonset(obj: Json, now: datetime) -> list[Any]:
    name, spec, status = _parts(obj)
    names, images = containers(spec.get("template"))
    keys = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    nodes = labels(((spec.get("template") or {}).get("spec") or {}).get("nodeSelector"))
    counts = [status.get(key, 0) for key in keys]
    return [name, *counts, nodes, created(obj, now), names, images, shown_selector(spec.get("selector"))]


JOBS = (NAME, ColumnHeader("Status"), ColumnHeader("Completions"), ColumnHeader("Duration"), AGE, *CONTAINERS, SELECTOR)
_JOB_WORDS = (
    ("Complete", "Complete"),
    ("Failed", "Failed"),
    ("", "Terminating"),
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)


def job(obj: Json, now: datetime) -> list[Any]:
    name, spec, status = _parts(obj)
    names, images = containers(spec.get("template"))
    done = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        completions = f"{done}/{spec['completions']}"
    else:
        parallel = spec.get("parallelism") or 0
        completions = f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
    took = ""
    if status.get("startTime"):
        end = gotime.parse(status["completionTime"]) if status.get("completionTime") else now
        took = human((end - gotime.parse(status["startTime"])).total_seconds())
    chosen = shown_selector(spec.get("selector"))
    return [name, _job_word(obj, status), completions, took, created(obj, now), names, images, chosen]


def _job_word(obj: Json, status: Json) -> str:
    true = {condition.get("type") for condition in status.get("conditions") or [] if condition.get("status") == "True"}
    for condition, word in _JOB_WORDS:
        if condition in true or (not condition and obj["metadata"].get("deletionTimestamp")):
            return word
    return "Running"


CRONJOBS = (
    NAME,
    ColumnHeader("Schedule"),
    ColumnHeader("Timezone"),
    ColumnHeader("Suspend", "boolean"),
    _count("Active"),
    ColumnHeader("Last Schedule"),
    AGE,
    *CONTAINERS,
    SELECTOR,
)


def cronjob(obj: Json, now: datetime) -> list[Any]:
    name, spec, status = _parts(obj)
    template = (spec.get("jobTemplate") or {}).get("spec") or {}
    names, images = containers(template.get("template"))
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else "<none>"
    suspend = "<unset>" if spec.get("suspend") is None else str(spec["suspend"])
    zone = spec.get("timeZone") or "<none>"
    chosen = shown_selector(template.get("selector"))
    active = len(status.get("active") or [])
    row = [name, spec.get("schedule", ""), zone, suspend, active, last, created(obj, now)]
    return [*row, names, images, chosen]


BUDGETS = (NAME, ColumnHeader("Min Available"), ColumnHeader("Max Unavailable"), _count("Allowed Disruptions"), AGE)


def budget(obj: Json, now: datetime) -> list[Any]:
    name, spec, status = _parts(obj)
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    shown = ["N/A" if limit is None else str(limit) for limit in (least, most)]
    return [name, *shown, status.get("disruptionsAllowed", 0), created(obj, now)]


AUTOSCALERS = (
    NAME,
    ColumnHeader("Reference"),
    ColumnHeader("Targets"),
    ColumnHeader("MinPods"),
    ColumnHeader("MaxPods"),
    ColumnHeader("Replicas"),
    AGE,
)


def autoscaler(obj: Json, now: datetime) -> list[Any]:
    """An autoscaler of either version."""
    name, spec, status = _parts(obj)
    target = spec.get("scaleTargetRef") or {}
    least = spec.get("minReplicas")
    reference = f"{target.get('kind', '')}/{target.get('name', '')}"
    if obj.get("apiVersion") == "autoscaling/v1":
        metrics, current = _v1_metrics(spec, status)
    else:
        metrics, current = spec.get("metrics") or [], status.get("currentMetrics") or []
    counts = ["<unset>" if least is None else str(least), spec.get("maxReplicas", 0), status.get("currentReplicas", 0)]
    return [name, reference, _metrics(metrics, current), *counts, created(obj, now)]


def _v1_metrics(spec: Json, status: Json) -> tuple[list[Json], list[Json]]:
    target_percent, now = spec.get("targetCPUUtilizationPercentage"), status.get("currentCPUUtilizationPercentage")
    if target_percent is None:
        return [], []
    target = {"type": "Utilization", "averageUtilization": target_percent}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    current = [] if now is None else [{"type": "Resource", "resource": {"current": {"averageUtilization": now}}}]
    return metrics, current


_SOURCES = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


def _metrics(specs: list[Json], statuses: list[Json]) -> str:
    if not specs:
        return "<none>"
    shown = [_metric(spec, statuses[i] if i < len(statuses) else {}) for i, spec in enumerate(specs)]
    text = ", ".join(shown[:2])
    return f"{text} + {len(shown) - 2} more..." if len(shown) > 2 else text


def _metric(spec: Json, status: Json) -> str:
    kind = _SOURCES.get(spec.get("type", ""))
    if kind is None:
        return "<unknown type>"
    source = spec.get(kind) or {}
    target, current = source.get("target") or {}, (status.get(kind) or {}).get("current") or {}
    average = target.get("averageValue")
    if kind in ("resource", "containerResource"):
        if average is not None:
            return f"{source.get('name', '')}: {current.get('averageValue', '<unknown>')}/{average}"
        target_percent, now = target.get("averageUtilization"), current.get("averageUtilization")
        left = "<unknown>" if now is None else f"{now}%"
        return f"{source.get('name', '')}: {left}/{'<auto>' if target_percent is None else f'{target_percent}%'}"
    if kind == "pods":
        return f"{current.get('averageValue', '<unknown>')}/{average}"
    if average is not None:
        return f"{current.get('averageValue', '<unknown>')}/{average} (avg)"
    return f"{current.get('value', '<unknown>')}/{target.get('value', '<nil>')}"


SCALES = (ColumnHeader("Name"), _count("Desired"), _count("Available"), AGE)


def scale(obj: Json, now: datetime) -> list[Any]:
    name, spec, status = _parts(obj)
    return [name, spec.get("replicas", 0), status.get("replicas", 0), created(obj, now)]


REVISIONS = (NAME, ColumnHeader("Controller"), ColumnHeader("Revision"), AGE)


def revision(obj: Json, now: datetime) -> list[Any]:
    owner = next((o for o in obj["metadata"].get("ownerReferences") or [] if o.get("controller")), None)
    controller = "<none>"
    if owner is not None:
        group = owner.get("apiVersion", "").rpartition("/")[0]
        kind = f"{owner.get('kind', '')}.{group}" if group else owner.get("kind", "")
        controller = f"{kind.lower()}/{owner.get('name', '')}"
    return [obj["metadata"]["name"], controller, obj.get("revision", 0), created(obj, now)]
