"""Snapshots: the nodes of the cluster state, the NodePools with their types, and the pending pods, at one instant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.cluster.nodepools import types_by_pool
from dovetail.cluster.state import ClusterState
from dovetail.cluster.workload_selectors import Selectors
from dovetail.model.instance_type import InstanceType
from dovetail.model.pods import Pod, TopologySpreadConstraint
from dovetail.planner.snapshot import MinValues, Pool, Preferences, Snapshot, UnusablePool


class SnapshotBuilder:
    """Takes snapshots of a cluster state. It remembers the merged types, so that equal offers keep their identity."""

    def __init__(
        self,
        cluster_state: ClusterState,
        *,
        preferences: Preferences = Preferences.RESPECT,
        min_values: MinValues = MinValues.STRICT,
        default_spread: Sequence[TopologySpreadConstraint] = (),
        selectors: Selectors | None = None,
    ) -> None:
        self._cluster_state = cluster_state
        self._preferences = preferences
        self._min_values = min_values
        self._default_spread = tuple(default_spread)
        self._selectors = selectors
        self._offers: tuple[tuple[InstanceType, ...], ...] = ()
        self._types: dict[tuple[str, str], InstanceType] = {}

    def build(self, pools: Iterable[Pool], pending: Iterable[Pod], unusable: Iterable[UnusablePool] = ()) -> Snapshot:
        cluster_state, offered = self._cluster_state, tuple(pools)
        types = self._merged(offered)
        return Snapshot(
            pools=offered,
            unusable_pools=tuple(unusable),
            nodes=cluster_state.states(types),
            pending=tuple(pending),
            daemons=tuple(cluster_state.daemonsets.store.all()),
            namespaces={
                namespace.metadata.name: namespace.metadata.labels for namespace in cluster_state.namespaces.store.all()
            },
            claims={
                volume_claim.metadata.key: volume_claim for volume_claim in cluster_state.volume_claims.store.all()
            },
            volumes={volume.metadata.name: volume for volume in cluster_state.volumes.store.all()},
            storage_classes={
                storage_class.metadata.name: storage_class
                for storage_class in cluster_state.storage_classes.store.all()
            },
            budgets=tuple(cluster_state.budgets.store.all()),
            priorities={
                priority_class.metadata.name: priority_class.value
                for priority_class in cluster_state.priorities.store.all()
            },
            default_spread=self._default_spread,
            selectors=dict(self._selectors.all()) if self._selectors else {},
            preferences=self._preferences,
            min_values=self._min_values,
            memory=cluster_state.memory,
        )

    def _merged(self, pools: tuple[Pool, ...]) -> dict[tuple[str, str], InstanceType]:
        offers = tuple(pool.types for pool in pools)
        if len(offers) != len(self._offers) or any(a is not b for a, b in zip(offers, self._offers, strict=True)):
            self._offers, self._types = offers, types_by_pool(pools)
        return self._types
