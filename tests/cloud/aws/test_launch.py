"""What instances are launched with: templates, tags, tenancy, fabric and user data, with real calls to moto."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.cloud.aws.eks import ClusterFacts
from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.provider import CloudError, InsufficientCapacity, NodeClassNotReady, Remedy
from dovetail.model.kinds.convert_v1alpha5 import LAUNCH_TEMPLATE_ANNOTATION
from tests.cloud.aws.conftest import DISCOVERY, REGION, Account, offered


def test_a_launch_template_is_made_once_and_made_again_when_it_was_deleted_under_us(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, userData="echo once")
        for token in ("c-7", "c-8"):
            await aws.launch(await account.order(aws, token, node_class, "m5.large", kind="on-demand"))
        made = [r for r in account.records if r.operation == "create_launch_template"]
        assert len(made) == 1
        for name in await aws.templates._ours({"tag:eks:eks-cluster-name": "demo"}):
            await aws.calls("ec2", "delete_launch_template", LaunchTemplateName=name)
        order = await account.order(aws, "c-9", node_class, "m5.large", kind="on-demand")
        assert (await aws.launch(order)).instance_type == "m5.large"

    account.run(talk)


async def _templates(aws: Aws, name: str) -> list[dict[str, Any]]:
    """The launch templates of a class, with their data."""
    asked = [{"Name": "tag:karpenter.k8s.aws/ec2nodeclass", "Values": [name]}]
    rows = await aws.calls.all("ec2", "describe_launch_templates", "LaunchTemplates", Filters=asked)
    return [
        row
        | (await aws.calls("ec2", "describe_launch_template_versions", LaunchTemplateId=row["LaunchTemplateId"]))[
            "LaunchTemplateVersions"
        ][0]
        for row in rows
    ]


def test_what_is_made_for_a_instance_carries_its_pool_as_karpenters_policy_demands(account: Account) -> None:
    """Its IAM policy lets templates be made, used and deleted by that tag, and profiles be made by their region."""

    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws)
        node_class["metadata"] |= {"name": "tagged"}
        await aws.launch(await account.order(aws, "t-1", node_class, "m5.large", kind="spot"))
        (template,) = await _templates(aws, "tagged")
        wanted = {"Key": "karpenter.sh/nodepool", "Value": "default"}
        assert wanted in template["Tags"]
        assert template["LaunchTemplateData"]["TagSpecifications"]
        assert all(wanted in each["Tags"] for each in template["LaunchTemplateData"]["TagSpecifications"])
        profile = node_class["status"]["instanceProfile"]
        found = await aws.calls("iam", "get_instance_profile", InstanceProfileName=profile)
        assert {"Key": "topology.kubernetes.io/region", "Value": REGION} in found["InstanceProfile"]["Tags"]

    account.run(talk)


def test_a_instance_stands_on_hardware_of_its_own_only_where_the_claim_insists(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws)
        node_class["metadata"] |= {"name": "alone"}
        order = await account.order(aws, "t-2", node_class, "m5.large", kind="on-demand")
        assert (await aws.launch(order)).labels["karpenter.k8s.aws/instance-tenancy"] == "default"
        entry = {"key": "karpenter.k8s.aws/instance-tenancy", "operator": "In", "values": ["dedicated"]}
        alone = offered(
            order,
            token="t-3",
            claim={
                **order.claim,
                "metadata": {**order.claim["metadata"], "name": "claim-t-3"},
                "spec": {"requirements": [entry]},
            },
        )
        assert (await aws.launch(alone)).labels["karpenter.k8s.aws/instance-tenancy"] == "dedicated"
        placed = [each["LaunchTemplateData"].get("Placement") for each in await _templates(aws, "alone")]
        assert sorted(map(str, placed)) == ["None", "{'Tenancy': 'dedicated'}"]

    account.run(talk)


def test_fabric_interfaces_are_had_as_many_as_a_type_has_and_reported_only_where_they_are(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws)
        node_class["metadata"] |= {"name": "fabric"}
        plain = await account.order(aws, "t-4", node_class, "m5.large", "m5.xlarge", kind="on-demand")
        efa = "vpc.amazonaws.com/efa"
        wired = tuple(
            msgspec.structs.replace(
                o,
                instance_type=msgspec.structs.replace(
                    o.instance_type, capacity={**o.instance_type.capacity, efa: 1 if "x" in o.instance_type.name else 2}
                ),
            )
            for o in plain.options
        )
        assert efa not in (await aws.launch(offered(plain, options=wired))).capacity
        preference = {**plain.claim, "spec": {"resources": {"requests": {efa: "1"}}}}
        launched = await aws.launch(offered(plain, token="t-5", options=wired, claim=preference))
        assert launched.capacity[efa] == 2
        cards = [each["LaunchTemplateData"]["NetworkInterfaces"] for each in await _templates(aws, "fabric")]
        assert sorted([each.get("InterfaceType") for each in card] for card in cards if "InterfaceType" in card[0]) == [
            ["efa"],
            ["efa", "efa"],
        ]

    account.run(talk)


def test_user_data_that_cannot_be_merged_is_the_operators_to_mend(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, amiSelectorTerms=[{"alias": "bottlerocket@latest"}], userData="echo hi")
        with pytest.raises(CloudError, match=r"spec\.userData: not TOML") as problem:
            await aws.launch(await account.order(aws, "t-6", node_class, "m5.large", kind="on-demand"))
        assert problem.value.remedy is Remedy.OPERATOR

    account.run(talk)


def test_a_launch_template_of_ones_own_is_used_as_it_is_and_missed_by_name(account: Account) -> None:
    """Providers of the first generation could name one; its image, groups, role and user data are its owner's."""

    async def talk(aws: Aws) -> None:
        data = {"ImageId": "ami-own", "SecurityGroupIds": [account.world.security_group], "UserData": "ZWNobw=="}
        node_class = {
            "metadata": {"name": "old", "uid": "class-9", "annotations": {LAUNCH_TEMPLATE_ANNOTATION: "mine"}},
            "spec": {"subnetSelectorTerms": DISCOVERY, "amiFamily": "AL2"},
        }
        before = {kind: (status, text) for kind, status, _, text in (await aws.resolve(node_class)).conditions}
        assert before["AMIsReady"][0] == "False" and "'mine'" in before["AMIsReady"][1]
        await aws.calls("ec2", "create_launch_template", LaunchTemplateName="mine", LaunchTemplateData=data)
        assert all(status == "True" for _, status, *_ in (await aws.resolve(node_class)).conditions)
        launched = await aws.launch(await account.order(aws, "c-20", node_class, "m5.large", kind="on-demand"))
        found = await aws.get(launched.provider_id)
        assert (found.image_id, found.network["security-groups"]) == ("ami-own", account.world.security_group)
        assert found.tags["karpenter.sh/nodepool"] == "default"

    account.run(talk)


def test_prices_of_ones_own_decide_which_instance_ec2_sells(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        order = await account.order(aws, "o-1", await account.ready(aws), "m5.large", "c5.large", kind="on-demand")
        assert (await aws.launch(order)).instance_type == "c5.large"
        ours = tuple(
            msgspec.structs.replace(
                each, offering=msgspec.structs.replace(each.offering, price=0.001, price_source="NodeOverlay paid")
            )
            if each.instance_type.name == "m5.large"
            else each
            for each in order.options
        )
        assert (await aws.launch(offered(order, token="o-2", options=ours))).instance_type == "m5.large"

    account.run(talk)


@pytest.mark.parametrize(("relaxed", "launched"), [("false", False), ("true", True), (None, True)])
def test_a_claim_that_was_planned_with_variety_is_not_launched_without(
    account: Account, relaxed: str | None, launched: bool
) -> None:
    async def talk(aws: Aws) -> None:
        order = await account.order(aws, f"v-{relaxed}", await account.ready(aws), "m5.large", kind="on-demand")
        need = {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 2}
        marks = {"karpenter.sh/nodeclaim-min-values-relaxed": relaxed} if relaxed else {}
        claim = {"metadata": {**order.claim["metadata"], "annotations": marks}, "spec": {"requirements": [need]}}
        varied = offered(order, claim=claim)
        if launched:
            await aws.launch(varied)
        else:
            with pytest.raises(InsufficientCapacity, match=r"minValues requirement is not met .* \(MIN_VALUES\)"):
                await aws.launch(varied)

    account.run(talk)


def test_al2023_without_a_service_range_is_not_launched(account: Account) -> None:
    """nodeadm refuses a NodeConfig without it: the instance would never join."""

    async def talk(aws: Aws) -> None:
        facts = msgspec.structs.replace(await aws._cluster(), service_cidr=None)
        node_class = await account.ready(aws)
        order = await account.order(aws, "cidr-1", node_class, "m5.large", kind="on-demand")

        async def unknown() -> ClusterFacts:
            return facts

        aws._launcher._parts.configs._facts = unknown
        with pytest.raises(NodeClassNotReady, match="service range"):
            await aws.launch(order)

    account.run(talk)
