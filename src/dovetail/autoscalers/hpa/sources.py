"""Asking the metrics APIs, and the workload's scale, in the words that autoscalers have always used for failures."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from dovetail.autoscalers.hpa.proposal import Reading
from dovetail.autoscalers.hpa.readings import MetricSample, MetricValue, NoCount, PodUse, of_objects, of_pods, total
from dovetail.autoscalers.hpa.spec import MetricSource, MetricSpec, ScaleView, TargetRef
from dovetail.kube.backoff import NEVER
from dovetail.kube.client import Kube, query_of
from dovetail.kube.errors import ApiError, Conflict, KubeError, NotFound, Unavailable
from dovetail.kube.resources import Resource
from dovetail.model.duration import DurationError
from dovetail.model.meta import ObjectMeta
from dovetail.model.quantity import QuantityError
from dovetail.model.selector import LabelSelector

T = TypeVar("T")
METRICS, CUSTOM, EXTERNAL = "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"
#: The API that a type of metric is read from.
_APIS = {"Resource": "resource", "ContainerResource": "resource", "Pods": "custom", "Object": "custom"}
#: How often a scale that another writer changed meanwhile is written again.
ATTEMPTS = 5
_PLAIN = {404: "could not find the requested resource", 503: "is currently unable to handle the request"}


class NoScale(Exception):
    """The target has no scale that can be read or written; the text is the server's."""


class ScaleNotFound(NoScale):
    """The target does not exist, or its kind has no scale."""


def said(error: Exception, what: str) -> str:
    """A failure as Kubernetes' clients print it: the server's words, or what its code means."""
    if not isinstance(error, ApiError):
        return str(error)
    if not error.body.get("kind") and error.status in _PLAIN:
        return f"the server {_PLAIN[error.status]} ({what})"
    return error.message


class Targets:
    """Workloads as numbers of replicas. Which resource a kind is served as is asked once."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._resources: dict[tuple[str, str], Resource] = {}

    async def read(self, namespace: str, ref: TargetRef) -> tuple[Resource, ScaleView]:
        try:
            resource = await self.resource(ref.group, ref.kind)
            return resource, await self._get(resource, namespace, ref.name)
        except KubeError as error:
            problem = ScaleNotFound if isinstance(error, NotFound) else NoScale
            raise problem(said(error, f"get {ref.kind}")) from error

    async def write(self, resource: Resource, scale: ScaleView, replicas: int) -> None:
        """Write the number; if the workload changed meanwhile, on top of that."""
        try:
            for _ in range(ATTEMPTS - 1):
                try:
                    return await self._put(resource, scale.metadata, replicas)
                except Conflict:
                    scale = await self._get(resource, scale.metadata.namespace, scale.metadata.name)
            await self._put(resource, scale.metadata, replicas)
        except KubeError as error:
            raise NoScale(said(error, f"put {resource.plural}")) from error

    async def resource(self, group: str, kind: str) -> Resource:
        """The resource that serves a kind. Raises NoScale if none does."""
        cached = self._resources.get((group, kind))
        if cached is None:
            cached = self._resources[group, kind] = await self._served(group, kind)
        return cached

    async def _get(self, resource: Resource, namespace: str, name: str) -> ScaleView:
        return await self._kube.get(resource, name, namespace, subresource="scale", type=ScaleView)

    async def _put(self, resource: Resource, meta: ObjectMeta, replicas: int) -> None:
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "resourceVersion": meta.resource_version},
            "spec": {"replicas": replicas},
        }
        path = resource.path(meta.namespace, meta.name, "scale")
        await self._kube.request("PUT", path, query_of(fieldManager=self._kube.manager), body=body)

    async def _served(self, group: str, kind: str) -> Resource:
        missing = NoScale(f'no matches for kind "{kind}" in group "{group}"')
        try:
            for version in await self._versions(group):
                document = await self._document(f"/apis/{group}/{version}" if group else f"/api/{version}")
                for resource in document["resources"]:
                    if resource["kind"] == kind and "/" not in resource["name"]:
                        return Resource(group, version, resource["name"], kind, bool(resource["namespaced"]))
        except NotFound as error:
            raise missing from error
        raise missing

    async def _versions(self, group: str) -> list[str]:
        """The versions of a group, the preferred one first."""
        if not group:
            return ["v1"]
        document = await self._document(f"/apis/{group}")
        preferred = document["preferredVersion"]["version"]
        return sorted((entry["version"] for entry in document["versions"]), key=lambda version: version != preferred)

    async def _document(self, path: str) -> dict[str, Any]:
        response = await self._kube.request("GET", path)
        return msgspec.json.decode(response.body, type=dict[str, Any])


class _Uses(msgspec.Struct, frozen=True):
    items: tuple[PodUse, ...] = ()


class _Values(msgspec.Struct, frozen=True):
    items: tuple[MetricValue, ...] = ()


class Sources:
    """Readings of metrics, one at a time. A failure is a reading too, an unreadable answer included."""

    def __init__(self, kube: Kube, targets: Targets) -> None:
        self._kube = kube
        self._targets = targets

    async def readings(self, metrics: Sequence[MetricSpec], namespace: str, pods: str, now: datetime) -> list[Reading]:
        """`pods` selects the workload's pods."""
        return [await self._reading(metric, namespace, pods, now) for metric in metrics]

    async def _reading(self, metric: MetricSpec, namespace: str, pods: str, now: datetime) -> Reading:
        source, api = metric.source, _APIS.get(metric.type, "external")
        try:
            if api == "resource":
                return await self._used(source, namespace, pods)
            if metric.type == "Pods":
                return await self._of_pods(source, namespace, pods, now)
            if metric.type == "Object":
                return await self._of_object(source, namespace)
            return await self._outside(source, namespace)
        except NoCount as problem:
            return problem
        except (KubeError, NoScale, msgspec.DecodeError, QuantityError, DurationError) as error:
            what = f"get pods.{METRICS}" if api == "resource" else f"get {source.metric.name}.{api}.{METRICS}"
            return NoCount(f"unable to fetch metrics from {api} metrics API: {said(error, what)}")

    async def _used(self, source: MetricSource, namespace: str, pods: str) -> dict[str, MetricSample]:
        path = f"/apis/{METRICS}/v1beta1/namespaces/{namespace}/pods"
        metrics = await self._read(path, _Uses, labelSelector=pods)
        return of_pods(_some(metrics.items, "resource"), source.name, source.container)

    async def _of_pods(self, source: MetricSource, namespace: str, pods: str, now: datetime) -> dict[str, MetricSample]:
        metrics = await self._custom(source, f"namespaces/{namespace}/pods/*", labelSelector=pods)
        return of_objects(_some(metrics.items, "custom"), now)

    async def _of_object(self, source: MetricSource, namespace: str) -> int:
        about = source.described_object
        if about.kind == "Namespace" and not about.group:
            where = f"namespaces/{namespace}/metrics"
        else:
            plural = (await self._targets.resource(about.group, about.kind)).name
            where = f"namespaces/{namespace}/{plural}/{about.name}"
        return total((await self._custom(source, where)).items[:1])

    async def _outside(self, source: MetricSource, namespace: str) -> int:
        path = f"/apis/{EXTERNAL}/v1beta1/namespaces/{namespace}/{source.metric.name}"
        metrics = await self._read(path, _Values, labelSelector=_text(source.metric.selector))
        return total(_some(metrics.items, "external"))

    async def _custom(self, source: MetricSource, where: str, **query: str) -> _Values:
        try:
            group = await self._kube.request("GET", f"/apis/{CUSTOM}", retries=NEVER)
        except (NotFound, Unavailable) as error:
            text = f"unable to fetch metrics from custom metrics API: no custom metrics API ({CUSTOM}) registered"
            raise NoCount(text) from error
        version = msgspec.json.decode(group.body)["preferredVersion"]["groupVersion"]
        path = f"/apis/{version}/{where}/{source.metric.name}"
        return await self._read(path, _Values, metricLabelSelector=_text(source.metric.selector), **query)

    async def _read(self, path: str, type: type[T], **query: str) -> T:
        parameters = query_of(**{name: text for name, text in query.items() if text})
        response = await self._kube.request("GET", path, parameters, retries=NEVER)
        return msgspec.json.decode(response.body, type=type)


def _some(items: Sequence[T], api: str) -> Sequence[T]:
    if not items:
        raise NoCount(f"no metrics returned from {api} metrics API")
    return items


def _text(selector: LabelSelector | None) -> str:
    return selector.text() if selector is not None else ""
