"""The three programs in the lab, in virtual time: the hamster walk-through, updates in place, and faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from dovetail.autoscalers.vpa import admission_controller, recommender, updater
from dovetail.autoscalers.vpa.api import CHECKPOINTS, VPAS
from dovetail.autoscalers.vpa.crds import definitions
from dovetail.autoscalers.vpa.metrics import RecommenderMetrics
from dovetail.autoscalers.vpa.metrics_api import ExternalSettings
from dovetail.autoscalers.vpa.settings import (
    AdmissionSettings,
    CommonSettings,
    ElectionSettings,
    RecommenderSettings,
    UpdaterSettings,
)
from dovetail.autoscalers.vpa.validation import FeatureGates
from dovetail.clock import run_virtual
from dovetail.kube.certificates import ServingCertificate
from dovetail.kube.errors import KubeError
from dovetail.kube.resources import CORE_EVENTS, CRDS, DEPLOYMENTS, LEASES, PDBS, PODS
from dovetail.kube.transport import Request, Response
from dovetail.lab import custom_metrics
from dovetail.lab.cluster import Lab
from dovetail.lab.webhook_services import NO_CERTIFICATE, in_process
from dovetail.model.quantity import milli
from tests.kube.scripted import status

Json = dict[str, Any]
HALF_A_CORE = ["-c", "while true; do timeout 0.5s yes >/dev/null; sleep 0.5s; done"]


def hamster(replicas: int = 2, **container: Any) -> Json:
    labels = {"app": "hamster"}
    body = {
        "name": "hamster",
        "image": "registry.k8s.io/ubuntu-slim:0.14",
        "resources": {"requests": {"cpu": "100m", "memory": "50Mi"}},
        "command": ["/bin/sh"],
        "args": HALF_A_CORE,
        **container,
    }
    return {
        "metadata": {"name": "hamster", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [body]}},
        },
    }


def autoscaler(**spec: Any) -> Json:
    policy = {
        "containerName": "*",
        "minAllowed": {"cpu": "100m", "memory": "50Mi"},
        "maxAllowed": {"cpu": "1", "memory": "500Mi"},
        "controlledResources": ["cpu", "memory"],
    }
    return {
        "metadata": {"name": "hamster-vpa", "namespace": "default"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hamster"},
            "resourcePolicy": {"containerPolicies": [policy]},
            **spec,
        },
    }


class World:
    """A lab with the definitions of VPA, and the questions tests ask it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.kube = lab.kube
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, program: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(program)
        self.tasks.append(task)
        return task

    def start_recommender(self, **settings: Any) -> asyncio.Task[None]:
        chosen = RecommenderSettings(interval_s=15.0, **settings)
        return self.start(recommender.run(chosen, self.lab.client("vpa-recommender"), self.lab.clock))

    def start_updater(self, name: str = "vpa-updater", gates: FeatureGates | None = None, **settings: Any) -> Any:
        common = CommonSettings(address="", gates=gates or FeatureGates())
        chosen = UpdaterSettings(common=common, interval_s=30.0, **settings)
        return self.start(updater.run(chosen, self.lab.client(name), self.lab.clock, identity=name))

    def start_admission(
        self, gates: FeatureGates | None = None, certificate: ServingCertificate | None = NO_CERTIFICATE, **files: Any
    ) -> asyncio.Task[None]:
        assert self.lab.server is not None
        settings = AdmissionSettings(common=CommonSettings(address="", gates=gates or FeatureGates()), **files)
        serve = in_process(self.lab.server, "kube-system", "vpa-webhook")
        client = self.lab.client("vpa-admission-controller")
        run = admission_controller.run(settings, client, self.lab.clock, serve=serve, certificate=certificate)
        return self.start(run)

    async def start_all(self, gates: FeatureGates | None = None) -> None:
        self.start_recommender()
        self.start_updater(gates=gates)
        self.start_admission(gates)
        await asyncio.sleep(25)

    async def pods(self) -> list[Json]:
        items = (await self.kube.list(PODS, "default", labels="app=hamster")).items
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    async def requests(self) -> list[dict[str, str]]:
        return [pod["spec"]["containers"][0]["resources"]["requests"] for pod in await self.pods()]

    async def vpa(self) -> Json:
        return await self.kube.get(VPAS, "hamster-vpa", "default")

    async def target(self) -> dict[str, str]:
        items = (await self.vpa()).get("status", {}).get("recommendation", {}).get("containerRecommendations") or [{}]
        return dict(items[0].get("target") or {})

    async def events(self, reason: str) -> int:
        items = (await self.kube.list(CORE_EVENTS, "default")).items
        return sum(item.get("count", 1) for item in items if item["reason"] == reason)


def play(body: Callable[[World], Awaitable[None]], seed: int = 1, nodes: int = 3) -> None:
    async def main() -> None:
        async with Lab.embedded(seed) as lab:
            await lab.nodes(nodes)
            for definition in definitions():
                await lab.kube.create(CRDS, definition)
            world = World(lab)
            try:
                await body(world)
                for task in world.tasks:
                    if task.done() and not task.cancelled():
                        task.result()
            finally:
                for task in world.tasks:
                    task.cancel()
                await asyncio.gather(*world.tasks, return_exceptions=True)

    run_virtual(main())


def test_the_hamster_gets_what_it_uses() -> None:
    """Requests of 100m and 50Mi become 587m and 250Mi, pods one after the other, as in the walk-through."""

    async def body(world: World) -> None:
        await world.start_all()
        await world.kube.create(DEPLOYMENTS, hamster())
        made = await world.kube.create(VPAS, autoscaler())
        assert made["spec"]["updatePolicy"] == {"updateMode": "Recreate"}  # by the webhook
        await asyncio.sleep(10)
        assert await world.requests() == [{"cpu": "100m", "memory": "50Mi"}] * 2
        await asyncio.sleep(65)
        assert await world.target() == {"cpu": "587m", "memory": "250Mi"}
        conditions = {item["type"]: item["status"] for item in (await world.vpa())["status"]["conditions"]}
        assert conditions == {"RecommendationProvided": "True"}
        await asyncio.sleep(180)
        assert await world.requests() == [{"cpu": "587m", "memory": "250Mi"}] * 2
        annotations = (await world.pods())[0]["metadata"]["annotations"]
        assert annotations["vpaObservedContainers"] == "hamster"
        assert annotations["vpaUpdates"].startswith("Pod resources updated by hamster-vpa: container 0: ")
        evicted = await world.events("EvictedByVPA")
        assert evicted in (2, 3)
        assert await world.events("EvictedPod") == evicted
        await asyncio.sleep(3600)
        assert await world.events("EvictedByVPA") == evicted  # and then it is left in peace

    play(body)


def test_usage_may_come_from_external_metrics() -> None:
    async def body(world: World) -> None:
        await custom_metrics.register(world.kube)
        names = {"cpu": custom_metrics.CONTAINER_CPU, "memory": custom_metrics.CONTAINER_MEMORY}
        world.start_recommender(external=ExternalSettings(metrics=names))
        await world.kube.create(DEPLOYMENTS, hamster())
        await world.kube.create(VPAS, autoscaler(updatePolicy={"updateMode": "Off"}))
        await asyncio.sleep(60)
        assert await world.target() == {"cpu": "587m", "memory": "250Mi"}
        checkpoint = await world.kube.get(CHECKPOINTS, "hamster-vpa-hamster", "default")
        assert checkpoint["status"]["totalSamplesCount"] > 0

    play(body)


def test_a_boost_ends_also_when_the_vpa_no_longer_asks_for_it() -> None:
    async def body(world: World) -> None:
        await world.start_all(FeatureGates(cpu_startup_boost=True))
        boost = {"cpu": {"type": "Quantity", "quantity": "500m", "durationSeconds": 600}}
        await world.kube.create(VPAS, autoscaler(updatePolicy={"updateMode": "Off"}, startupBoost=boost))
        await world.kube.create(DEPLOYMENTS, hamster(replicas=2))
        await asyncio.sleep(30)
        assert [item["cpu"] for item in await world.requests()] == ["600m", "600m"]
        await world.kube.patch(VPAS, "hamster-vpa", {"spec": {"startupBoost": None}}, "default", kind="merge")
        await asyncio.sleep(700)
        assert [item["cpu"] for item in await world.requests()] == ["100m", "100m"]

    play(body)


def test_the_table_of_kubectl_shows_mode_target_and_whether_there_is_one() -> None:
    async def body(world: World) -> None:
        await world.start_all()
        await world.kube.create(DEPLOYMENTS, hamster())
        await world.kube.create(VPAS, autoscaler())
        await asyncio.sleep(80)
        path = VPAS.path("default")
        request = Request(
            method="GET",
            path=path,
            query=(),
            headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io", "user-agent": "kubectl"},
            body=b"",
        )
        assert world.lab.server is not None
        answer = await world.lab.server.handle(request)
        table = msgspec.json.decode(answer.body)
        names = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0]
        assert names == ["Name", "Mode", "CPU", "Mem", "Provided", "Age"]
        assert table["rows"][0]["cells"][:5] == ["hamster-vpa", "Recreate", "587m", "250Mi", "True"]

    play(body)


def test_without_the_admission_controller_nothing_is_evicted() -> None:
    async def body(world: World) -> None:
        world.start_recommender()
        world.start_updater()
        await world.kube.create(DEPLOYMENTS, hamster())
        await world.kube.create(VPAS, autoscaler())
        await asyncio.sleep(600)
        assert await world.target() == {"cpu": "587m", "memory": "250Mi"}
        assert await world.events("EvictedByVPA") == 0

    play(body)


def test_an_admission_controller_that_died_stops_evictions_within_its_lease() -> None:
    async def body(world: World) -> None:
        world.start_updater()
        admission = world.start_admission()
        await world.kube.create(DEPLOYMENTS, hamster(replicas=10))
        await world.kube.create(VPAS, autoscaler())
        await asyncio.sleep(60)
        admission.cancel()
        await asyncio.sleep(90)
        world.start_recommender()
        await asyncio.sleep(300)
        assert await world.target()
        assert await world.events("EvictedByVPA") == 0

    play(body)


def test_metrics_that_fail_or_stand_still_change_nothing() -> None:
    async def body(world: World) -> None:
        await world.start_all()
        await world.kube.create(DEPLOYMENTS, hamster())
        await world.kube.create(VPAS, autoscaler())
        await asyncio.sleep(300)
        target, evicted = await world.target(), await world.events("EvictedByVPA")
        broken = True

        async def intercept(request: Request) -> Response | None:
            if broken and request.path.startswith("/apis/metrics.k8s.io"):
                return status(503, "ServiceUnavailable", "metrics are down")
            return None

        assert world.lab.server is not None
        world.lab.server.middleware.insert(0, intercept)
        await asyncio.sleep(1200)
        assert await world.target() == target
        broken = False
        await asyncio.sleep(300)
        assert await world.target() == target
        assert await world.events("EvictedByVPA") == evicted

    play(body)


def test_history_survives_the_recommender_and_a_corrupt_checkpoint_only_itself() -> None:
    async def body(world: World) -> None:
        first = world.start_recommender(workers=2)
        await world.kube.create(DEPLOYMENTS, hamster())
        await world.kube.create(VPAS, autoscaler(updatePolicy={"updateMode": "Off"}))
        await asyncio.sleep(3600)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        held = await world.kube.get(CHECKPOINTS, "hamster-vpa-hamster", "default")
        assert held["spec"] == {"vpaObjectName": "hamster-vpa", "containerName": "hamster"}
        samples = held["status"]["totalSamplesCount"]
        assert samples > 100
        bad = {
            "metadata": {"name": "hamster-vpa-ghost", "namespace": "default"},
            "spec": {"vpaObjectName": "hamster-vpa", "containerName": "ghost"},
            "status": {"version": "v3", "cpuHistogram": {"bucketWeights": {"9999": 1}, "totalWeight": 1}},
        }
        await world.kube.create(CHECKPOINTS, bad)
        before = (await world.vpa())["status"]["recommendation"]["containerRecommendations"][0]["lowerBound"]
        world.start_recommender()
        await asyncio.sleep(120)
        (item,) = (await world.vpa())["status"]["recommendation"]["containerRecommendations"]
        assert item["containerName"] == "hamster"
        assert milli(item["lowerBound"]["cpu"]) >= milli(before["cpu"]) > 550  # an hour of history, not two minutes
        again = await world.kube.get(CHECKPOINTS, "hamster-vpa-hamster", "default")
        assert again["status"]["totalSamplesCount"] > samples

    play(body)


def test_the_checkpoints_of_a_deleted_vpa_are_collected() -> None:
    async def body(world: World) -> None:
        world.start_recommender()
        await world.kube.create(DEPLOYMENTS, hamster())
        await world.kube.create(VPAS, autoscaler(updatePolicy={"updateMode": "Off"}))
        await asyncio.sleep(120)
        assert len((await world.kube.list(CHECKPOINTS)).items) == 1
        await world.kube.delete(VPAS, "hamster-vpa", "default")
        await asyncio.sleep(700)
        assert (await world.kube.list(CHECKPOINTS)).items == []

    play(body)


def test_unsupported_targets_are_named() -> None:
    async def body(world: World) -> None:
        world.start_recommender()
        await world.kube.create(
            VPAS, autoscaler(targetRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"})
        )
        await asyncio.sleep(40)
        conditions = {item["type"]: item for item in (await world.vpa())["status"]["conditions"]}
        assert conditions["ConfigUnsupported"]["message"] == (
            "Cannot read targetRef. Reason: Deployment default/none does not exist"
        )
        assert conditions["NoPodsMatched"]["status"] == "True"
        assert conditions["RecommendationProvided"]["reason"] == "NoPodsMatched"

    play(body)


def test_a_budget_that_allows_nothing_is_kept() -> None:
    async def body(world: World) -> None:
        await world.start_all()
        budget = {
            "metadata": {"name": "all", "namespace": "default"},
            "spec": {"minAvailable": "100%", "selector": {"matchLabels": {"app": "hamster"}}},
        }
        await world.kube.create(PDBS, budget)
        await world.kube.create(DEPLOYMENTS, hamster())
        await world.kube.create(VPAS, autoscaler())
        await asyncio.sleep(300)
        names = {pod["metadata"]["name"] for pod in await world.pods()}
        assert await world.events("EvictedByVPA") == 0
        await world.kube.delete(PDBS, "all", "default")
        await asyncio.sleep(200)
        assert not names & {pod["metadata"]["name"] for pod in await world.pods()}

    play(body)


def test_two_updaters_with_a_lease_evict_as_one() -> None:
    async def body(world: World) -> None:
        world.start_recommender()
        election = ElectionSettings(enabled=True, name="vpa-updater")
        for name in ("one", "two"):
            world.start_updater(name, election=election)
        world.start_admission()
        least = 8

        async def watch() -> None:
            nonlocal least
            for _ in range(600):
                running = sum(pod["status"].get("phase") == "Running" for pod in await world.pods())
                least = min(least, running) if running < 8 or least < 8 else least
                await asyncio.sleep(1)

        await world.kube.create(DEPLOYMENTS, hamster(replicas=8))
        await asyncio.sleep(60)
        world.start(watch())
        await world.kube.create(VPAS, autoscaler())
        await asyncio.sleep(600)
        holder = (await world.kube.get(LEASES, "vpa-updater", "kube-system"))["spec"]["holderIdentity"]
        assert holder in ("one", "two")
        assert await world.requests() == [{"cpu": "587m", "memory": "250Mi"}] * 8
        assert 4 <= least < 8  # half of them at once, and no more

    play(body)


def test_an_updater_that_dies_between_evictions_leaves_nothing_behind() -> None:
    async def body(world: World) -> None:
        world.start_recommender()
        world.start_admission()
        first = world.start_updater()
        await world.kube.create(DEPLOYMENTS, hamster(replicas=4))
        await world.kube.create(VPAS, autoscaler())

        async def evicted() -> bool:
            return await world.events("EvictedByVPA") > 0

        await world.lab.until(evicted)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        world.start_updater()
        await asyncio.sleep(600)
        assert await world.requests() == [{"cpu": "587m", "memory": "250Mi"}] * 4

    play(body)


# In place


def test_pods_are_resized_in_place_one_a_loop_and_keep_running() -> None:
    async def body(world: World) -> None:
        await world.start_all()
        await world.kube.create(DEPLOYMENTS, hamster(replicas=3))
        await asyncio.sleep(20)
        names = {pod["metadata"]["name"] for pod in await world.pods()}
        await world.kube.create(VPAS, autoscaler(updatePolicy={"updateMode": "InPlaceOrRecreate"}))
        await asyncio.sleep(400)
        pods = await world.pods()
        assert {pod["metadata"]["name"] for pod in pods} == names
        for pod in pods:
            reported = pod["status"]["containerStatuses"][0]
            assert reported["resources"]["requests"] == {"cpu": "587m", "memory": "250Mi"}
            assert reported["allocatedResources"] == {"cpu": "587m", "memory": "250Mi"}
            assert reported["restartCount"] == 0
            assert pod["metadata"]["annotations"]["vpaInPlaceUpdated"] == "true"
            assert not [item for item in pod["status"]["conditions"] if item["type"].startswith("PodResize")]
        assert await world.events("EvictedByVPA") == 0
        resized = await world.events("InPlaceResizedByVPA")
        assert resized >= 3
        await asyncio.sleep(600)
        assert await world.events("InPlaceResizedByVPA") == resized

    play(body)


def test_pods_without_requests_cannot_be_resized_and_are_evicted() -> None:
    async def body(world: World) -> None:
        await world.start_all()
        await world.kube.create(DEPLOYMENTS, hamster(replicas=2, resources={}))
        await world.kube.create(VPAS, autoscaler(updatePolicy={"updateMode": "InPlaceOrRecreate"}))
        await asyncio.sleep(300)
        assert await world.events("EvictedByVPA") >= 2
        assert await world.requests() == [{"cpu": "587m", "memory": "250Mi"}] * 2

    play(body)


def test_mode_in_place_needs_its_gate() -> None:
    async def body(world: World) -> None:
        await world.start_all(FeatureGates(in_place=True))
        await world.kube.create(DEPLOYMENTS, hamster(replicas=3))
        await world.kube.create(VPAS, autoscaler(updatePolicy={"updateMode": "InPlace"}))
        await asyncio.sleep(300)
        statuses = [pod["status"]["containerStatuses"][0] for pod in await world.pods()]
        assert [item["resources"]["requests"]["cpu"] for item in statuses] == ["587m"] * 3
        assert await world.events("EvictedByVPA") == 0

    play(body)

    async def refused(world: World) -> None:
        world.start_admission()
        await asyncio.sleep(20)
        try:
            await world.kube.create(VPAS, autoscaler(updatePolicy={"updateMode": "InPlace"}))
        except KubeError as error:
            assert 'admission webhook "vpa.k8s.io" denied the request' in str(error)
        else:
            raise AssertionError("mode InPlace was let in without its gate")

    play(refused)


def test_a_startup_boost_ends_after_the_pod_is_ready() -> None:
    async def body(world: World) -> None:
        gates = FeatureGates(cpu_startup_boost=True)
        await world.start_all(gates)
        boost = {"cpu": {"type": "Quantity", "quantity": "500m", "durationSeconds": 60}}
        await world.kube.create(VPAS, autoscaler(updatePolicy={"updateMode": "Off"}, startupBoost=boost))
        await world.kube.create(DEPLOYMENTS, hamster(replicas=2))
        await asyncio.sleep(30)
        assert [item["cpu"] for item in await world.requests()] == ["600m", "600m"]
        await asyncio.sleep(120)
        assert [item["cpu"] for item in await world.requests()] == ["100m", "100m"]
        annotations = [pod["metadata"]["annotations"] for pod in await world.pods()]
        assert all("vpaCpuStartupBoost/hamster" not in item for item in annotations) and annotations

    play(body)


def test_metrics_compare_recommendations_with_usage() -> None:
    """Samples before the first recommendation count as missing one; every later loop observes a change, also of 0."""

    async def body(world: World) -> None:
        measured = RecommenderMetrics(world.lab.clock, 15.0)
        client = world.lab.client("vpa-recommender")
        world.start(recommender.run(RecommenderSettings(interval_s=15.0), client, world.lab.clock, metrics=measured))
        await world.kube.create(DEPLOYMENTS, hamster())
        await asyncio.sleep(60)
        await world.kube.create(VPAS, autoscaler(updatePolicy={"updateMode": "Off"}))
        await asyncio.sleep(100)

        def value(name: str, **labels: str) -> float | None:
            return measured.registry.get_sample_value(f"vpa_quality_{name}", {"update_mode": "Off", **labels})

        memory = {"resource": "memory", "is_oom": "false"}
        assert value("usage_sample_missing_recommendation_count_total", **memory) == 2
        seen = value("usage_recommendation_relative_diffs_count", **memory)
        assert seen is not None and seen >= 8
        changes = value("relative_recommendation_changes_count", resource="memory", vpa_size_log2="1")
        assert changes is not None and changes >= 4
        labels = {"api": "v1", "matches_pods": "true", "unsupported_config": "false"}
        objects = {"update_mode": "Off", "has_recommendation": "true", **labels}
        assert measured.registry.get_sample_value("vpa_recommender_vpa_objects_count", objects) == 1
        objects["update_mode"] = "Initial"
        assert measured.registry.get_sample_value("vpa_recommender_vpa_objects_count", objects) == 0
        names = {line.split("{")[0].split(" ")[0] for line in measured.text().decode().splitlines()}
        assert {
            "vpa_quality_usage_sample_missing_recommendation_count",
            "vpa_recommender_metric_server_responses",
        } < names
        assert not [name for name in names if name.endswith(("_count_total", "_responses_total", "_created"))]

    play(body)
