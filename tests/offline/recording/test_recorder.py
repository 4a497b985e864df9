"""The recorder: what a cluster did is in the file, nothing is written to the cluster, and names can be hidden."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from dovetail.clock import run_virtual
from dovetail.kube.resources import DEPLOYMENTS, NODES, PODS
from dovetail.kube.transport import Request, Response, Transport
from dovetail.lab.cluster import Lab
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.offline.recorder import Recorder, RecorderSettings
from dovetail.offline.recording import Recording, Writer, kept, read
from dovetail.offline.recording.anonymity import Anonymiser
from dovetail.view.pods import workload
from tests.offline.recording.small import IDENTITY

DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "checkout", "namespace": "default", "labels": {"team": "payments"}},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "checkout"}},
        "template": {
            "metadata": {"labels": {"app": "checkout"}},
            "spec": {
                "nodeSelector": {"kubernetes.io/arch": "amd64"},
                "containers": [
                    {
                        "name": "till-container",
                        "image": "registry.acme.test/checkout:7",
                        "env": [{"name": "PASSWORD", "value": "hunter2"}],
                        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                    }
                ],
            },
        },
    },
}
Act = Callable[[Lab], Coroutine[Any, Any, None]]


class Counting:
    """Passes every request on and notes its method."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.methods: set[str] = set()

    async def send(self, request: Request) -> Response:
        self.methods.add(request.method)
        return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()


async def scale(lab: Lab) -> None:
    await lab.kube.create(DEPLOYMENTS, DEPLOYMENT)
    await asyncio.sleep(30)
    await lab.kube.patch(DEPLOYMENTS, "checkout", {"spec": {"replicas": 5}}, "default")
    await asyncio.sleep(30)
    await lab.kube.patch(DEPLOYMENTS, "checkout", {"spec": {"replicas": 1}}, "default")
    await asyncio.sleep(60)


def recorded(
    path: Path, act: Act = scale, anonymiser: Anonymiser | None = None
) -> tuple[Recording, list[dict[str, Any]], set[str]]:
    """A lab of two nodes in which something happens: its recording, its pods at the end, the methods that were used."""

    async def main() -> tuple[list[dict[str, Any]], set[str]]:
        async with Lab.embedded(3) as lab:
            await lab.nodes(2)
            kube = lab.client("recorder")
            counting = kube.transport = Counting(kube.transport)
            writer = Writer.create(path, lab.clock.now(), "lab", IDENTITY, anonymised=anonymiser is not None)
            recorder = Recorder(kube, writer, anonymiser=anonymiser, settings=RecorderSettings(usage_interval_s=20.0))
            lab.add(lambda _: recorder.run())
            await recorder.begun.wait()
            await act(lab)
            pods = (await lab.kube.list(PODS)).items
            writer.close(lab.clock.now())
            return pods, counting.methods

    pods, methods = run_virtual(main())
    return read(path), pods, methods


def test_what_happened_is_recorded_and_only_reads_are_sent(tmp_path: Path) -> None:
    recording, pods, methods = recorded(tmp_path / "lab.dvrec")
    assert methods == {"GET"}
    live = {pod["metadata"]["name"]: kept({"apiVersion": "v1", "kind": "Pod", **pod}) for pod in pods}
    at_the_end = [source for source in recording.objects_at(recording.end) if source["kind"] == "Pod"]
    assert {source["metadata"]["name"]: source for source in at_the_end} == live
    events = list(recording.events(recording.start, recording.end))
    created = [event for event in events if event.type == "ADDED" and event.object["kind"] == "Pod"]
    deleted = [event for event in events if event.type == "DELETED" and event.object["kind"] == "Pod"]
    assert (len(created), len(deleted), len(live)) == (5, 4, 1)
    assert {event.object["kind"] for event in events} >= {"Deployment", "ReplicaSet", "Pod", "Event"}
    usage = recording.usage_at(recording.end)
    assert {key.kind for key in usage} == {"Node", "Pod"}


def test_anonymised_nothing_of_the_cluster_can_be_read_and_its_structure_stays(tmp_path: Path) -> None:
    recording, pods, _ = recorded(tmp_path / "lab.dvrec", anonymiser=Anonymiser(b"salt"))
    objects = recording.objects_at(recording.end)
    text = msgspec.json.encode(
        [objects, [event.object for event in recording.events(recording.start, recording.end)]]
    ).decode()
    names = {pod["metadata"]["name"] for pod in pods} | {pod["metadata"]["uid"] for pod in pods}
    for secret in {"checkout", "payments", "acme", "hunter2", "10.0.0.10", "till-container", *names}:
        assert secret not in text, secret
    decoded = [msgspec.convert(source, Pod) for source in objects if source["kind"] == "Pod"]
    nodes = [msgspec.convert(source, Node) for source in objects if source["kind"] == "Node"]
    deployment = next(source for source in objects if source["kind"] == "Deployment")
    assert [pod.spec.node_name for pod in decoded] and decoded[0].spec.node_name in {n.metadata.name for n in nodes}
    assert decoded[0].spec.containers[0].resources.requests == {"cpu": "100m", "memory": "64Mi"}
    assert decoded[0].spec.node_selector == {"kubernetes.io/arch": "amd64"}
    assert workload(decoded[0]) == f"Deployment/{deployment['metadata']['name']}"
    assert dict(decoded[0].metadata.labels).items() >= deployment["spec"]["selector"]["matchLabels"].items()
    assert nodes[0].metadata.labels["node.kubernetes.io/instance-type"] == "m5.large"
    assert recording.header.anonymised


def test_another_salt_is_another_name() -> None:
    names = [Anonymiser(salt).name("web-7c9f-abcde") for salt in (b"a", b"a", b"b")]
    assert names[0] == names[1] != names[2]
    assert re.fullmatch(r"n[a-z2-7]{9}-n[a-z2-7]{9}-n[a-z2-7]{9}", names[0])
    assert Anonymiser(b"a").name("db-0").endswith("-0")
    assert Anonymiser(b"a").name("kube-system") == "kube-system"
    assert len(Anonymiser(b"a").name("a-" * 40 + "a")) <= 63


def test_what_went_while_the_recorder_was_away_is_deleted_when_it_resumes(tmp_path: Path) -> None:
    path = tmp_path / "lab.dvrec"

    async def record_for(lab: Lab, writer: Writer, seconds: float) -> None:
        running = asyncio.create_task(Recorder(lab.kube, writer).run())
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.wait([running])
        writer.close(lab.clock.now())

    async def main() -> None:
        async with Lab.embedded(3) as lab:
            await lab.nodes(2)
            await lab.kube.create(DEPLOYMENTS, DEPLOYMENT)
            await asyncio.sleep(20)
            await record_for(lab, Writer.create(path, lab.clock.now(), "lab", IDENTITY), 20)
            await lab.kube.delete(DEPLOYMENTS, "checkout", "default")
            other = {**DEPLOYMENT, "metadata": {"name": "second", "namespace": "default"}}
            await lab.kube.create(DEPLOYMENTS, other)
            await asyncio.sleep(60)
            await record_for(lab, Writer.resume(path, lab.clock.now()), 20)

    run_virtual(main())
    recording = read(path)
    kinds = [source["metadata"]["name"] for source in recording.objects_at(recording.end) if source["kind"] == "Pod"]
    assert len(kinds) == 3 and all(name.startswith("second-") for name in kinds)
    assert len(recording.gaps()) == 1


def test_a_rotated_file_begins_with_the_state_that_the_last_one_ended_with(tmp_path: Path) -> None:
    first, second = tmp_path / "lab.dvrec", tmp_path / "lab.1.dvrec"

    async def main() -> None:
        async with Lab.embedded(3) as lab:
            await lab.nodes(2)
            writer = Writer.create(first, lab.clock.now(), "lab", IDENTITY)
            recorder = Recorder(lab.kube, writer)
            lab.add(lambda _: recorder.run())
            await recorder.begun.wait()
            await lab.kube.create(DEPLOYMENTS, DEPLOYMENT)
            await asyncio.sleep(30)
            recorder.writer = writer.rotated(second, bytes(reversed(IDENTITY)), lab.clock.now())
            await asyncio.sleep(1)
            await lab.kube.patch(DEPLOYMENTS, "checkout", {"spec": {"replicas": 4}}, "default")
            await asyncio.sleep(30)
            recorder.writer.close(lab.clock.now())

    run_virtual(main())
    before, after = read(first), read(second)
    assert before.closed and after.closed and after.start == before.end
    assert before.objects_at(before.end) == after.objects_at(after.start)
    pods = [source for source in after.objects_at(after.end) if source["kind"] == "Pod"]
    assert len(pods) == 4


def test_a_kind_that_is_not_served_is_left_out(tmp_path: Path) -> None:
    """A cluster without Karpenter's kinds is recorded all the same."""
    recording, _, _ = recorded(tmp_path / "lab.dvrec")
    kinds = {source["kind"] for source in recording.objects_at(recording.end)}
    assert NODES.kind in kinds and "NodePool" not in kinds
