"""Several calls fail at once, begin and end at random, and processes crash: what a single fault may not do either.

A single fault is made good by another part: a NodeClaim whose creation was not answered comes by the watch. Here both
may be broken. `make test-slow` draws many sequences; those that found something are in the normal suite.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.kube import resources as kinds
from dovetail.kube.errors import Disconnected
from dovetail.kube.transport import Request, Response, Transport
from dovetail.lab.in_process import InProcess
from tests.controllers import test_fault_sweep as sweep
from tests.controllers.test_rights import _asked as asked

RunScenario = Callable[..., None]
FAULTS_S, RECOVERY_S = 600.0, 1500.0
#: Refusals, by how they are called here. Nothing is done.
REFUSALS = {
    "error": (500, "InternalError"),
    "conflict": (409, "Conflict"),
    "throttled": (429, "TooManyRequests"),
    "forbidden": (403, "Forbidden"),
    "notfound": (404, "NotFound"),
}
#: Answers that are none, although the work is done.
ANSWERS = {"empty": b"{}", "garbage": b"<html>502 Bad Gateway</html>"}
#: `lost` never reaches the server; `timeout` does, and has no answer.
API_WAYS = (*REFUSALS, *ANSWERS, "lost", "timeout")
CLOUD_WAYS = ("error", "timeout", "empty", "garbage", "partial")
EVERY = (
    *(("cloud", operation) for operation in sweep.OPERATIONS * 3),
    *sweep.CALLS,
    *(("list", resource) for verb, resource in sweep.CALLS if verb == "watch"),
)
#: Sequences that failed once: 111 launched 421 instances for 13 pods.
ONCE = (111,)


class FaultyApi:
    """A transport on which calls fail in the ways that `faults` has for them."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.faults: dict[tuple[str, str], str] = {}

    async def send(self, request: Request) -> Response:
        call = asked(request)
        way = self.faults.get(call)
        if way is None:
            response = await self._inner.send(request)
            if response.stream is None:
                return response
            return Response(status=response.status, headers=response.headers, stream=self._cut(call, response.stream))
        if way in REFUSALS:
            code, reason = REFUSALS[way]
            status = {"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": way}
            return Response(status=code, body=json.dumps(status).encode())
        if way == "lost":
            await asyncio.sleep(5.0)
            raise Disconnected("connection reset")
        if call[0] != "watch":
            await self._inner.send(request)
        if way == "timeout":
            await asyncio.sleep(30.0)
            raise Disconnected("no answer within 30 s")
        if call[0] == "watch":
            return Response(status=200, stream=sweep._chunks(b"" if way == "empty" else ANSWERS[way]))
        return Response(status=200, body=ANSWERS[way])

    async def _cut(self, call: tuple[str, str], stream: Any) -> Any:
        async for chunk in stream:
            if call in self.faults:
                raise Disconnected("the watch was cut")
            yield chunk

    async def close(self) -> None:
        await self._inner.close()


class FaultyCloud(sweep.FaultyCloud):
    """Operations of a world's cloud fail in the ways that `faults` has; a partial list lacks its second half."""

    def __init__(self, cloud: Any) -> None:
        super().__init__(cloud)
        self.faults: dict[str, str] = {}

    def _broken(self, operation: str, inner: Any) -> Any:
        async def call(*parts: Any) -> Any:
            way = self.faults.get(operation)
            if way is None or way == "partial":
                answer = await inner(*parts)
                return answer[: -(-len(answer) // 2)] if way and isinstance(answer, tuple) else answer
            self.fault = (operation, way)
            return await self._fail(operation, inner, parts)

        return call

    def _messages(self, inner: Any) -> Any:
        async def messages() -> Any:
            if (way := self.faults.get("interruptions")) in ("error", "garbage"):
                self.fault = ("interruptions", way)
                await self._fail("interruptions", sweep._nothing, ())
            async for batch in inner():
                yield batch

        return messages


class Sequence:
    """The faults of a world: drawn, started and ended in its time."""

    def __init__(self, world: Any, seed: int) -> None:
        self.chance = random.Random(seed)
        self.pods = 3
        self._world = world
        self._cloud = FaultyCloud(world.cloud)
        self._until: list[tuple[float, str, str, str]] = []
        self.start()

    def start(self) -> None:
        self._world.start()
        self._api = self._world.transport._inner = FaultyApi(InProcess(self._world.server))
        self._apply()

    def draw(self) -> None:
        now = self._world.clock.monotonic()
        for _ in range(self.chance.choice((1, 2, 2, 3))):
            verb, subject = self.chance.choice(EVERY)
            way = self.chance.choice(CLOUD_WAYS if verb == "cloud" else API_WAYS)
            self._until.append((now + self.chance.choice((15.0, 45.0, 120.0, 300.0)), verb, subject, way))
        self._until = [fault for fault in self._until if fault[0] > now]
        self._apply()

    def end(self) -> None:
        self._until.clear()
        self._apply()

    def _apply(self) -> None:
        self._api.faults = {(verb, subject): way for _, verb, subject, way in self._until if verb != "cloud"}
        self._cloud.faults = {subject: way for _, verb, subject, way in self._until if verb == "cloud"}

    async def play(self) -> None:
        """Ten minutes of faults, of pods that need a node each, and of crashes."""
        end = self._world.clock.monotonic() + FAULTS_S
        while self._world.clock.monotonic() < end:
            self.draw()
            if self.chance.random() < 0.7:
                await self._world.pods(1, cpu="1500m", prefix=f"m{self.pods}p")
                self.pods += 1
            if self.chance.random() < 0.12:
                await self._world.stop()
                await asyncio.sleep(self.chance.choice((0.0, 1.0, 20.0)))
                self.start()
            await asyncio.sleep(self.chance.choice((3.0, 10.0, 30.0, 60.0)))
            assert not self._world._process.done(), "the process lives"
        self.end()


async def _overlapping_faults(world: Any, seed: int) -> None:
    await world.pool(disruption={"consolidateAfter": "Never"})
    ready_deletions = sweep.ReadyDeletions(world)
    world._spawn(sweep._schedule(world))
    faults = Sequence(world, seed)
    await world.pods(3, cpu="1500m")
    await world.until(lambda: sweep._settled(world))
    before = {instance.provider_id for instance in world.cloud.standing()}
    await faults.play()
    assert {instance.provider_id for instance in world.cloud.standing()} >= before
    await world.until(lambda: sweep._settled(world), within=RECOVERY_S, step=5)
    await asyncio.sleep(900)
    assert ready_deletions.deleted == [] and await sweep._settled(world)
    assert len(world.cloud.standing()) == faults.pods, "one instance a pod"
    assert world.autoscaler.supervisor.unrecovered() == []


@pytest.mark.parametrize("seed", [*ONCE, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(60))])
def test_faults_that_overlap_cost_no_ready_node_and_no_second_launch(run_scenario: RunScenario, seed: int) -> None:
    run_scenario(lambda world: _overlapping_faults(world, seed), only=("m.large",))


@pytest.mark.parametrize("way", ["empty", "garbage", "timeout"])
def test_a_creation_without_an_answer_is_not_repeated_while_the_watch_is_broken(
    run_scenario: RunScenario, way: str
) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        faults = Sequence(world, 0)
        await world.pods(1)
        await world.until(world.all_bound)
        faults._api.faults = {("create", "nodeclaims"): way, ("watch", "nodeclaims"): "notfound"}
        await world.pods(2, cpu="1500m", prefix="late")
        await asyncio.sleep(300)
        assert len(await world.list(kinds.NODECLAIMS)) == 3
        faults.end()
        await world.until(world.all_bound)
        assert len(world.cloud.standing()) == 3

    run_scenario(scenario, only=("m.large",))
