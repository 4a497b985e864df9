"""Usage of pods from metrics.k8s.io.

Its lists are computed, not stored: they have no resourceVersion, so they are not read as other lists are.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from dovetail.kube.client import Kube
from dovetail.kube.errors import Disconnected
from dovetail.kube.resources import Resource
from dovetail.model.meta import Amount, ObjectMeta, View

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
