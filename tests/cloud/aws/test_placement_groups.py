"""Placement groups over real HTTP: found, reported, launched into, refused, full, changed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.provider import InsufficientCapacity, LaunchRequest, NodeClassNotReady
from dovetail.lab.aws.injected_errors import ErrorRule
from tests.cloud.aws.conftest import Account

ZONE = "ap-northeast-2a"
ID = "karpenter.k8s.aws/placement-group-id"
PART = "karpenter.k8s.aws/placement-group-partition"
NAMED = {"name": "racks"}


def _wanting(launch: LaunchRequest, *partitions: str) -> LaunchRequest:
    needs = [{"key": PART, "operator": "In", "values": list(partitions)}]
    return msgspec.structs.replace(launch, claim=dict(launch.claim) | {"spec": {"requirements": needs}})


async def _launched(aws: Aws, node_class: dict[str, Any], name: str = "m5.large", zone: str = ZONE) -> set[str]:
    """The capacity types that a type can be had as in a zone."""
    (found,) = [t for t in await aws.instance_types({}, node_class) if t.name == name]
    return {o.capacity_type for o in found.offerings if o.available and o.zone == zone}


def test_a_group_is_found_by_name_and_by_id_and_its_instances_stand_in_it(account: Account) -> None:
    made = account.endpoint.groups.put("racks", "cluster")

    async def talk(aws: Aws) -> None:
        for asked in (NAMED, {"id": made.id}):
            node_class = await account.ready(aws, placementGroupSelector=asked)
            order = await account.order(aws, f"g-{asked}", node_class, "m5.large", kind="on-demand")
            (kind,) = {each.instance_type.labels[ID] for each in order.options}
            assert kind == (made.id,)
            launched = await aws.launch(order)
            read = await aws.get(launched.provider_id)
            assert launched.labels[ID] == read.labels[ID] == made.id
            assert PART not in launched.labels and PART not in read.labels

    account.run(talk)


def test_a_group_that_is_not_there_is_named_and_nothing_is_launched_without_it(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws)
        order = await account.order(aws, "g-1", node_class, "m5.large", kind="on-demand")
        lost = node_class | {"spec": node_class["spec"] | {"placementGroupSelector": NAMED}}
        found = {kind: (status, reason, words) for kind, status, reason, words in (await aws.resolve(lost)).conditions}
        assert found["PlacementGroupReady"][:2] == ("False", "PlacementGroupNotFound")
        assert found["PlacementGroupReady"][2].startswith('Placement group "racks" not found')
        with pytest.raises(NodeClassNotReady, match='"racks" not found'):
            await aws.launch(msgspec.structs.replace(order, node_class=lost))

    account.run(talk)


def test_no_answer_about_a_group_is_no_evidence(account: Account) -> None:
    account.endpoint.groups.put("racks", "cluster")

    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, placementGroupSelector=NAMED)
        launched = await aws.launch(await account.order(aws, "g-2", node_class, "m5.large", kind="on-demand"))
        aws._placement._found.forget()
        account.endpoint.trouble.add(ErrorRule("ec2", "DescribePlacementGroups", "InternalError", "oops", status=500))
        status = {kind: found for kind, found, *_ in (await aws.resolve(node_class)).conditions}
        assert status["PlacementGroupReady"] == "Unknown"
        claim = {"metadata": {"name": "c", "labels": dict(launched.labels)}}
        assert await aws.drift(claim, await aws.get(launched.provider_id), node_class) is None

    account.run(talk)


def test_a_claim_stands_in_the_partition_it_asks_for_and_else_in_the_one_that_ec2_chooses(account: Account) -> None:
    account.endpoint.groups.put("racks", "partition", 3)

    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, placementGroupSelector=NAMED)
        order = await account.order(aws, "g-3", node_class, "m5.large", kind="on-demand")
        assert order.options[0].instance_type.labels[PART] == ("1", "2", "3")
        asked = await aws.launch(_wanting(order, "3", "2"))
        assert asked.labels[PART] == (await aws.get(asked.provider_id)).labels[PART] == "2"
        free = await aws.launch(await account.order(aws, "g-4", node_class, "m5.large", kind="on-demand"))
        assert free.labels[PART] == "", "not known before EC2 has chosen"
        assert (await aws.get(free.provider_id)).labels[PART] == "1"

    account.run(talk)


def test_what_is_refused_inside_a_group_can_still_be_had_outside(account: Account) -> None:
    account.endpoint.groups.put("racks", "cluster")

    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, placementGroupSelector=NAMED)
        order = await account.order(aws, "g-5", node_class, "m5.large", kind="on-demand")
        here = tuple(each for each in order.options if each.offering.zone == ZONE)
        account.endpoint.market.refuse(("m5.large", ZONE, "on-demand"))
        with pytest.raises(InsufficientCapacity):
            await aws.launch(msgspec.structs.replace(order, options=here))
        assert await _launched(aws, node_class) == {"spot"}
        assert await _launched(aws, await account.ready(aws)) == {"on-demand", "spot"}

    account.run(talk)


def test_a_spread_group_that_is_full_in_a_zone_takes_no_type_there_and_all_elsewhere(account: Account) -> None:
    account.endpoint.groups.put("racks", "spread")

    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, placementGroupSelector=NAMED)
        for number in range(8):
            order = await account.order(aws, f"g-full-{number}", node_class, "m5.large", kind="on-demand")
            here = tuple(each for each in order.options if each.offering.zone == ZONE)
            order = msgspec.structs.replace(order, options=here)
            if number < 7:
                await aws.launch(order)
            else:
                with pytest.raises(InsufficientCapacity, match="spread placement group"):
                    await aws.launch(order)
        assert await _launched(aws, node_class, "c5.large") == set()
        assert await _launched(aws, node_class, "c5.large", "ap-northeast-2b") == {"on-demand", "spot"}
        assert await _launched(aws, await account.ready(aws), "c5.large") == {"on-demand", "spot"}

    account.run(talk)


def test_a_group_made_anew_under_its_name_drifts_the_instances_of_the_old_one(account: Account) -> None:
    account.endpoint.groups.put("racks", "cluster")

    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, placementGroupSelector=NAMED)
        launched = await aws.launch(await account.order(aws, "g-6", node_class, "m5.large", kind="on-demand"))
        claim = {"metadata": {"name": "c", "labels": dict(launched.labels)}}
        instance = await aws.get(launched.provider_id)
        assert await aws.drift(claim, instance, node_class) is None
        account.endpoint.groups.put("racks", "cluster")
        aws._placement._found.forget()
        assert await aws.drift(claim, instance, node_class) == "PlacementGroupDrift"

    account.run(talk)


def test_groups_are_made_and_deleted_with_the_usual_calls(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        made = await aws.calls(
            "ec2", "create_placement_group", GroupName="racks", Strategy="partition", PartitionCount=5
        )
        assert made["PlacementGroup"]["PartitionCount"] == 5
        with pytest.raises(Exception, match=r"InvalidPlacementGroup\.Duplicate"):
            await aws.calls("ec2", "create_placement_group", GroupName="racks", Strategy="cluster")
        node_class = await account.ready(aws, placementGroupSelector=NAMED)
        launched = await aws.launch(await account.order(aws, "g-7", node_class, "m5.large", kind="on-demand"))
        with pytest.raises(Exception, match=r"InvalidPlacementGroup\.InUse"):
            await aws.calls("ec2", "delete_placement_group", GroupName="racks")
        await aws.terminate(launched.provider_id)
        await aws.calls("ec2", "delete_placement_group", GroupName="racks")
        assert (await aws.calls("ec2", "describe_placement_groups"))["PlacementGroups"] == []

    account.run(talk)
