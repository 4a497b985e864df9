"""The programs do with the roles of our manifests whatever they do: as their service accounts, nothing is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import yaml

from dovetail.autoscalers.vpa import admission_controller, recommender, updater
from dovetail.autoscalers.vpa.api import VPAS
from dovetail.autoscalers.vpa.manifests import DEFAULT_IMAGE, manifests
from dovetail.autoscalers.vpa.settings import AdmissionSettings, ElectionSettings, RecommenderSettings, UpdaterSettings
from dovetail.kube.client import Kube
from dovetail.kube.resources import DEPLOYMENTS, Resource
from dovetail.kube.transport import Request, Response
from dovetail.lab.webhook_services import in_process
from tests.autoscalers.test_vpa_lab import World, autoscaler, hamster, play

_SCOPES = {"ClusterRole": False, "ClusterRoleBinding": False, "Role": True, "RoleBinding": True}


class AsServiceAccount:
    """A transport whose requests come from a service account; it remembers what it was refused."""

    def __init__(self, inner: Any, account: str) -> None:
        self._inner = inner
        self._account = account
        self.refused: list[str] = []

    async def send(self, request: Request) -> Response:
        headers = {**request.headers, "impersonate-user": f"system:serviceaccount:kube-system:{self._account}"}
        response: Response = await self._inner.send(msgspec.structs.replace(request, headers=headers))
        if response.status == 403:
            self.refused.append(f"{request.method} {request.path}")
        return response

    async def close(self) -> None:
        """The lab closes its own transport."""


def test_the_roles_of_the_manifests_suffice() -> None:
    async def body(world: World) -> None:
        for item in yaml.safe_load_all(yaml.safe_dump_all(manifests(DEFAULT_IMAGE, "test"))):
            if item["kind"] in _SCOPES:
                group = "rbac.authorization.k8s.io"
                resource = Resource(group, "v1", f"{item['kind'].lower()}s", item["kind"], _SCOPES[item["kind"]])
                await world.kube.create(resource, item)
        lab = world.lab
        accounts = {name: AsServiceAccount(lab.transport, f"vpa-{name}") for name in
                    ("recommender", "updater", "admission-controller")}  # fmt: skip

        def client(name: str) -> Kube:
            return Kube(
                accounts[name], lab.clock, chance=lab.chance.child(name), manager=name, user_agent=f"vpa-{name}"
            )

        assert lab.server is not None
        recommending = RecommenderSettings(
            interval_s=15.0,
            checkpoints_gc_interval_s=60.0,
            election=ElectionSettings(enabled=True, name="vpa-recommender-lease"),
        )
        updating = UpdaterSettings(interval_s=30.0, election=ElectionSettings(enabled=True, name="vpa-updater"))
        serve = in_process(lab.server, "kube-system", "vpa-webhook")
        world.start(recommender.run(recommending, client("recommender"), lab.clock))
        world.start(updater.run(updating, client("updater"), lab.clock))
        admission = admission_controller.run(
            AdmissionSettings(), client("admission-controller"), lab.clock, serve=serve
        )
        world.start(admission)
        await asyncio.sleep(25)
        await world.kube.create(DEPLOYMENTS, hamster(replicas=3))
        await world.kube.create(VPAS, autoscaler())
        await asyncio.sleep(200)
        assert (await world.requests())[0] == {"cpu": "587m", "memory": "250Mi"}
        policy = {"updatePolicy": {"updateMode": "InPlaceOrRecreate"}}
        policies = [{"containerName": "*", "maxAllowed": {"cpu": "300m"}}]
        changed = {"spec": {**policy, "resourcePolicy": {"containerPolicies": policies}}}
        await world.kube.patch(VPAS, "hamster-vpa", changed, "default")
        await asyncio.sleep(200)
        assert await world.events("InPlaceResizedByVPA") > 0
        await world.kube.delete(VPAS, "hamster-vpa", "default")
        await asyncio.sleep(120)
        assert {name: account.refused for name, account in accounts.items()} == {name: [] for name in accounts}

    play(body)
