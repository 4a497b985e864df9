"""Taking over a cluster on AWS: what another autoscaler has written on NodeClaims and NodeClasses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from dovetail.kube import resources as kinds
from dovetail.model.kinds.kubelet import KUBELET_ANNOTATION
from dovetail.model.kinds.nodeclass_hash import HASH_ANNOTATION, VERSION, VERSION_ANNOTATION
from tests.controllers.aws_world import Account, AwsWorld, account, run_scenario

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def aws() -> Iterator[Account]:
    yield from account("m5")


def test_nodeclaims_whose_nodeclass_was_hashed_by_another_version_are_rehashed_and_stay(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        await world.node_class()
        await world.pool("default")
        world.start()
        await world.pods(1)
        await world.until(world.running)
        (claim,) = await world.list(kinds.NODECLAIMS)
        await world.stop()
        old = {"metadata": {"annotations": {HASH_ANNOTATION: "1", VERSION_ANNOTATION: "v4"}}}
        await world.kube.patch(kinds.NODECLAIMS, claim["metadata"]["name"], old)
        await world.kube.patch(kinds.EC2NODECLASSES, "default", old)
        world.start()

        async def marked() -> bool:
            (node_class,) = await world.list(kinds.EC2NODECLASSES)
            return bool(node_class["metadata"]["annotations"][VERSION_ANNOTATION] == VERSION)

        await world.until(marked)
        (again,) = await world.list(kinds.NODECLAIMS)
        (node_class,) = await world.list(kinds.EC2NODECLASSES)
        assert again["metadata"]["uid"] == claim["metadata"]["uid"]
        for key in (HASH_ANNOTATION, VERSION_ANNOTATION):
            assert again["metadata"]["annotations"][key] == node_class["metadata"]["annotations"][key] != "1"

    run_scenario(aws, scenario)


def test_a_nodepool_with_kubelet_settings_of_its_own_keeps_its_nodes(aws: Account) -> None:
    """Its nodes have the NodeClass with the NodePool's settings; compared with the NodeClass alone all would drift."""

    async def scenario(world: AwsWorld) -> None:
        await world.node_class()
        await world.pool("default")
        mark = {"metadata": {"annotations": {KUBELET_ANNOTATION: '{"maxPods":20}'}}}
        await world.kube.patch(kinds.NODEPOOLS, "default", mark)
        world.start()
        await world.pods(1)
        await world.until(world.running)
        (claim,) = await world.list(kinds.NODECLAIMS)
        assert claim["status"]["capacity"]["pods"] == "20"
        await asyncio.sleep(360)  # the cloud is asked about drift every five minutes
        logged = await world.conditions(kinds.NODECLAIMS, claim["metadata"]["name"])
        assert "Drifted" not in logged

    run_scenario(aws, scenario)
