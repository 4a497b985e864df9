"""What `dovetail plan` prints: for people a table with prices and reasons, for programs the whole plan."""

from __future__ import annotations

from collections import Counter
from math import floor
from typing import Any

from dovetail.model.quantity import format_resources
from dovetail.planner.plan import Choice, Funnel, Machine, Placement, Plan

HOURS_A_MONTH = 730


def as_json(plan: Plan, consolidating: bool) -> dict[str, Any]:
    """The plan by its contract."""
    cost: dict[str, Any] = {"perHour": round(plan.cost.per_hour, 6)}
    if plan.cost.before is not None:
        cost |= {"before": round(plan.cost.before, 6), "after": round(plan.cost.per_hour, 6)}
    if plan.cost.unpriced:
        cost["unpriced"] = plan.cost.unpriced
    bound, gap = plan.cost.lower_bound, plan.cost.gap
    cost |= {
        "lowerBound": None if bound is None else floor(min(bound, plan.cost.per_hour) * 1e6) / 1e6,
        "gap": None if gap is None else round(gap, 6),
        "boundOf": plan.cost.bound_of,
    }
    found: dict[str, Any] = {
        "pods": {pod: _place(place) for pod, place in plan.placements.items()},
        "machines": [_machine(machine) for machine in plan.machines],
        "cost": cost,
        "took": {"seconds": round(plan.seconds, 4), "tier": plan.tier},
    }
    if consolidating:
        found["remove"] = list(plan.remove)
        found["moves"] = {
            pod: {"from": move.source, **({"node": move.node} if move.node else {"machine": move.machine})}
            for pod, move in plan.moves.items()
        }
        found["evictions"] = plan.evictions
    return found


def _place(place: Placement) -> dict[str, Any]:
    relaxed = {"relaxed": list(place.relaxed)} if place.relaxed else {}
    if place.node is not None:
        return {"node": place.node, **relaxed}
    if place.machine is not None:
        return {"machine": place.machine, **relaxed}
    why = place.unschedulable
    assert why is not None
    pools = {name: _funnel(funnel) for name, funnel in why.pools.items()}
    return {"unschedulable": {"code": why.code, "message": why.message, "nodePools": pools}}


def _funnel(funnel: Funnel) -> dict[str, Any]:
    found: dict[str, Any] = {
        "offerings": funnel.start,
        "after": [{"clause": step.clause, "left": step.left} for step in funnel.steps],
        "code": funnel.code,
        "emptiedBy": funnel.emptied_by,
    }
    if funnel.nearest is not None:
        found["nearest"] = {**_choice(funnel.nearest), "lacks": funnel.nearest_lacks}
    return found


def _choice(choice: Choice) -> dict[str, Any]:
    found: dict[str, Any] = {
        "instanceType": choice.instance_type,
        "zone": choice.zone,
        "capacityType": choice.capacity_type,
        "price": choice.price,
    }
    if choice.reservation_id:
        found["reservationId"] = choice.reservation_id
    return found


def _machine(machine: Machine) -> dict[str, Any]:
    found = {
        "name": machine.name,
        "nodePool": machine.pool,
        **_choice(machine.choice),
        "requests": format_resources(machine.requests),
        "requirements": [dict(each) for each in machine.requirements],
        "offerings": [_choice(choice) for choice in machine.offerings],
    }
    if machine.cheaper:
        found["cheaper"] = [{**_choice(lost.choice), "because": lost.because} for lost in machine.cheaper]
    return found


def as_text(plan: Plan, consolidating: bool) -> str:
    """The plan for people."""
    lines: list[str] = []
    if plan.machines:
        lines += _table(plan)
    on_nodes = sum(1 for place in plan.placements.values() if place.node is not None)
    if on_nodes:
        lines.append(f"{on_nodes} pod(s) fit on nodes that are there")
    if consolidating:
        names = ", ".join(plan.remove) or "none"
        lines.append(f"remove {len(plan.remove)} node(s): {names}; {plan.evictions} eviction(s)")
        if plan.cost.before is not None:
            lines.append(f"${plan.cost.before:.4f}/h before, ${plan.cost.per_hour:.4f}/h after")
        if plan.cost.unpriced:
            lines.append(f"not counted: {plan.cost.unpriced} node(s) whose price is unknown")
    lines += [*([""] if lines else []), _cost_line(plan)]
    lines += _reasons(plan)
    return "\n".join(lines)


def _table(plan: Plan) -> list[str]:
    alike: dict[tuple[str, ...], list[Machine]] = {}
    for machine in plan.machines:
        choice = machine.choice
        alike.setdefault((machine.pool, choice.instance_type, choice.zone, choice.capacity_type), []).append(machine)
    rows = [("N", "TYPE", "ZONE", "CAPACITY", "NODEPOOL", "$/H EACH", "PODS", "CPU", "MEMORY", "OPTIONS")]
    for (pool, kind, zone, capacity), group in alike.items():
        total: Counter[str] = Counter()
        for machine in group:
            total.update(machine.requests)
        shown = format_resources({name: total[name] // len(group) for name in ("cpu", "memory")})
        price = "unknown" if group[0].choice.price is None else f"{group[0].price:.4f}"
        pods = sum(len(machine.pods) for machine in group)
        options = len({choice.instance_type for machine in group for choice in machine.offerings})
        rows.append((str(len(group)), kind, zone, capacity, pool, price, str(pods), shown["cpu"],
                     _mebibytes(total["memory"] // len(group)), f"{options} types"))  # fmt: skip
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _mebibytes(amount: int) -> str:
    return f"{amount / 2**30:.1f}Gi" if amount >= 2**30 else f"{amount // 2**20}Mi"


def _cost_line(plan: Plan) -> str:
    cost = plan.cost
    month = cost.per_hour * HOURS_A_MONTH
    line = f"${cost.per_hour:.4f} an hour, ${month:,.2f} a month, {len(plan.machines)} machine(s)"
    if cost.lower_bound is not None and plan.machines:
        gap = "" if cost.gap is None else f" (at most {cost.gap:.1%} above the cheapest possible)"
        line += f"\nnothing below ${cost.lower_bound:.4f} can hold these pods{gap}\n  the bound: {cost.bound_of}"
    return line


def _reasons(plan: Plan) -> list[str]:
    why: dict[tuple[str, str], list[str]] = {}
    for pod, reason in plan.unschedulable.items():
        why.setdefault((reason.code, reason.message), []).append(pod)
    lines: list[str] = []
    for (code, message), pods in why.items():
        names = ", ".join(pods[:3]) + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")
        lines += ["", f"no place for {len(pods)} pod(s): {names}", f"  {code}: {message}"]
    return lines
