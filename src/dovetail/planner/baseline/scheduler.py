"""Karpenter's way with pods: one by one, largest first, each to the first place that takes it.

A pod tries existing nodes, then claims of this round, those with fewest pods first, then a new claim of the
heaviest pool that can. What is soft counts as hard until nothing takes the pod; then one thing is relaxed. A pod that
finds no node waits at the end of the queue until a whole round brings nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec
import numpy as np

from dovetail.planner.baseline.go_sort import go_sort
from dovetail.planner.baseline.node_claim import Claim, ClaimContext, Deferred, Step, open_domains
from dovetail.planner.baseline.topology import Place, TopologyCounts
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_classes import PodClass, pod_key
from dovetail.planner.problem.request import PlacementRequest


class Placed(msgspec.Struct, frozen=True):
    """A pod of a class that found its place, on which level of its relaxation levels."""

    request: PlacementRequest
    place: Place


class Outcome(msgspec.Struct, frozen=True):
    """Who went where in which order, the offerings each claim may be, and who went without: by class, and by name.

    `wide` are the offerings with those beside a claim's reservations, which count against limits and for variety.
    """

    placed: list[Placed]
    masks: dict[Place, int]
    wide: dict[Place, int]
    left: dict[int, int]
    names: frozenset[str]
    price: float


class SchedulerSimulation:
    """One run over a problem. `turn` decides what Karpenter leaves to chance: ties of domains.

    What does not depend on it is taken over from a run `before`.
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
        self.pools = sorted(range(len(problem.pools)), key=lambda at: problem.pools[at].name, reverse=True)
        self.pools.sort(key=lambda at: -problem.pools[at].weight)
        self.steps: dict[int, list[Step]]
        self.queue: list[tuple[PodClass, str]]
        if before is not None:
            self.steps, self.queue = before.steps, before.queue
        else:
            self.steps = {one.index: list(_steps(self.context, one)) for one in problem.classes if not one.error}
            self.queue = _queue(problem)
        self.claims: list[Claim] = []
        self.loads: list[int] = []
        """How many pods each of the claims holds."""
        self.placed: list[Placed] = []

    def run(self) -> Outcome:
        queue = deque(self.queue)
        left: dict[int, int] = {}
        failed: dict[int, int] = {}
        idle = 0
        while queue and idle < len(queue):
            one, name = queue.popleft()
            if failed.get(one.index) == len(self.placed) or not self._try(one):
                failed[one.index] = len(self.placed)
                queue.append((one, name))
                idle += 1
            else:
                idle = 0
        for one, _ in queue:
            left[one.index] = left.get(one.index, 0) + 1
        masks = {claim.number: self.context.final(claim) for claim in self.claims}
        price = sum(self.context.price(claim) for claim in self.claims)
        wide = {claim.number: claim.mask for claim in self.claims}
        return Outcome(self.placed, masks, wide, left, frozenset(name for _, name in queue), price)

    def _try(self, one: PodClass) -> bool:
        try:
            return any(
                self._there(step) or self._claimed(step) or self._add_to_new_claim(step)
                for step in self.steps.get(one.index, ())
            )
        except Deferred:
            return False

    def _there(self, step: Step) -> bool:
        request = step.request
        if not len(self.rows):
            return False
        ok = step.nodes.copy()
        for dim, amount in request.steps:
            ok &= self.free[dim] >= amount
        for row in self.rows[ok[self.rows]].tolist():
            lying = [int(topology_key.nodes[row]) for topology_key in self.problem.topology_keys]
            domains: list[int | None] = [1 << at if at >= 0 else 0 for at in lying]
            brought = self.problem.sharing.amounts(request.shared & ~self.attached.get(row, 0))
            if any(self.free[dim, row] < request.amounts[dim] + more for dim, more in brought):
                continue
            if (
                self.topology_counts.host_admits(request, row)
                and self.topology_counts.domains(request, step.strict, domains) is not None
            ):
                self.free[:, row] -= request.amounts
                for dim, more in brought:
                    self.free[dim, row] -= more
                self.attached[row] = self.attached.get(row, 0) | request.shared
                members = (*request.topology.host_members, *request.topology.domain_members)
                seen = [counter for counter in members if counter.counted_nodes is None or counter.counted_nodes[row]]
                self.topology_counts.record(request, row, domains, seen)
                self.placed.append(Placed(request, row))
                return True
        return False

    def _claimed(self, step: Step) -> bool:
        go_sort(self.loads, self.claims)
        closed = self.topology_counts.closed_hosts(step.request)
        for at, claim in enumerate(self.claims):
            if claim.number in closed or step.size in claim.dead:
                continue
            try:
                change = self.context.change(claim, step)
            except Deferred:
                continue
            if change is not None:
                self.context.add(claim, step, change)
                self.loads[at] += 1
                self.placed.append(Placed(step.request, claim.number))
                return True
        return False

    def _add_to_new_claim(self, step: Step) -> bool:
        for pool in self.pools:
            mask = self.context.launchable(pool)
            claim = Claim(-1 - len(self.claims), pool, mask, open_domains(self.context, pool), len(self.problem.dims))
            change = self.context.change(claim, step) if mask else None
            if change is not None:
                self.claims.append(claim)
                self.loads.append(1)
                self.context.add(claim, step, change)
                self.context.charge(claim)
                self.placed.append(Placed(step.request, claim.number))
                return True
        return False


def _steps(context: ClaimContext, one: PodClass) -> Iterable[Step]:
    """The ways down: required terms are dropped one by one before anything soft is, and the last one stays."""
    problem, required = context.problem, one.shape.required
    for at, term in enumerate(required[:-1]):
        yield Step(context, problem.request(one, 0), 0, _joined(one, 0, at), term)
    for level_index in range(len(one.levels)):
        yield Step(context, problem.request(one, level_index), level_index, _joined(one, level_index, -1), required[-1])


def _joined(one: PodClass, level_index: int, at: int) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """A required term with the preference of a level; equal ones are listed once, so the last may stand for others."""
    terms = one.levels[level_index].terms
    return terms[at] if at < len(terms) else terms[-1]


def _queue(problem: Problem) -> list[tuple[PodClass, str]]:
    """Most CPU first, then most memory, then the oldest, then by UID. It knows nothing else: then priority decides."""
    asked = {pod_key(pod): pod.metadata for pod in problem.snapshot.pending}
    keyed = []
    for one in problem.classes:
        size = (-one.requests.get("cpu", 0), -one.requests.get("memory", 0))
        for name in one.pods:
            made = asked[name].creation_timestamp
            age = made.isoformat() if made is not None else ""
            keyed.append((*size, age, asked[name].uid, -one.priority, one.index, name))
    return [(problem.classes[index], name) for *_, index, name in sorted(keyed)]
