"""Garbage collection: what its owners left behind goes, in the background, in the foreground or not at all.

An index from owner to dependants is kept from the store's own changes, so that nothing is searched for. It runs
a moment after a change, as the real collector does.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.lab.apiserver.deletion import FOREGROUND, ORPHAN
from dovetail.lab.apiserver.registry import RequestRefused, ResourceType
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.lab.apiserver.store import JournalRefused, StoreEvent

Json = dict[str, Any]
#: How long after a change the collector looks.
DELAY = 0.05
#: How long it gives an owner to appear before it treats it as absent.
OWNER_RECHECK_S = 2.0
#: How long after a write that the disk refused it tries again.
RETRY_S = 5.0
Place = tuple[str, str]  # table and key


class Collector:
    """Watches every table; `start` it on a loop."""

    def __init__(self, server: ApiServer, delay: float = DELAY) -> None:
        self.server = server
        self.delay = delay
        self.dependants: dict[str, set[Place]] = {}
        self.owners: dict[Place, tuple[str, ...]] = {}
        self.alive: dict[str, Place] = {}

    def start(self) -> None:
        """Take stock, then follow."""
        for name, table in self.server.store.tables.items():
            for record in table.records.values():
                metadata = record.obj["metadata"]
                self._index((name, record.key), metadata["uid"], _owners(metadata))
        self.server.store.observers.append(self.notice)

    def notice(self, event: StoreEvent) -> None:
        place = (event.table, event.key)
        if event.record is None:
            assert event.previous is not None
            metadata = event.previous.obj["metadata"]
            self._forget(place)
            self.alive.pop(metadata["uid"], None)
            for uid in (metadata["uid"], *_owners(metadata)):
                self._soon(uid)
            return
        metadata = event.record.obj["metadata"]
        owners = _owners(metadata)
        if event.previous is None or owners != self.owners.get(place, ()):
            self._forget(place)
            self._index(place, metadata["uid"], owners)
        for uid in owners if event.previous is None else ():
            if uid not in self.alive:
                self._soon(uid, OWNER_RECHECK_S)
        if "deletionTimestamp" in metadata and {FOREGROUND, ORPHAN} & set(metadata.get("finalizers") or []):
            self._soon(metadata["uid"])

    def _index(self, place: Place, uid: str, owners: tuple[str, ...]) -> None:
        self.alive[uid] = place
        if owners:
            self.owners[place] = owners
            for owner in owners:
                self.dependants.setdefault(owner, set()).add(place)

    def _forget(self, place: Place) -> None:
        for uid in self.owners.pop(place, ()):
            dependant = self.dependants.get(uid)
            if dependant is not None:
                dependant.discard(place)
                if not dependant:
                    del self.dependants[uid]

    def _soon(self, uid: str, delay_s: float = 0.0) -> None:
        if uid not in self.dependants and uid not in self.alive:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # no event loop, no collector: a store read back from disk
        loop.call_later(self.delay + delay_s, self._look, uid)

    def _look(self, uid: str) -> None:
        try:
            self._collect(uid)
        except JournalRefused:
            asyncio.get_running_loop().call_later(RETRY_S, self._look, uid)

    def _collect(self, uid: str) -> None:
        place = self.alive.get(uid)
        if place is None:
            for dependant in sorted(self.dependants.get(uid, ())):
                self._release(dependant)
            return
        record = self.server.store.get(*place)
        if record is None:
            return
        finalizers = record.obj["metadata"].get("finalizers") or []
        if "deletionTimestamp" not in record.obj["metadata"]:
            return
        if ORPHAN in finalizers:
            for dependant in sorted(self.dependants.get(uid, ())):
                self._disown(dependant, {uid})
            self._unfinalize(place, ORPHAN)
        elif FOREGROUND in finalizers:
            self._foreground(uid, place)

    def _foreground(self, uid: str, place: Place) -> None:
        blocking = False
        for dependant in sorted(self.dependants.get(uid, ())):
            record = self.server.store.get(*dependant)
            if record is None:
                continue
            owners = record.obj["metadata"].get("ownerReferences") or []
            blocking |= any(o["uid"] == uid and o.get("blockOwnerDeletion") for o in owners)
            if "deletionTimestamp" not in record.obj["metadata"]:
                self._release(dependant, waiting=uid)
        if not blocking:
            self._unfinalize(place, FOREGROUND)

    def _resource(self, table: str) -> ResourceType | None:
        group, _, plural = table.partition("/")
        return self.server.registry.stored(group, plural)

    def _release(self, place: Place, waiting: str = "") -> None:
        """Delete a dependant whose owners are all gone, or take the gone ones off it."""
        record = self.server.store.get(*place)
        resource = self._resource(place[0])
        if record is None or resource is None:
            return
        metadata = record.obj["metadata"]
        owners = metadata.get("ownerReferences") or []
        solid = [owner for owner in owners if owner["uid"] in self.alive and owner["uid"] != waiting]
        if solid:
            gone = {owner["uid"] for owner in owners} - {owner["uid"] for owner in solid}
            if gone:
                self._disown(place, gone)
            return
        policy = "Foreground" if waiting else "Background"
        options = {"propagationPolicy": policy, "preconditions": {"uid": metadata["uid"]}}
        namespace = metadata.get("namespace") if resource.namespaced else None
        try:
            self.server.cluster.delete(resource.group, resource.plural, namespace, metadata["name"], options)
        except (StatusError, RequestRefused):
            return  # another client was quicker, or the cluster forbids it: the next change retries
        self.server.run_deferred()

    def _disown(self, place: Place, gone: set[str]) -> None:
        self._edit(place, lambda metadata: _without_owners(metadata, gone))

    def _unfinalize(self, place: Place, name: str) -> None:
        self._edit(place, lambda metadata: _without_finalizer(metadata, name))

    def _edit(self, place: Place, change: Any) -> None:
        record = self.server.store.get(*place)
        resource = self._resource(place[0])
        if record is None or resource is None:
            return
        obj = {**record.obj, "metadata": change(dict(record.obj["metadata"]))}
        metadata = obj["metadata"]
        held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in metadata and not held:
            namespace = metadata.get("namespace") if resource.namespaced else None
            self.server.cluster.take(resource.group, resource.plural, namespace, metadata["name"])
        else:
            self.server.cluster.update(resource.group, resource.plural, obj)
        self.server.run_deferred()


def _without_owners(metadata: Json, gone: set[str]) -> Json:
    left = [owner for owner in metadata.get("ownerReferences") or [] if owner["uid"] not in gone]
    rest = {name: item for name, item in metadata.items() if name != "ownerReferences"}
    return {**rest, "ownerReferences": left} if left else rest


def _owners(metadata: Json) -> tuple[str, ...]:
    """The uids of an object's owners."""
    return tuple([owner["uid"] for owner in metadata.get("ownerReferences") or ()])


def _without_finalizer(metadata: Json, name: str) -> Json:
    left = [finalizer for finalizer in metadata.get("finalizers") or [] if finalizer != name]
    rest = {key: item for key, item in metadata.items() if key != "finalizers"}
    return {**rest, "finalizers": left} if left else rest
