"""ControllerRevisions: the templates a StatefulSet or DaemonSet had, for rolling forward and back."""

from __future__ import annotations

from typing import Any

from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.kube.resources import CONTROLLERREVISIONS
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.deployment.revision import owner
from dovetail.lab.controllers.hashing import revision_hash, template_hash
from dovetail.lab.controllers.views import Json

#: On pods, and on the revisions of DaemonSets; those of StatefulSets carry the second.
HASH_LABEL = "controller-revision-hash"
SET_HASH_LABEL = "controller.kubernetes.io/hash"
#: On DaemonSets: how often their template was changed.
GENERATION = "deprecated.daemonset.template.generation"


def data_of(workload: Json) -> Json:
    return {"spec": {"template": {**workload["spec"]["template"], "$patch": "replace"}}}


def template_of(revision: Json) -> Json:
    return {key: value for key, value in revision["data"]["spec"]["template"].items() if key != "$patch"}


def hash_of(revision: Json) -> str:
    labels = revision["metadata"].get("labels", {})
    return str(labels.get(HASH_LABEL) or labels.get(SET_HASH_LABEL, ""))


class ControllerRevisions:
    """The revisions of workloads of one kind."""

    def __init__(self, context: ControllerContext, kind: tuple[str, str], hash_key: str) -> None:
        self._context = context
        self._kind = kind
        self._hash_key = hash_key
        self._revisions = context.store(CONTROLLERREVISIONS)

    def of(self, workload: Json) -> list[Json]:
        """Oldest first."""
        revisions = self._revisions.by("owner", workload["metadata"]["uid"])
        return sorted(revisions, key=lambda revision: (revision["revision"], revision["metadata"]["name"]))

    async def current(self, workload: Json) -> Json:
        """The revision of the present template: found, brought to the front, or made."""
        data = data_of(workload)
        revisions = self.of(workload)
        top = revisions[-1]["revision"] if revisions else 0
        same = [revision for revision in revisions if revision["data"] == data]
        if same and same[-1]["revision"] == top:
            return same[-1]
        if same:
            return await self._raise(same[-1], top + 1)
        return await self._make(workload, data, top + 1)

    async def _raise(self, revision: Json, number: int) -> Json:
        written = await self._context.kube.update(CONTROLLERREVISIONS, {**revision, "revision": number})
        await self._revisions.seen(written["metadata"]["resourceVersion"])
        return written

    async def _make(self, workload: Json, data: Json, number: int) -> Json:
        metadata = workload["metadata"]
        collisions = workload.get("status", {}).get("collisionCount")
        if self._hash_key == SET_HASH_LABEL:
            suffix = revision_hash(data, collisions or 0)
        else:
            suffix = template_hash(workload["spec"]["template"], collisions)
        labels = dict(workload["spec"]["template"].get("metadata", {}).get("labels", {}))
        body: dict[str, Any] = {
            "metadata": {
                "name": f"{metadata['name']}-{suffix}",
                "namespace": metadata["namespace"],
                "labels": {**labels, self._hash_key: suffix},
                "annotations": self._marks(workload),
                "ownerReferences": [owner(*self._kind, metadata)],
            },
            "data": data,
            "revision": number,
        }
        try:
            made = await self._context.kube.create(CONTROLLERREVISIONS, body)
        except AlreadyExists:
            made = await self._context.kube.get(CONTROLLERREVISIONS, body["metadata"]["name"], metadata["namespace"])
        await self._revisions.seen(made["metadata"]["resourceVersion"])
        return made

    def _marks(self, workload: Json) -> dict[str, str]:
        """A revision remembers why it was made, and a daemon's the number of its template."""
        given = workload["metadata"].get("annotations", {})
        kept = ("kubernetes.io/change-cause", GENERATION)
        return {key: given[key] for key in kept if key in given}

    async def trim(self, workload: Json, live: set[str]) -> None:
        """Forget revisions beyond the history limit that no pod has (`live` holds names)."""
        limit = workload["spec"].get("revisionHistoryLimit", 10)
        idle = [revision for revision in self.of(workload) if revision["metadata"]["name"] not in live]
        for revision in idle[: max(0, len(idle) - limit)]:
            try:
                await self._context.kube.delete(
                    CONTROLLERREVISIONS, revision["metadata"]["name"], revision["metadata"]["namespace"]
                )
            except NotFound:
                continue
