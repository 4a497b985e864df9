"""Expiration: NodeClaims past expireAfter. The replacement comes first, but not for ever.

Budgets and protected pods do not hold expiration back, as in Karpenter, and if the replacement cannot be launched
within a while the node is terminated all the same.
"""

from __future__ import annotations

from datetime import datetime

from dovetail.cluster.state import ClusterState
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS
from dovetail.model import duration
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool


def date(claim: NodeClaim, pool: NodePool | None = None) -> datetime | None:
    """When a NodeClaim expires; None if it never does.

    NodeClaims of older API versions have no expireAfter of their own and use their NodePool's; without it they never
    expire.
    """
    life, created = claim.spec.life, claim.metadata.creation_timestamp
    if claim.spec.by_pool:
        life = duration.countable(pool.spec.template.spec.expire_after) if pool is not None else None
    return None if life is None or created is None else created + life


def remaining(claim: NodeClaim, now: datetime) -> float:
    """The share of its lifetime that a NodeClaim still has: 1 if it never expires."""
    end, created = date(claim), claim.metadata.creation_timestamp
    if end is None or created is None or end <= created:
        return 1.0
    return min(1.0, max(0.0, (end - now) / (end - created)))


class ExpiryDates:
    """The expiry dates of all NodeClaims, kept up by the watch."""

    def __init__(self, cluster_state: ClusterState) -> None:
        self._store, self._pools = cluster_state.claims.store, cluster_state.pools.store
        self._dates: dict[str, datetime] = {}
        for claim in self._store.all():
            self._note(claim.name, claim)
        cluster_state.listen(NODECLAIMS, self._changed)

    def _changed(self, change: CacheChange[NodeClaim]) -> None:
        if change.old is None or change.new is None:  # the spec of a NodeClaim never changes
            self._note(change.key, change.new)

    def _note(self, name: str, claim: NodeClaim | None) -> None:
        when = date(claim, self._pools.get(claim.node_pool or "")) if claim is not None else None
        if when is None:
            self._dates.pop(name, None)
        else:
            self._dates[name] = when

    def first(self) -> datetime | None:
        """The earliest expiry, past or future."""
        return min(self._dates.values(), default=None)

    def due(self, now: datetime) -> list[NodeClaim]:
        """NodeClaims past their expiry, oldest first."""
        dated = sorted((when, name) for name, when in self._dates.items() if when <= now)
        return [claim for claim in map(self._store.get, (name for _, name in dated)) if claim is not None]
