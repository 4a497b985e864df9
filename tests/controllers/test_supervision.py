"""One controller's failure ends neither the process nor another controller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_scaled, run_virtual
from dovetail.controllers import logs, manager
from dovetail.controllers.context import Context
from dovetail.controllers.health_server import serving
from dovetail.controllers.metrics.definitions import Metrics
from dovetail.controllers.supervision import MAX_FAILURES_IN_A_ROW, RECOVERED_AFTER_S, Supervisor
from dovetail.kube import resources as kinds
from tests.controllers.test_health_server import _port as free_port

RunScenario = Callable[..., None]


class Failing:
    """A controller that fails twice and then does its work."""

    def __init__(self, make: Callable[[Context], Any], context: Context, failed: list[int]) -> None:
        self._inner = make(context)
        self._failed = failed

    async def run(self) -> None:
        if len(self._failed) < 2:
            self._failed.append(1)
            raise ZeroDivisionError("an error that the controller does not expect")
        await self._inner.run()


@pytest.mark.parametrize(
    "place", range(len(manager.CONTROLLERS)), ids=lambda place: manager.CONTROLLERS[place].__name__
)
def test_a_controller_that_fails_is_restarted_and_the_others_go_on(
    run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    failed: list[int] = []
    made = list(manager.CONTROLLERS)
    inner = made[place]
    made[place] = lambda context: Failing(inner, context, failed)
    monkeypatch.setattr(manager, "CONTROLLERS", tuple(made))

    async def scenario(world: Any) -> None:
        await world.pool()
        await world.served(2, cpu="1500m")
        await asyncio.sleep(30)
        assert len(failed) == 2
        lines = world.logged("controller failed")
        assert [bool(line.get("exception")) for line in lines] == [True, False], "the traceback once"
        assert b'dovetail_controller_failures_total{controller="Failing"} 2.0' in world.autoscaler.metrics.text()
        claims = await world.list(kinds.NODECLAIMS)
        assert {(await world.conditions(claim))["Ready"] for claim in claims} == {"True/Ready"}

    run_scenario(scenario, only=("m.large",))


def test_a_cloud_that_raises_what_it_must_not_stops_no_launch(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        listed = world.cloud.instances

        async def broken() -> Any:
            raise OSError("no route to host")

        world.cloud.instances = broken
        await world.served(3, cpu="1500m")
        await asyncio.sleep(30)
        assert {line["controller"] for line in world.logged("controller failed")} == {"GarbageCollection"}
        assert world.autoscaler.supervisor.unrecovered() == []
        await asyncio.sleep(900)
        assert world.autoscaler.supervisor.unrecovered()[0].startswith("controller GarbageCollection failed")
        world.cloud.instances = listed
        await asyncio.sleep(100 + RECOVERED_AFTER_S)
        assert world.autoscaler.supervisor.unrecovered() == []
        assert await world.all_bound()

    run_scenario(scenario, only=("m.large",))


def test_a_listener_that_raises_keeps_no_change_from_the_others(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()

        def broken(change: Any) -> None:
            raise KeyError("a listener that fails")

        world.autoscaler.cluster_state.listen(kinds.PODS, broken)
        await world.pods(1)
        await world.until(world.all_bound)
        assert world.logged("controller failed")[0]["controller"] == "listener"

    run_scenario(scenario)


def _supervised(scenario: Callable[[Supervisor, list[dict[str, Any]]], Any]) -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        lines: list[dict[str, Any]] = []
        log = logs.logger(clock, write=lambda line: lines.append(json.loads(line)))
        await scenario(Supervisor(clock, Chance(1), Metrics(clock), log), lines)

    run_virtual(main())


def test_a_process_is_alive_until_restarting_a_controller_does_not_help_and_again_once_it_runs() -> None:
    async def scenario(supervisor: Supervisor, lines: list[dict[str, Any]]) -> None:
        broken = True

        async def work() -> None:
            if broken:
                raise RuntimeError("broken")
            await asyncio.Event().wait()

        task = asyncio.ensure_future(supervisor.supervise("c", work))
        while len(lines) < MAX_FAILURES_IN_A_ROW:
            assert supervisor.unrecovered() == []
            await asyncio.sleep(1)
        assert supervisor.unrecovered() == [f"controller c failed {len(lines)} times in a row: RuntimeError: broken"]
        broken = False
        await asyncio.sleep(120 + RECOVERED_AFTER_S)
        assert supervisor.unrecovered() == []
        task.cancel()

    _supervised(scenario)


def test_a_controller_that_ran_for_long_begins_to_count_anew() -> None:
    async def scenario(supervisor: Supervisor, lines: list[dict[str, Any]]) -> None:
        async def work() -> None:
            await asyncio.sleep(RECOVERED_AFTER_S)
            raise RuntimeError("now and then")

        task = asyncio.ensure_future(supervisor.supervise("c", work))
        await asyncio.sleep(RECOVERED_AFTER_S * 3 * MAX_FAILURES_IN_A_ROW)
        assert len(lines) > MAX_FAILURES_IN_A_ROW and supervisor.unrecovered() == []
        task.cancel()

    _supervised(scenario)


def test_liveness_fails_for_what_only_a_restart_may_help() -> None:
    async def main() -> None:
        port = free_port()
        unrecovered: list[str] = []
        metrics = Metrics(Clock(asyncio.get_running_loop(), EPOCH))
        async with (
            serving(metrics, list, 0, port, unrecovered=lambda: unrecovered),
            aiohttp.ClientSession() as session,
        ):
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                assert (answer.status, await answer.text()) == (200, "ok")
            unrecovered.append("controller GarbageCollection failed 10 times in a row")
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                assert (answer.status, await answer.text()) == (503, unrecovered[0])

    run_scaled(main())
