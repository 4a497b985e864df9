"""NodePools and EC2NodeClasses that a migration proposes."""

from __future__ import annotations

from typing import Any

from dovetail.migration.groups import Group, Sizes
from dovetail.migration.proposals import ProposalSettings, described_by_nodes, image_family, proposals
from dovetail.model.kinds.admission import check
from dovetail.model.meta import ObjectMeta
from dovetail.model.nodes import Node, NodeSpec, NodeStatus, NodeSystemInfo, Taint
from dovetail.model.pods import Pod, PodSpec

SETTINGS = ProposalSettings(role="KarpenterNodeRole-demo")
FACTS: dict[str, Any] = {
    "sizes": Sizes(1, 5, 2),
    "instance_types": ("m5.large",),
    "zones": ("ap-northeast-2a",),
    "subnets": ("subnet-1",),
    "security_groups": ("sg-1",),
    "family": "al2023",
}


def _node(number: int, **labels: str) -> Node:
    return Node(
        metadata=ObjectMeta(name=f"n{number}", labels=labels),
        spec=NodeSpec(
            provider_id=f"aws:///ap-northeast-2a/i-{number}",
            taints=(
                Taint(key="team", value="data", effect="NoSchedule"),
                Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),
            ),
        ),
        status=NodeStatus(node_info=NodeSystemInfo(os_image="Bottlerocket OS 1.20", kubelet_version="v1.34.1-eks-1")),
    )


def _requirement(pool: Any, key: str) -> list[str]:
    rows = pool["spec"]["template"]["spec"]["requirements"]
    values: list[str] = next(row["values"] for row in rows if row["key"] == key)
    return values


def test_groups_that_differ_only_in_name_and_size_share_a_nodepool() -> None:
    alike = [Group(name="a", **FACTS), Group(name="b", **FACTS | {"sizes": Sizes(0, 3, 0)})]
    spot = Group(name="c", capacity_types=("spot",), **FACTS)
    made = proposals([*alike, spot], SETTINGS)
    assert [proposal.groups for proposal in made] == [("a", "b"), ("c",)]
    assert made[0].node_pool["spec"]["limits"] == {"cpu": "32", "memory": f"{2 * 8 * 8192}Mi"}
    assert _requirement(made[1].node_pool, "karpenter.sh/capacity-type") == ["spot"]


def test_the_api_server_takes_what_is_proposed() -> None:
    group = Group(
        name="Weird_Name.1",
        labels={"team": "web"},
        taints=(Taint(key="team", value="web", effect="NoSchedule"),),
        node_class_fields={
            "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi", "volumeType": "gp3"}}]
        },
        **FACTS,
    )
    [proposal] = proposals([group], SETTINGS)
    assert len(proposal.objects) == 2
    assert [check(dict(body)) for body in proposal.objects] == [[], []]
    assert proposal.node_pool["metadata"]["name"] == "weird-name-1"


def test_names_that_are_taken_are_not_used_again() -> None:
    settings = ProposalSettings(node_class="default", taken=frozenset({"a", "a-2"}))
    [proposal] = proposals([Group(name="a", **FACTS)], settings)
    assert proposal.node_pool["metadata"]["name"] == "a-3"
    assert proposal.node_class is None


def test_labels_taints_and_images_come_from_the_nodes() -> None:
    group = Group(
        name="a", instances=("aws:///ap-northeast-2a/i-1", "aws:///ap-northeast-2a/i-2"), sizes=Sizes(0, 5, 2)
    )
    common = {"team": "data", "eks.amazonaws.com/nodegroup": "a", "alpha.eksctl.io/cluster-name": "demo"}
    nodes = [
        _node(1, rack="1", **{"node.kubernetes.io/instance-type": "r5.large"}, **common),
        _node(2, rack="2", **{"node.kubernetes.io/instance-type": "r5.xlarge"}, **common),
        _node(3, team="other"),
    ]
    described = described_by_nodes(group, nodes, [])
    assert described.labels == {"team": "data"}
    assert [taint.key for taint in described.taints] == ["team"]
    assert described.family == "bottlerocket"
    assert described.instance_types == ("r5.large", "r5.xlarge")
    asking = Pod(spec=PodSpec(node_selector={"eks.amazonaws.com/nodegroup": "a"}))
    assert described_by_nodes(group, nodes, [asking]).labels == {"team": "data", "eks.amazonaws.com/nodegroup": "a"}


def test_accelerated_types_are_replaced_by_their_own_kind_and_general_ones_by_general_ones() -> None:
    key = "karpenter.k8s.aws/instance-category"
    kinds = {
        instance_type: _requirement(
            proposals([Group(name="a", **FACTS | {"instance_types": (instance_type,)})], SETTINGS)[0].node_pool, key
        )
        for instance_type in ("g5.xlarge", "t3.medium", "m6g.large")
    }
    assert kinds == {"g5.xlarge": ["g"], "t3.medium": ["c", "m", "r", "t"], "m6g.large": ["c", "m", "r"]}
    [arm] = proposals([Group(name="a", **FACTS | {"instance_types": ("m6g.large",)})], SETTINGS)
    assert _requirement(arm.node_pool, "kubernetes.io/arch") == ["arm64"]
    [old] = proposals([Group(name="a", **FACTS | {"instance_types": ("t2.small",)})], SETTINGS)
    assert _requirement(old.node_pool, "karpenter.k8s.aws/instance-generation") == ["1"]


def test_amazon_linux_2_is_replaced_where_it_has_no_images() -> None:
    group = Group(name="a", **FACTS | {"family": image_family("AL2_x86_64")})
    assert group.family == "al2"
    described = described_by_nodes(group, [_node(1)], [])
    assert described.family == "al2023" and "AL2023" in described.notes[0]
    assert image_family("CUSTOM") == ""
    assert image_family("BOTTLEROCKET_ARM_64_NVIDIA") == "bottlerocket"
