"""Provisioning: a place for every pending pod, on machines that are there or at the least price."""

from __future__ import annotations

from dovetail.planner.explain import unschedulable
from dovetail.planner.launch import machines_and_placements
from dovetail.planner.packer import Strategy
from dovetail.planner.plan import Cost, Placement, Plan
from dovetail.planner.problem import Problem
from dovetail.planner.quick import Packing, pack
from dovetail.planner.snapshot import Snapshot

#: Below this many pods several strategies are tried at once: it still takes milliseconds.
_FEW = 500
_FIRST = (Strategy(), Strategy(foresight=0.0), Strategy(order="sum", grow=True), Strategy(foresight=0.3, turn=1))


def provision(snapshot: Snapshot, seed: int = 0, deadline: float | None = None) -> Plan:
    """Place `snapshot.pending`. Without `deadline` the quick answer; with it, up to that many seconds to better it."""
    problem = Problem(snapshot)
    packing = quick(problem)
    return plan_of(problem, packing)


def quick(problem: Problem) -> Packing:
    """The best of a few quick packings; priority decides only when not everybody has a place."""
    few = sum(one.count for one in problem.classes) <= _FEW
    best = min((pack(problem, strategy) for strategy in (_FIRST if few else _FIRST[:1])), key=lambda each: each.rank)
    if best.left and len({one.priority for one in problem.classes}) > 1:
        best = pack(problem, Strategy(by_priority=True))
    return best


def plan_of(problem: Problem, packing: Packing, tier: int = 1) -> Plan:
    """The packing as a plan, with reasons for those left over."""
    machines, placements, left = machines_and_placements(problem, packing)
    for index, names in left.items():
        why = Placement(unschedulable=unschedulable(problem, packing.board, problem.classes[index]))
        placements.update(dict.fromkeys(names, why))
    cost = Cost(per_hour=sum(machine.price for machine in machines))
    return Plan(placements=dict(sorted(placements.items())), machines=machines, cost=cost, tier=tier)
