"""Nodes as the planner sees them, from NodeClaim to initialized Node."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.cluster import state_node
from dovetail.cluster.nodepools import types_by_pool
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.volumes import CSINode
from dovetail.planner.snapshot import Pool

LARGE = InstanceType(
    name="m.large",
    capacity={"cpu": 2000, "memory": 8 << 30, "pods": 29},
    overhead={"cpu": 100},
    labels={},
    offerings=(Offering(zone="a", capacity_type="spot", price=0.04),),
    attach_limits={"ebs.csi.aws.com": 26},
)
XLARGE = InstanceType(name="m.xlarge", capacity={"cpu": 4000}, overhead={}, labels={}, offerings=())
TYPES = {("", "m.large"): LARGE, ("", "m.xlarge"): XLARGE}


def _claim(**status: Any) -> NodeClaim:
    labels = {"karpenter.sh/nodepool": "default", "team": "x"}
    if status:
        labels |= {
            "node.kubernetes.io/instance-type": "m.large",
            "topology.kubernetes.io/zone": "a",
            "karpenter.sh/capacity-type": "spot",
        }
    return msgspec.convert(
        {
            "metadata": {"name": "c1", "labels": labels},
            "spec": {
                "requirements": [
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m.large", "m.xlarge"]},
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]},
                ],
                "resources": {"requests": {"cpu": "1500m", "pods": "3"}},
                "taints": [{"key": "dedicated", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "cilium", "effect": "NoExecute"}],
            },
            "status": status,
        },
        NodeClaim,
    )


def _node(taints: list[dict[str, str]], labels: dict[str, str], **allocatable: str) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": "n1", "labels": labels},
            "spec": {"providerID": "x", "taints": taints},
            "status": {"allocatable": allocatable, "capacity": allocatable},
        },
        Node,
    )


LAUNCHED: dict[str, Any] = {
    "providerID": "x",
    "capacity": {"cpu": "2", "nvidia.com/gpu": "1"},
    "allocatable": {"cpu": "1900m", "nvidia.com/gpu": "1"},
}


def test_before_its_launch_a_nodeclaim_fits_its_planned_pods_and_counts_as_its_largest_option() -> None:
    state = state_node.of_claim(_claim(), (), TYPES, deleting=False)
    assert state.allocatable == {"cpu": 1500, "pods": 3}
    assert state.capacity["cpu"] == 4000
    assert state.labels["topology.kubernetes.io/zone"] == "a"
    assert [taint.key for taint in state.taints] == ["dedicated"]
    assert not state.initialized


def test_after_its_launch_the_nodeclaims_status_decides() -> None:
    state = state_node.of_claim(_claim(**LAUNCHED), (), TYPES, deleting=False)
    assert state.allocatable["cpu"] == 1900
    assert state.price == 0.04
    assert state.attach_limits == {"ebs.csi.aws.com": 26}


def test_a_node_has_the_price_of_its_own_nodepool() -> None:
    """Overlays may price a type for one NodePool and not for another."""
    replace = msgspec.structs.replace
    dear = replace(LARGE, offerings=tuple(replace(offering, price=9.0) for offering in LARGE.offerings))
    types = {("other", "m.large"): LARGE, ("", "m.large"): LARGE, ("default", "m.large"): dear}
    assert state_node.of_claim(_claim(**LAUNCHED), (), types, deleting=False).price == 9.0


def test_until_it_is_initialized_ephemeral_taints_do_not_count_and_zeroes_are_filled() -> None:
    passing = [
        {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "cilium", "effect": "NoExecute"},
        {"key": "dovetail.sh/placing", "effect": "NoSchedule"},
    ]
    young = _node(passing, {}, cpu="1900m", **{"nvidia.com/gpu": "0"})
    state = state_node.of_node(young, _claim(**LAUNCHED), (), None, TYPES, deleting=False)
    assert [taint.key for taint in state.taints] == ["dedicated"]
    assert state.allocatable["nvidia.com/gpu"] == 1
    assert state.pool == "default"

    grown = _node(passing[1:3], {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}, cpu="1900m")
    state = state_node.of_node(grown, _claim(**LAUNCHED), (), None, TYPES, deleting=False)
    assert {taint.key for taint in state.taints} == {"node.kubernetes.io/not-ready", "cilium"}
    assert "nvidia.com/gpu" not in state.allocatable


def test_a_cordoned_node_takes_no_pod() -> None:
    node = msgspec.convert({"metadata": {"name": "n"}, "spec": {"unschedulable": True}}, Node)
    state = state_node.of_node(node, None, (), None, {}, deleting=False)
    assert [taint.key for taint in state.taints] == ["node.kubernetes.io/unschedulable"]
    assert state.pool is None
    assert state.initialized


def test_a_csi_node_decides_for_the_drivers_it_has_published() -> None:
    labels = {"node.kubernetes.io/instance-type": "m.large"}
    csi = msgspec.convert(
        {"spec": {"drivers": [{"name": "ebs.csi.aws.com", "allocatable": {"count": 12}}, {"name": "efs"}]}}, CSINode
    )
    state = state_node.of_node(_node([], labels), None, (), csi, TYPES, deleting=False)
    assert state.attach_limits == {"ebs.csi.aws.com": 12}


def test_an_unreadable_price_is_none_and_never_zero() -> None:
    """Any user may edit annotations: metrics and termination must not depend on them."""
    texts = ("0.096", "cheap", "nan", "inf", "")
    claims = [msgspec.convert({"metadata": {"annotations": {"dovetail.sh/price": text}}}, NodeClaim) for text in texts]
    assert [state_node.launch_price(claim) for claim in claims] == [0.096, None, None, None, None]
    assert state_node.launch_price(_claim()) is None


def test_types_that_nodepools_share_are_listed_once() -> None:
    def pool(name: str, *types: InstanceType) -> Pool:
        return Pool(name=name, types=types)

    cheaper = msgspec.structs.replace(LARGE, offerings=(Offering(zone="a", capacity_type="spot", price=0.01),))
    shared = (LARGE, XLARGE)
    pools = [pool("first", *shared), *(pool(f"team-{number}", *shared) for number in range(50)), pool("own", cheaper)]
    types = types_by_pool(pools)
    assert types == {("", "m.large"): LARGE, ("", "m.xlarge"): XLARGE, ("own", "m.large"): cheaper}
    labels = {"node.kubernetes.io/instance-type": "m.large"}
    assert state_node.type_of({**labels, "karpenter.sh/nodepool": "own"}, types) is cheaper
    assert state_node.type_of({**labels, "karpenter.sh/nodepool": "team-7"}, types) is LARGE
