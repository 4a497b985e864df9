"""Write the Grafana dashboards of the chart: `python scripts/build_dashboards.py`.

A dashboard is rows of panels, a panel is a title, a unit and its queries; everything else is the same for all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

TARGET = Path(__file__).resolve().parent.parent / "charts" / "dovetail" / "files" / "dashboards"
WIDTH, HEIGHT, COLUMNS = 8, 8, 3


class Panel(NamedTuple):
    title: str
    unit: str
    #: (legend, query)
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"


def rate(metric: str, by: str, labels: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


def quantile(metric: str, share: float, by: str = "") -> str:
    grouping = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({grouping}) (rate({metric}_bucket[$__rate_interval])))"


DASHBOARDS: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "provisioning": (
        "Dovetail / Provisioning",
        (
            Panel("Leader", "none", (("leads", "max(leader_election_master_status)"),), "stat"),
            Panel("Safe mode", "none", (("{{cause}}", "max by (cause) (dovetail_safe_mode)"),), "stat"),
            Panel(
                "Cost of NodePools",
                "currencyUSD",
                (("{{nodepool}}", "max by (nodepool) (karpenter_nodepools_cost_total)"),),
            ),
            Panel("Pods without a place", "none", (("pods", "max(karpenter_scheduler_unschedulable_pods_count)"),)),
            Panel(
                "NodeClaims created",
                "ops",
                (("{{nodepool}} {{reason}}", rate("karpenter_nodeclaims_created_total", "nodepool, reason")),),
            ),
            Panel(
                "From pod to plan",
                "s",
                (
                    ("p99", quantile("karpenter_pods_scheduling_decision_duration_seconds", 0.99)),
                    ("p50", quantile("karpenter_pods_scheduling_decision_duration_seconds", 0.5)),
                ),
            ),
            Panel(
                "From plan to binding",
                "s",
                (
                    ("p99", quantile("karpenter_pods_provisioning_bound_duration_seconds", 0.99)),
                    ("p50", quantile("karpenter_pods_provisioning_bound_duration_seconds", 0.5)),
                ),
            ),
            Panel("Launch", "s", (("p99 {{nodepool}}", quantile("dovetail_launch_seconds", 0.99, "nodepool")),)),
            Panel(
                "Plan: cost and lower bound",
                "currencyUSD",
                (
                    ("cost", "max(dovetail_plan_cost_dollars_per_hour)"),
                    ("lower bound", "max(dovetail_plan_bound_dollars_per_hour)"),
                ),
            ),
            Panel("Plan: gap", "percentunit", (("gap", "max(dovetail_plan_gap_ratio)"),)),
            Panel(
                "Pending pods by zone",
                "none",
                (("{{zone}}", "max by (zone) (karpenter_scheduler_pending_pods_by_effective_zone_count)"),),
            ),
            Panel(
                "Use of NodePool limits",
                "percentunit",
                (
                    (
                        "{{nodepool}} {{resource_type}}",
                        "max by (nodepool, resource_type) (karpenter_nodepools_usage / (karpenter_nodepools_limit > 0))",
                    ),
                ),
            ),
        ),
    ),
    "disruption": (
        "Dovetail / Disruption",
        (
            Panel(
                "Decisions",
                "ops",
                (
                    (
                        "{{decision}} {{reason}}",
                        rate("karpenter_voluntary_disruption_decisions_total", "decision, reason"),
                    ),
                ),
            ),
            Panel(
                "Eligible nodes",
                "none",
                (("{{reason}}", "max by (reason) (karpenter_voluntary_disruption_eligible_nodes)"),),
            ),
            Panel(
                "Allowed disruptions",
                "none",
                (("{{nodepool}} {{reason}}", "max by (nodepool, reason) (karpenter_nodepools_allowed_disruptions)"),),
            ),
            Panel(
                "NodeClaims disrupted",
                "ops",
                (("{{reason}} {{nodepool}}", rate("karpenter_nodeclaims_disrupted_total", "reason, nodepool")),),
            ),
            Panel("Eviction requests", "ops", (("{{code}}", rate("karpenter_pods_eviction_requests_total", "code")),)),
            Panel(
                "Failed validations and commands",
                "ops",
                (
                    ("validations", rate("karpenter_voluntary_disruption_failed_validations_total", "")),
                    ("commands", rate("karpenter_voluntary_disruption_queue_failures_total", "")),
                ),
            ),
            Panel(
                "Termination",
                "s",
                (
                    (
                        "p99 {{nodepool}}",
                        quantile("karpenter_nodeclaims_termination_duration_seconds", 0.99, "nodepool"),
                    ),
                ),
            ),
            Panel(
                "NodeClaims terminating",
                "s",
                (("{{name}}", "max by (name) (operator_nodeclaim_termination_current_time_seconds)"),),
            ),
            Panel(
                "Interruption messages",
                "ops",
                (("{{message_type}}", rate("karpenter_interruption_received_messages_total", "message_type")),),
            ),
        ),
    ),
    "controllers": (
        "Dovetail / Controllers",
        (
            Panel(
                "Reconciliations",
                "ops",
                (("{{controller}} {{result}}", rate("controller_runtime_reconcile_total", "controller, result")),),
            ),
            Panel(
                "Reconciliation errors",
                "ops",
                (("{{controller}}", rate("controller_runtime_reconcile_errors_total", "controller")),),
            ),
            Panel(
                "Reconciliation time",
                "s",
                (("p99 {{controller}}", quantile("controller_runtime_reconcile_time_seconds", 0.99, "controller")),),
            ),
            Panel("Queue depth", "none", (("{{name}}", "max by (name) (workqueue_depth)"),)),
            Panel(
                "Longest running work",
                "s",
                (("{{name}}", "max by (name) (workqueue_longest_running_processor_seconds)"),),
            ),
            Panel("API requests", "ops", (("{{code}} {{method}}", rate("client_go_request_total", "code, method")),)),
            Panel(
                "API latency",
                "s",
                (("p99 {{verb}} {{kind}}", quantile("client_go_request_duration_seconds", 0.99, "verb, kind")),),
            ),
            Panel(
                "Cloud calls",
                "s",
                (("p99 {{method}}", quantile("karpenter_cloudprovider_duration_seconds", 0.99, "method")),),
            ),
            Panel(
                "Cloud errors",
                "ops",
                (("{{method}} {{error}}", rate("karpenter_cloudprovider_errors_total", "method, error")),),
            ),
            Panel("Age of the view", "s", (("{{pod}}", "max by (pod) (dovetail_view_age_seconds)"),)),
            Panel("Event loop lag", "s", (("p99", quantile("dovetail_loop_lag_seconds", 0.99)),)),
            Panel("Memory", "bytes", (("{{pod}}", "max by (pod) (process_resident_memory_bytes)"),)),
            Panel(
                "Events and decisions not written",
                "ops",
                (
                    ("events", rate("dovetail_events_dropped_total", "")),
                    ("decisions", rate("dovetail_history_write_failures_total", "")),
                ),
            ),
        ),
    ),
    "shadow": (
        "Dovetail / Shadow mode",
        (
            Panel(
                "Launches: planned and actual",
                "currencyUSD",
                (
                    ("planned", "sum(dovetail_shadow_planned_dollars_per_hour_total)"),
                    ("actual", "sum(dovetail_shadow_actual_dollars_per_hour_total)"),
                ),
            ),
            Panel(
                "Decisions that differ",
                "none",
                (("{{outcome}}", "sum by (outcome) (dovetail_shadow_differences_total)"),),
            ),
            Panel(
                "Nodes that would be launched",
                "none",
                (("{{nodepool}}", "sum by (nodepool) (dovetail_shadow_launches_total)"),),
            ),
            Panel(
                "Saving of disruption",
                "currencyUSD",
                (
                    ("$/h now", "sum(dovetail_shadow_saving_dollars_per_hour)"),
                    ("$ until now", "sum(dovetail_shadow_saved_dollars_total)"),
                ),
            ),
            Panel(
                "Nodes that would be removed",
                "none",
                (("{{reason}}", "sum by (reason) (dovetail_shadow_removals_total)"),),
            ),
            Panel("Evictions", "none", (("pods", "sum(dovetail_shadow_evictions_total)"),)),
        ),
    ),
}


def rendered(name: str) -> str:
    title, panels = DASHBOARDS[name]
    dashboard: dict[str, Any] = {
        "uid": f"dovetail-{name}",
        "title": title,
        "tags": ["dovetail", "karpenter"],
        "editable": True,
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }
    return json.dumps(dashboard, indent=1) + "\n"


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number + 1,
        "title": panel.title,
        "type": panel.kind,
        "datasource": source,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": WIDTH * (number % COLUMNS), "y": HEIGHT * (number // COLUMNS)},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": source,
                "expr": query.replace("{}", ""),
                "legendFormat": legend,
            }
            for place, (legend, query) in enumerate(panel.queries)
        ],
    }


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    for name in DASHBOARDS:
        (TARGET / f"{name}.json").write_text(rendered(name))


if __name__ == "__main__":
    main()
