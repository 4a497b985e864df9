"""Metrics by the names that dashboards know."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from dovetail.kube import resources as kinds

RunScenario = Callable[..., None]


def test_a_launched_node_shows_in_the_metrics(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"}, limits={"cpu": "100"})
        await world.served(2)
        await asyncio.sleep(10)
        text = world.autoscaler.metrics.text().decode()
        for line in (
            'karpenter_nodeclaims_created_total{min_values_relaxed="false",nodepool="default",'
            'reason="provisioned"} 1.0',
            'karpenter_nodes_created_total{nodepool="default",zone="a"} 1.0',
            'karpenter_nodepools_limit{nodepool="default",resource_type="cpu"} 100.0',
            'karpenter_nodepools_usage{nodepool="default",resource_type="cpu"} 2.0',
            'karpenter_nodepools_cost_total{nodepool="default"} 0.1',
            "karpenter_cluster_state_synced 1.0",
            'dovetail_safe_mode{cause="stale-view"} 0.0',
            'dovetail_decisions{kind="provision"} 1.0',
            'karpenter_cloudprovider_instance_type_cpu_cores{instance_type="m.large"} 2.0',
            'karpenter_pods_bound_duration_seconds_count{dynamic_resources="false"} 2.0',
            "karpenter_pods_scheduling_decision_duration_seconds_count 2.0",
            "karpenter_pods_startup_duration_seconds_count{} 2",
        ):
            assert line in text, line

    run_scenario(scenario)


def test_nodes_pods_and_conditions_are_exported_with_karpenters_labels(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(2)
        await asyncio.sleep(10)
        (claim,) = await world.list(kinds.NODECLAIMS)
        text = world.autoscaler.metrics.text().decode()
        node = _labels(text, "karpenter_nodes_total_pod_requests", resource_type="cpu")
        assert node["nodepool"] == "default" and node["managed"] == "true" and node["instance_type"] == "m.large"
        assert {"node_name", "zone", "arch", "os", "capacity_type"} <= node.keys()
        pod = _labels(text, "karpenter_pods_state")
        assert pod.keys() >= {"name", "namespace", "node", "zone", "arch", "capacity_type", "instance_type"}
        wanted = {"phase": "Running", "scheduled": "true", "ready": "true", "managed": "true", "nodepool": "default"}
        assert wanted.items() <= pod.items()
        for name, more in (
            ("operator_nodeclaim", {"karpenter_sh_nodepool": "default"}),
            ("operator", {"kind": "NodeClaim", "group": "karpenter.sh"}),
        ):
            ready = _labels(text, f"{name}_status_condition_count", type="Ready", name=claim["metadata"]["name"])
            assert ready.items() >= ({"status": "True", "reason": "Ready"} | more).items()
            turned = _labels(text, f"{name}_status_condition_transitions_total", type="Launched")
            assert turned.items() >= ({"status": "True", "reason": "Launched"} | more).items()

    run_scenario(scenario)


def test_the_waiting_time_of_a_pending_pod_is_exported(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(limits={"cpu": "1"})
        world.start()
        await world.pods(1)
        await asyncio.sleep(100)
        text = world.autoscaler.metrics.text().decode()
        lines = [line for line in text.splitlines() if re.match("karpenter_pods.*_time_", line)]
        waits = {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}
        assert waits["karpenter_pods_unstarted_time_seconds"] == waits["karpenter_pods_unbound_time_seconds"] == 100.0
        assert "karpenter_pods_provisioning_unbound_time_seconds" not in waits
        assert "karpenter_pods_provisioning_scheduling_undecided_time_seconds" not in waits

    run_scenario(scenario)


#: The metrics of dashboards and alerts for Karpenter 1.15, by type.
NAMES = {
    "counter": """
        karpenter_nodeclaims_created_total karpenter_nodeclaims_terminated_total karpenter_nodeclaims_disrupted_total
        karpenter_nodeclaims_unhealthy_disrupted_total karpenter_nodes_created_total karpenter_nodes_terminated_total
        karpenter_nodes_drained_total karpenter_nodes_reboots_total karpenter_pods_eviction_requests_total
        karpenter_pods_drained_total karpenter_pods_disruption_initiated_total
        karpenter_pod_deletion_cost_pod_annotation_writes_total karpenter_voluntary_disruption_decisions_total
        karpenter_voluntary_disruption_decisions_by_nodepool_total
        karpenter_voluntary_disruption_terminate_first_decisions_total
        karpenter_voluntary_disruption_consolidation_timeouts_total
        karpenter_voluntary_disruption_failed_validations_total karpenter_voluntary_disruption_queue_failures_total
        karpenter_consolidation_moves_total karpenter_cloudprovider_errors_total
        karpenter_interruption_received_messages_total karpenter_interruption_deleted_messages_total
        karpenter_interruption_instance_status_unhealthy_total
        operator_nodeclaim_status_condition_transitions_total operator_nodepool_status_condition_transitions_total
        operator_node_status_condition_transitions_total operator_ec2nodeclass_status_condition_transitions_total
        operator_status_condition_transitions_total process_cpu_seconds_total
        controller_runtime_reconcile_total controller_runtime_reconcile_errors_total
        controller_runtime_reconcile_panics_total workqueue_adds_total workqueue_retries_total
        client_go_request_total rest_client_requests_total leader_election_slowpath_total
        karpenter_nodepools_cost_tracker_errors_total dovetail_events_dropped_total
        dovetail_history_write_failures_total
    """,
    "gauge": """
        karpenter_build_info karpenter_nodes_allocatable karpenter_nodes_total_pod_requests
        karpenter_nodes_total_pod_limits karpenter_nodes_total_daemon_requests karpenter_nodes_total_daemon_limits
        karpenter_nodes_system_overhead karpenter_nodes_current_lifetime_seconds karpenter_cluster_utilization_percent
        karpenter_nodepools_limit karpenter_nodepools_usage karpenter_nodepools_cost_total
        karpenter_nodepools_allowed_disruptions karpenter_nodepools_nodes_consuming_budgets
        karpenter_pods_state karpenter_pods_unstarted_time_seconds karpenter_pods_unbound_time_seconds
        karpenter_pods_provisioning_unbound_time_seconds karpenter_pods_provisioning_unstarted_time_seconds
        karpenter_pods_provisioning_scheduling_undecided_time_seconds
        karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes
        karpenter_voluntary_disruption_eligible_nodes karpenter_cluster_state_node_count
        karpenter_cluster_state_synced karpenter_cluster_state_unsynced_time_seconds karpenter_scheduler_queue_depth
        karpenter_scheduler_ignored_pods_count karpenter_scheduler_unschedulable_pods_count
        karpenter_cloudprovider_instance_type_offering_available karpenter_cloudprovider_instance_type_cpu_cores
        karpenter_cloudprovider_instance_type_offering_price_estimate
        karpenter_cloudprovider_instance_type_memory_bytes
        operator_nodeclaim_status_condition_count operator_nodeclaim_status_condition_current_status_seconds
        operator_nodeclaim_termination_current_time_seconds operator_nodepool_status_condition_count
        operator_node_status_condition_count operator_ec2nodeclass_status_condition_count
        operator_status_condition_count operator_status_condition_current_status_seconds
        operator_termination_current_time_seconds process_resident_memory_bytes
        controller_runtime_active_workers controller_runtime_max_concurrent_reconciles workqueue_depth
        workqueue_unfinished_work_seconds workqueue_longest_running_processor_seconds leader_election_master_status
        karpenter_scheduler_unfinished_work_seconds karpenter_scheduler_pending_pods_by_effective_zone_count
    """,
    "histogram": """
        karpenter_nodeclaims_instance_termination_duration_seconds karpenter_nodeclaims_termination_duration_seconds
        karpenter_nodes_lifetime_duration_seconds karpenter_nodes_reboot_duration_seconds
        karpenter_nodes_reboot_recovery_duration_seconds karpenter_pods_bound_duration_seconds
        karpenter_pods_provisioning_bound_duration_seconds karpenter_pods_provisioning_startup_duration_seconds
        karpenter_pods_scheduling_decision_duration_seconds karpenter_scheduler_scheduling_duration_seconds
        karpenter_voluntary_disruption_decision_evaluation_duration_seconds karpenter_consolidation_score
        karpenter_cloudprovider_duration_seconds karpenter_interruption_message_queue_duration_seconds
        operator_nodeclaim_status_condition_transition_seconds operator_nodeclaim_termination_duration_seconds
        operator_status_condition_transition_seconds operator_termination_duration_seconds
        controller_runtime_reconcile_time_seconds workqueue_queue_duration_seconds workqueue_work_duration_seconds
        client_go_request_duration_seconds dovetail_loop_lag_seconds
    """,
    "summary": "karpenter_nodes_termination_duration_seconds karpenter_pods_startup_duration_seconds",
}


def test_every_metric_that_dashboards_use_is_exported_once(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        world.start()
        await asyncio.sleep(1)
        text = world.autoscaler.metrics.text().decode()
        published = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
        assert len({name for name, _ in published}) == len(published)
        for kind, names in NAMES.items():
            assert set(names.split()) <= {name for name, each in published if each == kind}, kind
        assert not [name for name, _ in published if name.endswith("_created")]

    run_scenario(scenario)


def test_a_deleted_nodepool_leaves_no_metrics_behind(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(limits={"cpu": "100"})
        await world.pool("other", limits={"cpu": "7"})
        await world.served(1)
        await asyncio.sleep(30)
        (claim,) = await world.list(kinds.NODECLAIMS)
        used = claim["metadata"]["labels"]["karpenter.sh/nodepool"]
        empty = "other" if used == "default" else "default"
        assert _of(world, used) and _of(world, empty)
        await world.kube.delete(kinds.NODEPOOLS, empty)
        await asyncio.sleep(5)
        assert _of(world, used) and not _of(world, empty)

    run_scenario(scenario)


def _labels(text: str, family: str, /, **some: str) -> dict[str, str]:
    """The labels of the first series of that name that has some of them."""
    for line in text.splitlines():
        if line.startswith(f"{family}{{"):
            found = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if some.items() <= found.items():
                return found
    raise AssertionError(f"no {family} with {some}")


def _of(world: Any, pool: str) -> set[str]:
    lines = world.autoscaler.metrics.text().decode().splitlines()
    return {line.partition("{")[0] for line in lines if line.startswith("karpenter_nodepools_") and f'"{pool}"' in line}
