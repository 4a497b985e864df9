"""The process is killed after every change it makes, in Kubernetes or at AWS: no orphan, no second launch, no litter.

A whole lifecycle: NodeClass, NodePool and pod are created, the pod runs, and all of it is deleted again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from dovetail.controllers.nodeclaim.garbage_collection import PERIOD_S
from dovetail.kube import resources as kinds
from tests.controllers.aws_world import ON_DEMAND, Account, AwsWorld, account, run_scenario

LARGE = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large", "m5.xlarge"]}
OURS = (kinds.NODECLAIMS, kinds.NODEPOOLS, kinds.EC2NODECLASSES)
#: Changes at AWS, and to NodeClaims: what could leave something behind, or launch it twice.
_ESSENTIAL = re.compile(r"^(iam|ec2) |^POST .*nodeclaims|nodeclaims/\S+$")


@pytest.fixture(scope="module")
def aws() -> Iterator[Account]:
    yield from account("m5")


async def _lived(world: AwsWorld) -> None:
    """Up and running: one instance, its NodeClaim and its Node name each other, and nothing else was ever launched."""
    await world.pods(1)

    async def ready() -> bool:
        claims = await world.list(kinds.NODECLAIMS)
        conditions = [c for claim in claims for c in claim.get("status", {}).get("conditions", ())]
        return await world.running() and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    await world.until(ready, within=900, step=2)
    await asyncio.sleep(PERIOD_S + 70)
    (claim,) = await world.list(kinds.NODECLAIMS)
    (instance,) = world.account.endpoint.instances()
    assert claim["status"]["providerID"].endswith(instance.id)
    tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
    assert (tags["karpenter.sh/nodeclaim"], tags["dovetail.sh/claim-uid"]) == (
        claim["metadata"]["name"],
        claim["metadata"]["uid"],
    )
    (node,) = await world.list(kinds.NODES)
    assert node["spec"]["providerID"] == claim["status"]["providerID"]
    assert not node["spec"].get("taints")
    assert node["metadata"]["labels"]["karpenter.sh/initialized"] == "true"


async def _gone(world: AwsWorld) -> None:
    """Everything is deleted again, at AWS too."""
    await world.kube.delete(kinds.PODS, "p0", "default", grace=0)
    await world.kube.delete(kinds.NODEPOOLS, "default")
    await world.kube.delete(kinds.EC2NODECLASSES, "default")

    async def gone() -> bool:
        return not any([await world.list(kind) for kind in (*OURS, kinds.NODES)])

    await world.until(gone, within=900, step=2)
    endpoint = world.account.endpoint
    assert [instance.state for instance in endpoint.instances()] in (["terminated"], ["shutting-down"])
    assert not endpoint.backend("ec2").launch_templates
    profiles = endpoint.backend("iam", "aws").instance_profiles.values()
    assert not [profile.name for profile in profiles if profile.path.startswith("/karpenter/")]


def _played(aws: Account, live: Callable[[AwsWorld], Awaitable[None]], types: Any, die_after: int | None) -> list[str]:
    """The changes of the first process, which ends after one of them."""
    made: list[str] = []

    async def scenario(world: AwsWorld) -> None:
        await world.node_class()
        await world.pool("default", ON_DEMAND, types)
        world.start(die_after)
        first = world.writes
        reviving = asyncio.ensure_future(world.revive())
        try:
            await live(world)
        except AssertionError as problem:
            raise AssertionError(f"killed after change {die_after}, {first.made[-1]}: {problem}") from problem
        finally:
            reviving.cancel()
            made.extend(first.made)

    run_scenario(aws, scenario)
    return made


def _life(aws: Account, die_after: int | None = None) -> list[str]:
    """An instance is launched and terminated."""

    async def live(world: AwsWorld) -> None:
        await _lived(world)
        await _gone(world)

    return _played(aws, live, LARGE, die_after)


@pytest.mark.timeout(600)
def test_killed_after_a_change_at_aws_or_to_a_nodeclaim_the_process_ends_in_the_same_state(aws: Account) -> None:
    made = _life(aws)
    kinds_of_change: dict[str, int] = {}
    for number, what in enumerate(made, start=1):
        if _ESSENTIAL.search(what):
            kinds_of_change.setdefault(re.sub(r"default-\w+|ip-[\w.-]+", "*", what), number)
    expected = {
        "iam create_instance_profile",
        "iam add_role_to_instance_profile",
        "ec2 create_launch_template",
        "ec2 create_fleet",
        "ec2 terminate_instances",
        "ec2 delete_launch_template",
        "iam remove_role_from_instance_profile",
        "iam delete_instance_profile",
    }
    assert expected <= kinds_of_change.keys()
    for number in kinds_of_change.values():
        _life(aws, number)


def _launched_together(aws: Account, die_after: int | None = None) -> list[str]:
    """Three pods, an instance each, in one fleet call."""

    async def live(world: AwsWorld) -> None:
        await world.pods(3, cpu="1200m")
        await world.until(world.running, within=900, step=2)
        await asyncio.sleep(PERIOD_S + 70)
        await world.cloud.name_instances()
        claims = {claim["metadata"]["name"]: claim for claim in await world.list(kinds.NODECLAIMS)}
        instances = {instance.id: instance for instance in world.account.endpoint.instances()}
        assert len(claims) == len(instances) == len(await world.list(kinds.NODES)) == 3
        for name, claim in claims.items():
            instance = instances[claim["status"]["providerID"].rpartition("/")[2]]
            tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
            assert tags["karpenter.sh/nodeclaim"] == name

    return _played(aws, live, {**LARGE, "values": ["m5.large"]}, die_after)


@pytest.mark.timeout(600)
def test_killed_while_it_launches_several_instances_in_one_call_each_nodeclaim_has_its_own(aws: Account) -> None:
    made = _launched_together(aws)
    assert made.count("ec2 create_fleet") == 1
    launched = made.index("ec2 create_fleet") + 1
    claims = [number for number, what in enumerate(made, start=1) if number > launched and "nodeclaims/" in what]
    for number in (launched, *claims[:5]):
        _launched_together(aws, number)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_after_any_change_at_all_the_process_ends_in_the_same_state(aws: Account) -> None:
    for number in range(1, len(_life(aws)) + 1):
        _life(aws, number)
