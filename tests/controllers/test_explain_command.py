"""What the command asks of a cluster that has no decision history: one that runs Karpenter, or no autoscaler at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.cli.cluster_session import ClusterSession
from dovetail.cli.explain_subjects import ExplainOptions, answer, subject_of
from dovetail.cluster.state import ClusterState
from dovetail.controllers.explain import Answer, Unknown
from dovetail.kube import resources as kinds
from tests.controllers.test_explain_pending import NO_SUBNETS, READY, _class

RunScenario = Callable[..., None]
ZONES = [{"id": "subnet-1", "zone": "ap-northeast-2a"}]


async def ask(world: Any, words: str, **question: Any) -> Answer:
    """As `dovetail explain` asks: a look at the cluster from outside."""
    cluster = ClusterSession(world.kube, ClusterState(world.kube, world.clock), world.clock.now())
    cluster.cluster_state.tolerate_absent(kinds.NODEPOOLS, kinds.NODECLAIMS)
    await cluster.read()
    return await answer(cluster, subject_of([words], "default"), ExplainOptions(**question), None)


async def _pool(world: Any, name: str = "default", node_class: str = "default", **more: Any) -> None:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": node_class}
    await world.pool(name, template={"nodeClassRef": reference, **more.pop("template", {})}, **more)
    ready = "False" if node_class == "broken" else "True"
    status = {"status": {"conditions": [{**READY, "status": ready, "message": "NodeClassReady=False"}]}}
    await world.kube.patch(kinds.NODEPOOLS, name, status, subresource="status")


async def _classes(world: Any) -> None:
    await _class(world, "default", **READY)
    await world.kube.patch(kinds.EC2NODECLASSES, "default", {"status": {"subnets": ZONES}}, subresource="status")
    await _class(world, "broken", **NO_SUBNETS)


def test_without_a_history_a_pending_pod_is_planned_for_from_the_objects(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await _classes(world)
        await _pool(world, limits={"cpu": "0"})
        await _pool(world, "pay", "broken", metadata={"labels": {"team": "pay"}})
        await world.pods(1, nodeSelector={"karpenter.sh/nodepool": "default"})
        await world.pods(1, prefix="pay", nodeSelector={"team": "pay"})
        await asyncio.sleep(1)
        found = await ask(world, "pod/p0", verbose=True)
        assert (found.code, found.object, found.source) == ("LIMIT_REACHED", "nodepool/default", "evaluated")
        assert found.commands[0].startswith("kubectl patch nodepool default --type merge -p ")
        broken = await ask(world, "pod/pay0", verbose=True)
        assert (broken.code, broken.object) == ("BAD_NODECLASS", "ec2nodeclass/broken")
        assert "SubnetSelector did not match any Subnets" in broken.line
        assert "another way: " not in "".join(broken.details), "no other pool is meant for it"
        past = await ask(world, "pod/p0", at=world.clock.now())
        assert "no decision history" in past.line

    run_scenario(scenario)


def test_what_if_is_planned_in_the_zones_of_the_class(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await _classes(world)
        await _pool(world)
        await world.pods(1, cpu="2000")
        await asyncio.sleep(1)
        assert (await ask(world, "pod/p0")).code == "NO_TYPE_FITS"
        smaller = await ask(world, "pod/p0", what_if="cpu=1")
        assert smaller.line.startswith("with cpu=1: would have a node: a node would be launched for it: ")
        assert "in ap-northeast-2a, on-demand" in smaller.line
        elsewhere = await ask(world, "pod/p0", what_if="cpu=1,zone=ap-northeast-2c")
        assert "would still wait" in elsewhere.line and elsewhere.code == "NO_TYPE_MATCHES"
        assert (await ask(world, "pod/p0", what_if="")).line.startswith("would get a node if you ask for cpu ")

    run_scenario(scenario)


def test_a_deployment_is_explained_through_its_replicasets(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await _classes(world)
        await _pool(world, template={"taints": [{"key": "batch", "effect": "NoSchedule"}]})
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        selector = {"matchLabels": {"app": "web"}}
        spec = {"replicas": 3, "selector": selector, "template": template}
        made = await world.kube.create(kinds.DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, "default")
        above = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": "web",
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        body = {"metadata": {"name": "web-1", "ownerReferences": [above]}, "spec": spec}
        replicaset = await world.kube.create(kinds.REPLICASETS, body, "default")
        owner = {**above, "kind": "ReplicaSet", "name": "web-1", "uid": replicaset["metadata"]["uid"]}
        await world.pods(3, prefix="web-1-x", owners=[owner])
        await asyncio.sleep(1)
        found = await ask(world, "deploy/web", verbose=True)
        assert found.line.startswith("0 of 3 pod(s) have a node; 3 pending: NodePool default: taint batch:NoSchedule ")
        assert (found.code, found.object) == ("UNTOLERATED_TAINT", "deployment/default/web")
        assert found.commands[0].startswith("kubectl patch deployment web -p ")
        with pytest.raises(Unknown, match="there are in namespace default: web"):
            await ask(world, "deploy/other")

    run_scenario(scenario)


def test_where_karpenters_kinds_are_not_served_there_are_no_nodepools(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        for kind in (kinds.NODEPOOLS, kinds.NODECLAIMS, kinds.EC2NODECLASSES, kinds.NODEOVERLAYS):
            world.server.registry.replace_custom(kind.group, kind.plural, [])
        await world.pods(1)
        await asyncio.sleep(1)
        found = await ask(world, "pod/p0")
        assert found.code == "NO_NODEPOOL"
        assert found.source == "evaluated"

    run_scenario(scenario)


def test_what_cluster_autoscaler_says_about_a_pod_and_a_group_is_the_answer(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pods(1)
        about = {"kind": "Pod", "namespace": "default", "name": "p0"}
        text = "pod didn't trigger scale-up: 1 max node group size reached"
        event = {"involvedObject": about, "reason": "NotTriggerScaleUp", "message": text, "type": "Normal"}
        await world.kube.create(kinds.CORE_EVENTS, {"metadata": {"name": "e"}, **event}, "default")
        await asyncio.sleep(1)
        assert (await ask(world, "pod/p0")).line.startswith(f"pending: cluster-autoscaler: {text}")
        health = "{status: Healthy, cloudProviderTarget: 2, minSize: 0, maxSize: 2}"
        status = f"nodeGroups:\n- name: ng\n  health: {health}\n"
        body = {"metadata": {"name": "cluster-autoscaler-status"}, "data": {"status": status}}
        with pytest.raises(Unknown, match="is one running"):
            await ask(world, "nodegroup/ng")
        await world.kube.create(kinds.CONFIGMAPS, body, "kube-system")
        assert "is at its largest" in (await ask(world, "nodegroup/ng")).line

    run_scenario(scenario)


def test_the_older_kinds_are_explained_by_their_own_names(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await _classes(world)
        await _pool(world)
        assert (await ask(world, "provisioner/default")).subject == "provisioner/default"
        template = await ask(world, "awsnodetemplate/broken")
        assert template.subject == "awsnodetemplate/broken" and template.code == "BAD_NODECLASS"

    run_scenario(scenario)


def test_a_running_pod_has_its_share_of_what_its_node_costs(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(1, cpu="950m")
        await asyncio.sleep(5)
        found = await ask(world, "pod/p0")
        node = found.facts["node"]
        assert f"cost: {node}: 1 pod(s), $0.0500/h by requests and $0.0500/h idle of $0.1000/h" in found.details
        assert any(line.startswith("why not spot? NodePool default allows only on-demand") for line in found.details)
        assert (await ask(world, f"node/{node}", why="zone")).line.startswith("why this zone? ")

    run_scenario(scenario)
