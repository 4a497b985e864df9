"""Which changes of a NodePool cause its NodeClaims to be reconciled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec

from dovetail.chance import Chance
from dovetail.controllers.context import Context
from dovetail.controllers.nodeclaim.disruption_conditions import DisruptionConditions
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODEPOOLS, Resource
from dovetail.model.kinds.nodepool import NodePool


def _pool(**parts: Any) -> NodePool:
    parts = {"metadata": {"name": "default"}, **parts}
    return msgspec.convert(parts, NodePool)


def _looked_at(old: NodePool | None, new: NodePool | None) -> bool:
    """Whether the NodeClaims of a NodePool are reconciled after it changed."""
    asked: list[str] = []

    def claims_of(pool: str) -> list[Any]:
        asked.append(pool)
        return []

    heard: dict[Resource, Any] = {}
    cluster_state = SimpleNamespace(listen=heard.__setitem__, claims_of=claims_of)
    context = cast(Context, SimpleNamespace(cluster_state=cluster_state, log=None, chance=Chance(1), metrics=None))
    DisruptionConditions(context)
    heard[NODEPOOLS](CacheChange("modified", "default", old, new))
    return asked == ["default"]


def test_nodeclaims_are_reconciled_when_their_nodepool_appears_or_changes() -> None:
    sooner = _pool(spec={"disruption": {"consolidateAfter": "5m"}})
    hashed = _pool(metadata={"name": "default", "annotations": {"karpenter.sh/nodepool-hash": "2"}})
    assert _looked_at(None, _pool())
    assert _looked_at(_pool(), sooner)
    assert _looked_at(_pool(), hashed)


def test_nodeclaims_are_not_reconciled_for_a_status_or_the_deletion_of_their_nodepool() -> None:
    assert not _looked_at(_pool(), _pool(status={"resources": {"nodes": "7"}}))
    assert not _looked_at(_pool(), None)
