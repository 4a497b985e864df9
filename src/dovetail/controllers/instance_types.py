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
from dovetail.cluster.unusable_nodepools import UnusableCause
from dovetail.controllers.discovered_capacity import DiscoveredCapacity
from dovetail.controllers.logs import ref
from dovetail.language import source
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.kubelet import KUBELET_ANNOTATION, with_kubelet
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.node_overlays import overlaid, selection
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
        causes = [(pool, self.cause(pool)) for pool in nodepools.ordered(self._cluster_state.pools.store.all())]
        return tuple(self._as_unusable(pool, cause) for pool, cause in causes if cause is not None)

    def cause(self, pool: NodePool) -> UnusableCause | None:
        """Why nothing can be planned on a NodePool now; None if something can, or if it is static."""
        if pool.static or (self._without_status and nodepools.has_no_status(pool)):
            return None
        classes = [
            str((node_class.get("metadata") or {}).get("name"))
            for node_class in self._cluster_state.node_classes.store.all()
        ]
        reason = unusable_nodepools.cause(
            pool,
            self._cluster_state.node_classes.store.get(pool.spec.template.spec.node_class_ref.name),
            class_required=self._cloud.node_class_required,
            reconciled=True,
            classes=classes,
        )
        if not nodepools.usable(pool):
            return reason
        if self.paused(pool.name):
            return _failing_launches(pool.name, self._paused[pool.name][1])
        return _failing_launches(pool.name, self._failing[pool.name]) if pool.name in self._failing else None

    def _as_unusable(self, pool: NodePool, cause: UnusableCause) -> UnusablePool:
        """With the types that it had last, else with those of the other NodePools: what it would offer."""
        made = self._made.get(pool.name)
        types = made[1] if made is not None else max((entry[1] for entry in self._made.values()), key=len, default=())
        cached = self._unusable.get(pool.name)
        if cached is None or cached[0] is not pool or cached[1] is not types:
            cached = self._unusable[pool.name] = (pool, types, nodepools.for_planner(pool, types))
        return UnusablePool(
            pool=cached[2],
            code=cause.code,
            why=cause.why,
            remedy=cause.remedy,
            object=cause.object,
            leaving=cause.leaving,
            meant=cause.meant,
        )

    def node_class(self, pool: NodePool) -> Mapping[str, Any] | None:
        """The NodePool's NodeClass object; None if it must exist and does not."""
        reference = pool.spec.template.spec.node_class_ref
        obj = self._cluster_state.node_classes.store.get(reference.name)
        if obj is None:
            return None if self._cloud.node_class_required else NO_CLASS
        if KUBELET_ANNOTATION not in pool.metadata.annotations:
            return obj
        cached_class = self._classes.get(pool.name)
        if cached_class is None or cached_class[0] is not pool or cached_class[1] is not obj:
            cached_class = self._classes[pool.name] = (pool, obj, with_kubelet(obj, pool.metadata.annotations))
        return cached_class[2]

    async def types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """What the cloud offers a NodePool; empty if its NodeClass is missing. Raises CloudError."""
        node_class = self.node_class(pool)
        if node_class is None:
            return ()
        return self.corrected(await self._cloud.instance_types(self._as_plain(pool), node_class), pool.name)

    def _as_plain(self, pool: NodePool) -> Mapping[str, Any]:
        """The NodePool as the cloud gets it: plain values, made once while the NodePool is the same object."""
        cached = self._plain.get(pool.name)
        if cached is None or cached[0] is not pool:
            cached = self._plain[pool.name] = (pool, msgspec.to_builtins(pool))
        return cached[1]

    def corrected(self, types: tuple[InstanceType, ...], pool: str = "") -> tuple[InstanceType, ...]:
        """The types with overlays and discovered capacity; equal arguments, equal object."""
        overlays = tuple(self._cluster_state.overlays.store.all()) if self._overlays else ()
        versions = tuple(overlay.metadata.resource_version for overlay in overlays)
        source = self._cluster_state.pools.store.get(pool) if overlays else None
        of_pool = nodepools.labels(source) if source is not None else {}
        selected = selection(overlays, of_pool)
        key = (id(types), self.discovered.scope(pool), self.discovered.generation, versions, selected)
        cached = self._corrected.get(key)
        if cached is None or cached[0] is not types:
            if len(self._corrected) > _REMEMBERED:
                self._corrected.clear()
            cached = self._corrected[key] = (types, self.discovered.apply(overlaid(types, overlays, of_pool), pool))
        return cached[1]

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
            self._failing[pool.name] = source("its NodeClass offers no instance types")
            return None
        self._failing.pop(pool.name, None)
        cached = self._made.get(pool.name)
        if cached is not None and cached[0] is pool and cached[1] is types:
            return cached[2]
        made = nodepools.for_planner(pool, types)
        if cached is not None and cached[1] is types and cached[2] == made:
            made = cached[2]  # only its status changed
        self._made[pool.name] = (pool, types, made)
        return made

    async def all(self, only: Iterable[NodePool] | None = None) -> list[Pool]:
        """Every usable NodePool, in the order they are tried."""
        candidates = self._cluster_state.pools.store.all() if only is None else only
        if only is None:
            self._forget_deleted()
        usable_pools = nodepools.ordered(
            pool for pool in candidates if self._usable(pool) and not self.paused(pool.name)
        )
        pools = [await self.pool(nodepool) for nodepool in usable_pools]
        return [pool for pool in pools if pool is not None]

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
                for name in [key for key in memory if key not in there]:
                    del memory[name]


def _failing_launches(pool: str, why: str) -> UnusableCause:
    """A NodePool that is left out because its launches fail. The message may end with the reason's code."""
    text, _, last = why.rpartition(" (")
    code = last.rstrip(")")
    has_code = code in REASONS and last.endswith(")")
    return UnusableCause(
        code=code if has_code else "NO_NODEPOOL",
        why=source("is left out for a while: {why}").format(why=text if has_code else why),
        remedy=REASONS[code].remedy if has_code else source("see the events of its NodeClaims"),
        object=f"nodepool/{pool}",
    )
