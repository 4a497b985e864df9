"""Disruption and termination: nodes are emptied, drained, replaced and terminated, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from dovetail.kube import resources as kinds
from dovetail.model.wellknown import DECISION, REBOOTS, TERMINATION_TIMESTAMP

RunScenario = Callable[..., None]
ALL = [{"nodes": "100%"}]
NODE_CLASS = {
    "metadata": {"name": "default"},
    "spec": {
        "role": "nodes",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"id": "subnet-1"}],
        "securityGroupSelectorTerms": [{"id": "sg-1"}],
    },
}
QUICK = {"consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": ALL}


async def running(world: Any, pods: int, cpu: str = "500m", **pool: Any) -> None:
    """A cluster with pods that run on our nodes."""
    await world.pool(**{"disruption": QUICK, **pool})
    await world.served(pods, cpu=cpu)
    await asyncio.sleep(5)


async def nodes(world: Any) -> list[str]:
    return sorted(node["metadata"]["name"] for node in await world.list(kinds.NODES))


async def gone(world: Any) -> bool:
    return not await world.list(kinds.NODES) and not await world.list(kinds.NODECLAIMS)


def test_an_empty_node_is_removed_after_consolidate_after_and_not_before(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 3)
        for name in ("p0", "p1", "p2"):
            await world.kube.delete(kinds.PODS, name, "default", grace=0)
        took = await world.until(lambda: gone(world), within=120)
        assert 30 <= took < 60
        assert not world.cloud.standing()
        assert world.logged("disrupting node(s)")

    run_scenario(scenario)


def test_the_node_of_a_deleted_nodeclaim_is_drained_before_its_instance_is_terminated(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 3)
        (claim,) = await world.list(kinds.NODECLAIMS)
        await world.kube.delete(kinds.NODECLAIMS, claim["metadata"]["name"])
        await world.until(lambda: gone(world), within=200)
        assert not world.cloud.standing()
        assert {line["message"] for line in world.lines} >= {"tainted node", "deleted node", "deleted nodeclaim"}

    run_scenario(scenario)


def test_deleting_the_node_deletes_its_nodeclaim_and_instance(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 1)
        (name,) = await nodes(world)
        await world.kube.delete(kinds.NODES, name)
        await world.until(lambda: gone(world), within=200)
        assert not world.cloud.standing()

    run_scenario(scenario)


def test_a_vanished_instance_is_cleaned_up(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 1)
        (instance,) = world.cloud.standing()
        world.cloud.vanish(instance.provider_id)
        await world.until(lambda: gone(world), within=600)

    run_scenario(scenario)


def test_a_pdb_of_zero_disruptions_holds_the_drain_and_is_named(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 2)
        budget = {"metadata": {"name": "keep"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "p"}}}}
        await world.kube.create(kinds.PDBS, budget, "default")
        status = {
            "status": {
                "disruptionsAllowed": 0,
                "currentHealthy": 2,
                "desiredHealthy": 2,
                "expectedPods": 2,
                "observedGeneration": 1,
            }
        }
        await world.kube.patch(kinds.PDBS, "keep", status, "default", subresource="status")
        (claim,) = await world.list(kinds.NODECLAIMS)
        await world.kube.delete(kinds.NODECLAIMS, claim["metadata"]["name"])
        await asyncio.sleep(120)
        assert len(await world.list(kinds.PODS)) == 2 and len(world.cloud.standing()) >= 1
        events = [event["reason"] for event in await world.list(kinds.EVENTS)]
        assert "FailedDraining" in events
        await world.kube.delete(kinds.PDBS, "keep", "default")
        await world.until(lambda: gone(world), within=200)

    run_scenario(scenario)


def test_a_grace_period_ends_the_drain_whatever_protects_the_pods(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(template={"terminationGracePeriod": "60s"}, disruption=QUICK)
        world.start()
        resources = {"requests": {"cpu": "500m", "memory": "256Mi"}}
        body = {
            "metadata": {"name": "p", "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
            "spec": {
                "terminationGracePeriodSeconds": 5,
                "containers": [{"name": "c", "image": "pause", "resources": resources}],
            },
        }
        await world.kube.create(kinds.PODS, body, "default")
        await world.until(world.all_bound)
        await asyncio.sleep(5)
        (claim,) = await world.list(kinds.NODECLAIMS)
        await world.kube.delete(kinds.NODECLAIMS, claim["metadata"]["name"])
        await asyncio.sleep(40)
        assert len(await world.list(kinds.PODS)) == 1
        took = await world.until(lambda: gone(world), within=120)
        assert took < 60

    run_scenario(scenario)


def test_a_drifted_node_is_replaced_before_it_is_deleted(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 3)
        (before,) = await nodes(world)
        label = {"spec": {"template": {"metadata": {"labels": {"team": "shop"}}}}}
        await world.kube.patch(kinds.NODEPOOLS, "default", label)
        seen = set()

        async def replaced() -> bool:
            standing = await nodes(world)
            ready = [
                claim
                for claim in await world.list(kinds.NODECLAIMS)
                if (await world.conditions(claim)).get("Initialized", "").startswith("True")
            ]
            seen.add((before in standing, len(ready)))
            return bool(standing) and before not in standing

        await world.until(replaced, within=300)
        assert (True, 2) in seen, "the replacement was ready while the old node still existed"
        assert len(world.cloud.standing()) == 1

    run_scenario(scenario)


def test_pod_events_are_no_reason_to_ask_the_cloud_about_drift(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.kube.create(kinds.EC2NODECLASSES, NODE_CLASS)
        await running(world, 3)
        await asyncio.sleep(60)
        before = world.cloud.calls.get("get", 0)
        for name in ("p0", "p1"):
            await asyncio.sleep(15)
            await world.kube.delete(kinds.PODS, name, "default", grace=0)
        await asyncio.sleep(15)
        assert world.cloud.calls.get("get", 0) - before <= 1

    run_scenario(scenario)


def test_drift_respects_its_budget(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        spread = {
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "p"}}}
                    ]
                }
            }
        }
        await world.pool(disruption={**QUICK, "budgets": [{"nodes": "1"}]})
        await world.served(4, **spread)
        await asyncio.sleep(5)
        await world.kube.patch(
            kinds.NODEPOOLS, "default", {"spec": {"template": {"metadata": {"labels": {"team": "shop"}}}}}
        )
        old, worst = set(await nodes(world)), 0
        for _ in range(600):
            await asyncio.sleep(1)
            tainted = [
                n
                for n in await world.list(kinds.NODES)
                if any(t["key"] == "karpenter.sh/disrupted" for t in n["spec"].get("taints") or [])
            ]
            worst = max(worst, len(tainted))
            if not old & set(await nodes(world)):
                break
        assert not old & set(await nodes(world))
        assert worst == 1

    run_scenario(scenario)


def test_expiration_launches_the_replacement_first(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 2, template={"expireAfter": "600s"}, disruption={**QUICK, "consolidateAfter": "Never"})
        (before,) = await nodes(world)
        both = False

        async def replaced() -> bool:
            nonlocal both
            standing = await nodes(world)
            both |= before in standing and len(standing) == 2
            return before not in standing and len(standing) == 1

        took = await world.until(replaced, within=900)
        assert both and took < 700

    run_scenario(scenario)


def test_an_unreadable_deadline_holds_no_node_for_ever(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 1)
        (claim,) = await world.list(kinds.NODECLAIMS)
        name = claim["metadata"]["name"]
        notes = {TERMINATION_TIMESTAMP: "soon", REBOOTS: "yesterday,,2026"}
        await world.kube.patch(kinds.NODECLAIMS, name, {"metadata": {"annotations": notes}})
        await world.kube.delete(kinds.NODECLAIMS, name)

        async def ended() -> bool:
            return name not in [claim["metadata"]["name"] for claim in await world.list(kinds.NODECLAIMS)]

        await world.until(ended, within=300)

    run_scenario(scenario)


def test_the_event_of_a_node_that_stays_has_the_id_of_the_decision(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 2)
        await asyncio.sleep(900)
        logged = [event for event in await world.list(kinds.EVENTS) if event["reason"] == "Unconsolidatable"]
        ids = {each["metadata"]["annotations"][DECISION] for each in logged}
        kept = {
            decision.id for decision in world.autoscaler.context.decision_history.decisions() if decision.kind == "keep"
        }
        assert ids and ids <= kept

    run_scenario(scenario)


def test_do_not_disrupt_events_say_when_it_holds_ends_or_is_unreadable(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 2)
        for name, text in (("p0", "90s"), ("p1", "soon")):
            note = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": text}}}
            await world.kube.patch(kinds.PODS, name, note, "default")
        await asyncio.sleep(120)
        published = {
            (event["involvedObject"]["name"], event["reason"]) for event in await world.list(kinds.CORE_EVENTS)
        }
        assert {("p0", "DoNotDisruptUntil"), ("p0", "DoNotDisruptGracePeriodElapsed")} <= published
        assert ("p1", "InvalidDoNotDisruptAnnotation") in published

    run_scenario(scenario)


def test_a_node_whose_instance_fails_its_checks_is_terminated_without_a_drain(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 2, disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]})
        budget = {"metadata": {"name": "b"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "p"}}}}
        await world.kube.create(kinds.PDBS, budget, "default")
        old = await nodes(world)
        world.cloud.unhealthy_instances.add(world.cloud.standing()[0].provider_id)

        async def forced() -> bool:
            return old[0] not in await nodes(world)

        await world.until(forced, within=150)
        events = {event["reason"] for event in await world.list(kinds.CORE_EVENTS)}
        assert {"InstanceUnhealthy", "TerminatingOnInterruption"} <= events

    run_scenario(scenario)


def test_two_half_empty_nodes_become_one_and_no_pod_is_left_pending(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=QUICK)
        await world.served(3, cpu="1500m", prefix="a")
        await world.pods(3, cpu="300m", prefix="b")
        await world.until(world.all_bound)
        for name in ("a0", "a1"):
            await world.kube.delete(kinds.PODS, name, "default", grace=0)
        before = sum(world.cloud.price(m.instance_type, m.zone, m.capacity_type) for m in world.cloud.standing())
        await asyncio.sleep(400)
        after = sum(world.cloud.price(m.instance_type, m.zone, m.capacity_type) for m in world.cloud.standing())
        assert after < before
        assert world.logged("disrupting node(s)")

    run_scenario(scenario)


def test_consolidation_searches_once_all_nodes_are_consolidatable(run_scenario: RunScenario) -> None:
    """The best of a part is not the best, and the search in a part finds nothing most of the time."""

    async def scenario(world: Any) -> None:
        def thoughts() -> float:
            name = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count"
            labels = {"reason": "underutilized", "consolidation_type": "multi"}
            return world.autoscaler.metrics.registry.get_sample_value(name, labels) or 0.0

        await running(world, 6, cpu="1500m", disruption={**QUICK, "consolidateAfter": "5m"})
        await asyncio.sleep(900)
        before = thoughts()
        await world.kube.delete(kinds.PODS, "p0", "default", grace=0)
        await asyncio.sleep(200)
        assert thoughts() == before > 0
        await asyncio.sleep(300)
        assert thoughts() > before

    run_scenario(scenario, only=("m.large",))


def test_a_node_at_its_cheapest_is_kept_for_hours(run_scenario: RunScenario) -> None:
    """Equal cost moves nothing: otherwise two fleets of the same price would replace each other."""

    async def scenario(world: Any) -> None:
        await running(world, 3)
        before = await nodes(world)
        await asyncio.sleep(timedelta(hours=6).total_seconds())
        assert await nodes(world) == before
        assert not world.logged("disrupting node(s)")

    run_scenario(scenario)


def test_in_safe_mode_nothing_voluntary_begins_and_it_ends_by_itself(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        from dovetail.controllers.safemode import SafeModeCause

        await running(world, 1)
        world.autoscaler.safety.set(SafeModeCause.BROKEN_INVARIANT, "a test says so")
        await world.kube.delete(kinds.PODS, "p0", "default", grace=0)
        await asyncio.sleep(300)
        assert len(await nodes(world)) == 1
        world.autoscaler.safety.set(SafeModeCause.BROKEN_INVARIANT, None)
        await world.until(lambda: gone(world), within=60)

    run_scenario(scenario)


def test_a_running_instance_message_is_acknowledged_without_a_log_line(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 1)
        (instance,) = world.cloud.standing()
        world.cloud.interrupt([instance.provider_id], "no-op")
        world.cloud.interrupt([instance.provider_id], "rebalance")
        await asyncio.sleep(10)
        published = [line["messageKind"] for line in world.lines if line["message"] == "received interruption"]
        assert published == ["rebalance_recommendation"]

    run_scenario(scenario)
