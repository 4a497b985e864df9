"""The template's hash is Karpenter's own: the vectors come from its hash function."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from dovetail.model.kinds import NodePool
from dovetail.model.kinds.hashes import pool_hash

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "kinds" / "hashes.json").read_text())


def test_a_cluster_may_change_hands_without_drift() -> None:
    for vector in VECTORS:
        pool = msgspec.convert({"spec": {"template": vector["template"]}}, NodePool)
        assert pool_hash(pool) == vector["hash"]


def test_what_is_not_of_the_machine_does_not_drift_it() -> None:
    template = {"spec": {"nodeClassRef": {"name": "a"}}}
    pool = msgspec.convert({"spec": {"template": template}}, NodePool)
    wider = {"spec": {**template["spec"], "requirements": [{"key": "a", "operator": "Exists"}]}}
    other = msgspec.convert({"spec": {"template": wider, "weight": 5, "limits": {"cpu": 1}}}, NodePool)
    assert pool_hash(pool) == pool_hash(other)
