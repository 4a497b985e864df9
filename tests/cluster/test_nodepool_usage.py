"""NodePool usage: what NodeClaims have together, in whatever order they are added, changed and deleted."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from dovetail.cluster.nodepool_usage import NodePoolUsage
from dovetail.cluster.state import ClusterState
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import Resource
from dovetail.kube.store import Store
from dovetail.model.kinds.nodeclaim import NodeClaim

NOTHING = {"cpu": 0, "memory": 0, "pods": 0, "ephemeral-storage": 0, "nodes": 0}


class _Watched:
    def __init__(self, *claims: NodeClaim) -> None:
        self.claims = SimpleNamespace(store=Store[NodeClaim]())
        self.notify: Callable[[CacheChange[Any]], None] = lambda change: None
        for claim in claims:
            self.claims.store.put(claim.name, claim)

    def listen(self, resource: Resource, listener: Callable[[CacheChange[Any]], None]) -> None:
        self.notify = listener


def _claim(name: str, **capacity: str) -> NodeClaim:
    metadata = {"name": name, "labels": {"karpenter.sh/nodepool": "default"}}
    return msgspec.convert({"metadata": metadata, "status": {"capacity": capacity}}, NodeClaim)


def test_nodeclaims_are_counted_as_they_are_added_changed_and_deleted() -> None:
    cluster_state = _Watched(_claim("a", cpu="4", memory="8Gi"))
    found = NodePoolUsage(cast(ClusterState, cluster_state))
    assert found.of("default") == {**NOTHING, "nodes": 1, "cpu": 4000, "memory": 8 << 30}
    cluster_state.notify(CacheChange("added", "b", None, _claim("b")))
    assert found.of("default")["nodes"] == 2, "a NodeClaim that is not launched yet counts"
    cluster_state.notify(CacheChange("modified", "b", _claim("b"), _claim("b", cpu="4", gpu="1")))
    assert found.of("default") == {**NOTHING, "nodes": 2, "cpu": 8000, "memory": 8 << 30, "gpu": 1}
    cluster_state.notify(CacheChange("deleted", "b", _claim("b", cpu="96"), None))
    assert found.of("default") == {**NOTHING, "nodes": 1, "cpu": 4000, "memory": 8 << 30}, (
        "what was counted is subtracted"
    )
    cluster_state.notify(CacheChange("deleted", "a", _claim("a"), None))
    assert found.of("default") == NOTHING == found.of("another")
