"""Why nodes of groups stay, why groups do not grow, what they cost, and what was decided about them."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.autoscalers.node_groups.explanations import refusal
from dovetail.autoscalers.node_groups.scale_up import IN_BACKOFF, MAX_SIZE_REACHED, MAX_TOTAL_REACHED, NOT_READY
from dovetail.cli.cluster_session import ClusterSession
from dovetail.cli.explain_subjects import ExplainOptions, answer, subject_of
from dovetail.cli.history import KINDS
from dovetail.cluster.state import ClusterState
from dovetail.controllers.explain import Answer
from dovetail.kube.resources import NODECLAIMS, NODEPOOLS, NODES, PDBS, PODS
from dovetail.lab.simulated_groups import GroupSpec
from tests.autoscalers.test_node_group_autoscaler import World, play


async def look(world: World) -> ClusterSession:
    cluster = ClusterSession(world.kube, ClusterState(world.kube, world.lab.clock), world.lab.clock.now())
    cluster.cluster_state.tolerate_absent(NODEPOOLS, NODECLAIMS)
    await cluster.read()
    return cluster


async def explain(world: World, words: str) -> Answer:
    return await answer(await look(world), subject_of([words], "default"), ExplainOptions(), None)


def test_a_node_that_stays_is_explained_by_the_pod_that_keeps_it() -> None:
    async def body(world: World) -> None:
        budget = {"minAvailable": 4, "selector": {"matchLabels": {"app": "web"}}}
        await world.kube.create(PDBS, {"metadata": {"name": "web"}, "spec": budget}, "default")
        spread = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
        anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [spread]}}
        await world.deploy("web", 4, cpu="100m", affinity=anti)
        await asyncio.sleep(300)
        name = (await world.kube.list(PODS, "default")).items[0]["spec"]["nodeName"]
        found = await explain(world, f"node/{name}")
        assert found.code == "BlockedByPod.NotEnoughPdb"
        assert (
            found.object.startswith("pod/default/web-") and "PodDisruptionBudget allows no disruption" in found.remedy
        )
        group = await explain(world, "nodegroup/a")
        assert any(detail.startswith(f"node {name}: ") for detail in group.details)
        assert "costs $" in "".join(group.details)

    play(body, GroupSpec(name="a", min_size=1, max_size=6, size=1))


def test_a_group_and_a_pod_that_were_refused_name_the_remedy() -> None:
    async def body(world: World) -> None:
        await world.deploy("web", 30)
        await asyncio.sleep(200)
        group = await explain(world, "nodegroup/a")
        assert (group.code, group.remedy) == ("MaxNodeGroupSizeReached", "raise its maximum size")
        pending = next(pod for pod in (await world.kube.list(PODS, "default")).items if not pod["spec"].get("nodeName"))
        pod = await explain(world, f"pod/{pending['metadata']['name']}")
        assert "1 max node group size reached" in pod.line
        assert pod.remedy == "raise the maximum size of a group that fits"

    play(body, GroupSpec(name="a", min_size=1, max_size=3, size=1))


def test_an_unneeded_node_is_explained_with_its_time() -> None:
    async def body(world: World) -> None:
        await asyncio.sleep(120)
        [node] = (await world.kube.list(NODES)).items
        found = await explain(world, f"node/{node['metadata']['name']}")
        assert found.code == "Unneeded" and found.line.startswith("will be removed: ")

    play(body, GroupSpec(name="a", max_size=3, size=1), settled_s=1.0)


def test_decisions_about_groups_are_kept_for_the_history() -> None:
    async def body(world: World) -> None:
        await world.deploy("web", 4)
        await asyncio.sleep(120)
        await world.deploy("huge", 1, cpu="64")
        await asyncio.sleep(60)
        await world.scale("web", 0)
        await asyncio.sleep(1500)
        decisions = await (await look(world)).decisions()
        kinds = [decision.kind for decision in decisions]
        assert kinds[0] == "scale-up" and {"refuse", "scale-down"} <= set(kinds)
        grown = decisions[0]
        assert grown.summary.startswith("a 1->") and grown.about == ("a",) and grown.reason == "least-waste"
        refused = next(decision for decision in decisions if decision.kind == "refuse")
        assert refused.refusals[0].message == "1 Insufficient cpu"
        removed = [decision for decision in decisions if decision.kind == "scale-down"]
        assert removed and all(decision.removed for decision in removed)
        assert len({decision.id for decision in decisions}) == len(decisions)
        assert set(kinds) <= set(KINDS), "dovetail history --kind names them"

    play(body, GroupSpec(name="a", min_size=1, max_size=6, size=1))


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (MAX_SIZE_REACHED, "MaxNodeGroupSizeReached"),
        (IN_BACKOFF, "InBackoff"),
        (NOT_READY, "NotReadyForScaleUp"),
        (MAX_TOTAL_REACHED, "MaxNodesTotalReached"),
        ('exceeded quota: "cluster-wide", resources: cpu', "QuotaExceeded"),
        ("Insufficient cpu", "PodDoesNotFit"),
    ],
)
def test_every_refusal_of_a_group_has_a_code_and_a_remedy(reason: str, code: str) -> None:
    verdict = refusal(reason)
    assert (verdict.code, verdict.message) == (code, reason) and verdict.remedy
