"""Decisions are kept, across restarts, for as long as they must be."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.controllers.history.decisions import CreatedNodeClaim, Decision, DecisionHistory, DecisionStore, Refusal
from dovetail.controllers.history.store import ConfigMaps, File, lines
from dovetail.kube import resources as kinds
from dovetail.planner.plan import Funnel, FunnelStep

RunScenario = Callable[..., None]


def _decision(decision_history: DecisionHistory, **fields: Any) -> Decision:
    return Decision(
        id=decision_history.new_id(), kind="provision", time=decision_history.now(), summary="one node", **fields
    )


async def _outlives(store: Callable[[], DecisionStore]) -> None:
    clock = Clock(asyncio.get_running_loop(), EPOCH)
    first = DecisionHistory(clock, Chance(1), store())
    await first.restore()
    old = _decision(first, pods=("default/a",))
    first.record(old)
    await first.save()
    await asyncio.sleep(6 * 86400)
    young = _decision(first, cost=0.1, bound=0.09, gap=0.1)
    first.record(young)
    await first.save()

    second = DecisionHistory(clock, Chance(2), store())
    await second.restore()
    assert second.decisions() == (old, young)
    assert second.about("default/a") == (old,)
    await asyncio.sleep(2 * 86400)
    await second.forget()
    assert second.decisions() == (young,)
    third = DecisionHistory(clock, Chance(3), store())
    await third.restore()
    assert third.decisions() == (young,)


def test_a_file_outlives_the_process(tmp_path: Path) -> None:
    run_virtual(_outlives(lambda: File(tmp_path / "deep" / "history.jsonl")))


def test_config_maps_outlive_the_process(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.close()  # nothing but the server lives through these days
        await _outlives(lambda: ConfigMaps(world.kube, "kube-system"))

    run_scenario(scenario)


def test_a_day_of_decisions_and_a_giant_one_fit_into_config_maps(run_scenario: RunScenario) -> None:
    """A ConfigMap holds 1 MiB: what piled up while the server refused us must not be refused for ever."""

    async def scenario(world: Any) -> None:
        await world.close()
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        decision_history = DecisionHistory(clock, Chance(1), ConfigMaps(world.kube, "kube-system"))
        steps = (FunnelStep(clause="c" * 100, left=0),) * 20
        funnel = Funnel(start=20, code="NO_TYPE_FITS", emptied_by="c" * 100, remedy="", steps=steps)
        refusals = tuple(
            Refusal(pods=(f"default/p{n}",), count=1, code="NO_TYPE_FITS", message=f"m{n}", pools={"default": funnel})
            for n in range(600)
        )
        decision_history.record(_decision(decision_history, refusals=refusals))
        for n in range(3000):
            decision_history.record(
                _decision(decision_history, pods=tuple(f"default/a-pod-with-a-long-name-{n}-{m}" for m in range(10)))
            )
        await decision_history.save()
        maps = (await world.kube.list(kinds.CONFIGMAPS, "kube-system")).items
        assert max(len((each.get("data") or {}).get("decisions", "")) for each in maps) < 2**20
        again = DecisionHistory(clock, Chance(2), ConfigMaps(world.kube, "kube-system"))
        await again.restore()
        assert [decision.id for decision in again.decisions()] == [
            decision.id for decision in decision_history.decisions()
        ]
        assert again.about("default/p599")[0].refusals[599].message == "m599"

    run_scenario(scenario)


def test_a_line_cut_short_by_a_crash_loses_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"

    async def main() -> None:
        decision_history = DecisionHistory(Clock(asyncio.get_running_loop(), EPOCH), Chance(1), File(path))
        decision_history.record(_decision(decision_history))
        decision_history.record(_decision(decision_history))
        await decision_history.save()
        path.write_bytes(path.read_bytes()[:-20])
        again = DecisionHistory(Clock(asyncio.get_running_loop(), EPOCH), Chance(1), File(path))
        await again.restore()
        assert len(again.decisions()) == 1

    run_virtual(main())


def test_a_decision_is_found_by_pod_nodeclaim_nodepool_and_refusal() -> None:
    async def main() -> None:
        decision_history = DecisionHistory(Clock(asyncio.get_running_loop(), EPOCH), Chance(1))
        created = CreatedNodeClaim(
            claim="c-1", pool="default", instance_type="m", zone="a", capacity_type="spot", price=0.1, pods=1
        )
        decision_history.record(_decision(decision_history, node_claims=(created,), pods=("default/a",)))
        refusal = Refusal(pods=("default/b",), count=1, code="NO_TYPE_FITS", message="too big")
        decision_history.record(_decision(decision_history, refusals=(refusal,)))
        for subject in ("c-1", "default", "default/a"):
            assert decision_history.about(subject) == decision_history.decisions()[:1]
        assert decision_history.about("default/b") == decision_history.decisions()[1:]

    run_virtual(main())


def test_a_decision_is_in_the_cluster_after_a_while(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        await world.served(1)
        await asyncio.sleep(10)
        maps = await world.kube.list(kinds.CONFIGMAPS, "kube-system", labels="dovetail.sh/history=true")
        (claim,) = await world.list(kinds.NODECLAIMS)
        assert claim["metadata"]["annotations"]["dovetail.sh/decision"] in maps.items[0]["data"]["decisions"]

    run_scenario(scenario)


def test_a_node_that_stays_for_the_same_reason_is_recorded_once_in_a_while() -> None:
    async def main() -> None:
        decision_history = DecisionHistory(Clock(asyncio.get_running_loop(), EPOCH), Chance(1))

        def keep(node: str, reason: str = "NOT_CHEAPER") -> None:
            decision_history.record(
                Decision(
                    id=decision_history.new_id(),
                    time=decision_history.now(),
                    kind="keep",
                    subject=node,
                    reason=reason,
                    summary="stays",
                    before=0.1,
                )
            )

        for _ in range(4 * 24):
            keep("a")
            keep("b")
            await asyncio.sleep(900)
        assert len(decision_history.decisions()) == 2 * 4, "once in six hours each"
        keep("a", "NEAR_BEST")
        keep("a", "NOT_CHEAPER")
        assert [decision.reason for decision in decision_history.about("a")[-2:]] == ["NEAR_BEST", "NOT_CHEAPER"]

    run_virtual(main())


def test_a_decision_can_be_read_a_moment_after_it_was_made(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(1)

        async def launched() -> bool:
            return bool(await world.list(kinds.NODECLAIMS))

        await world.until(launched, step=0.05)
        await asyncio.sleep(0.1)
        kept = await ConfigMaps(world.kube, "kube-system").load()
        assert [each.kind for each in kept] == ["provision"]

    run_scenario(scenario)


def test_two_concurrent_saves_write_everything_once(tmp_path: Path) -> None:
    async def main() -> None:
        decision_history = DecisionHistory(
            Clock(asyncio.get_running_loop(), EPOCH), Chance(1), File(tmp_path / "history.jsonl")
        )
        made = _decision(decision_history)
        decision_history.record(made)
        await asyncio.gather(decision_history.save(), decision_history.save())
        assert await File(tmp_path / "history.jsonl").load() == [made]

    run_virtual(main())


def test_a_history_file_that_is_no_text_costs_its_bad_lines_and_nothing_else() -> None:
    good = Decision(id="d1", time="2026-01-01T00:00:00Z", kind="provision", summary="x")
    line = msgspec.json.encode(good) + b"\n"
    deep = b"[" * 100_000 + b"\n"
    assert [each.id for each in lines(line + b'{"id": "\x8c\xff"}\n' + deep + b"\x00\n" + line)] == ["d1", "d1"]


@pytest.mark.parametrize("place", ["a folder", "a place that takes nothing"])
def test_a_history_file_that_cannot_be_used_stops_nothing(
    run_scenario: RunScenario, tmp_path: Path, place: str
) -> None:
    """It ended the process at start, and restarted the controller and then the process later."""

    async def scenario(world: Any) -> None:
        await world.pool()
        await world.served(2)
        await asyncio.sleep(2 * 3600)
        assert not world._process.done()
        assert world.autoscaler.supervisor.unrecovered() == []
        assert not world.logged("controller failed")
        errors = {line["message"] for line in world.lines if line["level"] == "ERROR"}
        assert "history not written" in errors

    run_scenario(scenario, history=str(tmp_path) if place == "a folder" else "/proc/dovetail/history")


@pytest.mark.parametrize("funnel", [{"start": "x"}, "none", {"start": 1, "steps": [7]}])
def test_a_refusal_whose_funnel_is_malformed_is_no_decision(funnel: object) -> None:
    sound = Funnel(start=1, code="NO_TYPE_FITS", emptied_by="e", remedy="r", steps=())
    refusal = Refusal(pods=(), count=1, code="NO_TYPE_FITS", message="m", pools={"a": sound})
    decision = msgspec.to_builtins(Decision(id="d1", time="2026", kind="refuse", summary="s", refusals=(refusal,)))
    malformed = copy.deepcopy(decision)
    malformed["refusals"][0]["pools"]["a"] = funnel
    text = b"\n".join(msgspec.json.encode(line) for line in (malformed, decision))
    assert [read.refusals for read in lines(text)] == [(refusal,)]
