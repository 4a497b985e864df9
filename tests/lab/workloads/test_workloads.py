"""Workloads in a whole lab: they come up, roll, scale, finish and go, in Kubernetes' words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.kube.errors import NotFound, TooManyRequests
from dovetail.kube.resources import (
    CORE_EVENTS,
    CRONJOBS,
    DAEMONSETS,
    DEPLOYMENTS,
    ENDPOINTSLICES,
    JOBS,
    NAMESPACES,
    NODES,
    PDBS,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    REPLICASETS,
    SERVICEACCOUNTS,
    SERVICES,
    STATEFULSETS,
    VOLUMEATTACHMENTS,
)
from tests.lab.workloads.manifests import budget, deployment, job, pod, workload

Run = Callable[..., None]


def test_a_deployment_comes_up_and_reports_it(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment())
        await workload_lab.available("web", 3)
        item = await workload_lab.kube.get(DEPLOYMENTS, "web", "default")
        messages = {
            each["type"]: (each["status"], each["reason"], each["message"]) for each in item["status"]["conditions"]
        }
        name = (await workload_lab.kube.list(REPLICASETS, "default")).items[0]["metadata"]["name"]
        assert messages == {
            "Available": ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
            "Progressing": (
                "True",
                "NewReplicaSetAvailable",
                f'ReplicaSet "{name}" has successfully progressed.',
            ),
        }
        assert await workload_lab.events("ScalingReplicaSet") == [f"Scaled up replica set {name} from 0 to 3"]
        assert len(await workload_lab.events("SuccessfulCreate")) == 3
        assert len(await workload_lab.events("Started")) == 3

    lab_run(body)


def test_a_rolling_update_never_lacks_more_than_it_may(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment(replicas=8))
        await workload_lab.available("web", 8)
        change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:1.26"}]}}}}
        await workload_lab.kube.patch(DEPLOYMENTS, "web", change, "default", kind="strategic")
        fewest = 8
        for _ in range(80):
            await asyncio.sleep(0.25)
            fewest = min(fewest, await workload_lab.running("web"))
        assert fewest >= 6
        await workload_lab.available("web", 8)
        images = {each["spec"]["containers"][0]["image"] for each in await workload_lab.pods("web")}
        assert images == {"nginx:1.26"}
        sets = (await workload_lab.kube.list(REPLICASETS, "default")).items
        assert sorted(each["spec"]["replicas"] for each in sets) == [0, 8]
        item = await workload_lab.kube.get(DEPLOYMENTS, "web", "default")
        assert item["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"

    lab_run(body)


def test_recreate_stops_the_old_before_it_starts_the_new(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment(strategy={"type": "Recreate"}))
        await workload_lab.available("web", 3)
        change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:1.26"}]}}}}
        await workload_lab.kube.patch(DEPLOYMENTS, "web", change, "default", kind="strategic")
        for _ in range(40):
            await asyncio.sleep(0.1)
            assert len({each["spec"]["containers"][0]["image"] for each in await workload_lab.pods("web")}) <= 1
        await workload_lab.available("web", 3)

    lab_run(body)


def test_an_image_that_is_not_there_misses_the_deadline_and_explains_itself(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment(image="nginx:1.161", progressDeadlineSeconds=60))
        await asyncio.sleep(90)
        item = await workload_lab.kube.get(DEPLOYMENTS, "web", "default")
        reasons = {each["type"]: each["reason"] for each in item["status"]["conditions"]}
        assert reasons == {"Available": "MinimumReplicasUnavailable", "Progressing": "ProgressDeadlineExceeded"}
        waiting = (await workload_lab.pods("web"))[0]["status"]["containerStatuses"][0]["state"]["waiting"]
        assert waiting["reason"] in ("ImagePullBackOff", "ErrImagePull")
        assert 'Back-off pulling image "nginx:1.161"' in await workload_lab.events("BackOff")

    lab_run(body)


def test_a_paused_deployment_does_not_roll(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment())
        await workload_lab.available("web", 3)
        change = {
            "spec": {"paused": True, "template": {"spec": {"containers": [{"name": "c", "image": "nginx:1.26"}]}}}
        }
        await workload_lab.kube.patch(DEPLOYMENTS, "web", change, "default", kind="strategic")
        await asyncio.sleep(30)
        assert {each["spec"]["containers"][0]["image"] for each in await workload_lab.pods("web")} == {"nginx:1.25"}
        await workload_lab.kube.patch(DEPLOYMENTS, "web", {"spec": {"paused": False}}, "default")
        await workload_lab.available("web", 3)

    lab_run(body)


def test_a_deleted_deployment_takes_its_pods_along(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment())
        await workload_lab.available("web", 3)
        await workload_lab.kube.delete(DEPLOYMENTS, "web", "default", propagation="Background")
        await asyncio.sleep(60)
        assert await workload_lab.pods() == []
        assert (await workload_lab.kube.list(REPLICASETS, "default")).items == []

    lab_run(body)


def test_a_stateful_set_makes_its_pods_in_order_each_with_a_volume(lab_run: Run) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }

    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(
            STATEFULSETS, workload("StatefulSet", "db", 3, serviceName="db", volumeClaimTemplates=[claim])
        )

        async def up() -> bool:
            item = await workload_lab.kube.get(STATEFULSETS, "db", "default")
            return bool(item.get("status", {}).get("availableReplicas") == 3)

        await workload_lab.lab.until(up, 120)
        pods = sorted(await workload_lab.pods("db"), key=lambda each: each["metadata"]["creationTimestamp"])
        assert [each["metadata"]["name"] for each in pods] == ["db-0", "db-1", "db-2"]
        claims = (await workload_lab.kube.list(PERSISTENTVOLUMECLAIMS, "default")).items
        assert {each["status"]["phase"] for each in claims} == {"Bound"}
        zones = {
            each["metadata"]["name"]: each["metadata"]["labels"] for each in (await workload_lab.kube.list(NODES)).items
        }
        volumes = {each["metadata"]["name"]: each for each in (await workload_lab.kube.list(PERSISTENTVOLUMES)).items}
        for each in pods:
            found = next(c for c in claims if c["metadata"]["name"] == f"data-{each['metadata']['name']}")
            terms = volumes[found["spec"]["volumeName"]]["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            zone = zones[each["spec"]["nodeName"]]["topology.kubernetes.io/zone"]
            assert terms[0]["matchExpressions"][0]["values"] == [zone]
        attachments = (await workload_lab.kube.list(VOLUMEATTACHMENTS)).items
        assert attachments and all(attachment["status"]["attached"] for attachment in attachments)
        await workload_lab.kube.patch(STATEFULSETS, "db", {"spec": {"replicas": 1}}, "default")
        await asyncio.sleep(30)
        assert [each["metadata"]["name"] for each in await workload_lab.pods("db")] == ["db-0"]

    lab_run(body)


def test_a_stateful_set_rolls_from_the_highest_number_down(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(STATEFULSETS, workload("StatefulSet", "db", 3, serviceName="db"))
        await asyncio.sleep(30)
        change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:1.26"}]}}}}
        await workload_lab.kube.patch(STATEFULSETS, "db", change, "default", kind="strategic")
        await asyncio.sleep(60)
        messages = await workload_lab.events("SuccessfulDelete")
        assert messages == [f"Delete Pod db-{number} in StatefulSet db successful" for number in (2, 1, 0)]
        item = await workload_lab.kube.get(STATEFULSETS, "db", "default")
        assert item["status"]["currentRevision"] == item["status"]["updateRevision"]

    lab_run(body)


def test_a_daemon_that_never_reached_its_node_goes_with_it(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        huge = workload("DaemonSet", "agent")
        huge["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "64"}}
        await workload_lab.kube.create(DAEMONSETS, huge)
        await asyncio.sleep(5)
        assert [each["status"]["phase"] for each in await workload_lab.pods("agent")] == ["Pending"] * 3
        node = sorted(workload_lab.lab.fleet.seats)[0]
        workload_lab.lab.fleet.vanish(node)
        await workload_lab.kube.delete(NODES, node)
        await asyncio.sleep(5)
        assert len(await workload_lab.pods("agent")) == 2

    lab_run(body, nodes=3)


def test_a_daemon_set_covers_every_node_and_new_ones(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DAEMONSETS, workload("DaemonSet", "agent"))
        await asyncio.sleep(20)
        assert len({each["spec"]["nodeName"] for each in await workload_lab.pods("agent")}) == 3
        await workload_lab.lab.nodes(1)
        await asyncio.sleep(20)
        assert len({each["spec"]["nodeName"] for each in await workload_lab.pods("agent")}) == 4
        status = (await workload_lab.kube.get(DAEMONSETS, "agent", "default"))["status"]
        assert (status["desiredNumberScheduled"], status["numberReady"], status["numberAvailable"]) == (4, 4, 4)

    lab_run(body)


def test_a_job_completes_and_its_pods_are_released(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(JOBS, job("pi", ["sh", "-c", "sleep 3"], completions=3, parallelism=2))
        await asyncio.sleep(60)
        status = (await workload_lab.kube.get(JOBS, "pi", "default"))["status"]
        assert status["succeeded"] == 3
        assert [each["type"] for each in status["conditions"]] == ["SuccessCriteriaMet", "Complete"]
        pods = await workload_lab.pods()
        assert pods and not any(pod["metadata"].get("finalizers") for pod in pods)
        assert await workload_lab.events("Completed") == ["Job completed"]

    lab_run(body)


def test_a_failing_job_gives_up_after_its_back_off_limit(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(JOBS, job("bad", ["sh", "-c", "exit 3"], backoffLimit=2))
        await asyncio.sleep(120)
        status = (await workload_lab.kube.get(JOBS, "bad", "default"))["status"]
        assert status["failed"] == 3
        assert status["conditions"][-1]["reason"] == "BackoffLimitExceeded"
        assert await workload_lab.events("BackoffLimitExceeded") == ["Job has reached the specified backoff limit"]

    lab_run(body)


def test_a_cron_job_runs_every_minute_and_keeps_three(lab_run: Run) -> None:
    body_of = job("tick", ["date"])
    cron = {
        "metadata": {"name": "tick", "namespace": "default"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": body_of["spec"]}},
    }

    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(CRONJOBS, cron)
        await asyncio.sleep(6 * 60 + 20)
        assert len((await workload_lab.kube.list(JOBS, "default")).items) == 3
        assert (
            len([text for text in await workload_lab.events("SuccessfulCreate") if text.startswith("Created job")]) == 6
        )

    lab_run(body)


def test_a_container_that_keeps_crashing_is_restarted_ever_later(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(
            PODS, pod("crash", "busybox", container={"command": ["sh", "-c", "sleep 1; exit 1"]})
        )
        await asyncio.sleep(100)
        status = (await workload_lab.kube.get(PODS, "crash", "default"))["status"]["containerStatuses"][0]
        assert 3 <= status["restartCount"] <= 5
        assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert status["lastState"]["terminated"]["exitCode"] == 1

    lab_run(body)


def test_init_containers_run_in_order_and_sidecars_stay(lab_run: Run) -> None:
    inits = [
        {"name": "first", "image": "busybox", "command": ["sh", "-c", "sleep 5"]},
        {"name": "side", "image": "nginx:1.25", "restartPolicy": "Always"},
    ]

    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(PODS, pod("p", initContainers=inits))
        await asyncio.sleep(4)
        status = (await workload_lab.kube.get(PODS, "p", "default"))["status"]
        assert status["phase"] == "Pending"
        assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"
        await asyncio.sleep(20)
        status = (await workload_lab.kube.get(PODS, "p", "default"))["status"]
        assert status["phase"] == "Running"
        assert [("running" in each["state"]) for each in status["initContainerStatuses"]] == [False, True]

    lab_run(body)


def test_evictions_respect_the_budget(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(PDBS, budget("web", maxUnavailable=1))
        await workload_lab.kube.create(DEPLOYMENTS, deployment())
        await workload_lab.available("web", 3)
        await asyncio.sleep(1)
        status = (await workload_lab.kube.get(PDBS, "web", "default"))["status"]
        assert (status["disruptionsAllowed"], status["desiredHealthy"], status["expectedPods"]) == (1, 2, 3)
        first, second, _ = await workload_lab.pods("web")
        await workload_lab.kube.evict(first["metadata"]["name"], "default")
        with pytest.raises(TooManyRequests):
            await workload_lab.kube.evict(second["metadata"]["name"], "default")
        await asyncio.sleep(30)
        await workload_lab.kube.evict(second["metadata"]["name"], "default")

    lab_run(body)


def test_a_service_has_the_addresses_of_its_ready_pods(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        service = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
        await workload_lab.kube.create(SERVICES, service, "default")
        await workload_lab.kube.create(DEPLOYMENTS, deployment())
        await workload_lab.available("web", 3)
        await asyncio.sleep(1)
        slices = (
            await workload_lab.kube.list(ENDPOINTSLICES, "default", labels="kubernetes.io/service-name=web")
        ).items
        found = {each["addresses"][0] for each in slices[0]["endpoints"] if each["conditions"]["ready"]}
        assert found == {each["status"]["podIP"] for each in await workload_lab.pods("web")}

    lab_run(body)


def test_a_namespace_goes_with_everything_in_it(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(NAMESPACES, {"metadata": {"name": "x"}})
        item = deployment()
        item["metadata"]["namespace"] = "x"
        await workload_lab.kube.create(DEPLOYMENTS, item)
        await asyncio.sleep(20)
        assert [each["metadata"]["name"] for each in (await workload_lab.kube.list(SERVICEACCOUNTS, "x")).items] == [
            "default"
        ]
        await workload_lab.kube.delete(NAMESPACES, "x")
        await asyncio.sleep(60)
        with pytest.raises(NotFound):
            await workload_lab.kube.get(NAMESPACES, "x")

    lab_run(body)


def test_the_same_seed_gives_the_same_run(lab_run: Run) -> None:
    workload_runs: list[list[Any]] = []

    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment(replicas=5))
        await workload_lab.available("web", 5)
        items = (await workload_lab.kube.list(CORE_EVENTS)).items
        workload_runs.append([(each["metadata"]["name"], each["message"], each["lastTimestamp"]) for each in items])

    lab_run(body, seed=5)
    lab_run(body, seed=5)
    assert workload_runs[0] == workload_runs[1]


def test_events_are_forgotten_after_an_hour(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment())
        await asyncio.sleep(3000)
        assert await workload_lab.events("ScalingReplicaSet")
        await asyncio.sleep(1200)
        assert not await workload_lab.events("ScalingReplicaSet")

    lab_run(body)
