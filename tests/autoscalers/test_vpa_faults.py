"""Random faults around the three programs: never more disruption than the tolerance allows, and none without a cause.

Metrics fail and stand still, the API server refuses requests, updaters die between two evictions and two of them run
with one lease, the admission controller is gone for minutes, its certificate expires and is replaced late, checkpoints
are corrupt when a recommender restarts. Each eviction is judged when it is asked for. `pytest -m slow` plays 200 seeds.
"""

from __future__ import annotations

import asyncio
import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail.autoscalers.vpa.api import CHECKPOINTS, VPAS
from dovetail.autoscalers.vpa.settings import ElectionSettings
from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.certificates import LIFETIME, make_certificate, service_names
from dovetail.kube.errors import NotFound
from dovetail.kube.lease import LeadershipLost
from dovetail.kube.resources import DEPLOYMENTS, PDBS
from dovetail.kube.transport import Request, Response
from dovetail.lab.server import LabServer, Middleware
from tests.autoscalers.test_vpa_lab import World, autoscaler, hamster, play
from tests.kube.scripted import status

WANTED = {"cpu": "587m", "memory": "250Mi"}
#: Seconds in which faults happen, and after which all is well again.
TROUBLE_S, PEACE_S = 400.0, 700.0
#: After this the admission controller's lease is stale; the updater looks at it once in every interval.
LEASE_TIMEOUT_S, UPDATER_INTERVAL_S = 60.0, 30.0


class CertificateFiles:
    """What a secret mounts into the admission controller: a certificate that may expire before its successor comes."""

    def __init__(self, folder: Path, expires: datetime) -> None:
        self._folder = folder
        self.expires = expires
        self.write(expires)

    def write(self, expires: datetime) -> None:
        made = make_certificate(service_names("vpa-webhook", "kube-system"), expires - LIFETIME)
        for name, text in (("ca", made.authorities), ("cert", made.certificate), ("key", made.key)):
            (self._folder / name).write_bytes(text)
        self.expires = expires

    @property
    def flags(self) -> dict[str, Any]:
        files = {f"{name}_file": str(self._folder / name) for name in ("ca", "cert", "key")}
        return {"certificate": None, "reload_cert": True, **files}


class Trouble:
    """Refuses requests by chance while it lasts, and judges every eviction: what had the pod, and what would it get?"""

    def __init__(self, chance: Chance, server: LabServer, clock: Clock, files: CertificateFiles) -> None:
        self.chance = chance
        self._files = files
        self.lasts = True
        #: While set, the metrics API repeats its last answer.
        self.is_stale = False
        self.evictions: list[str] = []
        self.mistakes: list[str] = []
        self._server = server
        self._clock = clock
        self._last: Response | None = None

    async def intercept(self, request: Request) -> Response | None:
        agent = request.headers.get("user-agent", "")
        ours = agent.startswith("vpa-") or "updater" in agent
        if self.lasts and ours and self.chance.random() < 0.1:
            return status(503, "ServiceUnavailable", "try again")
        if request.path.startswith("/apis/metrics.k8s.io"):
            if self.lasts and self.chance.random() < 0.3:
                return status(503, "ServiceUnavailable", "metrics are down")
            if self.is_stale and self._last is not None:
                return self._last
        if request.method == "POST" and request.path.endswith("/eviction"):
            name = request.path.split("/")[-2]
            self._judge(name)
            pod = self._server.cluster.get("", "pods", "default", name)
            if pod is not None and pod["metadata"]["uid"].encode() not in request.body:
                self.mistakes.append(f"{name} was evicted by its name: a pod that took its place would go as well")
        return None

    async def remember(self, request: Request) -> Response | None:
        """Before the metrics API itself: keeps its answer for when it stands still."""
        if not request.path.startswith("/apis/metrics.k8s.io") or self._answering is None:
            return None
        self._last = await self._answering(request)
        return self._last

    _answering: Middleware | None = None

    def watch(self, answering: Middleware) -> None:
        self._answering = answering

    def _judge(self, name: str) -> None:
        self.evictions.append(name)
        cluster = self._server.cluster
        pod = cluster.get("", "pods", "default", name)
        vpa = cluster.get("autoscaling.k8s.io", "verticalpodautoscalers", "default", "hamster-vpa")
        if pod is None or vpa is None:
            return
        recommended = (vpa.get("status") or {}).get("recommendation", {}).get("containerRecommendations") or [{}]
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        if requests == recommended[0].get("target"):
            self.mistakes.append(f"{name} has what is recommended: {requests}")
        lease = cluster.get("coordination.k8s.io", "leases", "kube-system", "vpa-admission-controller") or {}
        renewed = (lease.get("spec") or {}).get("renewTime") or (lease.get("metadata") or {}).get("creationTimestamp")
        age_s = (self._clock.now() - datetime.fromisoformat(renewed)).total_seconds() if renewed else math.inf
        if age_s > LEASE_TIMEOUT_S + UPDATER_INTERVAL_S:
            self.mistakes.append(f"{name} was evicted {age_s:.0f} s after the admission controller's last sign of life")
        expired_s = (self._clock.now() - self._files.expires).total_seconds()
        if expired_s > LEASE_TIMEOUT_S + UPDATER_INTERVAL_S:
            self.mistakes.append(f"{name} was evicted {expired_s:.0f} s after the webhook's certificate expired")


class Others:
    """The recommender and the admission controller, which die and come back by chance."""

    def __init__(self, world: World, chance: Chance, files: CertificateFiles) -> None:
        self._world = world
        self._files = files
        self._chance = chance
        self._recommender = world.start_recommender()
        #: In some runs it comes late: until then nothing may be evicted.
        self._admission = world.start_admission(**files.flags) if chance.random() < 0.6 else None

    async def disturb(self) -> None:
        """One second of faults."""
        if self._chance.random() < 0.005:
            self._recommender.cancel()
            await self._corrupt()
            self._recommender = self._world.start_recommender()
        if self._admission is not None and self._chance.random() < 0.005:
            self._admission.cancel()
            await asyncio.gather(self._admission, return_exceptions=True)
            self._admission = None
        elif self._admission is None and self._chance.random() < 0.01:
            self.mend()

    def mend(self) -> None:
        if self._admission is None:
            self._admission = self._world.start_admission(**self._files.flags)

    async def _corrupt(self) -> None:
        await asyncio.gather(self._recommender, return_exceptions=True)
        broken = {"status": {"version": "v3", "cpuHistogram": {"bucketWeights": {"9999": 1}, "totalWeight": -1}}}
        try:
            await self._world.kube.patch(CHECKPOINTS, "hamster-vpa-hamster", broken, "default", kind="merge")
        except NotFound:
            return  # none was saved yet


async def troubled(world: World, seed: int, folder: Path) -> None:
    chance = Chance(seed).child("vpa faults")
    assert world.lab.server is not None
    certificates = chance.child("certificates")
    lifetime_s = certificates.random() * TROUBLE_S if certificates.random() < 0.5 else 10 * TROUBLE_S
    successor_s = lifetime_s + certificates.random() * 300
    files = CertificateFiles(folder, world.lab.clock.now() + timedelta(seconds=lifetime_s))
    trouble = Trouble(chance.child("refusals"), world.lab.server, world.lab.clock, files)
    trouble.watch(world.lab.metrics.intercept)
    world.lab.server.middleware[:0] = [trouble.intercept, trouble.remember]
    replicas = 2 + int(chance.random() * 7)
    available = replicas - 1 if chance.random() < 0.5 else None
    election = ElectionSettings(enabled=True, name="vpa-updater")
    others = Others(world, chance.child("others"), files)
    updaters = [world.start_updater(name, election=election) for name in ("updater-a", "updater-b")]
    if available is not None:
        selector = {"matchLabels": {"app": "hamster"}}
        budget = {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"minAvailable": available, "selector": selector},
        }
        await world.kube.create(PDBS, budget)
    await world.kube.create(DEPLOYMENTS, hamster(replicas))
    await asyncio.sleep(40)
    await world.kube.create(VPAS, autoscaler())
    least = replicas
    for second in range(int(TROUBLE_S + PEACE_S)):
        await asyncio.sleep(1)
        if second == int(TROUBLE_S):
            trouble.lasts = trouble.is_stale = False
            others.mend()
        if second == int(successor_s):
            files.write(world.lab.clock.now() + LIFETIME)
        if trouble.lasts and chance.random() < 0.02:
            trouble.is_stale = not trouble.is_stale
        if trouble.lasts:
            await others.disturb()
        if trouble.lasts and chance.random() < 0.01:
            number = int(chance.random() * 2)
            updaters[number].cancel()
            await asyncio.gather(updaters[number], return_exceptions=True)
            updaters[number] = world.start_updater(f"updater-{'ab'[number]}{second}", election=election)
        for number, task in enumerate(updaters):
            if task.done() and not task.cancelled() and isinstance(task.exception(), LeadershipLost):
                world.tasks.remove(task)  # the program ended, as it should; its pod restarts it
                updaters[number] = world.start_updater(f"updater-{'ab'[number]}{second}", election=election)
        running = sum(_ready(pod) for pod in await world.pods())
        least = min(least, running)
    assert trouble.mistakes == []
    assert await world.requests() == [WANTED] * replicas
    allowed = max(1, int(replicas * 0.5))
    if available is not None:
        allowed = 1
    assert least >= replicas - allowed, f"{least} of {replicas} pods were left"
    assert len(trouble.evictions) >= replicas


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


@pytest.mark.parametrize("seed", range(4))
def test_faults_cost_time_and_nothing_else(seed: int, tmp_path: Path) -> None:
    play(lambda world: troubled(world, seed, tmp_path), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 200))
def test_two_hundred_seeds(seed: int, tmp_path: Path) -> None:
    play(lambda world: troubled(world, seed, tmp_path), seed=seed)
