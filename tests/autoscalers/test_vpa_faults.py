"""Random faults around the updater: it never disrupts more than its tolerance, keeps budgets, and ends its work.

Metrics fail and stand still, the API server refuses writes, updaters die between two evictions, and two of them run
with one lease. `pytest -m slow` plays 200 seeds.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail.autoscalers.vpa.api import VPAS
from dovetail.autoscalers.vpa.settings import ElectionSettings
from dovetail.chance import Chance
from dovetail.kube.resources import DEPLOYMENTS, PDBS
from dovetail.kube.transport import Request, Response
from tests.autoscalers.test_vpa_lab import World, autoscaler, hamster, play
from tests.kube.scripted import status

WANTED = {"cpu": "587m", "memory": "250Mi"}
#: Seconds in which faults happen, and after which all is well again.
TROUBLE_S, PEACE_S = 400.0, 700.0


class Trouble:
    """Refuses requests by chance while it lasts, and remembers which pods were evicted, and from which requests."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.lasts = True
        self.evictions: list[str] = []

    async def intercept(self, request: Request) -> Response | None:
        ours = request.headers.get("user-agent", "").startswith("vpa-") or "updater" in request.headers.get(
            "user-agent", ""
        )
        if self.lasts and ours and self.chance.random() < 0.1:
            return status(503, "ServiceUnavailable", "try again")
        if self.lasts and request.path.startswith("/apis/metrics.k8s.io") and self.chance.random() < 0.3:
            return status(503, "ServiceUnavailable", "metrics are down")
        if request.method == "POST" and request.path.endswith("/eviction"):
            self.evictions.append(request.path.split("/")[-2])
        return None


async def troubled(world: World, seed: int) -> None:
    chance = Chance(seed).child("vpa faults")
    trouble = Trouble(chance.child("refusals"))
    assert world.lab.server is not None
    world.lab.server.middleware.insert(0, trouble.intercept)
    replicas = 2 + int(chance.random() * 7)
    available = replicas - 1 if chance.random() < 0.5 else None
    election = ElectionSettings(enabled=True, name="vpa-updater")
    world.start_recommender()
    world.start_admission()
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
            trouble.lasts = False
        if trouble.lasts and chance.random() < 0.01:
            number = int(chance.random() * 2)
            updaters[number].cancel()
            await asyncio.gather(updaters[number], return_exceptions=True)
            updaters[number] = world.start_updater(f"updater-{'ab'[number]}{second}", election=election)
        running = sum(_ready(pod) for pod in await world.pods())
        least = min(least, running)
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
def test_faults_cost_time_and_nothing_else(seed: int) -> None:
    play(lambda world: troubled(world, seed), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 200))
def test_two_hundred_seeds(seed: int) -> None:
    play(lambda world: troubled(world, seed), seed=seed)
