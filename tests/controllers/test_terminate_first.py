"""A full capacity reservation has no capacity for a replacement: with the gate the old node is terminated first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.controllers.settings import Settings
from dovetail.kube import resources as kinds

RunScenario = Callable[..., None]
RESERVATION = "karpenter.k8s.aws/capacity-reservation-id"
STILL = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}
RESERVED = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["reserved"]}]


def one_reserved_instance() -> list[dict[str, Any]]:
    """One type, and one instance of it in a reservation."""
    return [
        {
            "name": "m.large",
            "capacity": {"cpu": "2", "memory": "8Gi", "pods": "58", "ephemeral-storage": "20Gi"},
            "overhead": {"cpu": "100m", "memory": "500Mi"},
            "labels": {"kubernetes.io/arch": ["amd64"], "kubernetes.io/os": ["linux"]},
            "offerings": [
                {
                    "zone": "a",
                    "capacityType": "reserved",
                    "price": 0.0,
                    "reservationId": "cr-1",
                    "reservationCapacity": 1,
                    "labels": {RESERVATION: "cr-1"},
                }
            ],
        }
    ]


@pytest.mark.parametrize("open_", [True, False])
@pytest.mark.parametrize("static", [True, False])
def test_drift_on_a_full_reservation(run_scenario: RunScenario, open_: bool, static: bool) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(requirements=RESERVED, disruption=STILL, **({"replicas": 1} if static else {}))
        world.start()
        if not static:
            await world.pods(1)

        async def up() -> bool:
            claims = await world.list(kinds.NODECLAIMS)
            states = [await world.conditions(claim) for claim in claims]
            return len(states) == 1 and states[0].get("Initialized", "").startswith("True")

        await world.until(up, within=200)
        await asyncio.sleep(30)
        (old,) = [claim["metadata"]["name"] for claim in await world.list(kinds.NODECLAIMS)]
        label = {"spec": {"template": {"metadata": {"labels": {"team": "shop"}}}}}
        await world.kube.patch(kinds.NODEPOOLS, "default", label)
        await asyncio.sleep(300)
        names = [claim["metadata"]["name"] for claim in await world.list(kinds.NODECLAIMS)]
        decisions = [line["decision"] for line in world.logged("disrupting node(s)")]
        if open_:
            assert old not in names and decisions == ["terminate-first"]
        elif not static:
            assert names == [old] and decisions == []

    gates = {**Settings().feature_gates, "StaticCapacity": True, "TerminateFirstDrift": open_}
    run_scenario(scenario, sold=one_reserved_instance(), feature_gates=gates)
