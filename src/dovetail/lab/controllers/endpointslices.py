"""Services to EndpointSlices: the addresses of a service's pods, and which of them are ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.kube.resources import ENDPOINTSLICES, PODS, SERVICES
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.deployment.revision import owner
from dovetail.lab.controllers.hashing import port_hash
from dovetail.lab.controllers.informer import Informer
from dovetail.lab.controllers.pods import finished, ready, terminating
from dovetail.lab.controllers.views import Json, NodeFields, PodFields
from dovetail.lab.controllers.worker import KeyWorker

SERVICE_LABEL = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
CONTROLLER = "endpointslice-controller.k8s.io"
MAX_ENDPOINTS = 100


def endpoints(service: Json, pods: Sequence[PodFields], node_named: Callable[[str], NodeFields | None]) -> list[Json]:
    """One endpoint a pod with an address, in a stable order."""
    publish = bool(service["spec"].get("publishNotReadyAddresses"))
    endpoints = []
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        if not pod.status.pod_ip or finished(pod):
            continue
        going = terminating(pod)
        serving = ready(pod)
        endpoint: dict[str, Any] = {
            "addresses": [pod.status.pod_ip],
            "conditions": {"ready": publish or (serving and not going), "serving": serving, "terminating": going},
            "targetRef": {
                "kind": "Pod",
                "namespace": pod.metadata.namespace,
                "name": pod.metadata.name,
                "uid": pod.metadata.uid,
            },
        }
        if pod.spec.hostname and pod.spec.subdomain == service["metadata"]["name"]:
            endpoint["hostname"] = pod.spec.hostname
        if pod.spec.node_name:
            endpoint["nodeName"] = pod.spec.node_name
            node = node_named(pod.spec.node_name)
            zone = node.metadata.labels.get("topology.kubernetes.io/zone") if node is not None else None
            if zone:
                endpoint["zone"] = zone
        endpoints.append(endpoint)
    return endpoints


async def port_names(kube: Kube, service: Json, pods: Sequence[PodFields]) -> dict[str, int]:
    """The numbers of named ports, by one of the pods; they are read only where a service speaks of names."""
    targets = (port.get("targetPort") for port in service["spec"].get("ports", []))
    if not pods or not any(isinstance(target, str) for target in targets):
        return {}
    meta = pods[0].metadata
    try:
        pod = await kube.get(PODS, meta.name, meta.namespace)
    except NotFound:
        return {}
    return {
        port["name"]: port["containerPort"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
        if "name" in port
    }


def ports(service: Json, names: Mapping[str, int]) -> list[Json]:
    """Target ports by number; a name that no container has is left out."""
    items = []
    for port in service["spec"].get("ports", []):
        target = port.get("targetPort") or port["port"]
        number = names.get(target) if isinstance(target, str) else target
        if number is None:
            continue
        item = {"name": port.get("name", ""), "port": number, "protocol": port.get("protocol", "TCP")}
        if port.get("appProtocol"):
            item["appProtocol"] = port["appProtocol"]
        items.append(item)
    return items


class EndpointSlices:
    """Keeps the slices of services that have a selector."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._services = context.store(SERVICES)
        self._slices = context.store(ENDPOINTSLICES)
        self._triggers = Triggers()
        self.worker = KeyWorker("endpointslice", self._reconcile, gather=0.05)
        self._services.listen(self._changed)
        context.pods.listen(self._pod_changed)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None:
            self.worker.add(f"{new['metadata']['namespace']}/{new['metadata']['name']}")
        elif old is not None:
            self._triggers.forget(old)

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        for key in touched(self._services, old, new):
            self.worker.add(key)

    async def _reconcile(self, key: str) -> float | None:
        service = self._services.get(key)
        if service is None or not service["spec"].get("selector") or service["spec"].get("type") == "ExternalName":
            return None
        metadata = service["metadata"]
        space = self._context.pods.by("namespace", metadata["namespace"])
        pods = [pod for pod in space if selects(service["spec"]["selector"], pod)]
        items = endpoints(service, pods, self._context.nodes.get)
        listed = ports(service, await port_names(self._context.kube, service, pods)) if items else []
        listed.sort(key=port_hash)
        pages = [items[start : start + MAX_ENDPOINTS] for start in range(0, len(items), MAX_ENDPOINTS)] or [[]]
        mine = sorted(
            (
                endpoint_slice
                for endpoint_slice in self._slices.by("owner", metadata["uid"])
                if _is_ours(endpoint_slice)
            ),
            key=lambda endpoint_slice: endpoint_slice["metadata"]["name"],
        )
        marks = self._triggers.marks(service, pods)
        for number, page in enumerate(pages):
            await self._write(service, mine[number] if number < len(mine) else None, page, listed, marks)
        for extra in mine[len(pages) :]:
            try:
                await self._context.kube.delete(ENDPOINTSLICES, extra["metadata"]["name"], metadata["namespace"])
            except NotFound:
                continue
        return None

    async def _write(
        self, service: Json, old: Json | None, page: list[Json], wanted_ports: list[Json], marks: dict[str, str]
    ) -> None:
        metadata = service["metadata"]
        if old is not None:
            if (old.get("endpoints") or []) == page and (old.get("ports") or []) == wanted_ports:
                return
            kept = {name: text for name, text in old["metadata"].get("annotations", {}).items() if name != TRIGGER}
            body = {**old, "endpoints": page or None, "ports": wanted_ports or None}
            body["metadata"] = {**old["metadata"], "annotations": kept | marks}
            try:
                written = await self._context.kube.update(ENDPOINTSLICES, body)
            except NotFound:
                return
        else:
            labels = {**metadata.get("labels", {}), SERVICE_LABEL: metadata["name"], MANAGED_BY: CONTROLLER}
            if service["spec"].get("clusterIP") == "None":
                labels["service.kubernetes.io/headless"] = ""
            body = {
                "metadata": {
                    "generateName": f"{metadata['name']}-",
                    "namespace": metadata["namespace"],
                    "labels": labels,
                    "annotations": marks,
                    "ownerReferences": [owner("v1", "Service", metadata)],
                },
                "addressType": "IPv4",
                "endpoints": page or None,
                "ports": wanted_ports or None,
            }
            try:
                written = await self._context.kube.create(ENDPOINTSLICES, body)
            except (AlreadyExists, NotFound):
                return
        await self._slices.seen(written["metadata"]["resourceVersion"])


def selects(selector: Mapping[str, str], pod: PodFields) -> bool:
    return all(pod.metadata.labels.get(key) == value for key, value in selector.items())


def _is_ours(item: Json) -> bool:
    return bool(item["metadata"].get("labels", {}).get(MANAGED_BY) == CONTROLLER)


def touched(services: Informer[Json], old: PodFields | None, new: PodFields | None) -> Iterator[str]:
    """The services to which a change of a pod matters."""
    pod = new or old
    assert pod is not None
    selecting = [
        service for service in services.by("namespace", pod.metadata.namespace) if service["spec"].get("selector")
    ]
    if not selecting or (old is not None and new is not None and _shape(old) == _shape(new)):
        return
    for service in selecting:
        if any(selects(service["spec"]["selector"], version) for version in (old, new) if version is not None):
            yield f"{pod.metadata.namespace}/{service['metadata']['name']}"


def _shape(pod: PodFields) -> tuple[Any, ...]:
    meta = pod.metadata
    return pod.status.pod_ip, ready(pod), terminating(pod), finished(pod), meta.labels, pod.spec.node_name


# When the change began that a service's endpoints now show: the start of the programming latency.
#
# Readiness has an instant, and so has the Service's creation; a pod that went has none.

TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"


class Triggers:
    """Remembers, for each service, the instants it has seen."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, str]] = {}

    def marks(self, service: Json, pods: Iterable[PodFields]) -> dict[str, str]:
        """The annotation that says the earliest instant not seen before; none if there is none."""
        meta = service["metadata"]
        conditions = ((pod.metadata.name, pod.status.condition("Ready")) for pod in pods)
        now = {
            name: condition.last_transition_time
            for name, condition in conditions
            if condition and condition.last_transition_time
        }
        seen = self._seen.get(meta["uid"])
        self._seen[meta["uid"]] = now
        if seen is None:
            return {TRIGGER: meta["creationTimestamp"]}
        fresh = [instant for name, instant in now.items() if instant > seen.get(name, "")]
        return {TRIGGER: min(fresh)} if fresh else {}

    def forget(self, service: Json) -> None:
        self._seen.pop(service["metadata"]["uid"], None)
