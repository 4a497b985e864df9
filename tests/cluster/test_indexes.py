"""Stages: NodeClaims and Nodes are indexed by them as they are written."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.cluster.indexes import DISRUPTED, DRIFTED, JOINING, NOT_CONSOLIDATABLE, RESERVED, STAGE, of_claim, of_node
from dovetail.kube.store import Store
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.wellknown import DISRUPTED_TAINT


def _claim(*true: str, **metadata: Any) -> NodeClaim:
    conditions = [{"type": kind, "status": "True"} for kind in true]
    body = {"metadata": {"name": "c", **metadata}, "status": {"conditions": conditions}}
    return msgspec.convert(body, NodeClaim, strict=False)


def test_a_nodeclaim_is_indexed_by_its_conditions() -> None:
    assert set(of_claim(_claim())) == {JOINING, NOT_CONSOLIDATABLE}
    assert set(of_claim(_claim("Registered", "Consolidatable"))) == set()
    assert set(of_claim(_claim("Registered", "Consolidatable", "Drifted", "DisruptionReason"))) == {DRIFTED, DISRUPTED}
    assert set(of_claim(_claim(deletionTimestamp="2026-01-01T00:00:00Z"))) == {NOT_CONSOLIDATABLE}, (
        "a deleted NodeClaim is not joining"
    )
    reserved = _claim("Registered", "Consolidatable", labels={"karpenter.sh/capacity-type": "reserved"})
    assert set(of_claim(reserved)) == {RESERVED}


def test_a_nodeclaim_leaves_a_stage_with_the_write() -> None:
    store: Store[NodeClaim] = Store({STAGE: of_claim})
    store.put("c", _claim())
    assert store.by(STAGE, JOINING)
    store.put("c", _claim("Registered"))
    assert not store.by(STAGE, JOINING)
    assert store.by(STAGE, NOT_CONSOLIDATABLE)
    store.remove("c")
    assert not store.by(STAGE, NOT_CONSOLIDATABLE)


def test_a_node_with_the_disrupted_taint_is_indexed() -> None:
    taint = msgspec.to_builtins(DISRUPTED_TAINT)
    assert list(of_node(msgspec.convert({"spec": {"taints": [taint]}}, Node))) == [DISRUPTED]
    assert not list(of_node(Node()))
