"""metrics.k8s.io: what metrics-server would say of the lab's load, as of its last scrape.

A middleware before the API server: nothing is stored, and usage is computed only for a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.kube.resources import DEPLOYMENTS, ENDPOINTSLICES, SERVICES, Resource
from dovetail.kube.transport import Request, Response
from dovetail.lab.controllers.timestamps import stamp
from dovetail.lab.kubelet.kubelets import Kubelets
from dovetail.lab.kubelet.node import labels_of
from dovetail.lab.load.usage import Services, Use, total, usage
from dovetail.model.selector import LabelQuery, SelectorError, parse_labels

BASE = "/apis/metrics.k8s.io/v1beta1"
SCRAPE_SECONDS = 15.0
#: What a node's own processes use: milli-CPU and bytes.
SYSTEM = (45.0, 480 * 1024**2)

Json = dict[str, Any]


class ResourceMetrics:
    """The numbers of the last scrape."""

    def __init__(self, fleet: Kubelets, clock: Clock, services: Callable[[], Services]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._services = services
        self._at = -1.0
        self._pods: Mapping[str, list[Use]] = {}
        #: Where the group has to be registered, with an endpoint of its Service; without it metrics are always there.
        self.registry: Kube | None = None

    def scrape(self) -> Mapping[str, list[Use]]:
        """Pod key → use of its containers."""
        scraped_at = self._clock.monotonic() // SCRAPE_SECONDS * SCRAPE_SECONDS
        if scraped_at != self._at:
            self._at = scraped_at
            heard = [run for run in self._fleet.runs.values() if self.is_scraped(run.node)]
            self._pods = usage(heard, self._services(), scraped_at, self._clock.now())
        return self._pods

    def is_scraped(self, node: str) -> bool:
        """Whether a node answers scrapes."""
        seat = self._fleet.seats.get(node)
        return seat is not None and seat.registered and seat.silent_since is None

    async def intercept(self, request: Request) -> Response | None:
        if not request.path.startswith(f"{BASE}/") or request.method != "GET":
            return None
        if self.registry is not None and (refusal := await _refusal(self.registry, request.path)) is not None:
            return refusal
        parts = request.path.removeprefix(f"{BASE}/").split("/")
        try:
            query = parse_labels(request.parameter("labelSelector") or "")
        except SelectorError as problem:
            return failure(400, "BadRequest", str(problem))
        if parts[0] == "nodes":
            return self._nodes(parts[1] if len(parts) > 1 else None, query)
        namespace = parts[1] if parts[0] == "namespaces" and len(parts) > 1 else None
        rest = parts[2:] if namespace else parts
        if rest[:1] != ["pods"]:
            return None
        return self._pods_answer(namespace, rest[1] if len(rest) > 1 else None, query)

    def _nodes(self, name: str | None, query: LabelQuery) -> Response:
        by_node: dict[str, list[Use]] = {}
        for key, uses in self.scrape().items():
            run = self._fleet.runs.get(key)
            if run is not None:
                by_node.setdefault(run.node, []).extend(uses)
        items = []
        for node, seat in sorted(self._fleet.seats.items()):
            if not self.is_scraped(node) or (name is not None and node != name):
                continue
            labels = labels_of(seat.instance)
            if query.matches(labels):
                cpu, memory = total(by_node.get(node, ()))
                amounts = {"cpu": _cpu(cpu + SYSTEM[0]), "memory": _memory(memory + SYSTEM[1])}
                items.append(self._item({"name": node, "labels": labels}) | {"usage": amounts})
        return self._answer("NodeMetrics", items, name, "nodes")

    def _pods_answer(self, namespace: str | None, name: str | None, query: LabelQuery) -> Response:
        items = []
        for key, uses in sorted(self.scrape().items()):
            run = self._fleet.runs.get(key)
            meta = run.pod.metadata if run is not None else None
            if meta is None or (namespace is not None and meta.namespace != namespace):
                continue
            if (name is not None and meta.name != name) or not query.matches(meta.labels):
                continue
            metadata: Json = {"name": meta.name, "namespace": meta.namespace}
            if meta.labels:
                metadata["labels"] = dict(meta.labels)
            amounts = [
                {"name": use.name, "usage": {"cpu": _cpu(use.cpu), "memory": _memory(use.memory)}} for use in uses
            ]
            items.append(self._item(metadata) | {"containers": amounts})
        return self._answer("PodMetrics", items, name, "pods")

    def _item(self, metadata: Json) -> Json:
        now = self._clock.now()
        scraped = now - timedelta(seconds=max(0.0, self._clock.monotonic() - self._at))
        metadata = {**metadata, "creationTimestamp": stamp(now)}
        return {"metadata": metadata, "timestamp": stamp(scraped), "window": f"{SCRAPE_SECONDS:g}s"}

    def _answer(self, kind: str, items: list[Json], name: str | None, plural: str) -> Response:
        version = {"apiVersion": "metrics.k8s.io/v1beta1"}
        if name is None:
            return _json({"kind": f"{kind}List", **version, "metadata": {}, "items": items})
        if not items:
            return failure(404, "NotFound", f'{plural}.metrics.k8s.io "{name}" not found')
        return _json({"kind": kind, **version, **items[0]})


def _cpu(amount: float) -> str:
    return f"{round(amount * 1_000_000)}n" if amount else "0"


def _memory(amount: int) -> str:
    return f"{amount // 1024}Ki"


def _json(body: Json, status: int = 200) -> Response:
    return Response(status=status, headers={"content-type": "application/json"}, body=msgspec.json.encode(body))


def failure(code: int, reason: str, message: str) -> Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return _json({**body, "message": message, "reason": reason, "code": code}, code)


# metrics-server as people find it on a cluster: its Deployment, its Service, and its group among the API services.
#
# The numbers themselves come from the lab: where an EKS cluster is made with these objects, they decide
# whether it serves them.

APISERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
NAME = "metrics-server"
NAMESPACE = "kube-system"
GROUP = "v1beta1.metrics.k8s.io"
LABELS = {"k8s-app": NAME}
_CONTAINER = {
    "name": NAME,
    "image": "registry.k8s.io/metrics-server/metrics-server:v0.8.0",
    "args": ["--secure-port=10250", "--metric-resolution=15s"],
    "ports": [{"name": "https", "containerPort": 10250, "protocol": "TCP"}],
    "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}},
}
_DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": LABELS},
    "spec": {
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [_CONTAINER], "priorityClassName": "system-cluster-critical"},
        },
    },
}
_SERVICE: dict[str, Any] = {
    "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": LABELS},
    "spec": {"selector": LABELS, "ports": [{"name": "https", "port": 443, "targetPort": "https"}]},
}


def api_service(**spec: object) -> dict[str, Any]:
    """The group as metrics-server registers it, behind its Service."""
    fixed = {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100}
    service = {"name": NAME, "namespace": NAMESPACE}
    return {
        "metadata": {"name": GROUP, "labels": LABELS},
        "spec": {**fixed, "insecureSkipTLSVerify": True, "service": service, **spec},
    }


async def install(kube: Kube) -> None:
    """What an installer leaves; a control plane that has its own endpoint for the group keeps that."""
    for resource, body in ((DEPLOYMENTS, _DEPLOYMENT), (SERVICES, _SERVICE)):
        await _create(kube, resource, body)
    if await _create(kube, APISERVICES, api_service()):
        passed = {"type": "Available", "status": "True", "reason": "Passed", "message": "all checks passed"}
        dated = {**passed, "lastTransitionTime": kube.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
        await kube.patch(APISERVICES, GROUP, {"status": {"conditions": [dated]}}, subresource="status")


async def _refusal(kube: Kube, path: str) -> Response | None:
    """What the API server answers where the group is not registered, or its Service has no ready endpoint."""
    what = f"(get {'pods' if '/pods' in path else 'nodes'}.metrics.k8s.io)"
    try:
        service = (await kube.get(APISERVICES, GROUP))["spec"].get("service")
    except NotFound:
        return failure(404, "NotFound", f"the server could not find the requested resource {what}")
    if service is None or await _has_endpoint(kube, service["name"], service["namespace"]):
        return None
    return failure(503, "ServiceUnavailable", f"the server is currently unable to handle the request {what}")


async def _has_endpoint(kube: Kube, service: str, namespace: str) -> bool:
    slices = (await kube.list(ENDPOINTSLICES, namespace, labels=f"kubernetes.io/service-name={service}")).items
    endpoints = [endpoint for row in slices for endpoint in row.get("endpoints") or ()]
    return any((endpoint.get("conditions") or {}).get("ready") is not False for endpoint in endpoints)


async def _create(kube: Kube, resource: Resource, body: dict[str, Any]) -> bool:
    try:
        await kube.create(resource, body)
    except AlreadyExists:
        return False
    return True
