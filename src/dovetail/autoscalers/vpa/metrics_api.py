"""Usage of pods from metrics.k8s.io, or container by container from external.metrics.k8s.io.

These lists are computed, not stored: they have no resourceVersion, so they are not read as other lists are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from dovetail.kube.client import Kube, query_of
from dovetail.kube.errors import Disconnected
from dovetail.kube.resources import Resource
from dovetail.model.meta import Amount, ObjectMeta, View
from dovetail.model.selector import LabelQuery, LabelSelector, LabelSelectorRequirement

EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")


class ContainerMetrics(View, frozen=True, kw_only=True):
    name: str = ""
    usage: dict[str, Amount] = {}  # noqa: RUF012


class PodMetrics(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    timestamp: datetime | None = None
    containers: tuple[ContainerMetrics, ...] = ()


class _PodMetricsList(msgspec.Struct):
    """`items` has no default: an answer without it is no list."""

    items: list[PodMetrics]


async def pod_metrics(kube: Kube, namespace: str = "") -> list[PodMetrics]:
    """What the pods of a namespace, or all, use. Raises KubeError."""
    path = POD_METRICS.path(namespace or None)
    response = await kube.request("GET", path)
    try:
        return msgspec.json.decode(response.body, type=_PodMetricsList).items
    except msgspec.DecodeError as error:
        raise Disconnected(f"GET {path}: the answer is no list of PodMetrics: {error}") from error


class ExternalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The external metrics by resource, and the label by which they name a container."""

    metrics: Mapping[str, str]
    container_label: str = "name"


class _ExternalValue(View, frozen=True, kw_only=True):
    timestamp: datetime | None = None
    metric_labels: dict[str, str] = {}  # noqa: RUF012
    value: Amount = "0"


class _ExternalValueList(msgspec.Struct):
    items: list[_ExternalValue]


class MeasuredPod(msgspec.Struct, frozen=True):
    """A pod to ask for, with the selector of its VPA."""

    namespace: str
    name: str
    query: LabelQuery


async def external_pod_metrics(kube: Kube, settings: ExternalSettings, pods: Iterable[MeasuredPod]) -> list[PodMetrics]:
    """What pods use, one question a pod and resource. Raises KubeError."""
    return [await _external(kube, settings, pod) for pod in pods]


async def _external(kube: Kube, settings: ExternalSettings, pod: MeasuredPod) -> PodMetrics:
    own = LabelSelectorRequirement(key="pod", operator="In", values=(pod.name,))
    selector = LabelSelector(match_expressions=(*pod.query.requirements, own)).text()
    timestamp: datetime | None = None
    usages: dict[str, dict[str, Amount]] = {}
    for resource, metric in settings.metrics.items():
        path = f"{EXTERNAL}/namespaces/{pod.namespace}/{metric}"
        response = await kube.request("GET", path, query_of(labelSelector=selector))
        try:
            items = msgspec.json.decode(response.body, type=_ExternalValueList).items
        except msgspec.DecodeError as error:
            raise Disconnected(f"GET {path}: the answer is no list of external metrics: {error}") from error
        for item in items:
            container = item.metric_labels.get(settings.container_label)
            if container is not None:
                usages.setdefault(container, {})[resource] = item.value
        timestamp = items[0].timestamp if items else timestamp
    containers = tuple(ContainerMetrics(name=name, usage=usage) for name, usage in usages.items())
    metadata = ObjectMeta(name=pod.name, namespace=pod.namespace)
    return PodMetrics(metadata=metadata, timestamp=timestamp, containers=containers)
