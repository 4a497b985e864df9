"""The fast transport of large simulations: shorter, and the pods are the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dovetail.kube.decode import decode
from dovetail.kube.errors import Conflict, Invalid
from dovetail.kube.events import EventRecorder, InvolvedObject
from dovetail.kube.resources import CORE_EVENTS, DEPLOYMENTS, JOBS, LEASES, NAMESPACES, NODES, PODS
from dovetail.lab.cluster import LabParts
from dovetail.lab.controllers.views import PodFields
from dovetail.lab.kubelet.kubelets import ReportingDetail
from dovetail.lab.kubelet.views import KubeletPod
from dovetail.lab.pushed_changes import ObjectChange
from dovetail.model.pods import Pod
from tests.lab.workloads.manifests import deployment, job

Run = Callable[..., None]
LEAN = LabParts(quiet=True, faults=False, pace=ReportingDetail(lean=True, heartbeat_seconds=None, grid_seconds=0.5))
FULL = LabParts(faults=False, pace=ReportingDetail(heartbeat_seconds=None))


def _shape(pod: dict[str, Any]) -> Any:
    """What does not vary between two pods of one template."""
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    conditions = [(each["type"], each["status"]) for each in pod["status"]["conditions"]]
    labels = {key: value for key, value in pod["metadata"]["labels"].items() if "topology" not in key}
    return spec, conditions, labels, pod["status"]["phase"], pod["metadata"]["ownerReferences"][0]["kind"]


def test_copied_pods_are_like_the_one_the_server_made(lab_run: Run) -> None:
    shapes: list[Any] = []

    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment(replicas=6))
        await workload_lab.available("web", 6)
        shapes.extend(_shape(pod) for pod in await workload_lab.pods("web"))

    lab_run(body, parts=LEAN)
    lab_run(body)
    assert len(shapes) == 12
    assert all(shape == shapes[0] for shape in shapes)


def test_scaling_down_and_deleting_leaves_nothing(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment(replicas=8))
        await workload_lab.available("web", 8)
        await workload_lab.kube.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}}, "default")
        await asyncio.sleep(60)
        assert len(await workload_lab.pods("web")) == 3
        await workload_lab.kube.delete(DEPLOYMENTS, "web", "default", propagation="Background")
        await asyncio.sleep(60)
        assert await workload_lab.pods("web") == []

    lab_run(body, parts=LEAN)


def test_a_namespace_that_goes_takes_no_copies_any_more(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(NAMESPACES, {"metadata": {"name": "x"}})
        item = deployment(replicas=4)
        item["metadata"]["namespace"] = "x"
        await workload_lab.kube.create(DEPLOYMENTS, item)
        await asyncio.sleep(20)
        await workload_lab.kube.delete(NAMESPACES, "x")
        await asyncio.sleep(60)
        assert (await workload_lab.kube.list(PODS, "x")).items == []

    lab_run(body, parts=LEAN)


def test_an_unschedulable_pod_gets_the_same_condition(lab_run: Run) -> None:
    found: list[Any] = []

    async def body(workload_lab: Any) -> None:
        item = deployment(replicas=1)
        item["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500"}}
        await workload_lab.kube.create(DEPLOYMENTS, item)
        await asyncio.sleep(30)
        (pod,) = await workload_lab.pods("web")
        events = (await workload_lab.kube.list(CORE_EVENTS, "default", fields="reason=FailedScheduling")).items
        (event,) = [each for each in events if each["involvedObject"]["name"] == pod["metadata"]["name"]]
        unlike = {"metadata", "involvedObject"}
        found.append((pod["status"], {key: value for key, value in event.items() if key not in unlike}))

    lab_run(body, parts=LEAN)
    lab_run(body, parts=msgspec.structs.replace(LEAN, faults=True))
    assert found[0] == found[1]


def test_an_event_with_notes_is_kept_as_the_server_would_keep_it(lab_run: Run) -> None:
    found: list[Any] = []

    async def body(workload_lab: Any) -> None:
        recorder = EventRecorder(workload_lab.kube, "test")
        about = InvolvedObject("Node", "n", uid="u")
        assert recorder.record(about, "Normal", "Recorded", "once", {"dovetail.sh/decision": "d-1"})
        task = asyncio.ensure_future(recorder.run())
        await recorder.flush()
        task.cancel()
        (event,) = (await workload_lab.kube.list(CORE_EVENTS, "default", fields="reason=Recorded")).items
        notes = event["metadata"].pop("annotations")
        unlike = {"metadata", "firstTimestamp", "lastTimestamp"}
        found.append((notes, {key: value for key, value in event.items() if key not in unlike}))

    lab_run(body, parts=LEAN)
    lab_run(body)
    assert found[0] == found[1]


def test_a_patched_node_is_as_the_server_would_leave_it(lab_run: Run) -> None:
    found: list[Any] = []

    async def body(workload_lab: Any) -> None:
        (node, *_) = (await workload_lab.kube.list(NODES)).items
        name, version = node["metadata"]["name"], node["metadata"]["resourceVersion"]
        taint = {"key": "a", "effect": "NoSchedule"}
        change = {"metadata": {"resourceVersion": version, "labels": {"a": "b"}}, "spec": {"taints": [taint]}}
        first = await workload_lab.kube.patch(NODES, name, change)
        with pytest.raises(Conflict):
            await workload_lab.kube.patch(NODES, name, change)
        again = await workload_lab.kube.patch(NODES, name, {"metadata": {"labels": {"a": "b"}}})
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        gone = await workload_lab.kube.patch(
            NODES, name, {"metadata": {"labels": {"a": None}}, "spec": {"taints": None}}
        )
        unlike = {"uid", "resourceVersion", "creationTimestamp", "managedFields"}
        for each in (first, gone):
            metadata = {key: value for key, value in each["metadata"].items() if key not in unlike}
            found.append((metadata, each["spec"]))

    lab_run(body, parts=LEAN)
    lab_run(body)
    assert found[:2] == found[2:]


async def _life(workload_lab: Any) -> None:
    """Pods that run, roll, are too large, end, and go."""
    await workload_lab.kube.create(DEPLOYMENTS, deployment(replicas=6))
    large = deployment(name="large", replicas=2)
    large["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500"}}
    await workload_lab.kube.create(DEPLOYMENTS, large)
    await workload_lab.kube.create(JOBS, job("work", ["sleep", "5"], completions=3, parallelism=2))
    await workload_lab.available("web", 6)
    image = {"containers": [{"name": "web", "image": "nginx:1.26"}]}
    body = {"spec": {"replicas": 4, "template": {"spec": image}}}
    await workload_lab.kube.patch(DEPLOYMENTS, "web", body, "default", kind="strategic")
    await workload_lab.available("web", 4)
    await workload_lab.kube.delete(DEPLOYMENTS, "large", "default", propagation="Background")
    await asyncio.sleep(60)


@pytest.mark.parametrize("parts", [LEAN, FULL], ids=["low", "high"])
def test_who_hears_only_what_is_new_sees_what_a_reader_would(lab_run: Run, parts: LabParts) -> None:
    """A view that was never decoded equals the one that is decoded from the object's bytes."""
    mirrors: dict[type[Any], dict[str, Any]] = {PodFields: {}, KubeletPod: {}, Pod: {}}
    heard: list[str] = []

    def subscriber(news: ObjectChange) -> None:
        heard.append(news.key)
        for kind, cluster_state in mirrors.items():
            cluster_state[news.key] = news.view(kind, cluster_state.get(news.key))
            assert cluster_state[news.key] == decode(news.raw, kind)

    async def body(workload_lab: Any) -> None:
        workload_lab.lab.transport.subscribe("", "pods", subscriber)
        await _life(workload_lab)

    lab_run(body, parts=parts)
    assert len(heard) > 60


def test_pods_in_full_detail_end_up_the_same_by_either_way(lab_run: Run) -> None:
    found: list[Any] = []

    async def body(workload_lab: Any) -> None:
        await _life(workload_lab)
        pods = await workload_lab.pods("web")
        shown = sorted((pod["spec"]["nodeName"], *_as_kept(pod)) for pod in pods)
        found.append(shown)

    lab_run(body, parts=FULL)
    lab_run(body, parts=msgspec.structs.replace(FULL, faults=True))
    assert len(found[0]) == 4
    assert found[0] == found[1]


def _as_kept(pod: dict[str, Any]) -> tuple[str, str]:
    """A pod but for what is its own: names, addresses and the instants of its life."""
    status = dict(pod["status"])
    for own in ("podIP", "podIPs", "startTime"):
        status.pop(own)
    conditions = [{k: v for k, v in each.items() if k != "lastTransitionTime"} for each in status.pop("conditions")]
    of_its_run = ("state", "containerID")
    containers = [{k: v for k, v in each.items() if k not in of_its_run} for each in status.pop("containerStatuses")]
    metadata = {k: v for k, v in pod["metadata"].items() if k in ("labels", "generateName", "namespace", "generation")}
    spec = {k: v for k, v in pod["spec"].items() if k not in ("nodeName", "volumes", "containers")}
    texts = [msgspec.json.encode(part, order="deterministic").decode() for part in (metadata, spec, status)]
    return "".join(texts), msgspec.json.encode([conditions, containers], order="deterministic").decode()


def test_a_lease_is_renewed_as_by_the_usual_way(lab_run: Run) -> None:
    """Same spec, next version; an older version is a conflict; another label and a wrong value take the usual way."""
    seen: list[list[dict[str, Any]]] = []

    async def body(workload_lab: Any) -> None:
        kube, leases = workload_lab.kube, list[dict[str, Any]]()
        await kube.create(LEASES, {"metadata": {"name": "a", "namespace": "default"}, "spec": {}})
        for second in range(3):
            lease, time = await kube.get(LEASES, "a", "default"), f"2026-01-01T00:00:0{second}.000000Z"
            spec = {"holderIdentity": "b", "leaseDurationSeconds": 15, "renewTime": time}
            renewed = await kube.update(LEASES, {**lease, "spec": spec})
            assert int(renewed["metadata"]["resourceVersion"]) > int(lease["metadata"]["resourceVersion"])
            assert (await kube.get(LEASES, "a", "default"))["spec"] == spec
            same = await kube.update(LEASES, {**renewed, "spec": spec})
            assert same["metadata"]["resourceVersion"] == renewed["metadata"]["resourceVersion"]
            with pytest.raises(Conflict):
                await kube.update(LEASES, {**lease, "spec": {**spec, "holderIdentity": "c"}})
            leases.append(renewed)
        last = leases[-1]
        leases.append(await kube.update(LEASES, {**last, "metadata": {**last["metadata"], "labels": {"team": "x"}}}))
        with pytest.raises(Invalid):
            await kube.update(LEASES, {**leases[-1], "spec": {"leaseDurationSeconds": 0, "holderIdentity": "b"}})
        for lease in leases:
            for own in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
                lease["metadata"].pop(own, None)
        seen.append(leases)

    lab_run(body, parts=LEAN)
    lab_run(body)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 4
