"""Launching, finding again and giving back instances, with real calls to moto."""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address, ip_network

import pytest

from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.provider import CloudError, InstanceNotFound, InsufficientCapacity, RebootRejected, Remedy
from dovetail.lab.aws.account import client
from dovetail.lab.aws.injected_errors import ErrorRule
from dovetail.lab.instances import address
from dovetail.model.kinds.kubelet import KUBELET_ANNOTATION, with_kubelet
from tests.cloud.aws.conftest import Account


def test_a_instance_is_the_cheapest_offering_and_carries_our_tags_and_groups(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, tags={"team": "shop"})
        order = await account.order(aws, "c-1", node_class, "m5.large", "c5.large", "r5.large", kind="on-demand")
        launched = await aws.launch(order)
        assert launched.instance_type == "c5.large"
        assert launched.labels["karpenter.k8s.aws/instance-category"] == "c"
        (found,) = [m for m in await aws.instances() if m.provider_id == launched.provider_id]
        assert (found.claim_uid, found.claim_name, found.node_pool) == ("c-1", "claim-c-1", "default")
        assert found.tags["team"] == "shop"
        assert found.network["security-groups"] == account.world.security_group
        assert found.image_id == launched.image_id

    account.run(talk)


def test_the_same_order_is_never_launched_twice_not_even_by_another_life(account: Account) -> None:
    """A crash between the purchase and its record must not launch a second instance."""

    async def launch_fleet(aws: Aws) -> str:
        order = await account.order(aws, "c-2", await account.ready(aws), "m5.large", kind="on-demand")
        again = await aws.launch(order)
        assert (await aws.launch(order)).provider_id == again.provider_id
        return again.provider_id

    assert account.run(launch_fleet) == account.run(launch_fleet)


def test_a_offered_out_offering_is_remembered_and_the_next_one_taken(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        account.endpoint.market.refuse(("c5.large", "*", "*"))
        node_class = await account.ready(aws)
        order = await account.order(aws, "c-3", node_class, "m5.large", "c5.large", kind="on-demand")
        assert (await aws.launch(order)).instance_type == "m5.large"
        types = {t.name: t for t in await aws.instance_types({}, node_class)}
        assert not any(o.available for o in types["c5.large"].offerings if o.capacity_type == "on-demand")
        assert all(o.available for o in types["m5.large"].offerings if o.capacity_type == "on-demand")

    account.run(talk)


def test_nothing_to_be_had_is_a_want_of_capacity_that_names_the_offerings(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        account.endpoint.market.refuse(("*", "*", "*"))
        order = await account.order(aws, "c-4", await account.ready(aws), "m5.large", kind="on-demand")
        with pytest.raises(InsufficientCapacity) as caught:
            await aws.launch(order)
        assert caught.value.remedy is Remedy.NEXT_OFFERING
        assert ("m5.large", "ap-northeast-2a", "on-demand") in caught.value.offerings

    account.run(talk)


def test_spot_is_asked_for_first_and_read_back_as_spot(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        order = await account.order(aws, "c-5", await account.ready(aws), "m5.large", "m5.xlarge", kind="any")
        launched = await aws.launch(order)
        assert launched.capacity_type == "spot"
        assert (await aws.get(launched.provider_id)).capacity_type == "spot"

    account.run(talk)


def test_a_instance_that_is_gone_is_said_to_be_gone(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        order = await account.order(aws, "c-6", await account.ready(aws), "m5.large", kind="on-demand")
        launched = await aws.launch(order)
        await aws.terminate(launched.provider_id)
        with pytest.raises(InstanceNotFound):
            await aws.terminate(launched.provider_id)
        with pytest.raises(InstanceNotFound):
            await aws.get("aws:///ap-northeast-2a/i-00000000000000000")
        assert launched.provider_id not in {m.provider_id for m in await aws.instances()}

    account.run(talk)


def test_a_instance_is_rebooted_in_place_and_one_that_is_not_there_is_said_to_be_gone(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        order = await account.order(aws, "c-7", await account.ready(aws), "m5.large", kind="on-demand")
        launched = await aws.launch(order)
        await aws.reboot(launched.provider_id, "once")
        assert (await aws.get(launched.provider_id)).state in ("pending", "running")
        with pytest.raises(InstanceNotFound):
            await aws.reboot("aws:///ap-northeast-2a/i-0123456789abcdef0", "once")

    account.run(talk)


@pytest.mark.parametrize(
    ("code", "status", "rejected", "remedy"),
    [
        ("IncorrectInstanceState", 400, True, Remedy.RETRY),
        ("UnauthorizedOperation", 403, False, Remedy.OPERATOR),
        ("InternalError", 500, False, Remedy.RETRY),
    ],
)
def test_a_reboot_is_rejected_only_where_the_instance_cannot_be_rebooted(
    account: Account, code: str, status: int, rejected: bool, remedy: Remedy
) -> None:
    """A rejected reboot ends in a replacement; a refused or failed call is no reason for one."""
    account.endpoint.trouble.add(ErrorRule("ec2", "RebootInstances", code, "no", status=status))

    async def talk(aws: Aws) -> None:
        with pytest.raises(CloudError) as raised:
            await aws.reboot("aws:///ap-northeast-2a/i-0123456789abcdef0", "once")
        assert isinstance(raised.value, RebootRejected) is rejected
        assert rejected or raised.value.remedy is remedy

    account.run(talk)


def test_selectors_that_select_nothing_say_which_and_what_to_do(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        wrong = account.node_class(
            subnetSelectorTerms=[{"tags": {"karpenter.sh/discovery": "typo"}}],
            securityGroupSelectorTerms=[{"name": "none"}],
            role="NoSuchRole",
        )
        found = {kind: (status, reason, text) for kind, status, reason, text in (await aws.resolve(wrong)).conditions}
        assert found["SubnetsReady"][:2] == ("False", "SubnetsNotFound")
        assert "karpenter.sh/discovery=typo" in found["SubnetsReady"][2]
        assert found["SecurityGroupsReady"][:2] == ("False", "SecurityGroupsNotFound")
        assert found["InstanceProfileReady"][0] == "False" and "NoSuchRole" in found["InstanceProfileReady"][2]
        assert found["AMIsReady"][0] == "True"
        assert found["ValidationSucceeded"][:2] == ("False", "DependenciesNotReady")

    account.run(talk)


def test_drift_needs_positive_evidence(account: Account) -> None:
    """An empty status, as after a failed look at AWS, drifts nothing."""

    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws)
        order = await account.order(aws, "c-10", node_class, "m5.large", kind="on-demand")
        launched = await aws.launch(order)
        instance = await aws.get(launched.provider_id)
        claim = {"metadata": {"name": "c", "labels": dict(launched.labels)}}
        assert await aws.drift(claim, instance, node_class) is None
        assert await aws.drift(claim, instance, node_class | {"status": {}}) is None
        other = [
            {"id": "ami-other", "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}
        ]
        status = node_class["status"]
        assert await aws.drift(claim, instance, node_class | {"status": status | {"amis": other}}) == "AMIDrift"
        groups = [{"id": "sg-other"}]
        changed = node_class | {"status": status | {"securityGroups": groups}}
        assert await aws.drift(claim, instance, changed) == "SecurityGroupDrift"

    account.run(talk)


def test_a_changed_class_drifts_its_instances_and_a_changed_selector_does_not(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws)
        order = await account.order(aws, "c-12", node_class, "m5.large", kind="on-demand")
        launched = await aws.launch(order)
        instance = await aws.get(launched.provider_id)
        claim = {"metadata": {"name": "c", "labels": dict(launched.labels), "annotations": dict(launched.annotations)}}

        async def drifts(**spec: object) -> str | None:
            changed = {**node_class, "spec": {**node_class["spec"], **spec}}
            written = dict((await aws.resolve(changed)).annotations)
            changed["metadata"] = {**node_class["metadata"], "annotations": written}
            return await aws.drift(claim, instance, changed)

        assert await drifts() is None
        assert await drifts(userData="echo new") == "NodeClassDrift"
        assert await drifts(tags={"team": "other"}) == "NodeClassDrift"
        assert await drifts(subnetSelectorTerms=[{"id": account.world.subnets["ap-northeast-2a"]}]) is None

    account.run(talk)


def test_a_instance_of_a_pool_with_kubelet_settings_of_its_own_drifts_when_those_change(account: Account) -> None:
    """The pool sees the class with its own kubelet block, and its instances are compared with that."""

    async def talk(aws: Aws) -> None:
        plain = await account.ready(aws)
        seen = dict(with_kubelet(plain, {KUBELET_ANNOTATION: '{"maxPods":20}'}))
        launched = await aws.launch(await account.order(aws, "c-13", seen, "m5.large", kind="on-demand"))
        instance = await aws.get(launched.provider_id)
        claim = {"metadata": {"name": "c", "labels": dict(launched.labels), "annotations": dict(launched.annotations)}}
        assert await aws.drift(claim, instance, seen) is None
        assert await aws.drift(claim, instance, plain) == "NodeClassDrift"

    account.run(talk)


def test_prices_come_from_aws_when_it_answers_and_from_the_package_before(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        before = aws.pricing.on_demand("m5.large")
        assert before is not None and before.source.startswith("catalogue")
        await aws.pricing.refresh()
        after, spot = aws.pricing.on_demand("m5.large"), aws.pricing.spot("m5.large", "ap-northeast-2a")
        assert after is not None and (after.dollars, after.source) == (0.118, "aws price list")
        assert spot is not None and spot.source == "ec2 spot price history" and spot.dollars < after.dollars
        assert aws.pricing.on_demand("no-such.type") is None

    account.run(talk)


def test_upkeep_learns_prices_and_spares_templates_still_in_use(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, userData="echo upkeep")
        await aws.launch(await account.order(aws, "c-13", node_class, "m5.large", kind="on-demand"))
        held = await aws.templates._ours({"tag:eks:eks-cluster-name": "demo"})
        await aws.refresh()
        known = aws.pricing.on_demand("m5.large")
        assert known is not None and known.source == "aws price list"
        assert await aws.templates._ours({"tag:eks:eks-cluster-name": "demo"}) == held
        calls = len(account.records)
        await aws.refresh()
        assert len(account.records) == calls, "nothing is due again so soon"
        aws.templates._used = dict.fromkeys(aws.templates._used, -1e6)
        await aws.templates.sweep()
        assert not await aws.templates._ours({"tag:eks:eks-cluster-name": "demo"})

    account.run(talk)


def test_a_steady_state_asks_little_of_ec2(account: Account) -> None:
    """Answers are kept: a second look at the same class within its minute costs no call."""

    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws)
        await aws.instance_types({}, node_class)
        before = Counter(r.operation for r in account.records)
        for _ in range(50):
            await aws.resolve(node_class)
            await aws.instance_types({}, node_class)
        assert Counter(r.operation for r in account.records) == before

    account.run(talk)


def test_a_class_gives_back_its_profiles_and_templates(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, userData="echo release")
        node_class["metadata"] = {"name": "brief", "uid": "class-2"}
        node_class["status"] = dict((await aws.resolve(node_class)).status)
        await aws.launch(await account.order(aws, "c-11", node_class, "m5.large", kind="on-demand"))
        profile = node_class["status"]["instanceProfile"]
        assert await aws._profiles.exists(profile)
        await aws.release(node_class)
        await aws.release(node_class)
        assert not await aws._profiles.exists(profile)
        assert not await aws.templates._ours({"tag:karpenter.k8s.aws/ec2nodeclass": "brief"})

    account.run(talk)


def test_a_class_whose_subnets_are_full_says_so_and_others_lose_those_subnets_alone(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        roomy = await account.ready(aws)
        first = roomy["status"]["subnets"][0]
        tiny = await account.ready(aws, subnetSelectorTerms=[{"id": first["id"]}])
        order = await account.order(aws, "c-full", tiny, "m5.large", kind="on-demand")
        account.endpoint.market.refuse(("*", first["zone"], "*"), "InsufficientFreeAddressesInSubnet")
        with pytest.raises(InsufficientCapacity):
            await aws.launch(order)
        with pytest.raises(CloudError, match=rf"in {first['zone']} has free addresses; add subnets.*SUBNET_FULL"):
            await aws.instance_types({}, tiny)
        zones = {o.zone for t in await aws.instance_types({}, roomy) for o in t.offerings if o.available}
        assert zones == {subnet["zone"] for subnet in roomy["status"]["subnets"]} - {first["zone"]}

    account.run(talk)


def test_a_class_that_goes_takes_its_own_profile_and_no_other(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        kept = await account.ready(aws)
        going = account.node_class() | {"metadata": {"name": "going", "uid": "class-2"}}
        made = (await aws.resolve(going)).status["instanceProfile"]
        assert made != kept["status"]["instanceProfile"]
        await aws.release(going)
        profiles = account.endpoint.backend("iam", "aws").instance_profiles.values()
        names = {profile.name for profile in profiles}
        assert kept["status"]["instanceProfile"] in names and made not in names

    account.run(talk)


def test_no_instance_that_is_launched_takes_the_name_of_one_the_lab_started_with(account: Account) -> None:
    """Nodes are named by their address: a launched instance of a taken name takes the other's node over."""
    found = client(account.endpoint, "ec2").describe_subnets()["Subnets"]
    subnets = [ip_network(each["CidrBlock"]) for each in found]
    taken = [ip_address(address(number)) for number in (0, 6, 199, 4_999)]
    assert subnets and not any(each in subnet for subnet in subnets for each in taken)
