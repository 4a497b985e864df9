"""The reference's way with pods: one by one, largest first, each to the first place that takes it.

A pod tries machines that are there, then claims of this round, those with fewest pods first, then a new claim of the
heaviest pool that can. What is soft counts as hard until nothing takes the pod; then one thing is given up. Whoever
finds no place waits at the end of the queue until a whole round brings nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec
import numpy as np

from dovetail.planner.baseline.go_sort import go_sort
from dovetail.planner.baseline.node_claim import Claim, Deferred, Market, Step, open_domains
from dovetail.planner.baseline.topology import Place, Tally
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_classes import PodClass, pod_key
from dovetail.planner.problem.request import Ask


class Placed(msgspec.Struct, frozen=True):
    """A pod of a class that found its place, on which rung of its ladder."""

    ask: Ask
    place: Place


class Outcome(msgspec.Struct, frozen=True):
    """Who went where in which order, the columns each claim may be, and who went without: by class, and by name.

    `wide` are the columns with those beside a claim's reservations, which count against limits and for variety.
    """

    placed: list[Placed]
    masks: dict[Place, int]
    wide: dict[Place, int]
    left: dict[int, int]
    names: frozenset[str]
    price: float


class Greedy:
    """One run over a problem. `turn` decides what the reference leaves to chance: ties of domains.

    What does not depend on it is taken over from a run `before`.
    """

    def __init__(self, problem: Problem, turn: int = 0, before: Greedy | None = None) -> None:
        self.problem = problem
        self.tally: Tally = Tally(problem, turn, before.tally if before is not None else None)
        self.market = Market(problem, self.tally)
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
            self.steps = {one.index: list(_steps(self.market, one)) for one in problem.classes if not one.error}
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
        masks = {claim.number: self.market.final(claim) for claim in self.claims}
        price = sum(self.market.price(claim) for claim in self.claims)
        wide = {claim.number: claim.mask for claim in self.claims}
        return Outcome(self.placed, masks, wide, left, frozenset(name for _, name in queue), price)

    def _try(self, one: PodClass) -> bool:
        try:
            return any(
                self._there(step) or self._claimed(step) or self._bought(step) for step in self.steps.get(one.index, ())
            )
        except Deferred:
            return False

    def _there(self, step: Step) -> bool:
        ask = step.ask
        if not len(self.rows):
            return False
        ok = step.nodes.copy()
        for dim, amount in ask.steps:
            ok &= self.free[dim] >= amount
        for row in self.rows[ok[self.rows]].tolist():
            lying = [int(axis.nodes[row]) for axis in self.problem.axes]
            domains: list[int | None] = [1 << at if at >= 0 else 0 for at in lying]
            brought = self.problem.sharing.amounts(ask.shared & ~self.attached.get(row, 0))
            if any(self.free[dim, row] < ask.request[dim] + more for dim, more in brought):
                continue
            if self.tally.host_admits(ask, row) and self.tally.domains(ask, step.strict, domains) is not None:
                self.free[:, row] -= ask.request
                for dim, more in brought:
                    self.free[dim, row] -= more
                self.attached[row] = self.attached.get(row, 0) | ask.shared
                members = (*ask.ties.host_members, *ask.ties.domain_members)
                seen = [cell for cell in members if cell.counted_nodes is None or cell.counted_nodes[row]]
                self.tally.record(ask, row, domains, seen)
                self.placed.append(Placed(ask, row))
                return True
        return False

    def _claimed(self, step: Step) -> bool:
        go_sort(self.loads, self.claims)
        closed = self.tally.closed_hosts(step.ask)
        for at, claim in enumerate(self.claims):
            if claim.number in closed or step.size in claim.dead:
                continue
            try:
                change = self.market.change(claim, step)
            except Deferred:
                continue
            if change is not None:
                self.market.add(claim, step, change)
                self.loads[at] += 1
                self.placed.append(Placed(step.ask, claim.number))
                return True
        return False

    def _bought(self, step: Step) -> bool:
        for pool in self.pools:
            mask = self.market.buyable(pool)
            claim = Claim(-1 - len(self.claims), pool, mask, open_domains(self.market, pool), len(self.problem.dims))
            change = self.market.change(claim, step) if mask else None
            if change is not None:
                self.claims.append(claim)
                self.loads.append(1)
                self.market.add(claim, step, change)
                self.market.charge(claim)
                self.placed.append(Placed(step.ask, claim.number))
                return True
        return False


def _steps(market: Market, one: PodClass) -> Iterable[Step]:
    """The ways down: required terms are dropped one by one before anything soft is, and the last one stays."""
    problem, required = market.problem, one.shape.required
    for at, term in enumerate(required[:-1]):
        yield Step(market, problem.ask(one, 0), 0, _joined(one, 0, at), term)
    for rung in range(len(one.levels)):
        yield Step(market, problem.ask(one, rung), rung, _joined(one, rung, -1), required[-1])


def _joined(one: PodClass, rung: int, at: int) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """A required term with the wish of a rung; equal ones are told once, so the last may stand for others."""
    terms = one.levels[rung].terms
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
