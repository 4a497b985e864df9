"""The lab's checks: they report what must never happen, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.kube.client import Kube
from dovetail.kube.resources import DEPLOYMENTS, PODS
from dovetail.kube.transport import Request
from dovetail.lab.apiserver.store import ObjectStore, StoreEvent
from dovetail.lab.checks.invariants import Broken
from dovetail.lab.checks.pdb import BUDGETS, PdbCheck
from dovetail.lab.checks.replicasets import CONTROLLERS, ReplicaSetCheck
from tests.lab.workloads.manifests import deployment

Json = dict[str, Any]
Run = Callable[..., None]


def replica_set(wanted: int) -> Json:
    return {"metadata": {"name": "web", "namespace": "default", "uid": "rs"}, "spec": {"replicas": wanted}}


def pod(name: str, *, ready: bool = True, **reasons: str) -> Json:
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    conditions = [{"type": "Ready", "status": str(ready)}]
    conditions += [{"type": kind, "status": "True", "reason": reason} for kind, reason in reasons.items()]
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {}, "status": {"phase": "Running", "conditions": conditions}}


def budget(healthy: int, desired: int, charged: tuple[str, ...] = ()) -> Json:
    status = {"currentHealthy": healthy, "desiredHealthy": desired, "disruptedPods": dict.fromkeys(charged, "now")}
    spec = {"selector": {"matchLabels": {"app": "web"}}}
    return {"metadata": {"name": "web", "namespace": "default", "uid": "pdb"}, "spec": spec, "status": status}


class Scene:
    """A store with the checks listening."""

    def __init__(self) -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        self.store = ObjectStore(clock)
        self.is_recovering = False
        self.replica_check = ReplicaSetCheck(clock, lambda: self.is_recovering)
        self.guards = PdbCheck(self.store)
        self.said: list[str] = []
        self.store.observers.append(self._written)

    def _written(self, event: StoreEvent) -> None:
        self.said += [*self.replica_check.written(event), *self.guards.written(event)]

    def pods(self, *names: str) -> None:
        for name in names:
            self.store.put("/pods", f"default/{name}", pod(name))

    async def delete(self, name: str, agent: str) -> None:
        headers = {"user-agent": agent}
        path = f"/api/v1/namespaces/default/pods/{name}"
        await self.replica_check.intercept(Request(method="DELETE", path=path, headers=headers))
        self.store.delete("/pods", f"default/{name}")


def stage(play: Callable[[Scene], Any]) -> list[str]:
    async def main() -> list[str]:
        scene = Scene()
        await play(scene)
        return scene.said

    return run_virtual(main())


@pytest.mark.parametrize(("wanted", "agent", "blamed"), [(2, CONTROLLERS, 1), (1, CONTROLLERS, 0), (2, "kubectl", 0)])
def test_controllers_take_away_only_pods_that_are_too_many(wanted: int, agent: str, blamed: int) -> None:
    async def play(scene: Scene) -> None:
        scene.store.put("apps/replicasets", "default/web", replica_set(wanted))
        scene.pods("a", "b")
        await asyncio.sleep(30)
        await scene.delete("a", agent)

    assert len(stage(play)) == blamed


@pytest.mark.parametrize("recovering", [False, True])
def test_a_pod_that_went_is_made_again_within_a_minute(recovering: bool) -> None:
    async def play(scene: Scene) -> None:
        scene.store.put("apps/replicasets", "default/web", replica_set(2))
        scene.pods("a", "b")
        scene.is_recovering = recovering
        await scene.delete("a", "kubectl")
        await asyncio.sleep(59)
        scene.pods("b")
        assert scene.said == []
        await asyncio.sleep(2)
        scene.pods("b")

    said = stage(play)
    assert said == ([] if recovering else ["replica set default/web is 1 pod(s) short since 0.000, now 61.000"])


def evicted(scene: Scene, name: str) -> None:
    scene.store.put("/pods", f"default/{name}", pod(name, DisruptionTarget="EvictionByEvictionAPI"))


def test_an_eviction_is_charged_to_its_budget() -> None:
    async def play(scene: Scene) -> None:
        scene.pods("a", "b")
        scene.store.put(BUDGETS, "default/web", budget(2, 1))
        evicted(scene, "a")

    assert stage(play) == ["pod a was evicted without being charged to budget default/web"]


@pytest.mark.parametrize(("healthy", "blamed"), [(2, 1), (3, 0)])
def test_an_eviction_leaves_as_many_as_the_budget_asks_for(healthy: int, blamed: int) -> None:
    """A status that says more than is true is a controller that has not looked yet."""

    async def play(scene: Scene) -> None:
        scene.pods("a", "b")
        scene.store.put(BUDGETS, "default/web", budget(healthy, 2, ("a",)))
        evicted(scene, "a")

    assert len(stage(play)) == blamed


def test_a_lab_ends_with_an_error_when_its_controllers_take_a_pod_for_nothing(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment(replicas=3))
        await workload_lab.available("web", 3)
        await asyncio.sleep(30)
        impostor = Kube(workload_lab.lab.transport, workload_lab.lab.clock, user_agent=CONTROLLERS)
        name = (await workload_lab.pods("web"))[0]["metadata"]["name"]
        await impostor.delete(PODS, name, "default")

    with pytest.raises(Broken, match="the ReplicaSet had no surplus: 2 of 3"):
        lab_run(body)
