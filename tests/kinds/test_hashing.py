"""The hashes of a pool's template and of a class are Karpenter's own: the vectors come from its hash functions."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import msgspec

from dovetail.model.kinds import NodePool
from dovetail.model.kinds.nodeclass_hash import class_hash
from dovetail.model.kinds.nodepool_hash import pool_hash

DATA = Path(__file__).parents[1] / "data" / "kinds"
POOLS = json.loads((DATA / "hashes.json").read_text())
CLASSES = json.loads((DATA / "classhashes.json").read_text())


def pool(template: dict[str, Any], **more: Any) -> NodePool:
    return msgspec.convert({"spec": {"template": template, **more}}, NodePool)


def test_a_cluster_may_change_hands_without_drift() -> None:
    for vector in POOLS:
        assert pool_hash(pool(vector["template"])) == vector["hash"]
    for vector in CLASSES:
        assert class_hash(vector["spec"], vector["family"], vector.get("certificate", "")) == vector["hash"]


def test_what_is_not_of_the_node_does_not_drift_it() -> None:
    template = {"spec": {"nodeClassRef": {"name": "a"}}}
    wider = {"spec": {**template["spec"], "requirements": [{"key": "a", "operator": "Exists"}]}}
    assert pool_hash(pool(template)) == pool_hash(pool(wider, weight=5, limits={"cpu": 1}))


def test_a_list_written_empty_is_reported_from_one_not_written_wherever_the_pool_has_been() -> None:
    """Karpenter hashes `taints: []`, which charts are fond of; otherwise every node would drift at the handover."""
    plain, written = pool({"spec": {}}), pool({"metadata": {"labels": {}}, "spec": {"taints": []}})
    assert plain == written
    assert pool_hash(plain) != pool_hash(written)
    for each in (plain, written):
        assert pool_hash(pickle.loads(pickle.dumps(each))) == pool_hash(each)
        assert pool_hash(msgspec.convert(msgspec.to_builtins(each), NodePool)) == pool_hash(each)


def test_the_same_said_otherwise_does_not_drift_a_node() -> None:
    volumes = [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "1024Gi"}}, {"deviceName": "/dev/xvdb", "ebs": {}}]
    said = {"blockDeviceMappings": volumes, "kubelet": {"evictionSoftGracePeriod": {"memory.available": "90s"}}}
    again = [volumes[1], {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "1Ti"}}]
    other = {"blockDeviceMappings": again, "kubelet": {"evictionSoftGracePeriod": {"memory.available": "1m30s"}}}
    assert class_hash(said, "AL2023") == class_hash(other, "AL2023")
    assert class_hash(said, "AL2023") != class_hash(said, "Bottlerocket")
