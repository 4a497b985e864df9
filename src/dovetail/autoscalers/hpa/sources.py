"""Asking the metrics APIs, and the workload's scale, in the words that autoscalers have always used for failures."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from dovetail.autoscalers.hpa.proposal import Reading
from dovetail.autoscalers.hpa.readings import MetricValue, NoCount, PodUse, Sample, of_objects, of_pods, total
from dovetail.autoscalers.hpa.spec import MetricSpec, Scale, Source, TargetRef
from dovetail.kube.bodies import query_of
from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError, Conflict, KubeError, NotFound, Unavailable
from dovetail.kube.resources import Resource
from dovetail.kube.retries import NEVER

T = TypeVar("T")
METRICS, CUSTOM, EXTERNAL = "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"
#: How often a scale that somebody else changed meanwhile is written again.
ATTEMPTS = 5
_PLAIN = {404: "could not find the requested resource", 503: "is currently unable to handle the request"}


class NoScale(Exception):
    """The target has no scale that can be read or written; the text is the server's."""


def said(error: KubeError, what: str) -> str:
    """A failure as Kubernetes' clients print it: the server's words, or what its code means."""
    if isinstance(error, ApiError):
        if not error.body.get("kind") and error.status in _PLAIN:
            return f"the server {_PLAIN[error.status]} ({what})"
        return error.message
    return str(error)


class Targets:
    """Workloads as numbers of replicas. Which resource a kind is served as is asked once."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._resources: dict[tuple[str, str], Resource] = {}

    async def read(self, namespace: str, ref: TargetRef) -> tuple[Resource, Scale]:
        try:
            resource = await self.resource(ref.group, ref.kind)
            return resource, await self._get(resource, namespace, ref.name)
        except KubeError as error:
            raise NoScale(said(error, f"get {ref.kind}")) from error

    async def _get(self, resource: Resource, namespace: str, name: str) -> Scale:
        return await self._kube.get(resource, name, namespace, subresource="scale", type=Scale)

    async def write(self, resource: Resource, scale: Scale, replicas: int) -> None:
        """Write the number; if the workload changed meanwhile, on top of that."""
        meta = scale.metadata
        for attempt in range(ATTEMPTS):
            body = {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": meta.name, "namespace": meta.namespace, "resourceVersion": meta.resource_version},
                "spec": {"replicas": replicas},
            }
            try:
                path = resource.path(meta.namespace, meta.name, "scale")
                await self._kube.request("PUT", path, query_of(fieldManager=self._kube.manager), body=body)
                return
            except Conflict as error:
                if attempt == ATTEMPTS - 1:
                    raise NoScale(said(error, f"put {resource.plural}")) from error
                meta = (await self._get(resource, meta.namespace, meta.name)).metadata
            except KubeError as error:
                raise NoScale(said(error, f"put {resource.plural}")) from error

    async def resource(self, group: str, kind: str) -> Resource:
        """The resource that serves a kind. Raises NoScale if none does."""
        known = self._resources.get((group, kind))
        if known is not None:
            return known
        missing = NoScale(f'no matches for kind "{kind}" in group "{group}"')
        try:
            version = (await self._document(f"/apis/{group}"))["preferredVersion"]["version"] if group else "v1"
            served = await self._document(f"/apis/{group}/{version}" if group else "/api/v1")
        except NotFound as error:
            raise missing from error
        for each in served["resources"]:
            if each["kind"] == kind and "/" not in each["name"]:
                found = Resource(group, version, each["name"], kind, bool(each["namespaced"]))
                return self._resources.setdefault((group, kind), found)
        raise missing

    async def _document(self, path: str) -> dict[str, Any]:
        response = await self._kube.request("GET", path)
        return msgspec.json.decode(response.body, type=dict[str, Any])


class _Uses(msgspec.Struct, frozen=True):
    items: tuple[PodUse, ...] = ()


class _Values(msgspec.Struct, frozen=True):
    items: tuple[MetricValue, ...] = ()


class Sources:
    """Readings of metrics, one at a time. A failure is a reading too."""

    def __init__(self, kube: Kube, targets: Targets) -> None:
        self._kube = kube
        self._targets = targets

    async def readings(self, metrics: Sequence[MetricSpec], namespace: str, pods: str, now: datetime) -> list[Reading]:
        """`pods` selects the workload's pods."""
        return [await self._reading(metric, namespace, pods, now) for metric in metrics]

    async def _reading(self, metric: MetricSpec, namespace: str, pods: str, now: datetime) -> Reading:
        source = metric.source
        try:
            if metric.type in ("Resource", "ContainerResource"):
                return await self._used(source, namespace, pods)
            if metric.type == "Pods":
                return await self._of_pods(source, namespace, pods, now)
            if metric.type == "Object":
                return await self._of_object(source, namespace)
            return await self._outside(source, namespace)
        except NoCount as problem:
            return problem

    async def _used(self, source: Source, namespace: str, pods: str) -> dict[str, Sample]:
        path = f"/apis/{METRICS}/v1beta1/namespaces/{namespace}/pods"
        try:
            found = await self._read(path, _Uses, labelSelector=pods)
        except KubeError as error:
            text = f"unable to fetch metrics from resource metrics API: {said(error, f'get pods.{METRICS}')}"
            raise NoCount(text) from error
        if not found.items:
            raise NoCount("no metrics returned from resource metrics API")
        return of_pods(found.items, source.name, source.container)

    async def _of_pods(self, source: Source, namespace: str, pods: str, now: datetime) -> dict[str, Sample]:
        found = await self._custom(source, f"namespaces/{namespace}/pods/*", labelSelector=pods)
        if not found.items:
            raise NoCount("no metrics returned from custom metrics API")
        return of_objects(found.items, now)

    async def _of_object(self, source: Source, namespace: str) -> int:
        about = source.described_object
        if about.kind == "Namespace" and not about.group:
            return total((await self._custom(source, f"namespaces/{namespace}/metrics")).items[:1])
        try:
            plural = (await self._targets.resource(about.group, about.kind)).name
        except NoScale as error:
            raise NoCount(f"unable to fetch metrics from custom metrics API: {error}") from error
        return total((await self._custom(source, f"namespaces/{namespace}/{plural}/{about.name}")).items[:1])

    async def _custom(self, source: Source, where: str, **query: str) -> _Values:
        name, selector = source.metric.name, source.metric.selector
        labels = selector.text() if selector is not None else ""
        try:
            group = await self._kube.request("GET", f"/apis/{CUSTOM}", retries=NEVER)
            version = msgspec.json.decode(group.body)["preferredVersion"]["groupVersion"]
            return await self._read(f"/apis/{version}/{where}/{name}", _Values, metricLabelSelector=labels, **query)
        except (NotFound, Unavailable) as error:
            absent = error.request.endswith(f"/apis/{CUSTOM}")
            text = f"no custom metrics API ({CUSTOM}) registered" if absent else said(error, f"get {name}.{CUSTOM}")
            raise NoCount(f"unable to fetch metrics from custom metrics API: {text}") from error
        except KubeError as error:
            text = said(error, f"get {name}.{CUSTOM}")
            raise NoCount(f"unable to fetch metrics from custom metrics API: {text}") from error

    async def _outside(self, source: Source, namespace: str) -> int:
        name, selector = source.metric.name, source.metric.selector
        path = f"/apis/{EXTERNAL}/v1beta1/namespaces/{namespace}/{name}"
        try:
            found = await self._read(path, _Values, labelSelector=selector.text() if selector is not None else "")
        except KubeError as error:
            text = said(error, f"get {name}.{EXTERNAL}")
            raise NoCount(f"unable to fetch metrics from external metrics API: {text}") from error
        if not found.items:
            raise NoCount("no metrics returned from external metrics API")
        return total(found.items)

    async def _read(self, path: str, type: type[T], **query: str) -> T:
        asked = query_of(**{name: text for name, text in query.items() if text})
        response = await self._kube.request("GET", path, asked, retries=NEVER)
        return msgspec.json.decode(response.body, type=type)
