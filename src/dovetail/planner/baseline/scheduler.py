"""A simulation of Karpenter's scheduler: pods one by one, largest first, each on the first node that takes it.

A pod tries existing nodes, then the NodeClaims of this run, those with fewest pods first, then a new NodeClaim of the
heaviest NodePool that can take it. Preferences count as required until nothing takes the pod; then one is relaxed. An
unplaced pod goes to the end of the queue, until a whole round places none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec
import numpy as np

from dovetail.planner.baseline.go_sort import go_sort
from dovetail.planner.baseline.node_claim import (
    ClaimContext,
    Deferred,
    RelaxationStep,
    SimulatedNodeClaim,
    open_domains,
)
from dovetail.planner.baseline.topology import Place, TopologyCounts
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_classes import PodClass, pod_key
from dovetail.planner.problem.request import PlacementRequest


class BaselinePlacement(msgspec.Struct, frozen=True):
    """A placed pod of a class, its node or claim, and its relaxation level."""

    request: PlacementRequest
    place: Place


class BaselineOutcome(msgspec.Struct, frozen=True):
    """The placed pods in order, the offerings of each claim, and the unplaced pods by class and by name.

    `wide` are a claim's offerings including unreserved ones, which count against limits and for minValues.
    """

    placed: list[BaselinePlacement]
    masks: dict[Place, int]
    wide: dict[Place, int]
    left: dict[int, int]
    names: frozenset[str]
    price: float


class SchedulerSimulation:
    """One run over a problem. `turn` breaks ties between domains, which Karpenter breaks at random.

    Results that do not depend on `turn` are shared with the run `before`.
    """

    def __init__(self, problem: Problem, turn: int = 0, before: SchedulerSimulation | None = None) -> None:
        self.problem = problem
        self.topology_counts: TopologyCounts = TopologyCounts(
            problem, turn, before.topology_counts if before is not None else None
        )
        self.context = ClaimContext(problem, self.topology_counts)
        self.free, self.attached = problem.free.copy(), dict(problem.attached)
        initialised = [(not node.initialized, node.name) for node in problem.nodes]
        self.rows = np.array(sorted(range(len(initialised)), key=initialised.__getitem__), dtype=np.int64)
        self.pools = sorted(range(len(problem.pools)), key=lambda index: problem.pools[index].name, reverse=True)
        self.pools.sort(key=lambda pool: -problem.pools[pool].weight)
        self.steps: dict[int, list[RelaxationStep]]
        self.queue: list[tuple[PodClass, str]]
        if before is not None:
            self.steps, self.queue = before.steps, before.queue
        else:
            self.steps = {
                pod_class.index: list(_steps(self.context, pod_class))
                for pod_class in problem.classes
                if not pod_class.error
            }
            self.queue = _queue(problem)
        self.claims: list[SimulatedNodeClaim] = []
        self.loads: list[int] = []
        """The number of pods of each claim."""
        self.placed: list[BaselinePlacement] = []

    def run(self) -> BaselineOutcome:
        queue = deque(self.queue)
        left: dict[int, int] = {}
        failed: dict[int, int] = {}
        idle = 0
        while queue and idle < len(queue):
            pod_class, name = queue.popleft()
            if failed.get(pod_class.index) == len(self.placed) or not self._try(pod_class):
                failed[pod_class.index] = len(self.placed)
                queue.append((pod_class, name))
                idle += 1
            else:
                idle = 0
        for pod_class, _ in queue:
            left[pod_class.index] = left.get(pod_class.index, 0) + 1
        masks = {claim.number: self.context.final(claim) for claim in self.claims}
        price = sum(self.context.price(claim) for claim in self.claims)
        wide = {claim.number: claim.mask for claim in self.claims}
        return BaselineOutcome(self.placed, masks, wide, left, frozenset(name for _, name in queue), price)

    def _try(self, pod_class: PodClass) -> bool:
        try:
            return any(
                self._add_to_existing_node(step) or self._add_to_open_claim(step) or self._add_to_new_claim(step)
                for step in self.steps.get(pod_class.index, ())
            )
        except Deferred:
            return False

    def _add_to_existing_node(self, step: RelaxationStep) -> bool:
        request = step.request
        if not len(self.rows):
            return False
        ok = step.nodes.copy()
        for dim, amount in request.steps:
            ok &= self.free[dim] >= amount
        for row in self.rows[ok[self.rows]].tolist():
            lying = [int(topology_key.nodes[row]) for topology_key in self.problem.topology_keys]
            domains: list[int | None] = [1 << index if index >= 0 else 0 for index in lying]
            new_attachments = self.problem.sharing.amounts(request.shared & ~self.attached.get(row, 0))
            if any(self.free[dim, row] < request.amounts[dim] + more for dim, more in new_attachments):
                continue
            if (
                self.topology_counts.host_admits(request, row)
                and self.topology_counts.domains(request, step.strict, domains) is not None
            ):
                self.free[:, row] -= request.amounts
                for dim, more in new_attachments:
                    self.free[dim, row] -= more
                self.attached[row] = self.attached.get(row, 0) | request.shared
                members = (*request.topology.host_members, *request.topology.domain_members)
                seen = [counter for counter in members if counter.counted_nodes is None or counter.counted_nodes[row]]
                self.topology_counts.record(request, row, domains, seen)
                self.placed.append(BaselinePlacement(request, row))
                return True
        return False

    def _add_to_open_claim(self, step: RelaxationStep) -> bool:
        go_sort(self.loads, self.claims)
        closed = self.topology_counts.closed_hosts(step.request)
        for index, claim in enumerate(self.claims):
            if claim.number in closed or step.size in claim.dead:
                continue
            try:
                change = self.context.change(claim, step)
            except Deferred:
                continue
            if change is not None:
                self.context.add(claim, step, change)
                self.loads[index] += 1
                self.placed.append(BaselinePlacement(step.request, claim.number))
                return True
        return False

    def _add_to_new_claim(self, step: RelaxationStep) -> bool:
        for pool in self.pools:
            mask = self.context.launchable(pool)
            claim = SimulatedNodeClaim(
                -1 - len(self.claims), pool, mask, open_domains(self.context, pool), len(self.problem.dims)
            )
            change = self.context.change(claim, step) if mask else None
            if change is not None:
                self.claims.append(claim)
                self.loads.append(1)
                self.context.add(claim, step, change)
                self.context.charge(claim)
                self.placed.append(BaselinePlacement(step.request, claim.number))
                return True
        return False


def _steps(context: ClaimContext, pod_class: PodClass) -> Iterable[RelaxationStep]:
    """The relaxation steps: alternative required terms are dropped first, except the last, then preferences."""
    problem, required = context.problem, pod_class.shape.required
    for index, term in enumerate(required[:-1]):
        yield RelaxationStep(context, problem.request(pod_class, 0), 0, _joined(pod_class, 0, index), term)
    for level_index in range(len(pod_class.levels)):
        yield RelaxationStep(
            context,
            problem.request(pod_class, level_index),
            level_index,
            _joined(pod_class, level_index, -1),
            required[-1],
        )


def _joined(pod_class: PodClass, level_index: int, node: int) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """A required term with the node preference of a level."""
    terms = pod_class.levels[level_index].terms
    return terms[node] if node < len(terms) else terms[-1]


def _queue(problem: Problem) -> list[tuple[PodClass, str]]:
    """Pods by CPU, then memory, the largest first, then by age and UID: Karpenter's queue order."""
    metadata_of = {pod_key(pod): pod.metadata for pod in problem.snapshot.pending}
    keyed = []
    for pod_class in problem.classes:
        size = (-pod_class.requests.get("cpu", 0), -pod_class.requests.get("memory", 0))
        for name in pod_class.pods:
            made = metadata_of[name].creation_timestamp
            age = made.isoformat() if made is not None else ""
            keyed.append((*size, age, metadata_of[name].uid, -pod_class.priority, pod_class.index, name))
    return [(problem.classes[index], name) for *_, index, name in sorted(keyed)]
