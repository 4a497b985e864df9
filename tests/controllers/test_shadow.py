"""Shadow mode: everything is planned and recorded, and nothing is written to Kubernetes or to the cloud."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from dovetail.cli.main import main
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.cloud.aws.read_only import ReadOnlyCalls
from dovetail.cloud.provider import CloudError
from dovetail.cloud.read_only import ReadOnlyCloud
from dovetail.controllers import logs
from dovetail.controllers.history import store
from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.manager import Autoscaler
from dovetail.controllers.shadow.comparison import ActualNode, ComparisonOutcome, compare
from dovetail.controllers.shadow.report import report, text
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.read_only import ReadOnly, WriteRefused
from dovetail.kube.transport import Request, Response
from dovetail.lab.in_process import InProcess
from dovetail.planner.plan import OfferingOption, PlannedNode

RunScenario = Callable[..., None]


class Recorded:
    """A transport that remembers the method and path of everything that reaches the server."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.requests: list[tuple[str, str]] = []

    async def send(self, request: Request) -> Response:
        self.requests.append((request.method, request.path))
        response: Response = await self._inner.send(request)
        return response

    async def close(self) -> None:
        await self._inner.close()


class CountedCloud:
    """A cloud that remembers which of its methods were called."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self._inner, name)


class ShadowRun:
    """A dry run beside the world's own autoscaler."""

    def __init__(self, world: Any, file: Path) -> None:
        self.transport = Recorded(InProcess(world.server))
        self.cloud = CountedCloud(world.cloud)
        self.file = file
        settings = msgspec.structs.replace(
            world.settings, dry_run=True, history=str(file), disable_leader_election=False
        )
        self.lines: list[dict[str, Any]] = []
        self.autoscaler = Autoscaler(
            Kube(self.transport, world.clock),
            self.cloud,
            world.clock,
            world.chance.child("shadow"),
            settings,
            log=logs.logger(world.clock, write=lambda line: self.lines.append(json.loads(line))),
        )
        self._task = asyncio.ensure_future(self.autoscaler.run())

    async def stop(self) -> list[Decision]:
        await self.autoscaler.decision_history.save()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return store.lines(self.file.read_bytes()) if self.file.exists() else []

    def assert_nothing_written(self) -> None:
        assert self.transport.requests
        assert {method for method, _ in self.transport.requests} == {"GET"}
        assert not [path for _, path in self.transport.requests if "leases" in path]
        changes = {"launch", "terminate", "reboot", "resolve", "release", "acknowledge", "interruptions"}
        assert "instance_types" in self.cloud.called and not self.cloud.called & changes


def test_a_dry_run_beside_another_autoscaler_plans_records_compares_and_writes_nothing(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        shadow = ShadowRun(world, tmp_path / "shadow.jsonl")
        world.start()
        await world.pods(6)
        await world.until(world.all_bound)
        await asyncio.sleep(30)
        decisions = await shadow.stop()
        shadow.assert_nothing_written()
        (planned,) = [decision for decision in decisions if decision.kind == "provision"]
        assert planned.pod_count == 6 and planned.node_claims
        (compared,) = [decision for decision in decisions if decision.kind == "shadow"]
        assert compared.subject == planned.id and compared.pod_count == 6
        assert compared.reason == ComparisonOutcome.SAME and compared.before == pytest.approx(compared.cost)
        metrics = shadow.autoscaler.metrics.text().decode()
        assert f'dovetail_shadow_launches_total{{nodepool="default"}} {float(len(planned.node_claims))}' in metrics
        assert 'leader_election_master_status{name="karpenter-leader-election"} 0.0' in metrics
        assert await world.list(kinds.NODECLAIMS)  # those of the world's own autoscaler

    run_scenario(scenario)


def test_without_another_autoscaler_pods_are_planned_for_once_and_new_ones_use_the_capacity(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        shadow = ShadowRun(world, tmp_path / "shadow.jsonl")
        await world.pods(1, cpu="1000m")
        await asyncio.sleep(120)
        await world.pods(1, cpu="500m", prefix="q")
        await asyncio.sleep(120)
        decisions = [decision for decision in await shadow.stop() if decision.kind == "provision"]
        shadow.assert_nothing_written()
        assert [len(decision.node_claims) for decision in decisions] == [1, 0]
        assert [decision.pod_count for decision in decisions] == [1, 1]
        assert not await world.list(kinds.NODECLAIMS) and not await world.list(kinds.NODES)

    run_scenario(scenario)


def test_pods_that_waited_before_there_was_a_nodepool_are_planned_for(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    async def scenario(world: Any) -> None:
        shadow = ShadowRun(world, tmp_path / "shadow.jsonl")
        await world.pods(2)
        await world.pods(1, cpu="100", prefix="large")
        await asyncio.sleep(30)
        await world.pool()
        await asyncio.sleep(200)
        decisions = await shadow.stop()
        assert [decision.pod_count for decision in decisions if decision.kind == "provision"] == [2]
        assert [decision.pod_count for decision in decisions if decision.kind == "refuse"] == [1]

    run_scenario(scenario)


def test_consolidation_is_evaluated_and_not_executed(run_scenario: RunScenario, tmp_path: Path) -> None:
    """Two half-empty nodes that their own autoscaler keeps, because it is gone."""

    async def scenario(world: Any) -> None:
        await world.pool(
            disruption={
                "consolidateAfter": "0s",
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "budgets": [{"nodes": "100%"}],
            }
        )
        await world.served(6, cpu="900m")
        await asyncio.sleep(20)
        await world.stop()
        for name in ("p0", "p1", "p2", "p3"):
            await world.kube.delete(kinds.PODS, name, "default", grace=0)
        before = {node["metadata"]["name"] for node in await world.list(kinds.NODES)}
        shadow = ShadowRun(world, tmp_path / "shadow.jsonl")
        await asyncio.sleep(600)
        metrics = shadow.autoscaler.metrics.text().decode()
        await world.kube.delete(kinds.PODS, "p4", "default", grace=0)
        await world.kube.delete(kinds.PODS, "p5", "default", grace=0)
        await asyncio.sleep(600)
        decisions = await shadow.stop()
        shadow.assert_nothing_written()
        assert {node["metadata"]["name"] for node in await world.list(kinds.NODES)} == before
        commands = [decision for decision in decisions if decision.kind == "disrupt"]
        assert commands and all(set(decision.removed) <= before for decision in commands)
        saving = [line for line in metrics.splitlines() if line.startswith("dovetail_shadow_saving_dollars_per_hour ")]
        assert float(saving[0].rpartition(" ")[2]) > 0
        ended = [decision for decision in decisions if decision.reason == "DisruptionOver"]
        assert ended and (ended[0].cost or 0) > 0
        assert len({decision.removed for decision in commands}) == len(commands)  # each is recorded once

    run_scenario(scenario, only=("m.2xlarge", "m.xlarge", "m.large"))


def test_no_write_of_any_verb_passes_a_read_only_transport() -> None:
    async def main_() -> None:
        class Never:
            async def send(self, request: Request) -> Response:
                raise AssertionError(f"{request.method} was sent")

            async def close(self) -> None:
                return None

        for method in ("POST", "PUT", "PATCH", "DELETE"):
            with pytest.raises(WriteRefused, match=f"{method} /api/v1/nodes/n: not sent"):
                await ReadOnly(Never()).send(Request(method=method, path="/api/v1/nodes/n"))

    run_virtual(main_())


@pytest.mark.parametrize(
    "operation",
    [
        "create_fleet",
        "run_instances",
        "terminate_instances",
        "create_tags",
        "create_launch_template",
        "delete_launch_template",
        "receive_message",
        "delete_message",
        "create_instance_profile",
        "reboot_instances",
    ],
)
def test_no_aws_call_that_changes_anything_is_sent(operation: str) -> None:
    async def main_() -> None:
        calls = ReadOnlyCalls(Clock(asyncio.get_running_loop(), EPOCH), region="us-east-1", session=object())
        with pytest.raises(CloudError, match=f"{operation}: not sent"):
            await calls("ec2", operation, DryRun=True)

    run_virtual(main_())


def test_a_read_only_cloud_refuses_every_change(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        cloud = ReadOnlyCloud(world.cloud)
        launch: Any = object()
        for change in (
            cloud.launch(launch),
            cloud.terminate("i-1"),
            cloud.reboot("i-1", "o"),
            cloud.resolve({}),
            cloud.release({}),
            cloud.acknowledge(()),
        ):
            with pytest.raises(CloudError, match="dry run"):
                await change
        assert [batch async for batch in cloud.interruptions()] == []
        assert await cloud.instances() == ()

    run_scenario(scenario)


def _planned_node(name: str, price: float | None) -> PlannedNode:
    choice = OfferingOption(instance_type=name, zone="a", capacity_type="on-demand", price=price)
    return PlannedNode(name=name, pool="p", offerings=(choice,), requirements=(), requests={}, pods=())


def _actual(name: str, price: float | None) -> ActualNode:
    return ActualNode(name="n", instance_type=name, zone="a", capacity_type="on-demand", price=price)


@pytest.mark.parametrize(
    ("planned", "actual", "outcome"),
    [
        ([_planned_node("m", 1.0)], [_actual("m", 1.0)], ComparisonOutcome.SAME),
        ([_planned_node("m", 1.0)], [_actual("m", 1.0), _actual("m", 1.0)], ComparisonOutcome.CHEAPER),
        ([_planned_node("m", 2.0)], [_actual("c", 1.0)], ComparisonOutcome.DEARER),
        ([_planned_node("m", 2.0)], [_actual("c", 1.0), _actual("c", 1.0)], ComparisonOutcome.DIFFERENT),
        ([_planned_node("m", 2.0)], [_actual("x", None)], ComparisonOutcome.UNKNOWN),
        ([], [_actual("m", 1.0)], ComparisonOutcome.CHEAPER),
        ([], [], ComparisonOutcome.SAME),
    ],
)
def test_a_plan_is_compared_with_what_was_launched(
    planned: list[PlannedNode], actual: list[ActualNode], outcome: ComparisonOutcome
) -> None:
    assert compare(planned, actual).outcome is outcome


def test_the_report_sums_dollars_evictions_and_differences(tmp_path: Path) -> None:
    decisions = [
        Decision(id="d-1", kind="provision", time="2026-01-01T00:00:00Z", summary="", cost=1.0, pod_count=3),
        Decision(
            id="d-2",
            kind="shadow",
            time="2026-01-01T00:05:00Z",
            summary="",
            reason=ComparisonOutcome.CHEAPER,
            subject="d-1",
            cost=1.0,
            before=1.5,
            detail={"planned": {"m/spot": 1}, "actual": {"c/spot": 2}},
        ),
        Decision(id="d-3", kind="disrupt", time="2026-01-01T01:00:00Z", summary="", removed=("n1", "n2"), evictions=7),
        Decision(
            id="d-4",
            kind="shadow",
            time="2026-01-01T02:00:00Z",
            summary="",
            reason="DisruptionOver",
            subject="d-3",
            cost=0.25,
            removed=("n1",),
        ),
    ]
    made = report(decisions)
    assert (made.planned_dollars_per_hour, made.actual_dollars_per_hour, made.actual_nodes) == (1.0, 1.5, 2)
    assert (made.evictions, made.saved_dollars, made.removed_by_autoscaler) == (7, 0.25, 1)
    assert [difference.decision for difference in made.differences] == ["d-1"]
    assert "(planned is 33.3 % cheaper)" in text(made) and "1 decision(s) differ:" in text(made)
    file = tmp_path / "shadow.jsonl"
    file.write_bytes(b"".join(msgspec.json.encode(decision) + b"\n" for decision in decisions))
    answer = CliRunner().invoke(main, ["shadow", "report", "--history", str(file), "-o", "json"])
    assert answer.exit_code == 0 and json.loads(answer.output)["savedDollars"] == 0.25
    answer = CliRunner().invoke(main, ["history", "--file", str(file), "--since", "1000000h", "--kind", "shadow"])
    assert answer.exit_code == 0 and [line.split()[1] for line in answer.output.splitlines()] == ["d-2", "d-4"]
    answer = CliRunner().invoke(main, ["shadow", "report", "--history", str(tmp_path / "none")])
    assert answer.exit_code != 0 and "--history" in answer.output


def test_an_empty_report_says_that_nothing_was_recorded() -> None:
    assert text(report(())).startswith("no decisions yet")
