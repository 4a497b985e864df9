"""Instances whose status checks fail are polled as long as the process runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from dovetail.cloud.provider import CloudError, Interruption, Remedy
from dovetail.controllers.interruption import SELDOM
from dovetail.kube import resources as kinds

Tell = Callable[..., None]


def test_credentials_that_lapse_for_a_moment_do_not_end_the_polling_of_unhealthy_instances(tell: Tell) -> None:
    async def story(world: Any) -> None:
        ask = world.cloud.unhealthy

        async def denied() -> Sequence[Interruption]:
            raise CloudError("Unauthorized", "the security token has expired", Remedy.OPERATOR)

        world.cloud.unhealthy = denied
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(1)
        await asyncio.sleep(2 * SELDOM)
        assert len(world.said("instance status unknown")) == 1
        world.cloud.unhealthy = ask
        (machine,) = world.cloud.standing()
        world.cloud.ill.add(machine.provider_id)
        await asyncio.sleep(SELDOM + 60)
        claims = await world.list(kinds.NODECLAIMS)
        assert machine.provider_id not in {each.get("status", {}).get("providerID") for each in claims}
        name, labels = "karpenter_interruption_instance_status_unhealthy_total", {"category": "InstanceStatus"}
        assert world.autoscaler.metrics.registry.get_sample_value(name, labels) >= 1

    tell(story)
