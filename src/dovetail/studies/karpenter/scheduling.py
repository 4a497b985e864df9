"""Karpenter's scheduler on a snapshot: where it would put pods, and the NodeClaims it would create."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from dovetail.model.pods import Pod
from dovetail.planner.baseline.scheduler import BaselineOutcome, SchedulerSimulation
from dovetail.planner.baseline.to_packing import as_packings
from dovetail.planner.launch.assemble import plan_of
from dovetail.planner.packing.run import PackingRun, WorkMeter
from dovetail.planner.plan import Plan
from dovetail.planner.problem.compile import Problem
from dovetail.planner.snapshot import Snapshot
from dovetail.runtime.gc_pause import quiet


class Simulated:
    """One run of the scheduler."""

    def __init__(self, snapshot: Snapshot) -> None:
        with quiet():
            self.problem = Problem(snapshot)
            self.outcome: BaselineOutcome = SchedulerSimulation(self.problem).run()

    @property
    def new_claims(self) -> int:
        return len(self.outcome.masks)

    def existing_nodes(self) -> set[str]:
        """The existing and starting nodes that got a pod."""
        rows = {placed.place for placed in self.outcome.placed if placed.place >= 0}
        return {self.problem.nodes[row].name for row in rows}

    def places(self, pods: Collection[Pod]) -> bool:
        """Whether every one of these pods found a place."""
        return not self.outcome.names & {pod.metadata.key for pod in pods}

    def plan(self) -> Plan:
        """The outcome with its NodeClaims."""
        with quiet():
            packing = as_packings(self.problem, [self.outcome], PackingRun(WorkMeter()))[0]
            return plan_of(self.problem, packing)


def without(snapshot: Snapshot, removed: Collection[str], moved: Collection[Pod]) -> Simulated:
    """The scheduler's answer if some nodes were deleted and their pods had to go elsewhere."""
    nodes = tuple(
        msgspec.structs.replace(node, deleting=True) if node.name in removed else node for node in snapshot.nodes
    )
    return Simulated(msgspec.structs.replace(snapshot, nodes=nodes, pending=(*snapshot.pending, *moved)))
