"""Selectors of pods' owners: the scheduler's default spread constraints find their pods by them.

Watched only where such constraints are set: most clusters have none, and ReplicaSets are many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from dovetail.kube.client import Kube
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import REPLICASETS, STATEFULSETS
from dovetail.model.selector import LabelSelector
from dovetail.model.workloads import ReplicaSet, StatefulSet


class Selectors:
    """Selectors by the UID of the owner, kept up to date while it runs."""

    def __init__(self, kube: Kube) -> None:
        self._by_uid: dict[str, LabelSelector] = {}
        self._sets = Reflector(kube, REPLICASETS, ReplicaSet, on_event=self._changed)
        self._stateful = Reflector(kube, STATEFULSETS, StatefulSet, on_event=self._changed)

    def all(self) -> Mapping[str, LabelSelector]:
        return self._by_uid

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sets.run(), name="watch replicasets")
            group.create_task(self._stateful.run(), name="watch statefulsets")

    def _changed(self, change: CacheChange[ReplicaSet] | CacheChange[StatefulSet]) -> None:
        owner = change.object
        if change.new is not None and owner.spec.selector is not None:
            self._by_uid[owner.metadata.uid] = owner.spec.selector
        else:
            self._by_uid.pop(owner.metadata.uid, None)
