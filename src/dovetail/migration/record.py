"""What a migration remembers, in a ConfigMap: the sizes before it, the objects that it made, the nodes it drains.

It is written before the first change. All else is read from the cluster and the cloud again, so a run that was
interrupted after any write continues where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from dovetail.kube.client import Kube
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import CONFIGMAPS
from dovetail.migration.groups import Sizes

NAME = "dovetail-node-group-migration"
NAMESPACE = "kube-system"
#: On the nodes of a group that is being moved: its name, or that the node was cordoned before and stays so.
CORDONED = "dovetail.sh/migrating-from"
ALREADY_CORDONED = "already-cordoned"
_KEY = "record"


class Phase(StrEnum):
    """Where a migration is."""

    FORWARD = "Forward"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    BACK = "Back"
    DONE = "Done"


class MigrationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`order` are the groups to move, in order; `sizes` those that they had; `objects` what the migration made."""

    phase: Phase
    started: str
    order: tuple[str, ...]
    sizes: Mapping[str, Sizes]
    objects: tuple[Mapping[str, Any], ...] = ()
    batch_size: int = 1
    force: bool = False
    delete_emptydir_data: bool = False
    #: Processes that ran in a group before, and are suspended while its nodes are drained.
    suspends: Mapping[str, tuple[str, ...]] = {}
    #: The nodes that are being drained, and the UIDs of the controllers whose pods they had.
    batch: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()

    @property
    def pools(self) -> tuple[str, ...]:
        return tuple(str(body["metadata"]["name"]) for body in self.objects if body["kind"] == "NodePool")


async def read(kube: Kube, namespace: str = NAMESPACE) -> tuple[MigrationRecord | None, str]:
    """The migration of this cluster, if one was begun, and the version under which it is kept."""
    try:
        kept = await kube.get(CONFIGMAPS, NAME, namespace)
    except NotFound:
        return None, ""
    text = (kept.get("data") or {}).get(_KEY, "")
    return (msgspec.json.decode(text, type=MigrationRecord) if text else None), str(kept["metadata"]["resourceVersion"])


async def write(kube: Kube, record: MigrationRecord, version: str = "", namespace: str = NAMESPACE) -> None:
    """Keep the record. Raises `Conflict` where it was changed since `version`: a stop must not be overwritten."""
    metadata = {"name": NAME, "namespace": namespace}
    data = {_KEY: msgspec.json.encode(record).decode(), "phase": record.phase.value}
    if not version:
        await kube.create(CONFIGMAPS, {"metadata": metadata, "data": data})
        return
    await kube.update(CONFIGMAPS, {"metadata": {**metadata, "resourceVersion": version}, "data": data})


async def forget(kube: Kube, namespace: str = NAMESPACE) -> None:
    try:
        await kube.delete(CONFIGMAPS, NAME, namespace)
    except NotFound:
        return
