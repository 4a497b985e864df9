"""Reserved capacity, from the NodeClass's selector to the instance's end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from dovetail.kube import resources as kinds
from tests.controllers.aws_world import Account, AwsWorld, account, run_scenario

pytestmark = pytest.mark.timeout(300)

ZONE = "ap-northeast-2b"
KIND, ID = "karpenter.sh/capacity-type", "karpenter.k8s.aws/capacity-reservation-id"
TERMS = [{"tags": {"team": "shop"}}]
ANY = {"key": KIND, "operator": "In", "values": ["reserved", "on-demand"]}
LARGE = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}


@pytest.fixture(scope="module")
def aws() -> Iterator[Account]:
    yield from account("m5")


async def _labels(world: AwsWorld, name: str) -> list[str]:
    return sorted(claim["metadata"]["labels"].get(name, "") for claim in await world.list(kinds.NODECLAIMS))


async def _begin(world: AwsWorld) -> None:
    await world.node_class(capacityReservationSelectorTerms=TERMS)
    await world.pool("default", ANY, LARGE)
    world.start()


def test_reserved_capacity_is_filled_first_and_not_exceeded(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        held = aws.endpoint.book.put("m5.large", ZONE, 2, tags={"team": "shop"})
        await _begin(world)
        await world.pods(4, cpu="1500m")
        await world.until(world.running)
        assert Counter(await _labels(world, KIND)) == {"reserved": 2, "on-demand": 2}
        assert [instance.capacity_reservation_id for instance in aws.living()].count(held.id) == 2
        nodes = await world.list(kinds.NODES)
        assert {node["metadata"]["labels"].get(ID) for node in nodes} == {held.id, None}

    run_scenario(aws, scenario)


def test_a_node_that_outlives_its_reservation_becomes_on_demand(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        held = aws.endpoint.book.put("m5.large", ZONE, 1, tags={"team": "shop"})
        await _begin(world)
        await world.pods(1)
        await world.until(world.running)
        assert await _labels(world, ID) == [held.id]
        aws.endpoint.book.cancel(held.id)
        (instance,) = aws.living()
        instance.capacity_reservation_id = None

        async def demoted() -> bool:
            (node,) = await world.list(kinds.NODES)
            labels = node["metadata"]["labels"]
            return (labels[KIND], labels.get(ID)) == ("on-demand", None)

        await world.until(demoted, within=180)
        assert (await _labels(world, KIND), await _labels(world, ID)) == (["on-demand"], [""])
        assert len(aws.living()) == 1

    run_scenario(aws, scenario)


def test_a_node_of_a_capacity_block_is_drained_before_it_ends(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        end = world.lab.clock.now() + timedelta(hours=1)
        aws.endpoint.book.put("m5.large", ZONE, 1, tags={"team": "shop"}, kind="capacity-block", end=end)
        await _begin(world)
        await world.pods(1, nodeSelector={KIND: "reserved"})
        await world.until(world.running)
        (claim,) = await world.list(kinds.NODECLAIMS)
        await asyncio.sleep(10 * 60)
        assert await world.list(kinds.NODECLAIMS) != []
        await world.says("CapacityBlockExpiring", name=claim["metadata"]["name"], within=20 * 60)
        assert world.lab.clock.now() < end - timedelta(minutes=35)

        async def left() -> bool:
            return not aws.living()

        await world.until(left, within=900)

    run_scenario(aws, scenario)
