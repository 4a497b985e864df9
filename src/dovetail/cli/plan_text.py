"""What `dovetail plan` prints for people: machines, their price and what they are for, the bound, what has no place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from dovetail.model.quantity import format_resources
from dovetail.model.reasons import reason
from dovetail.planner.plan import Choice, Cost, Funnel, Machine, Plan

HOURS_A_MONTH = 730
_HEADS = ("N", "TYPE", "ZONE", "CAPACITY", "NODEPOOL", "$/H EACH", "PODS", "CPU", "MEMORY", "OTHER", "OPTIONS",
          "FOR")  # fmt: skip
#: Amounts that have a column of their own.
_SHOWN = frozenset({"cpu", "memory", "pods"})
#: What controllers put behind the name of a workload: an ordinal, or what a ReplicaSet, a DaemonSet or a Job makes up.
_MADE_UP = re.compile(r"-(\d+|([a-f0-9]{8,10}-)?[bcdfghjklmnpqrstvwxz2456789]{5})$")
#: So many names, or offerings, are told.
_FEW, _BEST = 3, 10
#: Less than this is nothing to speak of.
_NO_GAP = 0.0005


def as_text(plan: Plan, consolidating: bool, verbose: bool = False) -> str:
    """The plan for people; `verbose` says of each machine what else it may become, and why nothing cheaper would do."""
    lines = [*_machines(plan, verbose), *_on_nodes(plan), *_given_up(plan)]
    if consolidating:
        lines += _given_back(plan)
    lines += [*([""] if lines else []), *_cost(plan.cost, plan.machines)]
    return "\n".join([*lines, *_reasons(plan)])


def _machines(plan: Plan, verbose: bool) -> Iterator[str]:
    alike: dict[tuple[str, ...], list[Machine]] = {}
    for machine in plan.machines:
        choice = machine.choice
        alike.setdefault((machine.pool, choice.instance_type, choice.zone, choice.capacity_type), []).append(machine)
    if alike:
        yield from _table([_row(group) for group in alike.values()])
    for group in alike.values() if verbose else ():
        yield from ("", *_story(group[0]))


def _row(group: Sequence[Machine]) -> tuple[str, ...]:
    machine, total = group[0], Counter[str]()
    for each in group:
        total.update(each.requests)
    mean = {name: amount // len(group) for name, amount in total.items()}
    options = {choice.instance_type for each in group for choice in each.offerings}
    pods = [pod for each in group for pod in each.pods]
    price = "unknown" if machine.choice.price is None else f"{machine.choice.price:.4f}"
    others = format_resources({name: mean[name] for name in sorted(mean) if name not in _SHOWN and mean[name]})
    return (str(len(group)), machine.choice.instance_type, machine.choice.zone, machine.choice.capacity_type,
            machine.pool, price, str(len(pods)), format_resources({"cpu": mean.get("cpu", 0)})["cpu"],
            _mebibytes(mean.get("memory", 0)), ", ".join(f"{amount} {name}" for name, amount in others.items()),
            _count(len(options), "type"), _workloads(pods))  # fmt: skip


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Rows under their heads, without columns that nobody has anything in."""
    columns = [column for column in zip(_HEADS, *rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _workloads(pods: Iterable[str]) -> str:
    """Whose pods they are, as far as their names tell."""
    found = Counter(_MADE_UP.sub("", pod.partition("/")[2]) for pod in pods)
    told = [name if count == 1 else f"{count} {name}" for name, count in found.most_common(_FEW)]
    return ", ".join(told) + (f" and {len(found) - _FEW} more" if len(found) > _FEW else "")


def _story(machine: Machine) -> Iterator[str]:
    """What else would hold the pods of a machine, and what speaks against the types that cost less."""
    yield f"{machine.name}: {_count(len(machine.offerings), 'offering')} would do, the best"
    for choice in machine.offerings[:_BEST]:
        yield f"  {_told(choice)}"
    if machine.cheaper:
        yield "  cheaper, and why not"
    for lost in machine.cheaper:
        yield f"  {_told(lost.choice)}: {lost.because}"


def _told(choice: Choice) -> str:
    reserved = f" {choice.reservation_id}" if choice.reservation_id else ""
    return f"{_price(choice)}  {choice.instance_type} in {choice.zone}, {choice.capacity_type}{reserved}"


def _price(choice: Choice) -> str:
    return "unknown" if choice.price is None else f"${choice.price:.4f}"


def _on_nodes(plan: Plan) -> Iterator[str]:
    count = sum(1 for place in plan.placements.values() if place.node is not None)
    if count:
        yield f"{_count(count, 'pod')} on machines that are there or on their way"


def _given_up(plan: Plan) -> Iterator[str]:
    found = Counter(wish for place in plan.placements.values() for wish in place.relaxed)
    for wish, count in found.items():
        yield f"given up for {_count(count, 'pod')}: {wish}"


def _given_back(plan: Plan) -> Iterator[str]:
    names = f": {', '.join(plan.remove)}" if plan.remove else ""
    yield f"remove {_count(len(plan.remove), 'node')}{names}; {_count(plan.evictions, 'eviction')}"
    if plan.cost.before is not None:
        yield f"${plan.cost.before:.4f}/h before, ${plan.cost.per_hour:.4f}/h after"
    if plan.cost.unpriced:
        yield f"not counted: {_count(plan.cost.unpriced, 'node')} whose price is unknown"


def _cost(cost: Cost, machines: Sequence[Machine]) -> Iterator[str]:
    if not machines and not cost.per_hour:
        yield "nothing to buy"
        return
    month = cost.per_hour * HOURS_A_MONTH
    yield f"${cost.per_hour:.4f} an hour, ${month:,.2f} a month, {_count(len(machines), 'machine')}"
    unpriced = sum(1 for machine in machines if machine.choice.price is None)
    if unpriced:
        yield f"not counted: {_count(unpriced, 'machine')} whose price is unknown"
    if cost.lower_bound and cost.gap is not None and machines:
        gap = "the cheapest possible" if cost.gap < _NO_GAP else f"at most {cost.gap:.1%} above the cheapest possible"
        yield f"nothing below ${cost.lower_bound:.4f} can hold these pods ({gap})"
        yield f"  the bound: {cost.bound_of}"


def _reasons(plan: Plan) -> Iterator[str]:
    why: dict[tuple[str, str], list[str]] = {}
    for pod, each in plan.unschedulable.items():
        why.setdefault((each.code, each.message), []).append(pod)
    for (code, message), pods in why.items():
        names = ", ".join(pods[:_FEW]) + (f" and {len(pods) - _FEW} more" if len(pods) > _FEW else "")
        yield from ("", f"no place for {_count(len(pods), 'pod')}: {names}")
        yield f"  {code} ({reason(code).kind}): {message}"
        for name, funnel in plan.unschedulable[pods[0]].pools.items():
            yield f"  NodePool {name}: {_funnel(funnel)}"


def _funnel(funnel: Funnel) -> str:
    """How many offerings were left by each question that turned some away."""
    told, before = [_count(funnel.start, "offering")], funnel.start
    for step in funnel.steps:
        if step.left != before:
            told.append(f"{step.left} left by {step.clause}")
        before = step.left
    return ", ".join(told)


def _mebibytes(amount: int) -> str:
    if not amount:
        return "0"
    return f"{amount / 2**30:.1f}Gi" if amount >= 2**30 else f"{amount // 2**20}Mi"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
