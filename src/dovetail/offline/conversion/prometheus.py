"""Prometheus range exports: the JSON answer of `/api/v1/query_range` for metrics of kube-state-metrics.

`kube_pod_container_resource_requests` gives pods with their requests and node, from their first sample to their last;
`kube_node_status_allocatable` gives nodes. Other series are counted as not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec

from dovetail.language import message
from dovetail.offline.conversion.entries import DeleteEntry, Entry, NotThisFormat, PutObject, from_seconds
from dovetail.offline.recording import key_of

Json = dict[str, Any]

REQUESTS, ALLOCATABLE = "kube_pod_container_resource_requests", "kube_node_status_allocatable"


class _Lifetime:
    """An object whose fields come from several series."""

    def __init__(self, source: Json) -> None:
        self.source = source
        self.first: datetime | None = None
        self.last: datetime | None = None

    def see(self, first: datetime, last: datetime) -> None:
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)


def entries(data: bytes) -> Iterator[Entry]:
    """Objects with the time of their first sample, and their end one sample after the last, unless that is the last."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise NotThisFormat(str(problem)) from problem
    result = ((document.get("data") or {}) if isinstance(document, dict) else {}).get("result")
    if not isinstance(result, list):
        raise NotThisFormat(message("data.result: a list of series is needed, as /api/v1/query_range answers"))
    lifetimes: dict[tuple[str, ...], _Lifetime] = {}
    read, times = 0, set()
    for number, series in enumerate(result):
        metric, stamps = _series(series, number)
        times.update(stamps)
        read += _take(metric, series["values"], stamps, lifetimes)
    if not read:
        raise NotThisFormat(
            message("data.result: no series of {requests} or {allocatable}", requests=REQUESTS, allocatable=ALLOCATABLE)
        )
    ordered = sorted(times)
    step = min((b - a for a, b in pairwise(ordered)), default=timedelta(seconds=60))
    for life in lifetimes.values():
        assert life.first is not None and life.last is not None
        yield PutObject(life.first, life.source)
        if life.last < ordered[-1]:
            yield DeleteEntry(life.last + step, key_of(life.source))


def _series(series: Any, number: int) -> tuple[Json, list[datetime]]:
    try:
        metric, values = series["metric"], series["values"]
        stamps = [from_seconds(stamp) for stamp, _ in values]
    except (KeyError, TypeError, ValueError) as problem:
        raise NotThisFormat(
            message("{place}: metric and values are needed: {problem}", place=f"data.result[{number}]", problem=problem)
        ) from problem
    if not isinstance(metric, dict) or not stamps:
        raise NotThisFormat(message("{place}: metric and values are needed", place=f"data.result[{number}]"))
    return metric, stamps


def _take(metric: Json, values: Any, stamps: list[datetime], lifetimes: dict[tuple[str, ...], _Lifetime]) -> int:
    name, resource = metric.get("__name__"), metric.get("resource", "")
    key: tuple[str, ...]
    amount = str(values[-1][1])
    if name == REQUESTS and metric.get("pod"):
        key = ("Pod", metric.get("namespace", "default"), metric["pod"])
        life = lifetimes.setdefault(key, _Lifetime(_pod(metric)))
        _request(life.source, metric.get("container", "main"), resource, amount)
    elif name == ALLOCATABLE and metric.get("node"):
        key = ("Node", metric["node"])
        life = lifetimes.setdefault(key, _Lifetime(_node(metric)))
        life.source["status"]["allocatable"][_resource(resource)] = amount
    else:
        return 0
    life.see(stamps[0], stamps[-1])
    return 1


def _pod(metric: Json) -> Json:
    spec: Json = {"containers": []}
    if metric.get("node"):
        spec["nodeName"] = metric["node"]
    metadata = {"name": metric["pod"], "namespace": metric.get("namespace", "default"), "uid": metric.get("uid", "")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def _node(metric: Json) -> Json:
    ready = {"type": "Ready", "status": "True"}
    status: Json = {"allocatable": {}, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": metric["node"]}, "status": status}


def _request(pod: Json, container: str, resource: str, amount: str) -> None:
    containers = pod["spec"]["containers"]
    mine = next((item for item in containers if item["name"] == container), None)
    if mine is None:
        mine = {"name": container, "image": "unknown", "resources": {"requests": {}}}
        containers.append(mine)
    mine["resources"]["requests"][_resource(resource)] = amount


def _resource(name: str) -> str:
    """kube-state-metrics writes `_` for the other characters of a resource's name."""
    return {"ephemeral_storage": "ephemeral-storage", "nvidia_com_gpu": "nvidia.com/gpu"}.get(name, name)
