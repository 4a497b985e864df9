"""Node groups moved to NodePools in virtual time: under budgets, interrupted after every write, and back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail.kube.resources import NODES, PODS
from dovetail.migration.carry_out import RunOutcome
from dovetail.migration.record import Phase
from tests.migration.simulated import FORCED, REQUEST, Move, group, play

#: More writes than the migration of two nodes and its way back make together.
ALL_WRITES = 52


async def _settled(move: Move) -> None:
    await move.deploy("web", 4)
    await move.deploy("api", 2)
    await asyncio.sleep(30)


def test_pods_move_to_nodepools_and_the_groups_end_empty() -> None:
    async def body(move: Move) -> None:
        await _settled(move)
        planned = await move.plan(REQUEST)
        assert planned.before == pytest.approx(2 * 0.118, rel=0.01)  # two m5.large in Seoul
        assert planned.lower_bound is not None and planned.lower_bound <= planned.after
        await move.begin(REQUEST)
        result = await move.run()
        assert result is not None and result.outcome is RunOutcome.DONE
        state = await move.state()
        assert state["sizes"] == {"system": (1, 1, 1), "a": (0, 0, 0)}
        assert state["pods"] == ["api Running"] * 2 + ["web Running"] * 4
        assert state["claims"] >= 1
        evicted = [item.text for item in move.reported if item.action == "Evict"]
        assert len(evicted) == planned.evictions  # no pod was moved twice
        assert await move.fleet.leaks(move.lab) == []

    play(body, group("a", 2))


def test_going_back_restores_groups_nodes_and_pods() -> None:
    async def body(move: Move) -> None:
        await _settled(move)
        before = await move.state()
        await move.begin(REQUEST)
        assert (await move.run()) is not None
        await move.turn(Phase.BACK)
        result = await move.run()
        assert result is not None and result.outcome is RunOutcome.RESTORED
        await asyncio.sleep(60)
        assert await move.state() == before

    play(body, group("a", 2))


def interrupted(writes: int) -> int:
    """A migration that is killed after so many writes, then continued, then undone with the same kill."""
    kills = 0

    async def body(move: Move) -> None:
        nonlocal kills
        await _settled(move)
        before = await move.state()
        await move.begin(REQUEST)
        if (result := await move.run(crash_after=writes)) is None:
            kills += 1
            await asyncio.sleep(20)
            result = await move.run()
        assert result is not None and result.outcome is RunOutcome.DONE
        assert (await move.state())["sizes"]["a"] == (0, 0, 0)
        assert len(move.cloud.terminated) == 2  # no instance was ended in place of another
        await move.turn(Phase.BACK)
        if (result := await move.run(crash_after=writes)) is None:
            kills += 1
            await asyncio.sleep(20)
            result = await move.run()
        assert result is not None and result.outcome is RunOutcome.RESTORED
        await asyncio.sleep(60)
        assert await move.state() == before

    play(body, group("a", 2))
    return kills


def undone(writes: int) -> int:
    """A migration that is killed after so many writes, and undone from there."""
    kills = 0

    async def body(move: Move) -> None:
        nonlocal kills
        await _settled(move)
        before = await move.state()
        await move.begin(REQUEST)
        kills += (await move.run(crash_after=writes)) is None
        await move.turn(Phase.BACK)
        result = await move.run()
        assert result is not None and result.outcome is RunOutcome.RESTORED
        await asyncio.sleep(60)
        assert await move.state() == before

    play(body, group("a", 2))
    return kills


@pytest.mark.parametrize("writes", [1, 3, 8])
def test_an_interrupted_migration_continues_and_an_interrupted_way_back_too(writes: int) -> None:
    assert interrupted(writes) >= 1


@pytest.mark.parametrize("writes", [2, 7, 12])
def test_a_migration_that_was_interrupted_can_be_undone(writes: int) -> None:
    assert undone(writes) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("writes", range(1, ALL_WRITES))
def test_a_migration_interrupted_after_every_write_continues(writes: int) -> None:
    assert interrupted(writes) in (0, 1, 2)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("writes", range(1, ALL_WRITES))
def test_a_migration_interrupted_after_every_write_can_be_undone(writes: int) -> None:
    assert undone(writes) in (0, 1)


def test_a_stop_finishes_the_node_that_is_drained_and_a_later_run_goes_on() -> None:
    async def body(move: Move) -> None:
        await _settled(move)
        await move.begin(REQUEST)
        running = asyncio.create_task(move.run())

        async def evicting() -> bool:
            return any(item.action == "Evict" for item in move.reported)

        await move.lab.until(evicting)
        await move.turn(Phase.STOPPING)
        result = await running
        assert result is not None and result.outcome is RunOutcome.STOPPED
        state = await move.state()
        assert state["sizes"]["a"] == (0, 2, 2)
        assert (state["cordoned"], state["marked"]) == (0, 0)
        assert len(move.cloud.terminated) == 1
        await move.turn(Phase.FORWARD)
        result = await move.run()
        assert result is not None and result.outcome is RunOutcome.DONE
        assert (await move.state())["sizes"]["a"] == (0, 0, 0)

    play(body, group("a", 3))


def test_rebalancing_of_zones_ends_no_node_while_the_group_is_moved() -> None:
    """AZRebalance ends an instance of the group's own choice, with its pods. It runs again when the run has ended."""

    async def body(move: Move) -> None:
        await _settled(move)
        move.cloud.suspended["a"] = frozenset({"ScheduledActions"})  # by the owner of the group: stays so
        await move.begin(REQUEST)
        running = asyncio.create_task(move.run())

        async def draining() -> bool:
            return any(item.action == "Drain" for item in move.reported)

        await move.lab.until(draining)
        assert await move.cloud.rebalance("a") is None
        await move.turn(Phase.STOPPING)
        result = await running
        assert result is not None and result.outcome is RunOutcome.STOPPED
        assert move.cloud.suspended["a"] == {"ScheduledActions"}
        record = await move.record()
        assert record is not None and record.suspends == {}
        await move.turn(Phase.FORWARD)
        result = await move.run()
        assert result is not None and result.outcome is RunOutcome.DONE
        assert move.cloud.suspended["a"] == {"ScheduledActions"}
        assert sum(item.action == "Suspend" for item in move.reported) == 2

    play(body, group("a", 2))


def test_a_group_whose_instances_cannot_end_is_refused() -> None:
    async def body(move: Move) -> None:
        await _settled(move)
        move.cloud.suspended["a"] = frozenset({"Terminate", "Launch"})
        planned = await move.plan(REQUEST)
        [blocker] = planned.blockers
        assert (blocker.code, blocker.object) == ("ProcessSuspended", "nodegroup/a")
        assert "resume-processes" in blocker.remedy
        [proposal] = planned.proposals
        assert any("Launch" in note for note in proposal.notes)

    play(body, group("a", 2))


def test_several_groups_with_labels_and_taints_go_one_after_the_other_in_batches() -> None:
    taint = {"key": "team", "value": "data", "effect": "NoSchedule"}

    async def body(move: Move) -> None:
        tolerations = [{"key": "team", "operator": "Exists"}]
        await move.deploy("web", 3)
        await move.deploy("data", 3, nodeSelector={"team": "data"}, tolerations=tolerations)
        await asyncio.sleep(30)
        planned = await move.plan(REQUEST)
        pools = {proposal.groups: proposal.node_pool for proposal in planned.proposals}
        assert pools["data",]["spec"]["template"]["spec"]["taints"] == [taint]
        assert pools["data",]["spec"]["template"]["metadata"]["labels"] == {"team": "data"}
        assert "metadata" not in pools["a",]["spec"]["template"]
        await move.begin(REQUEST)
        result = await move.run()
        assert result is not None and result.outcome is RunOutcome.DONE
        state = await move.state()
        assert {state["sizes"]["a"], state["sizes"]["data"]} == {(0, 0, 0)}
        assert state["pods"] == ["data Running"] * 3 + ["web Running"] * 3

    play(body, group("a", 2), group("data", 2, labels={"team": "data"}, taints=(taint,)))


def test_a_budget_that_allows_none_for_a_while_is_waited_for_and_a_stall_lets_the_nodes_take_pods_again() -> None:
    """A pod that is never ready uses the budget up: nothing is evicted, and the nodes are uncordoned at the end."""

    async def body(move: Move) -> None:
        await _settled(move)
        await move.begin(REQUEST)
        pods = (await move.kube.list(PODS, "default")).items
        for pod in pods:
            conditions = [{"type": "Ready", "status": "False"}]
            status: dict[str, Any] = {"status": {"conditions": conditions}}
            if pod["metadata"]["labels"]["app"] == "web":
                await move.kube.patch(PODS, pod["metadata"]["name"], status, "default", subresource="status")
        assert move.watching is not None
        move.watching.cancel()  # the budget is violated by the test itself
        move.watching = None
        result = await move.run(stall_s=120.0)
        assert result is not None and result.outcome is RunOutcome.STALLED
        assert "web" in result.why
        nodes = (await move.kube.list(NODES)).items
        assert nodes and not any(node["spec"].get("unschedulable") for node in nodes)
        record = await move.record()
        assert record is not None and record.phase is Phase.STOPPED

    play(body, group("a", 1))


def test_refusals_name_the_object_the_code_and_the_remedy() -> None:
    async def body(move: Move) -> None:
        here = {"g": "a"}
        await move.deploy("strict", 1, pdb=0, nodeSelector=here)
        await move.deploy("scratch", 1, pdb=None, nodeSelector=here, volumes=[{"name": "tmp", "emptyDir": {}}])
        resources = {"requests": {"cpu": "100m"}}
        spec = {"containers": [{"name": "c", "image": "nginx", "resources": resources}], "nodeSelector": here}
        await move.kube.create(PODS, {"metadata": {"name": "bare", "labels": {"app": "bare"}}, "spec": spec}, "default")
        await asyncio.sleep(30)
        planned = await move.plan(REQUEST)
        codes = {blocker.code for blocker in planned.blockers}
        assert codes == {"NotReplicated", "LocalStorageRequested", "NotEnoughPdb"}
        assert all(blocker.remedy and blocker.object for blocker in planned.blockers)
        forced = await move.plan(FORCED)
        assert {blocker.code for blocker in forced.blockers} == {"NotEnoughPdb"}

    play(body, group("a", 2, labels={"g": "a"}))


def test_pods_that_no_nodepool_can_hold_are_refused() -> None:
    async def body(move: Move) -> None:
        await move.deploy("pinned", 1, pdb=None, nodeSelector={"node.kubernetes.io/instance-type": "m5.xlarge"})
        await asyncio.sleep(30)
        await move.deploy("large", 1, pdb=None)
        planned = await move.plan(REQUEST)
        assert planned.blockers == ()
        node = next(n for n in (await move.kube.list(NODES)).items if move.groups.owner(n["metadata"]["name"]) == "a")
        await move.kube.patch(NODES, node["metadata"]["name"], {"metadata": {"labels": {"rack": "7"}}})
        await move.deploy("racked", 1, pdb=None, nodeSelector={"rack": "7"})
        await asyncio.sleep(10)
        found = (await move.plan(REQUEST)).blockers
        assert [
            (blocker.code.partition(".")[0], blocker.object.rpartition("-")[0].rpartition("-")[0]) for blocker in found
        ] == [("NoNodePool", "pod/default/racked")]

    play(body, group("a", 2, instance_type="m5.xlarge"))
