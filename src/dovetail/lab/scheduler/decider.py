"""The way to a decision: on the board where that is possible, node by node where it is not.

Pods that are alike fail alike: as long as nothing changed in the cluster, a failure is worked out once a shape.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dovetail.lab.scheduler.board import Board
from dovetail.lab.scheduler.decision import Decision, Memory, Nominated, schedule
from dovetail.lab.scheduler.fast import Fast
from dovetail.lab.scheduler.preemption import Outcome, preempt
from dovetail.model.fit import Cluster, PodInfo
from dovetail.model.fit.podinfo import Shape
from dovetail.model.workloads import PodDisruptionBudget

#: From this many nodes on the board is faster than looking at one node after another.
_WORTH_A_BOARD = 24
_NOTHING = Outcome(None)
_MOST_MEMORIES = 64


class _Failure(msgspec.Struct):
    generation: tuple[int, int, int]
    decision: Decision
    outcome: Outcome


class Decider:
    """Decides for one pod after another."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._fast = Fast(Board(cluster))
        self._failures: dict[tuple[Shape, int, str | None], _Failure] = {}
        self._memories: dict[Shape, Memory] = {}
        self._start = 0

    def decide(
        self, pod: PodInfo, nominated: Nominated, budgets: Mapping[str, PodDisruptionBudget]
    ) -> tuple[Decision, Outcome]:
        """The decision and, where the pod fits nowhere, what preemption could do."""
        alike = not nominated and not pod.shape.volumes and not pod.pod.status.nominated_node_name
        key = (pod.shape, pod.priority, pod.pod.spec.preemption_policy)
        moment = (self.cluster.generation, self.cluster.owners.generation, self.cluster.storage.generation)
        known = self._failures.get(key) if alike else None
        if known is not None and known.generation == moment:
            return known.decision, known.outcome
        if len(self.cluster.nodes) >= _WORTH_A_BOARD:
            quick = self._fast.decide(pod, nominated)
            if quick is not None:
                return quick, _NOTHING
        decision = schedule(pod, self.cluster, nominated, self._start, self._memory(pod.shape))
        self._start += decision.feasible + len(decision.rejections)
        if decision.node is not None:
            return decision, _NOTHING
        outcome = _NOTHING
        if decision.total and decision.refused is None:
            in_order = [budgets[name] for name in sorted(budgets)]
            outcome = preempt(pod, self.cluster, decision, in_order, nominated)
        if alike and outcome.victims is None:
            self._remember(key, _Failure(moment, decision, outcome))
        return decision, outcome

    def _memory(self, shape: Shape) -> Memory:
        found = self._memories.get(shape)
        if found is None:
            if len(self._memories) >= _MOST_MEMORIES:
                self._memories.clear()
            found = self._memories[shape] = Memory()
        return found

    def _remember(self, key: tuple[Shape, int, str | None], failure: _Failure) -> None:
        if self._failures and next(iter(self._failures.values())).generation != failure.generation:
            self._failures.clear()
        self._failures[key] = failure
