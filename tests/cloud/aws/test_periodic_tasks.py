"""Upkeep: prices, launch templates, names and profiles look after themselves, whatever fails beside them."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws import periodic_tasks
from dovetail.cloud.aws.periodic_tasks import PeriodicTask
from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.provider import CloudError
from dovetail.lab.aws.injected_errors import ErrorRule
from tests.cloud.aws.conftest import Account


def test_a_price_list_that_fails_keeps_templates_from_no_sweep(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, userData="echo sweep")
        await aws.launch(await account.order(aws, "u-1", node_class, "m5.large", kind="on-demand"))
        aws.templates._used = dict.fromkeys(aws.templates._used, -1e6)
        account.endpoint.trouble.add(ErrorRule("pricing", "*", "AccessDeniedException", "no"))
        account.endpoint.trouble.add(ErrorRule("ec2", "DescribeSpotPriceHistory", "UnauthorizedOperation", "no"))
        with pytest.raises(CloudError, match=r"on-demand prices.*AccessDenied"):
            await aws.refresh()
        assert not await aws.templates._ours({"tag:eks:eks-cluster-name": "demo"})

    account.run(talk)


def test_what_failed_is_tried_again_ever_later_and_what_went_well_after_its_period() -> None:
    async def main() -> tuple[list[float], list[float]]:
        loop = asyncio.get_running_loop()
        bad: list[float] = []
        good: list[float] = []

        async def fail() -> None:
            bad.append(loop.time())
            raise RuntimeError("no")

        async def succeed() -> None:
            good.append(loop.time())

        clock = Clock(loop)
        chores = [PeriodicTask(clock, "bad", 600.0, fail), PeriodicTask(clock, "good", 600.0, succeed)]
        for _ in range(30):
            try:
                await periodic_tasks.act(chores)
            except CloudError as problem:
                assert "bad" in problem.message and "good" not in problem.message
            await asyncio.sleep(60.0)
        return bad, good

    bad, good = run_virtual(main())
    assert bad == [0.0, 60.0, 180.0, 420.0, 900.0, 1500.0] and good == [0.0, 600.0, 1200.0]
