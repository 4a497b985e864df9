"""Programs in pods: they run with their pod, write its log, answer its probes, crash, and stop with it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from dovetail.autoscalers.vpa.crds import definitions
from dovetail.autoscalers.vpa.manifests import manifests
from dovetail.kube.resources import CONFIGMAPS, CORE_EVENTS, DEPLOYMENTS, LEASES, PODS
from dovetail.lab.programs.registry import PROGRAMS, find
from tests.lab.programs.program_pods import ProgramLab, deployment, is_ready, play

RECOMMENDER = "registry.k8s.io/autoscaling/vpa-recommender:1.6.0"
KARPENTER = "public.ecr.aws/karpenter/controller:1.9.0@sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("image", "command", "args", "program", "rest"),
    [
        (KARPENTER, (), ("--cluster-name=a",), "karpenter", ("--cluster-name=a",)),
        ("localhost:5000/dovetail/controller:dev", (), ("run", "--region", "b"), "karpenter", ("--region", "b")),
        ("dovetail/controller:1", ("dovetail", "vpa", "updater"), ("--v=4",), "updater", ("--v=4",)),
        (
            "registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.0",
            ("./cluster-autoscaler", "--v=4"),
            (),
            "cluster-autoscaler",
            ("--v=4",),
        ),
        (RECOMMENDER, ("./recommender",), ("--v=4",), "recommender", ("--v=4",)),
        ("602401143452.dkr.ecr.us-west-2.amazonaws.com/amazon-k8s-cni:v1.20", (), (), "aws-node", ()),
    ],
)
def test_an_image_is_known_from_any_registry(
    image: str, command: tuple[str, ...], args: tuple[str, ...], program: str, rest: tuple[str, ...]
) -> None:
    assert find(image, command, args) == (PROGRAMS[program], rest)


@pytest.mark.parametrize(
    ("image", "command", "args"),
    [
        ("nginx:1.27", (), ()),
        ("example.com/controller:1", (), ("run",)),
        (RECOMMENDER, ("sleep", "600"), ()),
        ("dovetail/controller:1", (), ("version",)),
    ],
)
def test_other_images_and_commands_are_modelled(image: str, command: tuple[str, ...], args: tuple[str, ...]) -> None:
    assert find(image, command, args) is None


def test_two_replicas_elect_one_leader_and_a_deleted_leader_is_followed() -> None:
    async def body(world: ProgramLab) -> None:
        await world.apply([*_vpa_definitions(), *_vpa("updater")])
        await world.kube.patch(
            DEPLOYMENTS,
            "vpa-updater",
            [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--leader-elect=true"}],
            "kube-system",
            kind="json",
        )
        await world.scale("vpa-updater", 2)

        async def leader() -> str:
            leases = (await world.kube.list(LEASES, "kube-system")).items
            held = {lease["metadata"]["name"]: lease["spec"].get("holderIdentity", "") for lease in leases}
            return str(held.get("vpa-updater", ""))

        async def elected() -> bool:
            return bool(await leader())

        pods = {pod["metadata"]["name"] for pod in await world.ready(2, "app=vpa-updater")}
        await world.until(elected)
        first = await leader()
        assert first in pods
        await world.kube.delete(PODS, first, "kube-system")

        async def followed() -> bool:
            return await leader() not in ("", first)

        await world.until(followed)
        await world.scale("vpa-updater", 0)
        await world.ready(0, "app=vpa-updater")
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("program ")]

    play(body)


def test_a_program_that_ends_is_restarted_with_a_growing_pause() -> None:
    """Without AWS the autoscaler cannot start: its last line says so, also in the log of the run before."""

    async def body(world: ProgramLab) -> None:
        await world.apply([deployment("karpenter", KARPENTER, args=["--cluster-name=lab"])])

        async def looping() -> bool:
            pods = await world.pods(labels="app=karpenter")
            statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", ())]
            return any(
                status["restartCount"] >= 2 and status["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff"
                for status in statuses
            )

        await world.until(looping, 300)
        (pod,) = await world.pods(labels="app=karpenter")
        (status,) = pod["status"]["containerStatuses"]
        assert status["lastState"]["terminated"]["exitCode"] == 2
        assert not is_ready(pod)
        assert "this lab has no AWS" in await world.log(pod["metadata"]["name"])
        assert "this lab has no AWS" in await world.log(pod["metadata"]["name"], previous="true")
        events = (await world.kube.list(CORE_EVENTS, "kube-system")).items
        assert any(event["reason"] == "BackOff" for event in events)

    play(body)


def test_an_unknown_flag_is_named_in_the_log() -> None:
    async def body(world: ProgramLab) -> None:
        await world.apply([deployment("recommender", RECOMMENDER, args=["--recomender-interval=1m"])])

        async def crashed() -> bool:
            pods = await world.pods(labels="app=recommender")
            return any(s["restartCount"] for pod in pods for s in pod["status"].get("containerStatuses", ()))

        await world.until(crashed)
        (pod,) = await world.pods(labels="app=recommender")
        assert "recomender-interval" in await world.log(pod["metadata"]["name"])

    play(body)


def test_the_log_is_followed_until_the_pod_ends() -> None:
    async def body(world: ProgramLab) -> None:
        await world.apply([*_vpa_definitions(), *_vpa("recommender")])
        (pod,) = await world.ready(1, "app=vpa-recommender")
        name = pod["metadata"]["name"]
        response = await world.request_log(name, follow="true", tailLines="1")
        assert response.stream is not None
        pieces: list[bytes] = []

        async def read(stream: Any) -> None:
            async with aclosing(stream):
                async for piece in stream:
                    pieces.append(piece)

        reading = asyncio.ensure_future(read(response.stream))
        await asyncio.sleep(300)
        assert not reading.done()
        assert b"".join(pieces)
        await world.scale("vpa-recommender", 0)
        await asyncio.wait_for(reading, 60)

    play(body)


def test_the_log_of_a_modelled_container_is_followed_until_it_ends() -> None:
    async def body(world: ProgramLab) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "sleeper", "namespace": "default"},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "busybox", "command": ["sh", "-c", "echo hello; sleep 60"]}],
            },
        }
        await world.apply([pod])

        async def running() -> bool:
            return (await world.pods("default"))[0].get("status", {}).get("phase") == "Running"

        await world.until(running)
        began = world.lab.clock.monotonic()
        response = await world.request_log("sleeper", "default", follow="true")
        assert response.stream is not None
        pieces = [piece async for piece in response.stream]
        assert b"".join(pieces) == b"hello\n"
        assert 50 < world.lab.clock.monotonic() - began < 70

    play(body)


def test_the_environment_comes_from_fields_config_maps_and_other_variables() -> None:
    """The admission controller registers in the namespace that its environment names."""

    async def body(world: ProgramLab) -> None:
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "names", "namespace": "kube-system"}}
        await world.kube.create(CONFIGMAPS, {**config, "data": {"service": "vpa-hook"}}, "kube-system")
        env = [
            {"name": "SERVICE", "valueFrom": {"configMapKeyRef": {"name": "names", "key": "service"}}},
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ]
        image = "registry.k8s.io/autoscaling/vpa-admission-controller:1.6.0"
        container = {"args": ["--webhook-service=$(SERVICE)"], "env": env}
        made = deployment("vpa-admission-controller", image, **container)
        made["spec"]["template"]["spec"]["serviceAccountName"] = "vpa-admission-controller"
        accounts = [item for item in _vpa("admission-controller") if item["kind"] != "Deployment"]
        await world.apply([*_vpa_definitions(), *accounts, made])
        assert world.lab.server is not None
        services = world.lab.server.local_services

        async def serving() -> bool:
            return ("kube-system", "vpa-hook") in services

        await world.until(serving)

    play(body)


def test_readiness_is_the_state_of_the_program() -> None:
    """A probe of a port that the program does not serve fails, and liveness restarts the container."""

    async def body(world: ProgramLab) -> None:
        probe = {"httpGet": {"path": "/health-check", "port": 8942}, "periodSeconds": 5}
        elsewhere = {"httpGet": {"path": "/health-check", "port": 9999}, "periodSeconds": 5, "failureThreshold": 2}
        await world.apply(
            [
                *_vpa_definitions(),
                deployment("good", RECOMMENDER, readinessProbe=probe, livenessProbe=probe),
                deployment("unready", RECOMMENDER, readinessProbe=elsewhere),
                deployment("sick", RECOMMENDER, livenessProbe=elsewhere),
            ]
        )
        await world.ready(1, "app=good")
        await asyncio.sleep(60)
        (good,) = await world.pods(labels="app=good")
        (unready,) = await world.pods(labels="app=unready")
        (sick,) = await world.pods(labels="app=sick")
        assert is_ready(good)
        assert good["status"]["containerStatuses"][0]["restartCount"] == 0
        assert not is_ready(unready)
        assert sick["status"]["containerStatuses"][0]["restartCount"] > 0
        events = [event["message"] for event in (await world.kube.list(CORE_EVENTS, "kube-system")).items]
        assert any("connection refused" in message for message in events)

    play(body)


def test_a_program_ends_with_its_instance_and_runs_on_another_node() -> None:
    async def body(world: ProgramLab) -> None:
        await world.apply([*_vpa_definitions(), *_vpa("recommender")])
        (pod,) = await world.ready(1, "app=vpa-recommender")
        world.lab.fleet.vanish(pod["spec"]["nodeName"])
        names = [task.get_name() for task in asyncio.all_tasks()]
        await asyncio.sleep(0)
        assert f"program kube-system/{pod['metadata']['name']}/recommender" in names
        await asyncio.sleep(1)
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert f"program kube-system/{pod['metadata']['name']}/recommender" not in names

        async def elsewhere() -> bool:
            pods = await world.pods(labels="app=vpa-recommender")
            return any(is_ready(item) and item["spec"]["nodeName"] != pod["spec"]["nodeName"] for item in pods)

        await world.until(elsewhere, 900)

    play(body)


def _vpa_definitions() -> list[dict[str, Any]]:
    return definitions()


def _vpa(program: str) -> list[dict[str, Any]]:
    """What installs VPA, with one of its three Deployments."""
    objects = manifests("dovetail/controller", "1", "kube-system")
    return [item for item in objects if item["kind"] != "Deployment" or item["metadata"]["name"] == f"vpa-{program}"]


def test_a_program_waits_until_the_labs_aws_answers() -> None:
    """A pod that a lab kept from an earlier start runs again before its AWS does."""

    async def body(world: ProgramLab) -> None:
        assert world.lab.programs is not None
        world.lab.programs.aws_ready = asyncio.Event()
        await world.apply([deployment("proxy", "registry.k8s.io/kube-proxy:v1.36.0")])
        await asyncio.sleep(30)
        (pod,) = await world.pods("kube-system", "app=proxy")
        assert await world.log(pod["metadata"]["name"]) == ""
        world.lab.programs.aws_ready.set()
        await asyncio.sleep(5)
        assert "iptables" in await world.log(pod["metadata"]["name"])
        (pod,) = await world.pods("kube-system", "app=proxy")
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0

    play(body)
