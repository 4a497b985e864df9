"""Services to Endpoints: the older form of EndpointSlices, one object a service, as `kubectl get endpoints` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.kube.resources import ENDPOINTS, SERVICES
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.endpointslices import Triggers, port_names, ports, selects, touched
from dovetail.lab.controllers.pods import finished, ready, terminating
from dovetail.lab.controllers.views import Json, PodFields
from dovetail.lab.controllers.worker import KeyWorker

MANAGED_BY = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
HEADLESS = {"service.kubernetes.io/headless": ""}
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
MAX_ADDRESSES = 1000


def subsets(service: Json, pods: Sequence[PodFields], names: Mapping[str, int]) -> list[Json]:
    """The addresses of the pods, ready and not, with the service's ports."""
    publish = bool(service["spec"].get("publishNotReadyAddresses"))
    by_readiness: dict[str, list[Json]] = {"addresses": [], "notReadyAddresses": []}
    for pod in sorted((pod for pod in pods if pod.status.pod_ip), key=lambda pod: ip_address(pod.status.pod_ip)):
        if finished(pod) or (terminating(pod) and not publish):
            continue
        by_readiness["addresses" if publish or ready(pod) else "notReadyAddresses"].append(_address(service, pod))
    room = MAX_ADDRESSES
    for kind, addresses in by_readiness.items():
        by_readiness[kind] = addresses[:room]
        room -= len(by_readiness[kind])
    filled: dict[str, Any] = {kind: addresses for kind, addresses in by_readiness.items() if addresses}
    listed = [{key: value for key, value in port.items() if value != ""} for port in ports(service, names)]
    return [filled | ({"ports": listed} if listed else {})] if filled else []


def _address(service: Json, pod: PodFields) -> Json:
    meta = pod.metadata
    address: Json = {
        "ip": pod.status.pod_ip,
        "targetRef": {"kind": "Pod", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
    }
    if pod.spec.node_name:
        address["nodeName"] = pod.spec.node_name
    if pod.spec.hostname and pod.spec.subdomain == service["metadata"]["name"]:
        address["hostname"] = pod.spec.hostname
    return address


class Endpoints:
    """Keeps the Endpoints of services that have a selector."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._services = context.store(SERVICES)
        self._endpoints = context.store(ENDPOINTS)
        self._triggers = Triggers()
        self.worker = KeyWorker("endpoint", self._reconcile, gather=0.05)
        self._services.listen(self._changed)
        context.pods.listen(self._pod_changed)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        metadata = (new or old or {})["metadata"]
        if new is None and old is not None:
            self._triggers.forget(old)
        self.worker.add(f"{metadata['namespace']}/{metadata['name']}")

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        for key in touched(self._services, old, new):
            self.worker.add(key)

    async def _reconcile(self, key: str) -> float | None:
        service = self._services.get(key)
        old = self._endpoints.get(key)
        if service is None:
            await self._forget(old)
            return None
        selector = service["spec"].get("selector")
        if not selector or service["spec"].get("type") == "ExternalName":
            return None
        space = self._context.pods.by("namespace", service["metadata"]["namespace"])
        pods = [pod for pod in space if selects(selector, pod)]
        new_subsets = subsets(service, pods, await port_names(self._context.kube, service, pods))
        labels = {**service["metadata"].get("labels", {}), **MANAGED_BY}
        if service["spec"].get("clusterIP") == "None":
            labels |= HEADLESS
        marks = self._triggers.marks(service, pods)
        if old is None or old.get("subsets", []) != new_subsets or old["metadata"].get("labels") != labels:
            await self._write(service, old, new_subsets, {"labels": labels, "annotations": marks})
        return None

    async def _forget(self, old: Json | None) -> None:
        if old is None or not MANAGED_BY.items() <= old["metadata"].get("labels", {}).items():
            return
        try:
            await self._context.kube.delete(ENDPOINTS, old["metadata"]["name"], old["metadata"]["namespace"])
        except NotFound:
            return

    async def _write(
        self, service: Json, old: Json | None, new_subsets: list[Json], labelled: dict[str, dict[str, str]]
    ) -> None:
        given = service["metadata"]
        if (
            sum(len(value) for subset in new_subsets for kind, value in subset.items() if kind != "ports")
            >= MAX_ADDRESSES
        ):
            labelled["annotations"][OVER_CAPACITY] = "truncated"
        metadata = {"name": given["name"], "namespace": given["namespace"], **labelled}
        try:
            if old is None:
                written = await self._context.kube.create(ENDPOINTS, {"metadata": metadata, "subsets": new_subsets})
            else:
                body = {**old, "metadata": {**old["metadata"], **metadata}, "subsets": new_subsets}
                written = await self._context.kube.update(ENDPOINTS, body)
        except (AlreadyExists, NotFound):
            return
        await self._endpoints.seen(written["metadata"]["resourceVersion"])
