"""`dovetail install vpa`: three pods with upstream's names, repeatable, and gone again without a VPA lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from click.testing import CliRunner

from dovetail.autoscalers.vpa.api import VPAS, WEBHOOKS
from dovetail.cli.main import main
from dovetail.cloud.aws.client import Calls
from dovetail.install import vpa
from dovetail.install.plan import RefusedError
from dovetail.install.steps import Account, Change, InstallPart, StepStatus
from dovetail.kube.client import Kube
from dovetail.kube.resources import CRDS, DEPLOYMENTS, SECRETS, SERVICEACCOUNTS
from tests.autoscalers.test_vpa_lab import autoscaler, hamster
from tests.install.install_site import Interrupted, Interrupter
from tests.lab.programs.program_pods import ProgramLab, play

NAMESPACE = "kube-system"


class Operator:
    """Runs the installer in a lab, perhaps to be interrupted after so many writes."""

    def __init__(self, world: ProgramLab) -> None:
        self.world = world
        self.shown: list[tuple[str, Change]] = []

    def report(self, part: InstallPart | str, change: Change) -> None:
        self.shown.append((part if isinstance(part, str) else part.title, change))

    async def _run(self, work: Callable[[Account], Awaitable[Any]], after: int | None) -> int:
        interrupter = Interrupter(self.world.lab.transport, after)
        calls = Calls(self.world.lab.clock, region="")
        try:
            await work(Account(calls, Kube(interrupter, self.world.lab.clock)))
        finally:
            calls.close()
        return len(interrupter.writes)

    async def install(self, after: int | None = None, wait_s: float = 0.0) -> int:
        async def work(account: Account) -> None:
            there = await vpa.deployments(account, NAMESPACE)
            planned = vpa.plan(there, NAMESPACE, "dovetail/controller", "1")
            await vpa.install(account, planned, self.report, wait_s=wait_s)

        return await self._run(work, after)

    async def uninstall(self, after: int | None = None) -> int:
        async def work(account: Account) -> None:
            planned = vpa.plan({}, NAMESPACE, "dovetail/controller", "1", removing=True)
            await vpa.uninstall(account, planned, self.report)

        return await self._run(work, after)


async def names(world: ProgramLab) -> set[str]:
    """What is there of the installation: Deployments, service accounts, definitions, webhook and secret."""
    found = set()
    for resource in (DEPLOYMENTS, SERVICEACCOUNTS, CRDS, WEBHOOKS, SECRETS):
        for item in (await world.kube.list(resource)).items:
            name = item["metadata"]["name"]
            if "vpa" in name or "verticalpodautoscaler" in name:
                found.add(f"{resource.kind} {name}")
    return found


def test_three_pods_run_and_update_the_hamster_until_they_are_removed() -> None:
    async def body(world: ProgramLab) -> None:
        operator = Operator(world)
        await operator.install(wait_s=120.0)
        pods = [pod["metadata"]["name"].rsplit("-", 2)[0] for pod in await world.pods(NAMESPACE)]
        assert sorted(pods) == ["vpa-admission-controller", "vpa-recommender", "vpa-updater"]
        assert await operator.install() == 0
        await world.kube.create(DEPLOYMENTS, hamster())
        made = await world.kube.create(VPAS, autoscaler())
        assert made["spec"]["updatePolicy"] == {"updateMode": "Recreate"}, "the webhook was not called yet"
        await asyncio.sleep(400)
        listed = (await world.kube.list(VPAS)).items
        assert listed[0]["status"]["recommendation"]["containerRecommendations"][0]["target"]["cpu"] == "587m"
        operator.shown.clear()
        await operator.uninstall()
        left = [(title, change.why) for title, change in operator.shown if change.status is StepStatus.LEAVE]
        assert [title.rpartition(" ")[2].partition(".")[0] for title, _ in left] == [
            "verticalpodautoscalers",
            "verticalpodautoscalercheckpoints",
        ]
        assert "one VerticalPodAutoscaler would go with it" in left[0][1]
        assert (await world.kube.get(VPAS, "hamster-vpa", "default"))["spec"]
        await asyncio.sleep(60)
        assert await world.pods(NAMESPACE) == []
        await world.kube.delete(VPAS, "hamster-vpa", "default")
        await operator.uninstall()
        assert await names(world) == set()

    play(body, nodes=3)


def test_it_goes_on_after_an_interruption_and_leaves_nothing() -> None:
    async def body(world: ProgramLab) -> None:
        operator = Operator(world)
        before = await names(world)
        writes = await operator.install()
        assert writes > 20
        for write in (1, 9, writes - 1):
            with pytest.raises(Interrupted):
                await operator.uninstall(after=write)
            await operator.uninstall()
            assert await names(world) == before
            with pytest.raises(Interrupted):
                await operator.install(after=write)
            await operator.install()
            assert await operator.install() == 0

    play(body)


def test_a_vertical_pod_autoscaler_that_runs_is_not_replaced() -> None:
    with pytest.raises(RefusedError, match="remove that Vertical Pod Autoscaler first"):
        vpa.plan({"vpa-updater": {"metadata": {"name": "vpa-updater"}}}, NAMESPACE, "image", "1")


@pytest.mark.parametrize("option", [["--cluster", "eks"], ["--take-over"], ["--region", "eu-west-1"]])
def test_options_of_dovetails_own_release_are_refused(option: list[str]) -> None:
    result = CliRunner().invoke(main, ["install", "vpa", *option])
    assert result.exit_code == 2
    assert f"{option[0]} is not for vpa; leave it out" in result.output
