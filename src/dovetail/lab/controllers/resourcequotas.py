"""ResourceQuotas: what a namespace uses of what it may have. Admission refuses by the status that is written here."""

from __future__ import annotations

from dovetail.kube import resources
from dovetail.kube.errors import Conflict, NotFound
from dovetail.kube.resources import (
    DEPLOYMENTS,
    JOBS,
    PERSISTENTVOLUMECLAIMS,
    PODS,
    RESOURCEQUOTAS,
    SERVICES,
    STATEFULSETS,
    Resource,
)
from dovetail.lab.apiserver.kinds.admission.quota_usage import COUNTED, Amounts, charges, covers
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.pods import finished
from dovetail.lab.controllers.views import Json, PodFields
from dovetail.lab.controllers.worker import KeyWorker

#: Counts of other things change without a sign to us; they are taken again this often.
RESYNC_SECONDS = 300.0
#: Kinds that give back at once when one of them goes.
_WATCHED = (SERVICES, PERSISTENTVOLUMECLAIMS, DEPLOYMENTS, STATEFULSETS, JOBS)
_KINDS = {
    var.plural if not var.group else f"{var.plural}.{var.group}": var
    for var in vars(resources).values()
    if isinstance(var, Resource) and var.namespaced
}


class ResourceQuotas:
    """Keeps the status of quotas."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._quotas = context.store(RESOURCEQUOTAS)
        self.worker = KeyWorker("resourcequota", self._reconcile, gather=0.1)
        self._quotas.listen(self._changed)
        context.pods.listen(self._pod_changed)
        for resource in _WATCHED:
            context.store(resource).listen(self._object_changed)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None and new.get("spec", {}).get("hard") != new.get("status", {}).get("hard"):
            self.worker.add(f"{new['metadata']['namespace']}/{new['metadata']['name']}")

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        """A pod that comes is charged by admission; one that ends or goes gives back."""
        if old is not None and (new is None or finished(old) != finished(new)):
            self._look(old.metadata.namespace)

    def _object_changed(self, old: Json | None, new: Json | None) -> None:
        if old is not None and new is None:
            self._look(old["metadata"]["namespace"])

    def _look(self, namespace: str) -> None:
        for quota in self._quotas.by("namespace", namespace):
            self.worker.add(f"{namespace}/{quota['metadata']['name']}")

    async def _reconcile(self, key: str) -> float | None:
        quota = self._quotas.get(key)
        if quota is None:
            return None
        hard = quota.get("spec", {}).get("hard", {})
        used = await self._used(quota, hard)
        status = {"hard": hard, "used": {name: str(used[name]) if name in used else "0" for name in hard}}
        if quota.get("status") != status:
            try:
                written = await self._context.kube.update(
                    RESOURCEQUOTAS, {**quota, "status": status}, subresource="status"
                )
            except Conflict:
                return 0.1
            except NotFound:
                return None
            await self._quotas.seen(written["metadata"]["resourceVersion"])
        return RESYNC_SECONDS

    async def _used(self, quota: Json, hard: Json) -> Amounts:
        used: Amounts = {}
        for qualified in sorted({_kind_of(name) for name in hard}):
            resource = _KINDS.get(qualified)
            listed = await self._context.kube.list(resource, quota["metadata"]["namespace"]) if resource else None
            for item in listed.items if listed else ():
                if covers(quota, qualified, item):
                    for name, taken in charges(qualified, item).items():
                        used[name] = used[name] + taken if name in used else taken
        return used


def _kind_of(name: str) -> str:
    """The kind that a quota's line counts."""
    plural = name.removeprefix("count/")
    if plural != name or name in COUNTED:
        return plural
    if name.startswith("services."):
        return SERVICES.plural
    return PERSISTENTVOLUMECLAIMS.plural if "storage" in name and "ephemeral" not in name else PODS.plural
