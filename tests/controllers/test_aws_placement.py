"""Instances in a placement group, from the NodeClass's selector to the partition of each pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from dovetail.kube import resources as kinds
from tests.controllers.aws_world import Account, AwsWorld, account, run_scenario

pytestmark = pytest.mark.timeout(300)

ID = "karpenter.k8s.aws/placement-group-id"
PART = "karpenter.k8s.aws/placement-group-partition"
LARGE = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": PART,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "p"}},
}


@pytest.fixture(scope="module")
def aws() -> Iterator[Account]:
    yield from account("m5")


async def _begin(world: AwsWorld) -> None:
    await world.node_class(placementGroupSelector={"name": "racks"})
    await world.pool("default", ON_DEMAND, LARGE)
    world.start()


async def _partitions(world: AwsWorld) -> Counter[str]:
    """How many pods run in each partition, by the labels of their nodes."""
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in await world.list(kinds.NODES)}
    ours = [pod for pod in await world.list(kinds.PODS) if pod["metadata"]["namespace"] == "default"]
    return Counter(nodes[pod["spec"]["nodeName"]][PART] for pod in ours)


def test_pods_that_are_spread_over_partitions_get_nodes_in_each(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        group = aws.endpoint.groups.put("racks", "partition", 3)
        await _begin(world)
        await world.pods(6, topologySpreadConstraints=[SPREAD])
        await world.until(world.running)
        assert await _partitions(world) == {"1": 2, "2": 2, "3": 2}
        assert Counter(str(each.placement.partition_number) for each in aws.living()).keys() == {"1", "2", "3"}
        assert {each.placement.group_id for each in aws.living()} == {group.id}

    run_scenario(aws, scenario)


def test_a_node_has_the_partition_label_that_ec2_chose_before_pods_are_scheduled_there(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        group = aws.endpoint.groups.put("racks", "partition", 2)
        await _begin(world)
        await world.pods(1)
        await world.until(world.running)
        (node,), (claim,) = await world.list(kinds.NODES), await world.list(kinds.NODECLAIMS)
        for held in (node, claim):
            assert (held["metadata"]["labels"][ID], held["metadata"]["labels"][PART]) == (group.id, "1")

    run_scenario(aws, scenario)


def test_pods_wait_for_a_missing_placement_group_and_run_once_it_exists(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        await _begin(world)
        await world.pods(1)

        async def named() -> bool:
            published = await world.conditions(kinds.EC2NODECLASSES, "default")
            return published.get("PlacementGroupReady", "").startswith("False/PlacementGroupNotFound")

        await world.until(named)
        assert not aws.living()
        aws.endpoint.groups.put("racks", "cluster")
        await world.until(world.running)

    run_scenario(aws, scenario)
