"""The view for programs: `dovetail view -o json`. Unknown is null; sums count the prices that are unknown."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.model.quantity import format_resources
from dovetail.view.model import Amounts, FleetView, Money, NodeView, PendingPod, PodView, Sum
from dovetail.view.totals import pod_money

API_VERSION = "dovetail.sh/v1"


def body(view: FleetView, *, pods: bool = True) -> dict[str, Any]:
    total = view.totals
    bound = total.current_bound
    return {
        "apiVersion": API_VERSION,
        "kind": "FleetView",
        "totals": {
            "nodes": total.fleet.nodes,
            "pods": total.pods,
            "pending": total.pending,
            "cost": _money(total.fleet.money),
            "lowerBound": None
            if bound is None
            else {"perHour": bound.per_hour, "of": "; ".join(bound.of), "gap": total.gap},
            "savedPerHour": total.saved_per_hour,
            "requests": {"cpu": total.fleet.cpu / 1000, "memory": total.fleet.memory},
            "allocatable": {"cpu": total.allocatable_cpu / 1000, "memory": total.allocatable_memory},
            "usage": {
                "cpu": None if total.usage_cpu is None else total.usage_cpu / 1000,
                "memory": total.usage_memory,
            },
            "states": dict(total.states),
            "nodePools": {name: _sum(part) for name, part in total.pools.items()},
            "namespaces": {name: _sum(part) for name, part in total.namespaces.items()},
            "capacityTypes": {name: _sum(part) for name, part in total.capacity_types.items()},
        },
        "nodePools": [
            {
                "name": pool.name,
                "ready": pool.ready,
                "problem": pool.problem,
                "weight": pool.weight,
                "limits": format_resources(pool.limits),
                "used": format_resources(pool.used),
                "budgets": [budget.words(_in_english) for budget in pool.budgets],
            }
            for pool in view.pools.values()
        ],
        "nodes": [_node(node, pods) for node in view.nodes.values()],
        "pending": [_pending(pod) for pod in view.pending.values()],
        "health": msgspec.to_builtins(view.health),
    }


def _in_english(template: str, **facts: object) -> str:
    """JSON is never translated."""
    return template.format_map(facts)


def _money(total: Money) -> dict[str, Any]:
    return {"perHour": total.per_hour, "perMonth": total.per_month, "known": total.known, "unpriced": total.unpriced}


def _sum(part: Sum) -> dict[str, Any]:
    return {
        "nodes": part.nodes,
        "pods": part.pods,
        "cpu": part.cpu / 1000,
        "memory": part.memory,
        "cost": _money(part.money),
    }


def _amounts(amounts: Amounts | None) -> dict[str, str] | None:
    return None if amounts is None else format_resources(amounts)


def _node(node: NodeView, pods: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": node.name,
        "kind": "Node" if node.has_node else "NodeClaim",
        "nodeClaim": node.claim,
        "state": node.state.value,
        "reason": node.reason,
        "until": node.until,
        "nodePool": node.pool,
        "nodeGroup": node.group,
        "zone": node.zone,
        "instanceType": node.instance_type,
        "capacityType": node.capacity_type,
        "architecture": node.architecture,
        "pricePerHour": None if node.price is None else node.price.per_hour,
        "priceSource": None if node.price is None else node.price.source,
        "allocatable": _amounts(node.allocatable),
        "requests": _amounts(node.requests),
        "usage": _amounts(node.usage),
        "fullest": node.binding,
        "podCount": None if node.requests is None and node.has_node else len(node.pods),
        "created": node.created,
        "expires": node.expires,
        "providerID": node.provider_id,
    }
    return body | ({"pods": [_pod(node, pod) for pod in node.pods]} if pods else {})


def _pod(node: NodeView, pod: PodView) -> dict[str, Any]:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "workload": pod.workload,
        "phase": pod.phase,
        "ready": pod.ready,
        "terminating": pod.terminating,
        "daemon": pod.daemon,
        "requests": _amounts(pod.requests),
        "pricePerHour": pod_money(node, pod).per_hour,
        "created": pod.created,
    }


def _pending(pod: PendingPod) -> dict[str, Any]:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "workload": pod.workload,
        "requests": _amounts(pod.requests),
        "reason": pod.reason,
        "code": pod.code,
        "remedy": pod.remedy,
        "waitsFor": pod.waits_for,
        "decision": pod.decision,
        "created": pod.created,
    }
