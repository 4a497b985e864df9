"""ResourceQuotas: what a namespace uses of what it may have. Admission refuses by the status that is written here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dovetail.kube import resources
from dovetail.kube.errors import Conflict, NotFound
from dovetail.kube.resources import PODS, RESOURCEQUOTAS, Resource
from dovetail.lab.controllers.kit import Kit
from dovetail.lab.controllers.pods import finished
from dovetail.lab.controllers.views import Json, PodView
from dovetail.lab.controllers.worker import Worker
from dovetail.model.objects import Pod
from dovetail.model.podrequests import limits, requests
from dovetail.model.quantity import format_resources

#: Counts of other things change without a sign to us; they are taken again this often.
RESYNC_SECONDS = 300.0
_COUNTED = frozenset(
    ["services", "secrets", "configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas"]
)
_KINDS = {
    each.plural if not each.group else f"{each.plural}.{each.group}": each
    for each in vars(resources).values()
    if isinstance(each, Resource) and each.namespaced
}


def compute(pods: Iterable[Pod]) -> dict[str, str]:
    """What pods that still run take, under every name a quota can give to it."""
    asked: Counter[str] = Counter()
    allowed: Counter[str] = Counter()
    number = 0
    for pod in pods:
        if pod.status.phase in ("Succeeded", "Failed"):
            continue
        number += 1
        asked.update(requests(pod))
        allowed.update(limits(pod))
    shown = format_resources(asked)
    return {
        "pods": str(number),
        **shown,
        **{f"requests.{name}": text for name, text in shown.items()},
        **{f"limits.{name}": text for name, text in format_resources(allowed).items()},
    }


class ResourceQuotas:
    """Keeps the status of quotas."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._quotas = kit.store(RESOURCEQUOTAS)
        self.worker = Worker("resourcequota", self._reconcile, gather=0.1)
        self._quotas.listen(self._changed)
        kit.pods.listen(self._pod_changed)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None and new.get("spec", {}).get("hard") != new.get("status", {}).get("hard"):
            self.worker.add(f"{new['metadata']['namespace']}/{new['metadata']['name']}")

    def _pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        """A pod that comes is charged by admission; one that ends or goes gives back."""
        if old is None or (new is not None and finished(old) == finished(new)):
            return
        for quota in self._quotas.by("namespace", old.metadata.namespace):
            self.worker.add(f"{quota['metadata']['namespace']}/{quota['metadata']['name']}")

    async def _reconcile(self, key: str) -> float | None:
        quota = self._quotas.get(key)
        if quota is None:
            return None
        hard = quota.get("spec", {}).get("hard", {})
        found = await self._used(quota["metadata"]["namespace"], hard)
        status = {"hard": hard, "used": {name: found.get(name, "0") for name in hard}}
        if quota.get("status") != status:
            try:
                written = await self._kit.kube.update(RESOURCEQUOTAS, {**quota, "status": status}, subresource="status")
            except Conflict:
                return 0.1
            except NotFound:
                return None
            await self._quotas.seen(written["metadata"]["resourceVersion"])
        return RESYNC_SECONDS

    async def _used(self, namespace: str, hard: Json) -> dict[str, str]:
        pods = (await self._kit.kube.list(PODS, namespace, type=Pod)).items
        used = compute(pods)
        for name in hard:
            plural = name.removeprefix("count/")
            resource = _KINDS.get(plural) if plural != name or name in _COUNTED else None
            if resource is not None:
                used[name] = str(len((await self._kit.kube.list(resource, namespace)).items))
        return used
