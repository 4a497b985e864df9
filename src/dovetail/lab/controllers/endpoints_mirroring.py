"""Endpoints written by hand, for a service without a selector, are shown as EndpointSlices too: one a subset."""

from __future__ import annotations

from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.kube.resources import ENDPOINTS, ENDPOINTSLICES, SERVICES
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.deployment.revision import owner
from dovetail.lab.controllers.endpointslices import MANAGED_BY, SERVICE_LABEL, TRIGGER
from dovetail.lab.controllers.hashing import port_hash
from dovetail.lab.controllers.pods import prefix
from dovetail.lab.controllers.views import Json
from dovetail.lab.controllers.worker import KeyWorker

CONTROLLER = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def mirrored(item: Json) -> list[Json]:
    """The slices that show some Endpoints."""
    meta = item["metadata"]
    kept = {k: v for k, v in meta.get("annotations", {}).items() if k not in (TRIGGER, _LAST_APPLIED)}
    labels = {**meta.get("labels", {}), SERVICE_LABEL: meta["name"], MANAGED_BY: CONTROLLER}
    made = []
    for subset in item.get("subsets") or ():
        shown = [_endpoint(address, True) for address in subset.get("addresses", ())]
        shown += [_endpoint(not_ready_address, False) for not_ready_address in subset.get("notReadyAddresses", ())]
        listed = [{"name": "", "protocol": "TCP", **port} for port in subset.get("ports", ())]
        head: Json = {"generateName": prefix(meta["name"]), "namespace": meta["namespace"], "labels": labels}
        if kept:
            head["annotations"] = kept
        head["ownerReferences"] = [owner("v1", "Endpoints", meta)]
        body = {"metadata": head, "addressType": "IPv4", "endpoints": shown}
        made.append(body | {"ports": sorted(listed, key=port_hash)})
    return made


def _endpoint(address: Json, ready: bool) -> Json:
    endpoint: Json = {"addresses": [address["ip"]], "conditions": {"ready": ready}}
    return endpoint | {key: address[key] for key in ("hostname", "nodeName", "targetRef") if key in address}


class EndpointMirroring:
    """Keeps the mirrors of handwritten Endpoints."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._services = context.store(SERVICES)
        self._endpoints = context.store(ENDPOINTS)
        self._slices = context.store(ENDPOINTSLICES)
        self.worker = KeyWorker("endpointslicemirroring", self._reconcile)
        self._services.listen(self._changed)
        self._endpoints.listen(self._changed)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        meta = (new or old or {})["metadata"]
        self.worker.add(f"{meta['namespace']}/{meta['name']}")

    async def _reconcile(self, key: str) -> float | None:
        item, service = self._endpoints.get(key), self._services.get(key)
        slices = mirrored(item) if item is not None and service is not None and _by_hand(item, service) else []
        namespace, _, name = key.partition("/")
        mine = [
            endpoint_slice
            for endpoint_slice in self._slices.by("namespace", namespace)
            if _is_ours(endpoint_slice, name)
        ]
        mine.sort(key=lambda endpoint_slice: str(endpoint_slice["metadata"]["name"]))
        for number, body in enumerate(slices):
            await self._write(mine[number] if number < len(mine) else None, body)
        for extra in mine[len(slices) :]:
            try:
                await self._context.kube.delete(ENDPOINTSLICES, extra["metadata"]["name"], namespace)
            except NotFound:
                continue
        return None

    async def _write(self, old: Json | None, body: Json) -> None:
        fields = ("endpoints", "ports")
        try:
            if old is None:
                written = await self._context.kube.create(ENDPOINTSLICES, body)
            elif any(old.get(field) != body[field] for field in fields):
                written = await self._context.kube.update(
                    ENDPOINTSLICES, old | {field: body[field] for field in fields}
                )
            else:
                return
        except (AlreadyExists, NotFound):
            return
        await self._slices.seen(written["metadata"]["resourceVersion"])


def _by_hand(item: Json, service: Json) -> bool:
    meta = item["metadata"]
    if service["spec"].get("selector") or LEADER in meta.get("annotations", {}):
        return False
    return bool(meta.get("labels", {}).get(SKIP) != "true")


def _is_ours(item: Json, service: str) -> bool:
    labels = item["metadata"].get("labels", {})
    return bool(labels.get(MANAGED_BY) == CONTROLLER and labels.get(SERVICE_LABEL) == service)
