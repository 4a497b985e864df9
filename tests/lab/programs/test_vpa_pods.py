"""The hamster walk-through with the three programs of VPA as pods, under the roles of their manifests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import structlog

from dovetail.autoscalers.vpa.api import VPAS
from dovetail.autoscalers.vpa.crds import definitions
from dovetail.autoscalers.vpa.manifests import manifests
from dovetail.cli.terminal import quiet_logs
from dovetail.kube import log
from dovetail.kube.resources import DEPLOYMENTS, PODS, Resource
from tests.autoscalers.test_vpa_lab import autoscaler, hamster
from tests.lab.programs.program_pods import ProgramLab, play

CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)


async def _requests(world: ProgramLab) -> list[dict[str, str]]:
    items = (await world.kube.list(PODS, "default", labels="app=hamster")).items
    live = [item for item in items if "deletionTimestamp" not in item["metadata"]]
    return [pod["spec"]["containers"][0]["resources"]["requests"] for pod in live]


def test_the_hamster_gets_what_it_uses_from_three_pods() -> None:
    async def body(world: ProgramLab) -> None:
        await world.apply([*definitions(), *manifests("dovetail/controller", "1", "kube-system")])
        for name in ("recommender", "updater", "admission-controller"):
            await world.ready(1, f"app=vpa-{name}")
        await asyncio.sleep(25)
        await world.kube.create(DEPLOYMENTS, hamster())
        await world.kube.create(VPAS, autoscaler())
        await asyncio.sleep(600)
        assert await _requests(world) == [{"cpu": "587m", "memory": "250Mi"}] * 2

    play(body, nodes=3)


def test_a_program_may_do_what_its_service_account_may() -> None:
    """Without the binding of its role the recommender cannot read; its log says what is forbidden to which account."""

    async def body(world: ProgramLab) -> None:
        await world.apply([*definitions(), *manifests("dovetail/controller", "1", "kube-system")])
        for binding in (await world.kube.list(CLUSTER_ROLE_BINDINGS)).items:
            subjects = [subject.get("name", "") for subject in binding.get("subjects") or ()]
            if "vpa-recommender" in subjects:
                await world.kube.delete(CLUSTER_ROLE_BINDINGS, binding["metadata"]["name"])
        (pod,) = await world.ready(1, "app=vpa-recommender")
        await asyncio.sleep(120)
        log = await world.log(pod["metadata"]["name"])
        assert "system:serviceaccount:kube-system:vpa-recommender" in log
        assert "cannot" in log

    play(body)


@pytest.fixture
def logs_of_up() -> Iterator[None]:
    """Logging as `dovetail up` sets it."""
    before = structlog.get_config()
    quiet_logs(programs=True)
    yield
    log.silence(False)
    structlog.configure(**before)


@pytest.mark.usefixtures("logs_of_up")
def test_the_log_of_the_updater_says_why_a_pod_is_not_updated() -> None:
    """Nothing else says it, so `kubectl logs` must, also where the lab keeps its own screen quiet."""

    async def body(world: ProgramLab) -> None:
        await world.apply([*definitions(), *manifests("dovetail/controller", "1", "kube-system")])
        for name in ("recommender", "updater", "admission-controller"):
            await world.ready(1, f"app=vpa-{name}")
        await asyncio.sleep(25)
        await world.kube.create(DEPLOYMENTS, hamster(1))
        await world.kube.create(VPAS, autoscaler())
        await asyncio.sleep(150)
        (pod,) = await world.ready(1, "app=vpa-updater")
        assert "Vertical Pod Autoscaler Updater" in (said := await world.log(pod["metadata"]["name"]))
        assert "Too few replicas" in said
        await world.kube.patch(
            VPAS, "hamster-vpa", {"spec": {"updatePolicy": {"updateMode": "Recreate", "minReplicas": 1}}}, "default"
        )
        await asyncio.sleep(180)
        said = await world.log(pod["metadata"]["name"])
        assert "Evicting pod" in said
        assert "Not updating a short-lived pod, request within recommended range" in said  # a line of --v=4

    play(body, nodes=3)
