"""Two replicas, one leads; the other takes over where the first was killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dovetail.controllers import logs
from dovetail.controllers.manager import Autoscaler
from dovetail.controllers.settings import Settings
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.lab.in_process import InProcess
from tests.controllers.conftest import Refusing

RunScenario = Callable[..., None]


def test_a_replica_that_may_not_read_the_lease_is_not_ready(run_scenario: RunScenario) -> None:
    """It is no standby: as far as it can see there is no leader."""

    async def scenario(world: Any) -> None:
        settings = Settings(metrics_port=0, health_probe_port=0, plan_deadline=0.0)
        rights = Refusing(InProcess(world.server), "/leases")
        kube = Kube(rights, world.clock, chance=world.chance.child("kube"))
        replica = Autoscaler(kube, world.cloud, world.clock, world.chance.child("replica"), settings, identity="r")
        running = asyncio.ensure_future(replica.run())
        await asyncio.sleep(5)
        assert replica.problems() == []
        rights.refused = True
        await asyncio.sleep(20)
        (problem,) = replica.problems()
        assert problem.startswith("lease not reached: ") and "karpenter-leader-election is forbidden" in problem
        rights.refused = False
        await asyncio.sleep(20)
        assert replica.problems() == []
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    run_scenario(scenario)


def test_one_of_two_replicas_leads_and_the_other_takes_over(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        settings = Settings(metrics_port=0, health_probe_port=0, plan_deadline=0.0)
        await world.pool(disruption={"consolidateAfter": "Never"})
        replicas, logged = [], []
        for number in range(2):
            lines: list[dict[str, Any]] = []
            log = logs.logger(world.clock, write=lambda line, to=lines: to.append(json.loads(line)))  # type: ignore[misc]
            kube = Kube(InProcess(world.server), world.clock, chance=world.chance.child(str(number)))
            chance = world.chance.child("replica", str(number))
            replica = Autoscaler(kube, world.cloud, world.clock, chance, settings, log=log, identity=f"r{number}")
            replicas.append(asyncio.ensure_future(replica.run()))
            logged.append(lines)
            await asyncio.sleep(1)
        await world.pods(2, prefix="a")
        await world.until(world.all_bound)
        assert [any(line["message"] == "launched nodeclaim" for line in lines) for lines in logged] == [True, False]
        replicas[0].cancel()
        with suppress(asyncio.CancelledError):
            await replicas[0]
        await world.pods(2, prefix="b", cpu="1500m")
        await world.until(world.all_bound, within=60)
        assert any(line["message"] == "launched nodeclaim" for line in logged[1])
        assert len(await world.list(kinds.NODECLAIMS)) == len(world.cloud.standing()) == world.cloud.sold
        replicas[1].cancel()
        with suppress(asyncio.CancelledError):
            await replicas[1]

    run_scenario(scenario)
