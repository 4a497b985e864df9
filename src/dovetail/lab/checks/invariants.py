"""What must hold at every moment, whatever was broken: checked on every write, not at the end.

Violations are collected with the object's recent story, so that a failure tells how it came about.
"""

from __future__ import annotations

from collections import deque

from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.apiserver.store import ObjectStore, StoreEvent
from dovetail.lab.checks.pdb import PdbCheck
from dovetail.lab.checks.replicasets import ReplicaSetCheck
from dovetail.language import message

STORY = 8


class Broken(AssertionError):
    """An invariant does not hold."""


class Invariants:
    """Watches the store of an API server."""

    def __init__(self, server: ApiServer, replica_check: ReplicaSetCheck | None = None) -> None:
        self.violations: list[str] = []
        self._guards = PdbCheck(server.store)
        self._replica_check = replica_check
        self._nodes: dict[str, str] = {}
        self._story: dict[str, deque[str]] = {}
        self._latest = 0
        self._take_stock(server.store)
        server.store.observers.append(self._written)

    def _take_stock(self, store: ObjectStore) -> None:
        """What was there before counts as written now."""
        for table in ("/namespaces", "apps/replicasets", "/pods", "policy/poddisruptionbudgets"):
            for record in store.table(table).records.values():
                self._seen(StoreEvent(record.rv, table, record, None, 0.0))

    def check(self) -> None:
        """Raise if anything was ever wrong."""
        if self._replica_check is not None:
            self.violations += self._replica_check.overdue()
        if self.violations:
            raise Broken("\n".join(self.violations[:10]))

    def _written(self, event: StoreEvent) -> None:
        self._order(event)
        self._seen(event)

    def _seen(self, event: StoreEvent) -> None:
        if event.table == "/pods":
            self._pod(event)
        self.violations += self._guards.written(event)
        if self._replica_check is not None:
            self.violations += self._replica_check.written(event)

    def _order(self, event: StoreEvent) -> None:
        """No acknowledged write is lost: versions only grow, for the cluster and for each object."""
        if event.rv <= self._latest:
            self.violations.append(
                message(
                    "{table} {event}: version {rv} after {latest}",
                    table=event.table,
                    event=event.key,
                    rv=event.rv,
                    latest=self._latest,
                )
            )
        self._latest = max(self._latest, event.rv)

    def _pod(self, event: StoreEvent) -> None:
        if event.record is None:
            if event.previous is not None:
                uid = event.previous.obj["metadata"]["uid"]
                self._nodes.pop(uid, None)
                self._story.pop(uid, None)
            return
        obj = event.record.obj
        uid, node = obj["metadata"]["uid"], obj["spec"].get("nodeName", "")
        story = self._story.setdefault(uid, deque(maxlen=STORY))
        story.append(f"{event.rv}: {obj.get('status', {}).get('phase')} on {node or 'no node'}")
        before = self._nodes.get(uid, "")
        if before and node != before:
            self.violations.append(
                message(
                    "pod {event} is on {node} and was on {before}: {story}",
                    event=event.key,
                    node=node or message("no node"),
                    before=before,
                    story=list(story),
                )
            )
        if node:
            self._nodes[uid] = node
