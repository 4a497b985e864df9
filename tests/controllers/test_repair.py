"""Unhealthy nodes: replaced within budgets, replacement first, or rebooted in place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.clock import EPOCH
from dovetail.cloud.provider import CloudError, RebootRejected, RebootUnsupported, Remedy
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.controllers.node import reboot
from dovetail.controllers.settings import Settings
from dovetail.kube import resources as kinds
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import stamp
from dovetail.model.wellknown import REBOOTS

RunScenario = Callable[..., None]
GATES = {**Settings().feature_gates, "NodeRepair": True}
STILL = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}
SMALL = ("m.large",)
REPLACE, REBOOT = "KWOKUnhealthy", "KWOKRebootRequired"


async def fleet(world: Any, count: int, **pool: Any) -> list[str]:
    """So many nodes with a pod each; their names."""
    await world.pool(**{"disruption": STILL, **pool})
    world.start()
    await world.pods(count, cpu="1500m")
    await world.until(world.all_bound, within=200)
    await asyncio.sleep(30)
    return sorted(node["metadata"]["name"] for node in await world.list(kinds.NODES))


async def sicken(world: Any, node: str, kind: str = REPLACE, status: str = "True") -> None:
    now = stamp(world.clock.now())
    condition = {"type": kind, "status": status, "reason": "Test", "lastTransitionTime": now, "message": ""}
    body = {"status": {"conditions": [condition]}}
    await world.kube.patch(kinds.NODES, node, body, subresource="status", kind="strategic")


async def names(world: Any) -> set[str]:
    return {node["metadata"]["name"] for node in await world.list(kinds.NODES)}


async def gone(world: Any, node: str, within: float = 300.0) -> float:
    async def left() -> bool:
        return node not in await names(world)

    took: float = await world.until(left, within=within)
    return took


async def published(world: Any, reason: str) -> dict[str, set[str]]:
    """The messages of the events of a reason, with the kinds of their objects."""
    found: dict[str, set[str]] = {}
    for event in await world.list(kinds.CORE_EVENTS):
        if event["reason"] == reason:
            found.setdefault(event["message"], set()).add(event["involvedObject"]["kind"])
    return found


async def claim_of(world: Any, node: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        claim for claim in await world.list(kinds.NODECLAIMS) if claim["status"].get("nodeName") == node
    )
    return found


async def states_of(world: Any, node: str) -> dict[str, str]:
    found: dict[str, str] = await world.conditions(await claim_of(world, node))
    return found


def test_an_unhealthy_node_is_replaced_before_it_is_deleted_and_drained_within_the_policys_grace_period(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: Any) -> None:
        old = (await fleet(world, 6))[0]
        await sicken(world, old)
        await asyncio.sleep(25)
        assert len(await world.list(kinds.NODECLAIMS)) == 6, "its toleration of 30 s is not over"

        async def dated() -> bool:
            return "deletionTimestamp" in (await claim_of(world, old))["metadata"]

        await world.until(dated, within=200)
        claim = await claim_of(world, old)
        assert (await world.conditions(claim))["DisruptionReason"] == "True/Unhealthy"
        others = [claim for claim in await world.list(kinds.NODECLAIMS) if "dovetail.sh/command" in str(claim)]
        assert (await world.conditions(others[0]))["Initialized"].startswith("True"), "the replacement is there"
        end = claim["metadata"]["annotations"]["karpenter.sh/nodeclaim-termination-timestamp"]
        bound = (world.clock.now() + timedelta(seconds=46)).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert end <= bound
        await gone(world, old)
        assert world.logged("selected repair policy")
        counted = [line for line in world.autoscaler.metrics.text().decode().splitlines() if "kwok_unhealthy" in line]
        assert any(line.startswith("karpenter_nodeclaims_unhealthy_disrupted_total{") for line in counted)

    run_scenario(scenario, only=SMALL, feature_gates=GATES)


def test_without_the_gate_no_node_is_repaired(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        nodes = await fleet(world, 3)
        await sicken(world, nodes[0])
        await asyncio.sleep(900)
        assert await names(world) == set(nodes)

    run_scenario(scenario, only=SMALL)


def test_budgets_pace_repair_and_a_budget_of_zero_stops_it(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        nodes = await fleet(world, 6, disruption={**STILL, "budgets": [{"nodes": "0", "reasons": ["Unhealthy"]}]})
        for node in nodes[:2]:
            await sicken(world, node)
        await asyncio.sleep(120)
        assert await names(world) == set(nodes)
        assert "No allowed disruptions for disruption reason Unhealthy due to blocking budget" in await published(
            world, "DisruptionBlocked"
        )
        one = {"spec": {"disruption": {"budgets": [{"nodes": "1", "reasons": ["Unhealthy"]}]}}}
        await world.kube.patch(kinds.NODEPOOLS, "default", one)
        for node in nodes[:2]:
            await gone(world, node)

    run_scenario(scenario, only=SMALL, feature_gates=GATES)


def test_when_more_than_a_fifth_of_a_nodepool_is_unhealthy_none_of_it_is_repaired_and_events_say_so(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: Any) -> None:
        nodes = await fleet(world, 6)
        for node in nodes[:3]:
            await sicken(world, node)
        await asyncio.sleep(200)
        assert await names(world) == set(nodes)
        logged = await published(world, "NodeRepairBlocked")
        assert logged == {
            'more than 20% of nodes in nodepool "default" are unhealthy': {"Node", "NodeClaim", "NodePool"}
        }
        await sicken(world, nodes[2], status="False")
        for node in nodes[:2]:
            await gone(world, node)

    run_scenario(scenario, only=SMALL, feature_gates=GATES)


def test_do_not_repair_vetoes_and_do_not_disrupt_does_not(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        nodes = await fleet(world, 6)
        for node, key in ((nodes[0], "karpenter.sh/do-not-repair"), (nodes[1], "karpenter.sh/do-not-disrupt")):
            await world.kube.patch(kinds.NODES, node, {"metadata": {"annotations": {key: "true"}}})
            await sicken(world, node)
        await gone(world, nodes[1])
        await asyncio.sleep(120)
        assert nodes[0] in await names(world)
        text = 'Repair is blocked through the "karpenter.sh/do-not-repair" annotation'
        assert (await published(world, "DisruptionBlocked"))[text] == {"Node", "NodeClaim"}

    run_scenario(scenario, only=SMALL, feature_gates=GATES)


def test_a_protected_pod_gets_capacity_elsewhere_and_is_forced_out_in_time(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        nodes = await fleet(world, 5)
        victim = next(name for name, node in (await world.bound()).items() if node == nodes[0])
        note = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
        await world.kube.patch(kinds.PODS, victim, note, "default")
        await sicken(world, nodes[0])
        await gone(world, nodes[0])
        assert victim not in await world.bound()
        assert len(await names(world)) == 5, "a node was launched for it all the same"

    run_scenario(scenario, only=SMALL, feature_gates=GATES)


@pytest.mark.parametrize("grace", [None, "2m"])
def test_pods_that_block_eviction_hold_a_repair_without_a_grace_period(
    run_scenario: RunScenario, grace: str | None
) -> None:
    async def scenario(world: Any) -> None:
        policies = world.cloud.repair_policies()
        unbound = tuple(msgspec.structs.replace(policy, grace_seconds=None) for policy in policies)
        world.cloud.repair_policies = lambda: unbound
        nodes = await fleet(world, 5, **({"template": {"terminationGracePeriod": grace}} if grace else {}))
        victim = next(name for name, node in (await world.bound()).items() if node == nodes[0])
        note = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
        await world.kube.patch(kinds.PODS, victim, note, "default")
        await sicken(world, nodes[0])
        await asyncio.sleep(400)
        assert (nodes[0] in await names(world)) is (grace is None)
        logged = "Repair requires a termination grace period to bypass blocking pods"
        assert (logged in await published(world, "DisruptionBlocked")) is (grace is None)

    run_scenario(scenario, only=SMALL, feature_gates=GATES)


def test_the_legacy_repair_deletes_at_once_beside_all_budgets(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        nodes = await fleet(world, 6, disruption={**STILL, "budgets": [{"nodes": "0"}]})
        note = {"metadata": {"annotations": {"karpenter.sh/do-not-repair": "true"}}}
        await world.kube.patch(kinds.NODES, nodes[0], note)
        await sicken(world, nodes[0])
        assert await gone(world, nodes[0]) < 60
        assert world.logged("deleting unhealthy node")

    run_scenario(scenario, only=SMALL, feature_gates=GATES, legacy_node_repair=True)


# -- reboots


def test_a_reboot_drains_restarts_in_place_and_the_node_is_initialized_again(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        nodes = await fleet(world, 6)
        await sicken(world, nodes[0], REBOOT)
        seen: list[str] = []

        async def back() -> bool:
            states = await states_of(world, nodes[0])
            now = f"{states.get('Rebooting', '')} {states['Initialized']}"
            if not seen or seen[-1] != now:
                seen.append(now)
            return states.get("Rebooting") == "False/RebootSucceeded" and states["Initialized"].startswith("True")

        await world.until(back, within=600)
        assert [each for each in seen if each != "False/RebootSucceeded Unknown/Rebooting"] == [
            " True/Initialized",
            "True/RebootRequested True/Initialized",
            "True/RebootIssued Unknown/Rebooting",
            "False/RebootSucceeded True/Initialized",
        ]
        node = await world.kube.get(kinds.NODES, nodes[0])
        assert node["status"]["nodeInfo"]["bootID"].startswith("simulated-")
        assert node["metadata"]["labels"]["karpenter.sh/initialized"] == "true"
        assert not node["spec"].get("taints")
        assert world.cloud.calls["reboot"] == 1 and await names(world) == set(nodes)
        claim = await claim_of(world, nodes[0])
        assert "karpenter.sh/reboot-pre-boot-id" not in claim["metadata"]["annotations"]
        assert claim["metadata"]["annotations"]["karpenter.sh/reboot-termination-grace-period"] == "1m0s"
        await sicken(world, nodes[0], REBOOT, "False")
        await asyncio.sleep(30)
        assert "DisruptionReason" not in await states_of(world, nodes[0])

    run_scenario(scenario, market=SimulatedMarket(boot=(20.0, 20.0)), only=SMALL, feature_gates=GATES)


def test_a_node_that_two_reboots_did_not_help_is_replaced(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        nodes = await fleet(world, 6)
        await sicken(world, nodes[0], REBOOT)
        await gone(world, nodes[0], within=900)
        assert world.cloud.calls["reboot"] == 2
        assert any(line.get("reboot-escalated") for line in world.logged("selected repair policy"))

    run_scenario(scenario, only=SMALL, feature_gates=GATES)


@pytest.mark.parametrize(
    ("problem", "message", "seconds"),
    [
        (RebootUnsupported("x"), "reboot not implemented by the cloud provider", 150),
        (RebootRejected("no"), "reboot rejected by the cloud provider: no", 150),
        (CloudError("InternalError", "later", Remedy.RETRY), "reboot was not issued within the issuance timeout", 480),
    ],
)
def test_a_reboot_that_the_cloud_rejects_ends_in_a_replacement(
    run_scenario: RunScenario, problem: CloudError, message: str, seconds: float
) -> None:
    async def scenario(world: Any) -> None:
        async def refuse(provider_id: str, operation: str) -> None:
            raise problem

        world.cloud.reboot = refuse
        nodes = await fleet(world, 6)
        await sicken(world, nodes[0], REBOOT)
        await gone(world, nodes[0], within=seconds)
        assert (await published(world, "RebootFailed")) == {message: {"NodeClaim"}}

    run_scenario(scenario, only=SMALL, feature_gates=GATES)


def test_a_node_that_does_not_return_from_its_reboot_is_replaced(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        async def swallow(provider_id: str, operation: str) -> None:
            return None

        world.cloud.reboot = swallow
        nodes = await fleet(world, 6)
        await sicken(world, nodes[0], REBOOT)
        assert 1200 < await gone(world, nodes[0], within=1500) < 1400
        assert "node did not recover within the observation window" in await published(world, "RebootFailed")

    run_scenario(scenario, only=SMALL, feature_gates=GATES)


def test_an_unreadable_reboot_request_fails_and_keeps_the_node(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        nodes = await fleet(world, 6)
        await sicken(world, nodes[0], REBOOT)

        async def asked() -> bool:
            return "Rebooting" in await states_of(world, nodes[0])

        await world.until(asked, within=60, step=0.01)
        claim = await claim_of(world, nodes[0])
        note = {"metadata": {"annotations": {"karpenter.sh/reboot-termination-grace-period": "soon"}}}
        await world.kube.patch(kinds.NODECLAIMS, claim["metadata"]["name"], note)
        await sicken(world, nodes[0], REBOOT, "False")
        await asyncio.sleep(20)
        states = await states_of(world, nodes[0])
        assert states["Rebooting"] == "False/RebootFailed" and await names(world) == set(nodes)

    run_scenario(scenario, only=SMALL, feature_gates=GATES)


def test_a_reboot_continues_after_the_process_was_killed(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        nodes = await fleet(world, 6)
        await sicken(world, nodes[0], REBOOT)

        async def issued() -> bool:
            states = await states_of(world, nodes[0])
            return states.get("Rebooting") == "True/RebootIssued"

        await world.until(issued, within=200, step=0.05)
        await world.stop()
        await asyncio.sleep(60)
        world.start()
        await sicken(world, nodes[0], REBOOT, "False")
        await asyncio.sleep(40)
        states = await states_of(world, nodes[0])
        assert states["Rebooting"] == "False/RebootSucceeded" and states["Initialized"] == "True/Initialized"
        assert world.cloud.calls["reboot"] == 1

    run_scenario(scenario, market=SimulatedMarket(boot=(20.0, 20.0)), only=SMALL, feature_gates=GATES)


def test_unreadable_reboots_do_not_count() -> None:
    now = EPOCH + timedelta(hours=1)
    lately = ",".join(["yesterday", stamp(EPOCH), "", "2026-13-01"])
    published = {"metadata": {"annotations": {REBOOTS: lately}}}
    assert not reboot.exhausted(msgspec.convert(published, NodeClaim), now)
    published = {"metadata": {"annotations": {REBOOTS: f"{lately},{stamp(EPOCH)}"}}}
    assert reboot.exhausted(msgspec.convert(published, NodeClaim), now)
