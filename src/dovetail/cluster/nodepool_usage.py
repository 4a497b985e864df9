"""NodePool usage: what the NodeClaims of each NodePool have together, kept up as NodeClaims change.

Most NodeClaims of a NodePool are alike, so they are counted by capacity, and each capacity is parsed once.
"""

from __future__ import annotations

from collections import Counter

from dovetail.cluster.state import ClusterState
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import Amount
from dovetail.model.quantity import resources

Capacity = tuple[tuple[str, Amount], ...]


class NodePoolUsage:
    def __init__(self, cluster_state: ClusterState) -> None:
        self._counted: dict[str, tuple[str, Capacity]] = {}
        self._counts: dict[str, Counter[Capacity]] = {}
        for claim in cluster_state.claims.store.all():
            self._put(claim.name, claim)
        cluster_state.listen(NODECLAIMS, self._changed)

    def of(self, pool: str) -> dict[str, int]:
        """The sum of its NodeClaims' capacities and `nodes`, starting from the resources that a status always shows."""
        total = dict.fromkeys(("cpu", "memory", "pods", "ephemeral-storage", "nodes"), 0)
        for capacity, count in self._counts.get(pool, {}).items():
            total["nodes"] += count
            for name, amount in resources(dict(capacity)).items():
                total[name] = total.get(name, 0) + amount * count
        return total

    def _changed(self, change: CacheChange[NodeClaim]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.status.capacity != new.status.capacity:
            self._put(change.key, new)

    def _put(self, key: str, claim: NodeClaim | None) -> None:
        counted = self._counted.pop(key, None)
        if counted is not None:
            pool, capacity = counted
            counts = self._counts[pool]
            counts[capacity] -= 1
            if not counts[capacity]:
                del counts[capacity]
            if not counts:
                del self._counts[pool]
        if claim is not None:
            pool, capacity = self._counted[key] = (claim.node_pool or "", tuple(claim.status.capacity.items()))
            self._counts.setdefault(pool, Counter())[capacity] += 1
