"""No process leads or is ready before the cloud is usable and is the right one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from dovetail.cloud.aws.start_checks import StartRefused
from dovetail.controllers.manager import Autoscaler
from dovetail.controllers.settings import Settings
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.lab.in_process import InProcess

RunScenario = Callable[..., None]


class Cloud:
    """A start condition that is met when it is opened, or refused."""

    def __init__(self, refusal: str = "") -> None:
        self.opened = asyncio.Event()
        self.refusal = refusal
        self.out: str | None = None
        self.asked: list[Sequence[str]] = []

    async def ready(self, provider_ids: Sequence[str]) -> None:
        self.asked.append(provider_ids)
        if self.refusal:
            raise StartRefused(self.refusal)
        await self.opened.wait()

    def waiting_for(self) -> str:
        return "EC2 does not answer"

    def outage(self) -> str | None:
        return self.out


def replica(world: Any, start: Cloud) -> Autoscaler:
    settings = Settings(metrics_port=0, health_probe_port=0, plan_deadline=0.0)
    kube = Kube(InProcess(world.server), world.clock, chance=world.chance.child("kube"))
    chance = world.chance.child("replica")
    return Autoscaler(kube, world.cloud, world.clock, chance, settings, identity="r", start=start)


def test_no_lease_is_taken_before_the_cloud_answers_and_an_outage_later_is_not_ready(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        start = Cloud()
        autoscaler = replica(world, start)
        running = asyncio.ensure_future(autoscaler.run())
        await asyncio.sleep(60)
        assert await world.list(kinds.LEASES) == []
        assert autoscaler.problems() == ["not standing for election yet: EC2 does not answer"]
        start.opened.set()
        await asyncio.sleep(10)
        assert [lease["spec"]["holderIdentity"] for lease in await world.list(kinds.LEASES)] == ["r"]
        assert autoscaler.problems() == []
        start.out = "no route"
        assert autoscaler.problems() == ["the cloud cannot be reached: no route"]
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    run_scenario(scenario)


def test_the_wrong_cloud_ends_the_process_before_the_lease(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        node = {"metadata": {"name": "n"}, "spec": {"providerID": "aws:///us-east-1a/i-1"}}
        await world.kube.create(kinds.NODES, node)
        start = Cloud("EC2 knows none of them")
        with pytest.raises(ExceptionGroup) as group:
            await replica(world, start).run()
        refused = group.value.subgroup(StartRefused)
        assert refused is not None and await world.list(kinds.LEASES) == []
        assert start.asked == [["aws:///us-east-1a/i-1"]]

    run_scenario(scenario)
