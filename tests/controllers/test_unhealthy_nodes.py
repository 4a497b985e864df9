"""Instances whose status checks fail are polled as long as the process runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from dovetail.cloud.provider import CloudError, Interruption, Remedy
from dovetail.controllers.interruption import DENIED_POLL_INTERVAL_S
from dovetail.kube import resources as kinds

RunScenario = Callable[..., None]


def test_credentials_that_lapse_for_a_moment_do_not_end_the_polling_of_unhealthy_instances(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: Any) -> None:
        ask = world.cloud.unhealthy

        async def denied() -> Sequence[Interruption]:
            raise CloudError("Unauthorized", "the security token has expired", Remedy.OPERATOR)

        world.cloud.unhealthy = denied
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(1)
        await asyncio.sleep(2 * DENIED_POLL_INTERVAL_S)
        assert len(world.logged("instance status unknown")) == 1
        world.cloud.unhealthy = ask
        (instance,) = world.cloud.standing()
        world.cloud.unhealthy_instances.add(instance.provider_id)
        await asyncio.sleep(DENIED_POLL_INTERVAL_S + 60)
        claims = await world.list(kinds.NODECLAIMS)
        assert instance.provider_id not in {claim.get("status", {}).get("providerID") for claim in claims}
        name, labels = "karpenter_interruption_instance_status_unhealthy_total", {"category": "InstanceStatus"}
        assert world.autoscaler.metrics.registry.get_sample_value(name, labels) >= 1

    run_scenario(scenario)
