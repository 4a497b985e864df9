"""custom.metrics.k8s.io and external.metrics.k8s.io: what an adapter would say of the lab's load.

Each group is served while its APIService is there, as by an aggregator. `requests-per-second` comes from the load
models: of pods, of the services they answer for and of ingresses. Other values come from annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, KubeError, NotFound
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.responses import JSON_HEADERS
from dovetail.lab.controllers.timestamps import stamp
from dovetail.lab.kubelet.container_model import PREFIX
from dovetail.lab.kubelet.kubelets import Kubelets
from dovetail.lab.kubelet.pod_worker import PodRun
from dovetail.lab.load.model import metric_at
from dovetail.lab.load.usage import RequestRates, Services, requests, usage
from dovetail.lab.metrics import APISERVICES, NAME, NAMESPACE, SCRAPE_SECONDS, failure
from dovetail.model.selector import LabelQuery, SelectorError, parse_labels

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
#: The versions of each group, the preferred one first.
VERSIONS: Mapping[str, tuple[str, ...]] = {CUSTOM: ("v1beta2", "v1beta1"), EXTERNAL: ("v1beta1",)}
REQUESTS = "requests-per-second"
#: External metrics of containers, for a recommender with --use-external-metrics.
CONTAINER_CPU, CONTAINER_MEMORY = "container_cpu_usage_cores", "container_memory_working_set_bytes"
_INGRESSES = "ingresses.networking.k8s.io"

Json = dict[str, Any]
#: Whether a pod's samples reach the metrics pipeline, by its node.
Heard = Callable[[str], bool]


class CustomMetrics:
    """Answers both groups. `kube` reads the objects that metrics describe, and their APIServices."""

    def __init__(
        self, fleet: Kubelets, clock: Clock, services: Callable[[], Services], kube: Kube, heard: Heard
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._services = services
        self._kube = kube
        self._heard = heard

    async def intercept(self, request: Request) -> Response | None:
        """The answer of an embedded API server, while the group's APIService exists."""
        parts = request.path.strip("/").split("/")
        if request.method != "GET" or parts[0] != "apis" or len(parts) < 2 or parts[1] not in VERSIONS:
            return None
        return await self.answer(request) if await self._is_registered(parts[1]) else None

    async def _is_registered(self, group: str) -> bool:
        for version in VERSIONS[group]:
            try:
                await self._kube.get(APISERVICES, f"{version}.{group}")
            except NotFound:
                continue
            return True
        return False

    async def answer(self, request: Request) -> Response:
        _, group, *rest = request.path.strip("/").split("/")
        if not rest:
            return _json(_group(group))
        version, *path = rest
        if version not in VERSIONS[group]:
            return failure(404, "NotFound", "the server could not find the requested resource")
        if not path:
            return _json(_resources(group, version))
        try:
            labels = parse_labels(request.parameter("labelSelector") or "")
            about = parse_labels(request.parameter("metricLabelSelector") or "")
        except SelectorError as problem:
            return failure(400, "BadRequest", str(problem))
        if group == EXTERNAL:
            return await self._external(path, labels)
        if about.requirements:
            return failure(404, "NotFound", f"the server could not find the metric {path[-1]} with these labels")
        return await self._custom(version, path, labels)

    # Custom metrics

    async def _custom(self, version: str, path: list[str], labels: LabelQuery) -> Response:
        if len(path) == 4 and path[0] == "namespaces" and path[2] == "metrics":
            _, namespace, _, metric = path
            value = await self._annotated("namespaces", None, namespace, metric)
            described = {"kind": "Namespace", "name": namespace, "apiVersion": "/v1"}
            return self._values(version, "namespaces", metric, [] if value is None else [(described, value)])
        if len(path) != 5 or path[0] != "namespaces":
            return failure(404, "NotFound", "the server could not find the requested resource")
        _, namespace, plural, name, metric = path
        if plural == "pods":
            return self._values(version, plural, metric, self._pods(namespace, name, metric, labels))
        value = await self._of_object(plural, namespace, name, metric)
        described = {"kind": _kind(plural), "namespace": namespace, "name": name, "apiVersion": _version(plural)}
        return self._values(version, plural, metric, [] if value is None else [(described, value)])

    def _pods(self, namespace: str, name: str, metric: str, labels: LabelQuery) -> list[tuple[Json, float]]:
        rates = self._requests() if metric == REQUESTS else None
        values = []
        for run in sorted(self._runs(), key=lambda run: run.key):
            metadata = run.pod.metadata
            if metadata.namespace != namespace or name not in ("*", metadata.name):
                continue
            if not labels.matches(metadata.labels) or not any(container.running for container in run.mains):
                continue
            value = self._value(metadata.annotations, metric)
            if value is None and rates is not None:
                value = rates.by_pod.get(run.key, 0.0)
            if value is not None:
                described = {"kind": "Pod", "namespace": namespace, "name": metadata.name, "apiVersion": "/v1"}
                values.append((described, value))
        return values

    async def _of_object(self, plural: str, namespace: str, name: str, metric: str) -> float | None:
        """The metric of a service, of an ingress by the services behind it, or as an annotation has it."""
        value = await self._annotated(plural, namespace, name, metric)
        if value is not None or metric != REQUESTS:
            return value
        rates = self._requests().by_service
        if plural == "services":
            return rates.get((namespace, name), 0.0)
        if plural == _INGRESSES:
            held = await self._object(plural, namespace, name)
            if held is not None:
                return sum(rates.get((namespace, service), 0.0) for service in _backends(held))
        return None

    def _values(self, version: str, plural: str, metric: str, values: list[tuple[Json, float]]) -> Response:
        if not values:
            return failure(404, "NotFound", f"the server could not find the metric {metric} for {plural}")
        named: Json = {"metric": {"name": metric}} if version == "v1beta2" else {"metricName": metric}
        items = [
            {"describedObject": described, **named, "timestamp": self._scraped(), "value": _quantity(value)}
            for described, value in values
        ]
        return _list("MetricValueList", f"{CUSTOM}/{version}", items)

    # External metrics

    async def _external(self, path: list[str], labels: LabelQuery) -> Response:
        if len(path) != 3 or path[0] != "namespaces":
            return failure(404, "NotFound", "the server could not find the requested resource")
        _, namespace, metric = path
        items = [
            {"metricName": metric, "metricLabels": own, "timestamp": self._scraped(), "value": _quantity(value)}
            for own, value in await self._outside(namespace, metric)
            if labels.matches(own)
        ]
        return _list("ExternalMetricValueList", f"{EXTERNAL}/v1beta1", items)

    async def _outside(self, namespace: str, metric: str) -> list[tuple[dict[str, str], float]]:
        """Values with the labels that tell them apart."""
        if metric == REQUESTS:
            rates = self._requests().by_service
            return [
                ({"namespace": where, "service": service}, rates.get((where, service), 0.0))
                for where, service in sorted(self._services())
                if where == namespace
            ]
        if metric in (CONTAINER_CPU, CONTAINER_MEMORY):
            return list(self._containers(namespace, metric))
        value = await self._annotated("namespaces", None, namespace, metric, "external")
        return [] if value is None else [({"namespace": namespace}, value)]

    def _containers(self, namespace: str, metric: str) -> Iterable[tuple[dict[str, str], float]]:
        scraped_at, runs = self._scraped_at(), self._runs()
        by_key = {run.key: run for run in runs}
        for key, uses in sorted(usage(runs, self._services(), scraped_at, self._clock.now()).items()):
            metadata = by_key[key].pod.metadata
            if metadata.namespace != namespace:
                continue
            for use in uses:
                own = {"namespace": namespace, "pod": metadata.name, "name": use.name}
                value = use.cpu / 1000.0 if metric == CONTAINER_CPU else float(use.memory)
                yield {**metadata.labels, **own}, value

    # What there is

    def _runs(self) -> list[PodRun]:
        return [run for run in self._fleet.runs.values() if self._heard(run.node)]

    def _requests(self) -> RequestRates:
        return requests(self._runs(), self._services(), self._scraped_at(), self._clock.now())

    def _scraped_at(self) -> float:
        return self._clock.monotonic() // SCRAPE_SECONDS * SCRAPE_SECONDS

    def _scraped(self) -> str:
        return stamp(self._clock.now())

    async def _annotated(
        self, plural: str, namespace: str | None, name: str, metric: str, kind: str = "metric"
    ) -> float | None:
        held = await self._object(plural, namespace, name)
        annotations = ((held or {}).get("metadata") or {}).get("annotations") or {}
        return self._value(annotations, metric, kind)

    def _value(self, annotations: Mapping[str, str], metric: str, kind: str = "metric") -> float | None:
        text = annotations.get(f"{PREFIX}{kind}.{metric}")
        return None if text is None else metric_at(text, self._clock.now())

    async def _object(self, plural: str, namespace: str | None, name: str) -> Json | None:
        where = f"namespaces/{namespace}/" if namespace else ""
        resource, _, group = plural.partition(".")
        try:
            root = "/api/v1"
            if group:
                document = msgspec.json.decode((await self._kube.request("GET", f"/apis/{group}")).body)
                root = f"/apis/{document['preferredVersion']['groupVersion']}"
            response = await self._kube.request("GET", f"{root}/{where}{resource}/{name}")
        except KubeError:
            return None
        held: Json = msgspec.json.decode(response.body)
        return held


def _backends(ingress: Json) -> set[str]:
    """The services behind an ingress."""
    spec = ingress.get("spec") or {}
    backends = [spec.get("defaultBackend") or {}]
    for rule in spec.get("rules") or ():
        backends += [path.get("backend") or {} for path in (rule.get("http") or {}).get("paths") or ()]
    return {backend["service"]["name"] for backend in backends if "service" in backend}


def _kind(plural: str) -> str:
    kinds = {"services": "Service", "ingresses": "Ingress", "deployments": "Deployment", "statefulsets": "StatefulSet"}
    resource = plural.partition(".")[0]
    return kinds.get(resource, resource.removesuffix("s").capitalize())


def _version(plural: str) -> str:
    group = plural.partition(".")[2]
    return f"{group}/v1" if group else "/v1"


def _quantity(value: float) -> str:
    amount = round(value * 1000)
    return f"{amount}m" if amount % 1000 else str(amount // 1000)


def _group(group: str) -> Json:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in VERSIONS[group]]
    head = {"kind": "APIGroup", "apiVersion": "v1", "name": group}
    return {**head, "versions": versions, "preferredVersion": versions[0]}


def discovered() -> dict[str, dict[str, list[Json]]]:
    """The resources of both groups by version, as discovery lists them."""
    return {
        group: {version: _resources(group, version)["resources"] for version in versions}
        for group, versions in VERSIONS.items()
    }


def _resources(group: str, version: str) -> Json:
    if group == EXTERNAL:
        names = [REQUESTS, CONTAINER_CPU, CONTAINER_MEMORY]
        kind, verbs = "ExternalMetricValueList", ["get"]
    else:
        names = [f"{plural}/{REQUESTS}" for plural in ("pods", "services", _INGRESSES)]
        kind, verbs = "MetricValueList", ["get"]
    rows = [{"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": verbs} for name in names]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}", "resources": rows}


def _list(kind: str, version: str, items: list[Json]) -> Response:
    return _json({"kind": kind, "apiVersion": version, "metadata": {}, "items": items})


def _json(body: Json) -> Response:
    return Response(status=200, headers=JSON_HEADERS, body=msgspec.json.encode(body))


def api_services(**spec: object) -> list[Json]:
    """The registrations of both groups, behind the Service of the metrics-server."""
    service = {"name": NAME, "namespace": NAMESPACE}
    return [
        {
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 100,
                "versionPriority": 100 + rank,
                "insecureSkipTLSVerify": True,
                "service": service,
                **spec,
            },
        }
        for group, versions in VERSIONS.items()
        for rank, version in enumerate(reversed(versions))
    ]


async def register(kube: Kube) -> None:
    """Have an embedded API server serve both groups."""
    passed = {"type": "Available", "status": "True", "reason": "Passed", "message": "all checks passed"}
    dated = {**passed, "lastTransitionTime": kube.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
    for body in api_services():
        try:
            await kube.create(APISERVICES, body)
        except AlreadyExists:
            continue
        await kube.patch(
            APISERVICES, body["metadata"]["name"], {"status": {"conditions": [dated]}}, subresource="status"
        )
