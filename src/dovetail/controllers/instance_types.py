"""Instance types of each NodePool: the cloud's answer with overlays and discovered capacity, shared by all planners.

A NodePool whose types are unknown (its NodeClass is not ready, the call failed) is skipped with a reason; it never
delays the others. While the cloud's answer is the same object, so is the planner's pool made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from dovetail.clock import Clock
from dovetail.cloud.provider import Cloud, CloudError
from dovetail.cluster import nodepools, unusable_nodepools
from dovetail.cluster.state import ClusterState
from dovetail.cluster.unusable_nodepools import Cause
from dovetail.controllers.discovered_capacity import DiscoveredCapacity
from dovetail.controllers.logs import ref
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.kubelet import KUBELET_ANNOTATION, with_kubelet
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.node_overlays import overlaid
from dovetail.model.reasons import REASONS
from dovetail.planner.snapshot import Pool, UnusablePool

#: An empty NodeClass, for clouds that need none.
NO_CLASS: Mapping[str, Any] = {}
_REMEMBERED = 100


class InstanceTypes:
    """`overlays` says whether NodeOverlays count, `without_status` whether NodePools without any condition do."""

    def __init__(
        self,
        cluster_state: ClusterState,
        cloud: Cloud,
        clock: Clock,
        log: FilteringBoundLogger,
        *,
        overlays: bool = False,
        without_status: bool = False,
    ) -> None:
        self.discovered = DiscoveredCapacity()
        self._overlays = overlays
        self._without_status = without_status
        self._corrected: dict[Any, tuple[tuple[InstanceType, ...], tuple[InstanceType, ...]]] = {}
        self._cluster_state = cluster_state
        self._clock = clock
        self._paused: dict[str, tuple[float, str]] = {}
        self._failing: dict[str, str] = {}
        self._classes: dict[str, tuple[NodePool, Mapping[str, Any], Mapping[str, Any]]] = {}
        self._cloud = cloud
        self._log = log
        self._made: dict[str, tuple[NodePool, tuple[InstanceType, ...], Pool]] = {}
        self._plain: dict[str, tuple[NodePool, Mapping[str, Any]]] = {}
        self._unusable: dict[str, tuple[NodePool, tuple[InstanceType, ...], Pool]] = {}

    def pause(self, pool: str, seconds: float, why: str) -> None:
        """Leave a NodePool out of planning for a while: its launches fail, and others may do better."""
        self._paused[pool] = (self._clock.monotonic() + seconds, why)
        self._log.error("ignoring nodepool, launches fail", NodePool=ref(pool), error=why, seconds=seconds)

    def paused(self, pool: str) -> bool:
        return self._paused.get(pool, (float("-inf"), ""))[0] > self._clock.monotonic()

    def unusable(self) -> tuple[UnusablePool, ...]:
        """The NodePools that nothing can be planned on now, and why: they explain why a pod waits."""
        found = [(pool, self.cause(pool)) for pool in nodepools.ordered(self._cluster_state.pools.store.all())]
        return tuple(self._as_unusable(pool, cause) for pool, cause in found if cause is not None)

    def cause(self, pool: NodePool) -> Cause | None:
        """Why nothing can be planned on a NodePool now; None if something can, or if it is static."""
        if pool.static or (self._without_status and nodepools.has_no_status(pool)):
            return None
        classes = [
            str((each.get("metadata") or {}).get("name")) for each in self._cluster_state.node_classes.store.all()
        ]
        found = unusable_nodepools.cause(
            pool,
            self._cluster_state.node_classes.store.get(pool.spec.template.spec.node_class_ref.name),
            class_required=self._cloud.node_class_required,
            reconciled=True,
            classes=classes,
        )
        if not nodepools.usable(pool):
            return found
        if self.paused(pool.name):
            return _failing_launches(pool.name, self._paused[pool.name][1])
        return _failing_launches(pool.name, self._failing[pool.name]) if pool.name in self._failing else None

    def _as_unusable(self, pool: NodePool, cause: Cause) -> UnusablePool:
        """With the types that it had last, else with those of the other NodePools: what it would offer."""
        made = self._made.get(pool.name)
        types = made[1] if made is not None else max((each[1] for each in self._made.values()), key=len, default=())
        known = self._unusable.get(pool.name)
        if known is None or known[0] is not pool or known[1] is not types:
            known = self._unusable[pool.name] = (pool, types, nodepools.for_planner(pool, types))
        return UnusablePool(
            pool=known[2],
            code=cause.code,
            why=cause.why,
            remedy=cause.remedy,
            object=cause.object,
            leaving=cause.leaving,
        )

    def node_class(self, pool: NodePool) -> Mapping[str, Any] | None:
        """The NodePool's NodeClass object; None if it must exist and does not."""
        reference = pool.spec.template.spec.node_class_ref
        found = self._cluster_state.node_classes.store.get(reference.name)
        if found is None:
            return None if self._cloud.node_class_required else NO_CLASS
        if KUBELET_ANNOTATION not in pool.metadata.annotations:
            return found
        known = self._classes.get(pool.name)
        if known is None or known[0] is not pool or known[1] is not found:
            known = self._classes[pool.name] = (pool, found, with_kubelet(found, pool.metadata.annotations))
        return known[2]

    async def types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """What the cloud offers a NodePool; empty if its NodeClass is missing. Raises CloudError."""
        node_class = self.node_class(pool)
        if node_class is None:
            return ()
        return self.corrected(await self._cloud.instance_types(self._as_plain(pool), node_class), pool.name)

    def _as_plain(self, pool: NodePool) -> Mapping[str, Any]:
        """The NodePool as the cloud gets it: plain values, made once while the NodePool is the same object."""
        known = self._plain.get(pool.name)
        if known is None or known[0] is not pool:
            known = self._plain[pool.name] = (pool, msgspec.to_builtins(pool))
        return known[1]

    def corrected(self, types: tuple[InstanceType, ...], pool: str = "") -> tuple[InstanceType, ...]:
        """The types with overlays and discovered capacity; equal arguments, equal object."""
        overlays = tuple(self._cluster_state.overlays.store.all()) if self._overlays else ()
        versions = tuple(overlay.metadata.resource_version for overlay in overlays)
        source = self._cluster_state.pools.store.get(pool) if overlays else None
        of_pool = nodepools.labels(source) if source is not None else {}
        key = (id(types), self.discovered.scope(pool), self.discovered.generation, versions, *sorted(of_pool.items()))
        known = self._corrected.get(key)
        if known is None or known[0] is not types:
            if len(self._corrected) > _REMEMBERED:
                self._corrected.clear()
            known = self._corrected[key] = (types, self.discovered.apply(overlaid(types, overlays, of_pool), pool))
        return known[1]

    async def pool(self, pool: NodePool) -> Pool | None:
        """A NodePool ready for planning, or None if it has nothing to offer now."""
        try:
            types = await self.types(pool)
        except CloudError as problem:
            self._log.error("skipping, unable to resolve instance types", NodePool=ref(pool.name), error=problem.detail)
            self._failing[pool.name] = problem.message
            return None
        if not types:
            self._log.info("skipping, no resolved instance types found", NodePool=ref(pool.name))
            self._failing[pool.name] = "its NodeClass offers no instance types"
            return None
        self._failing.pop(pool.name, None)
        known = self._made.get(pool.name)
        if known is not None and known[0] is pool and known[1] is types:
            return known[2]
        made = nodepools.for_planner(pool, types)
        if known is not None and known[1] is types and known[2] == made:
            made = known[2]  # only its status changed
        self._made[pool.name] = (pool, types, made)
        return made

    async def all(self, only: Iterable[NodePool] | None = None) -> list[Pool]:
        """Every usable NodePool, in the order they are tried."""
        candidates = self._cluster_state.pools.store.all() if only is None else only
        if only is None:
            self._forget_deleted()
        wanted = nodepools.ordered(pool for pool in candidates if self._usable(pool) and not self.paused(pool.name))
        found = [await self.pool(each) for each in wanted]
        return [each for each in found if each is not None]

    def _usable(self, pool: NodePool) -> bool:
        return nodepools.usable(pool) or (self._without_status and nodepools.has_no_status(pool))

    def _forget_deleted(self) -> None:
        """Remember no more NodePools than there are."""
        there = self._cluster_state.pools.store
        memories: tuple[dict[str, Any], ...] = (
            self._made,
            self._plain,
            self._classes,
            self._failing,
            self._paused,
            self._unusable,
        )
        for memory in memories:
            if len(memory) > len(there):
                for name in [each for each in memory if each not in there]:
                    del memory[name]


def _failing_launches(pool: str, why: str) -> Cause:
    """A NodePool that is left out because its launches fail. The message may end with the reason's code."""
    text, _, last = why.rpartition(" (")
    code = last.rstrip(")")
    known = code in REASONS and last.endswith(")")
    return Cause(
        code=code if known else "NO_NODEPOOL",
        why=f"is left out for a while: {text if known else why}",
        remedy=REASONS[code].remedy if known else "see the events of its NodeClaims",
        object=f"nodepool/{pool}",
    )
