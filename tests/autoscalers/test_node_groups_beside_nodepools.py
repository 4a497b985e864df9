"""NodePools and node groups on one cluster, in virtual time: no pod gets two nodes, no node two owners."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from dovetail.autoscalers.node_groups import program
from dovetail.autoscalers.node_groups.flags import parse
from dovetail.autoscalers.node_groups.program import ProgramHandle
from dovetail.cli.cluster_session import ClusterSession
from dovetail.cli.explain_subjects import ExplainOptions, answer, subject_of
from dovetail.clock import EPOCH, run_virtual
from dovetail.cloud.node_groups import GroupOptions
from dovetail.cluster.state import ClusterState
from dovetail.controllers.explain import Answer
from dovetail.controllers.provisioning.node_group_scale_ups import GroupScaleUp, NodeGroupScaleUps, of_event
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import DEPLOYMENTS, NODECLAIMS, NODEPOOLS, NODES, PODS
from dovetail.lab.cluster import Lab
from dovetail.lab.scenario.autoscaler import Autoscaled, AutoscalerRequest
from dovetail.lab.simulated_groups import GroupSpec, SimulatedGroups

FLAGS = ("--leader-elect=false", "--v=1", "--scale-down-delay-after-add=1m")
QUICK = GroupOptions(scale_down_unneeded_s=120.0)
SYSTEM = GroupSpec(name="system", instance_type="t3.micro", min_size=1, max_size=1, size=1)


class Both:
    """A lab with both autoscalers."""

    def __init__(self, lab: Lab, groups: SimulatedGroups, running: ProgramHandle, fleet: Autoscaled) -> None:
        self.lab, self.kube, self.groups, self.running, self.fleet = lab, lab.kube, groups, running, fleet

    async def pool(self) -> None:
        spec = {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
        }
        disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m"}
        body = {"metadata": {"name": "pool"}, "spec": {"template": {"spec": spec}, "disruption": disruption}}
        await self.kube.create(NODEPOOLS, body)

    async def deploy(self, name: str, replicas: int, **spec: Any) -> None:
        resources = {"requests": {"cpu": "900m", "memory": "1Gi"}}
        pod = {"containers": [{"name": "c", "image": "nginx", "resources": resources}], **spec}
        template = {"metadata": {"labels": {"app": name}}, "spec": pod}
        selector = {"matchLabels": {"app": name}}
        body = {
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        }
        await self.kube.create(DEPLOYMENTS, body, "default")

    async def scale(self, name: str, replicas: int) -> None:
        await self.kube.patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, "default")

    async def pods(self) -> list[dict[str, Any]]:
        return (await self.kube.list(PODS, "default")).items

    async def running_pods(self) -> int:
        return sum(pod["status"].get("phase") == "Running" for pod in await self.pods())

    async def claims(self) -> int:
        return len((await self.kube.list(NODECLAIMS)).items)

    async def explain(self, words: str) -> Answer:
        cluster = ClusterSession(self.kube, ClusterState(self.kube, self.lab.clock), self.lab.clock.now())
        await cluster.read()
        return await answer(cluster, subject_of([words], "default"), ExplainOptions(), None)


def play(body: Callable[[Both], Awaitable[None]], *groups: GroupSpec, seed: int = 1) -> None:
    async def main() -> None:
        async with Lab.embedded(seed) as lab:
            cloud = SimulatedGroups(lab)
            for spec in (SYSTEM, *groups):
                await cloud.create(spec)
            fleet = Autoscaled(AutoscalerRequest(families=("m5",)))
            lab.add(fleet.run)
            running = ProgramHandle()
            kube, chance = lab.client("cluster-autoscaler"), lab.chance.child("ca")
            work = asyncio.create_task(
                program.run(parse(FLAGS), kube, cloud, lab.clock, chance, write=len, running=running)
            )
            try:
                await asyncio.sleep(30)
                await body(Both(lab, cloud, running, fleet))
                assert not work.done()
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                await cloud.close()

    run_virtual(main())


def test_pods_of_a_nodepool_grow_no_group() -> None:
    async def body(both: Both) -> None:
        await both.pool()
        await both.deploy("web", 6)
        await asyncio.sleep(20)
        waiting = (await both.pods())[0]["metadata"]["name"]
        assert (await both.explain(f"pod/{waiting}")).line.startswith("waits for nodeclaim ")
        await asyncio.sleep(120)
        assert await both.running_pods() == 6
        assert await both.claims() > 0
        assert both.groups.size("a") == 0

    play(body, GroupSpec(name="a", max_size=5))


def test_pods_of_a_group_get_no_nodeclaim_though_a_nodepool_could_serve_them() -> None:
    """The NodePool comes when the group grows already."""

    async def body(both: Both) -> None:
        await both.deploy("web", 4)
        await asyncio.sleep(20)
        assert both.groups.size("a") == 2
        await both.pool()
        await asyncio.sleep(5)
        waiting = (await both.pods())[0]["metadata"]["name"]
        found = await both.explain(f"pod/{waiting}")
        assert found.line.startswith("waits for node group a, which Cluster Autoscaler grows: ")
        assert found.facts["nodeGroups"] == ["a"]
        await asyncio.sleep(120)
        assert await both.running_pods() == 4
        assert await both.claims() == 0

    play(body, GroupSpec(name="a", max_size=5))


def test_a_group_without_capacity_leaves_its_pods_to_the_nodepool() -> None:
    async def body(both: Both) -> None:
        both.groups.out_of_capacity.add("a")
        await both.deploy("web", 2)
        await asyncio.sleep(15)
        assert any(name == "a" and size > 0 for name, size in both.groups.sizes)
        await both.pool()
        await asyncio.sleep(240)
        assert await both.running_pods() == 2
        assert both.groups.size("a") == 0
        assert await both.claims() > 0

    play(body, GroupSpec(name="a", max_size=5))


def test_each_removes_its_own_nodes_and_leaves_those_of_the_other() -> None:
    async def body(both: Both) -> None:
        await both.deploy("grouped", 4, nodeSelector={"team": "groups"})
        await asyncio.sleep(120)
        await both.pool()
        await both.deploy("pooled", 4)
        await asyncio.sleep(120)
        assert await both.running_pods() == 8
        grown, claims = both.groups.size("a"), await both.claims()
        assert grown > 0 and claims > 0
        await both.scale("pooled", 0)
        await asyncio.sleep(900)
        assert (await both.claims(), both.groups.size("a")) == (0, grown)
        assert not both.groups.ended
        await both.scale("grouped", 0)
        await asyncio.sleep(600)
        assert both.groups.size("a") == 0
        assert len((await both.kube.list(NODES)).items) == 1
        assert await both.fleet.leaks(both.lab) == []

    play(body, GroupSpec(name="a", max_size=5, labels={"team": "groups"}, options=QUICK))


def _event(reason: str, second: int, uid: str = "u") -> dict[str, Any]:
    return {
        "metadata": {"name": f"e{second}", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "uid": uid},
        "reason": reason,
        "message": "pod triggered scale-up: [{a 1->3 (max: 5)} {b 0->1 (max: 2)}]",
        "lastTimestamp": (EPOCH + timedelta(seconds=second)).isoformat().replace("+00:00", "Z"),
    }


def test_the_newest_event_of_a_pod_counts_and_for_no_longer_than_a_node_takes_to_join() -> None:
    async def main() -> None:
        async with Lab.embedded(1) as lab:
            scale_ups = NodeGroupScaleUps(lab.kube)

            def tell(event: dict[str, Any], *, gone: bool = False) -> None:
                old, new = (event, None) if gone else (None, event)
                scale_ups._changed(CacheChange("deleted" if gone else "added", event["metadata"]["name"], old, new))

            tell(_event("TriggeredScaleUp", 10))
            found = scale_ups.underway("u", EPOCH + timedelta(seconds=20))
            assert isinstance(found, GroupScaleUp) and found.groups == ("a", "b")
            assert scale_ups.underway("u", EPOCH + timedelta(minutes=16)) is None
            tell(_event("NotTriggerScaleUp", 30))
            assert scale_ups.underway("u", EPOCH + timedelta(seconds=40)) is None
            tell(_event("NotTriggerScaleUp", 30), gone=True)
            assert scale_ups.underway("u", EPOCH + timedelta(seconds=40)) is not None

    run_virtual(main())
    assert of_event({"involvedObject": {"kind": "Node", "uid": "u"}, "reason": "TriggeredScaleUp"}) is None
