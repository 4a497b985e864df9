"""Provisioners and AWSNodeTemplates work beside NodePools, in one cluster, with our own definitions installed."""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.controllers.legacy.provisioner import _unready
from dovetail.kube import resources as kinds
from dovetail.kube.resources import Resource
from dovetail.model.kinds.conditions import StatusCondition
from dovetail.model.kinds.crds import definitions
from dovetail.model.kinds.nodepool import NodePool, NodePoolStatus

PROVISIONERS, TEMPLATES = kinds.PROVISIONERS, kinds.AWSNODETEMPLATES
BETA_POOLS = Resource("karpenter.sh", "v1beta1", "nodepools", "NodePool", namespaced=False)
BETA_CLASSES = Resource("karpenter.k8s.aws", "v1beta1", "ec2nodeclasses", "EC2NodeClass", namespaced=False)
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}


async def install(world: Any) -> None:
    """Our definitions instead of the schemaless kinds of the other tests."""
    for definition in definitions():
        await world.kube.create(kinds.CRDS, definition)
    await asyncio.sleep(5)


async def provisioner(world: Any, name: str = "default", **spec: Any) -> None:
    sizes = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m.large", "m.xlarge"]}
    body = {"providerRef": {"name": "default"}, "requirements": [ON_DEMAND, sizes], "ttlSecondsAfterEmpty": 30, **spec}
    await world.kube.create(PROVISIONERS, {"metadata": {"name": name}, "spec": body})


async def template(world: Any, **spec: Any) -> None:
    tags = {"karpenter.sh/discovery": "mine"}
    body = {"subnetSelector": tags, "securityGroupSelector": tags, **spec}
    await world.kube.create(TEMPLATES, {"metadata": {"name": "default"}, "spec": body})


def test_a_provisioner_launches_a_node_with_its_label(run_scenario: Any) -> None:
    async def scenario(world: Any) -> None:
        await install(world)
        await template(world)
        await provisioner(world)
        await world.served(1)
        [node] = await world.list(kinds.NODES)
        assert node["metadata"]["labels"]["karpenter.sh/provisioner-name"] == "default"
        [pool] = await world.list(kinds.NODEPOOLS)
        assert pool["metadata"]["ownerReferences"][0]["kind"] == "Provisioner"
        assert pool["spec"]["disruption"]["consolidateAfter"] == "30s"
        [node_class] = await world.list(kinds.EC2NODECLASSES)
        assert node_class["spec"]["instanceProfile"] == "KarpenterNodeInstanceProfile-mine"

        [machine] = await world.list(kinds.MACHINES)
        assert machine["metadata"]["labels"]["karpenter.sh/provisioner-name"] == "default"
        assert machine["metadata"]["ownerReferences"][0]["kind"] == "NodeClaim"

        async def shown() -> bool:
            status = (await world.kube.get(PROVISIONERS, "default")).get("status") or {}
            return (status.get("resources") or {}).get("nodes") == "1"

        await world.until(shown)
        status = (await world.kube.get(PROVISIONERS, "default"))["status"]
        assert [(each["type"], each["status"]) for each in status["conditions"]] == [("Active", "True")]

    run_scenario(scenario, cluster_name="mine")


def test_a_change_of_the_provisioner_reaches_its_nodepool(run_scenario: Any) -> None:
    async def scenario(world: Any) -> None:
        await install(world)
        await provisioner(world, weight=10)
        world.start()

        async def there() -> bool:
            return bool(await world.list(kinds.NODEPOOLS))

        await world.until(there)
        await world.kube.patch(PROVISIONERS, "default", {"spec": {"weight": None, "ttlSecondsAfterEmpty": 60}})

        async def followed() -> bool:
            [pool] = await world.list(kinds.NODEPOOLS)
            return pool["spec"]["disruption"]["consolidateAfter"] == "60s" and "weight" not in pool["spec"]

        await world.until(followed)

    run_scenario(scenario)


def test_a_name_collision_is_reported_on_the_provisioner(run_scenario: Any) -> None:
    async def scenario(world: Any) -> None:
        await install(world)
        await world.pool()
        await provisioner(world)
        world.start()

        async def published() -> bool:
            return bool((await world.kube.get(PROVISIONERS, "default")).get("status"))

        await world.until(published)
        [condition] = (await world.kube.get(PROVISIONERS, "default"))["status"]["conditions"]
        assert condition["status"] == "False"
        assert 'NodePool "default" and Provisioner "default" are both NodePool "default" in v1' in condition["message"]
        [pool] = await world.list(kinds.NODEPOOLS)
        assert "ownerReferences" not in pool["metadata"]

    run_scenario(scenario)


def test_objects_written_as_v1beta1_without_conversion_are_mended(run_scenario: Any) -> None:
    async def scenario(world: Any) -> None:
        await install(world)
        spec = {
            "template": {"spec": {"requirements": [ON_DEMAND], "nodeClassRef": {"name": "default"}}},
            "disruption": {"consolidationPolicy": "WhenUnderutilized"},
        }
        await world.kube.create(BETA_POOLS, {"metadata": {"name": "default"}, "spec": spec})
        terms = [{"tags": {"a": "b"}}]
        found = {"amiFamily": "AL2023", "role": "x", "subnetSelectorTerms": terms, "securityGroupSelectorTerms": terms}
        await world.kube.create(BETA_CLASSES, {"metadata": {"name": "default"}, "spec": found})
        await world.served(1)
        [pool] = await world.list(kinds.NODEPOOLS)
        assert pool["spec"]["disruption"]["consolidationPolicy"] == "WhenEmptyOrUnderutilized"
        [node_class] = await world.list(kinds.EC2NODECLASSES)
        assert node_class["spec"]["amiSelectorTerms"] == [{"alias": "al2023@latest"}]

    run_scenario(scenario)


def test_a_counter_that_the_nodepool_no_longer_has_goes_from_the_provisioner(run_scenario: Any) -> None:
    async def scenario(world: Any) -> None:
        await install(world)
        await template(world)
        await provisioner(world)
        await world.served(1)
        stale = {"status": {"resources": {"vpc.amazonaws.com/pod-eni": "54"}}}
        await world.kube.patch(PROVISIONERS, "default", stale, subresource="status")

        async def mended() -> bool:
            resources = (await world.kube.get(PROVISIONERS, "default"))["status"].get("resources") or {}
            return "vpc.amazonaws.com/pod-eni" not in resources

        await world.until(mended)

    run_scenario(scenario, cluster_name="mine")


def test_what_keeps_a_nodepool_from_use_is_the_reason_why_a_provisioner_is_not_active() -> None:
    ready = StatusCondition(type="Ready", status="False", reason="NotReady", message="UnhealthyDependents")
    bad = StatusCondition(type="NodeClassReady", status="False", reason="SubnetsNotFound", message="no subnets")
    good = StatusCondition(type="ValidationSucceeded", status="True")
    assert _unready(NodePool(status=NodePoolStatus(conditions=(ready, bad, good)))) == ["NodeClassReady: no subnets"]
    assert _unready(NodePool(status=NodePoolStatus(conditions=(good,)))) == []
    assert _unready(None) == []
