"""The same decision on a node matrix: all nodes at once.

`decide` answers None where it must not answer: pods with volumes or ports, images that are somewhere already, and
pods that fit nowhere and look at other pods (their rejections are needed). `schedule_one.schedule` does those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import numpy as np

from dovetail.lab.scheduler.node_matrix import Bools, Ints, NodeMatrix
from dovetail.lab.scheduler.preemption import PreemptionOutcome, preempt
from dovetail.lab.scheduler.schedule_one import FilterRejections, Nominated, SchedulingDecision, passes, schedule
from dovetail.lab.scheduler.scoring.scores import merit
from dovetail.lab.scheduler.scoring.spread import soft_constraints
from dovetail.lab.scheduler.vectorised.affinity import InterPodAffinity
from dovetail.lab.scheduler.vectorised.rejected_nodes import RejectedNodes
from dovetail.lab.scheduler.vectorised.spread import SoftSpread
from dovetail.model.fit import ClusterNodes, Fit, PodInfo
from dovetail.model.fit.local import check_resources, check_static, is_scalar, tolerates_node
from dovetail.model.fit.podinfo import Shape, node_matches, term_matches
from dovetail.model.fit.terms import Spread
from dovetail.model.meta import OwnerReference
from dovetail.model.taints import PREFER_NO_SCHEDULE, tolerates
from dovetail.model.workloads import PodDisruptionBudget

_MAX = 100
_COUNTED = ("cpu", "memory", "ephemeral-storage")
_MAX_NODE_FILTERS = 10_000
#: So many rows are faster one by one.
_FEW = 8


class _NodeFilter:
    """The nodes as filters and scores see them for one shape, row by row."""

    def __init__(self) -> None:
        self.restarts = -1
        self.seen = 0
        self.allowed: Bools = np.zeros(0, dtype=np.bool_)
        self.matched: Bools = np.zeros(0, dtype=np.bool_)
        self.tolerated: Bools = np.zeros(0, dtype=np.bool_)
        self.soft_taints: Ints = np.zeros(0, dtype=np.int64)
        self.preference: Ints = np.zeros(0, dtype=np.int64)
        #: Whether any node has a soft taint or a preferred label at all.
        self.wary = self.choosy = False
        #: How much of the matrix's log of changed rows these columns include.
        self.followed = 0
        self.room: Bools = np.zeros(0, dtype=np.bool_)
        self.merit: Ints = np.zeros(0, dtype=np.int64)
        #: Where a pod fits by these; until it fits somewhere else.
        self.rows: Ints | None = None
        self.spread: SoftSpread | None = None
        self.rejected: RejectedNodes | None = None


_COLUMNS = ("allowed", "matched", "tolerated", "soft_taints", "preference", "room", "merit")


class Fast:
    """Decisions on one node matrix."""

    def __init__(self, matrix: NodeMatrix) -> None:
        self.matrix = matrix
        self._node_filters: dict[Shape, _NodeFilter] = {}
        self._spreads: dict[tuple[Shape, OwnerReference | None], tuple[Spread, ...]] = {}
        self._owners_seen = -1

    def decide(self, pod: PodInfo, nominated: Nominated) -> SchedulingDecision | None:
        """The node of a pod that needs no closer look."""
        matrix, shape = self.matrix, pod.shape
        matrix.sync()
        if not self._answerable(pod):
            return None
        node_filter = self._node_filter(pod)
        inter_pod_affinity = InterPodAffinity(matrix, shape) if shape.has_affinity or matrix.vocal else None
        rows = self._rows(shape, node_filter, inter_pod_affinity)
        total = len(matrix.rows)
        if not len(rows):
            plain = inter_pod_affinity is None and not shape.spread and not nominated
            return self._rejected(shape, node_filter, total) if plain else None
        scores = self._scores(pod, node_filter, rows)
        liked = inter_pod_affinity.scores(rows) if inter_pod_affinity is not None else None
        if liked is not None:
            scores = scores + 2 * liked
        return self._pick(pod, rows, scores, nominated, total)

    def _rejected(self, shape: Shape, node_filter: _NodeFilter, total: int) -> SchedulingDecision | None:
        """The failure of a pod that looks at nothing but the node itself."""
        if node_filter.rejected is None:
            node_filter.rejected = RejectedNodes(shape)
        rejected = node_filter.rejected
        if not rejected.follow(self.matrix) or len(rejected.by_name) != total:
            return None
        return SchedulingDecision(None, total, rejections=rejected.by_name, counted=rejected.tally)

    def _rows(self, shape: Shape, node_filter: _NodeFilter, inter_pod_affinity: InterPodAffinity | None) -> Ints:
        """The rows that the pod fits; the same object while they depend on nothing that changed."""
        if node_filter.rows is None:
            node_filter.rows = np.flatnonzero(node_filter.allowed & self.matrix.alive & node_filter.room)
        rows = node_filter.rows
        if shape.spread:
            rows = rows[self._even(shape, node_filter)[rows]]
        return rows if inter_pod_affinity is None else rows[inter_pod_affinity.allowed()[rows]]

    def _pick(
        self, pod: PodInfo, rows: Ints, scores: Ints, nominated: Nominated, total: int
    ) -> SchedulingDecision | None:
        rank = self.matrix.ranks()
        while len(rows):
            top = rows[scores == scores.max()]
            info = self.matrix.infos[int(top[rank[top].argmin()])]
            assert info is not None
            best = info.name
            if best not in nominated or passes(Fit(pod, self.matrix.cluster), info, nominated) is None:
                return SchedulingDecision(best, total, feasible=len(rows))
            keep = rows != self.matrix.rows[best]
            rows, scores = rows[keep], scores[keep]
        return None

    def _answerable(self, pod: PodInfo) -> bool:
        shape = pod.shape
        if shape.volumes or shape.ports or pod.pod.spec.node_name:
            return False
        if pod.pod.status.nominated_node_name or self.matrix.with_images:
            return False
        return not (shape.node_terms and any(term.match_fields for term in shape.node_terms))

    def _node_filter(self, pod: PodInfo) -> _NodeFilter:
        matrix, shape = self.matrix, pod.shape
        node_filter = self._node_filters.get(shape)
        if node_filter is None:
            if len(self._node_filters) > _MAX_NODE_FILTERS:
                self._node_filters.clear()
            node_filter = self._node_filters[shape] = _NodeFilter()
        if len(node_filter.allowed) < len(matrix.alive):
            for name in _COLUMNS:
                setattr(node_filter, name, matrix.longer(getattr(node_filter, name)))
        everything = range(len(matrix.infos))
        fresh = node_filter.restarts != matrix.restarts
        renewed = everything if fresh else matrix.static_log[node_filter.seen :]
        for row in renewed:
            _evaluate_row(node_filter, shape, matrix, row)
        if renewed:
            node_filter.rows = None
            node_filter.wary, node_filter.choosy = (
                bool(node_filter.soft_taints.any()),
                bool(node_filter.preference.any()),
            )
        self._weigh(pod, node_filter, everything if fresh else matrix.log[node_filter.followed :])
        node_filter.restarts, node_filter.seen, node_filter.followed = (
            matrix.restarts,
            len(matrix.static_log),
            len(matrix.log),
        )
        return node_filter

    def _weigh(self, pod: PodInfo, node_filter: _NodeFilter, moved: Sequence[int]) -> None:
        """Bring room and merit up to date: a few rows one by one, many at once."""
        matrix, shape = self.matrix, pod.shape
        if len(moved) > _FEW:
            rows = np.array(moved, dtype=np.int64)
            node_filter.room[rows], node_filter.rows = _room(matrix, shape, rows), None
            node_filter.merit[rows] = _least_allocated(matrix, shape, rows) + _balance(matrix, shape, rows)
            return
        for row in set(moved):
            info = matrix.infos[row]
            room = info is not None and check_resources(shape, info) is None
            if room != node_filter.room[row]:
                node_filter.room[row], node_filter.rows = room, None
            node_filter.merit[row] = merit(pod, info) if info is not None else 0

    def _soft(self, pod: PodInfo) -> tuple[Spread, ...]:
        """The soft constraints of a pod, the same objects for all its likes."""
        owners = self.matrix.cluster.owners
        if self._owners_seen != owners.generation or len(self._spreads) > _MAX_NODE_FILTERS:
            self._spreads.clear()
            self._owners_seen = owners.generation
        key = (pod.shape, pod.pod.metadata.controller)
        spread = self._spreads.get(key)
        if spread is None:
            spread = self._spreads[key] = soft_constraints(pod, self.matrix.cluster)
        return spread

    def _included(self, constraint: Spread, node_filter: _NodeFilter) -> Bools:
        included = self.matrix.alive.copy()
        if constraint.honor_affinity:
            included &= node_filter.matched
        if constraint.honor_taints:
            included &= node_filter.tolerated
        return included

    def _even(self, shape: Shape, node_filter: _NodeFilter) -> Bools:
        """Where every hard constraint holds."""
        matrix = self.matrix
        columns = [matrix.domains(constraint.topology_key) for constraint in shape.spread]
        has_all = np.logical_and.reduce([column >= 0 for column, _ in columns])
        even: Bools = has_all.copy()
        for constraint, (column, numbers) in zip(shape.spread, columns, strict=True):
            part = has_all & self._included(constraint, node_filter)
            where = column[part]
            sums = np.bincount(where, weights=matrix.counts(shape.namespace, constraint)[part], minlength=len(numbers))
            seen = np.bincount(where, minlength=len(numbers)) > 0
            fewest = sums[seen].min() if seen.any() else float((1 << 31) - 1)
            if seen.sum() < constraint.min_domains:
                fewest = 0.0
            mine = 1 if constraint.selects(shape.labels) else 0
            ahead = np.where(column >= 0, sums[np.maximum(column, 0)] if len(sums) else 0, 0) + mine - fewest
            even &= ahead <= constraint.max_skew
        return even

    def _scores(self, pod: PodInfo, node_filter: _NodeFilter, rows: Ints) -> Ints:
        total: Ints = node_filter.merit[rows]
        if node_filter.wary:
            taints = node_filter.soft_taints[rows]
            total = total + 3 * (_MAX - _MAX * taints // max(int(taints.max()), 1))
        if node_filter.choosy:
            preference = node_filter.preference[rows]
            total = total + 2 * (_MAX * preference // max(int(preference.max()), 1))
        constraints = self._soft(pod)
        if constraints:
            total = total + 2 * self._spread(pod.shape, constraints, node_filter, rows).scores(pod.shape.namespace)
        return total

    def _spread(
        self, shape: Shape, constraints: tuple[Spread, ...], node_filter: _NodeFilter, rows: Ints
    ) -> SoftSpread:
        held = node_filter.spread
        if held is None or not held.holds(constraints, rows):
            of = partial(self._included, node_filter=node_filter)
            held = node_filter.spread = SoftSpread(self.matrix, constraints, rows, of, strict=shape.own_spread)
        return held


def _evaluate_row(node_filter: _NodeFilter, shape: Shape, matrix: NodeMatrix, row: int) -> None:
    info = matrix.infos[row]
    if info is None:
        node_filter.allowed[row] = False
        return
    node = info.node
    node_filter.allowed[row] = check_static(shape, node) is None
    node_filter.matched[row] = node_matches(shape, node)
    node_filter.tolerated[row] = tolerates_node(shape, node)
    excuses = [toleration for toleration in shape.tolerations if toleration.effect in ("", PREFER_NO_SCHEDULE)]
    node_filter.soft_taints[row] = sum(
        1
        for taint in node.spec.taints
        if taint.effect == PREFER_NO_SCHEDULE and not any(tolerates(excuse, taint) for excuse in excuses)
    )
    node_filter.preference[row] = sum(
        node_preference.weight
        for node_preference in shape.node_preferences
        if node_preference.weight and term_matches(node_preference.preference, node)
    )


def _room(matrix: NodeMatrix, shape: Shape, rows: Ints) -> Bools:
    """Where what is left is enough."""
    capacity = matrix.total.get("pods")
    if capacity is None:
        return np.zeros(len(rows), dtype=np.bool_)
    room: Bools = matrix.pods[rows] + 1 <= capacity[rows]
    for name, requested in shape.requests.items():
        if requested <= 0 or not (name in _COUNTED or is_scalar(name)):
            continue
        room &= _column(matrix.total, name, rows) - _column(matrix.used, name, rows) >= requested
    return room


def _column(columns: dict[str, Ints], name: str, rows: Ints) -> Ints:
    column = columns.get(name)
    return column[rows] if column is not None else np.zeros(len(rows), dtype=np.int64)


def _least_allocated(matrix: NodeMatrix, shape: Shape, rows: Ints) -> Ints:
    score = np.zeros(len(rows), dtype=np.int64)
    weights = np.zeros(len(rows), dtype=np.int64)
    for name, scored in (("cpu", matrix.scored_cpu), ("memory", matrix.scored_memory)):
        capacity = _column(matrix.total, name, rows)
        requested = scored[rows] + shape.scored.get(name, 0)
        has_capacity = capacity > 0
        room = np.where(has_capacity & (requested <= capacity), (capacity - requested) * _MAX, 0)
        score += room // np.maximum(capacity, 1)
        weights += has_capacity
    return score // np.maximum(weights, 1)


def _balance(matrix: NodeMatrix, shape: Shape, rows: Ints) -> Ints:
    cpu, memory = shape.requests.get("cpu", 0), shape.requests.get("memory", 0)
    if not cpu and not memory:
        return np.zeros(len(rows), dtype=np.int64)
    all_cpu, all_memory = _column(matrix.total, "cpu", rows), _column(matrix.total, "memory", rows)
    used_cpu, used_memory = _column(matrix.used, "cpu", rows), _column(matrix.used, "memory", rows)

    def evenness(of_cpu: Ints, of_memory: Ints) -> Ints:
        fractions = (
            np.minimum(of_cpu / np.maximum(all_cpu, 1), 1.0),
            np.minimum(of_memory / np.maximum(all_memory, 1), 1.0),
        )
        even = ((1 - np.abs((fractions[0] - fractions[1]) / 2)) * _MAX).astype(np.int64)
        return np.where((all_cpu > 0) & (all_memory > 0), even, _MAX)

    after, before = evenness(used_cpu + cpu, used_memory + memory), evenness(used_cpu, used_memory)
    return _MAX // 2 + (_MAX // 2 + after - before) // 2


# The way to a decision: on the matrix where that is possible, node by node where it is not.
#
# Pods that are alike fail alike: as long as nothing changed in the cluster, a failure is worked out once a shape.

#: From this many nodes on the matrix is faster than checking one node after another.
_MATRIX_MIN_NODES = 24
_NOTHING = PreemptionOutcome(None)
_MAX_MEMORIES = 64


class _Failure(msgspec.Struct):
    generation: tuple[int, int, int]
    decision: SchedulingDecision
    outcome: PreemptionOutcome


class Decider:
    """Decides for one pod after another."""

    def __init__(self, cluster: ClusterNodes) -> None:
        self.cluster = cluster
        self._fast = Fast(NodeMatrix(cluster))
        self._failures: dict[tuple[Shape, int, str | None], _Failure] = {}
        self._memories: dict[Shape, FilterRejections] = {}
        self._start = 0

    def decide(
        self, pod: PodInfo, nominated: Nominated, budgets: Mapping[str, PodDisruptionBudget]
    ) -> tuple[SchedulingDecision, PreemptionOutcome]:
        """The decision and, where the pod fits nowhere, what preemption could do."""
        alike = not nominated and not pod.shape.volumes and not pod.pod.status.nominated_node_name
        key = (pod.shape, pod.priority, pod.pod.spec.preemption_policy)
        moment = (self.cluster.generation, self.cluster.owners.generation, self.cluster.storage.generation)
        failure = self._failures.get(key) if alike else None
        if failure is not None and failure.generation == moment:
            return failure.decision, failure.outcome
        quick: SchedulingDecision | None = None
        if len(self.cluster.nodes) >= _MATRIX_MIN_NODES:
            quick = self._fast.decide(pod, nominated)
            if quick is not None and quick.node is not None:
                return quick, _NOTHING
        if self.cluster.lowest < pod.priority:
            quick = None  # preemption tries nodes in the order of the search
        decision = quick or schedule(pod, self.cluster, nominated, self._start, self._memory(pod.shape))
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

    def _memory(self, shape: Shape) -> FilterRejections:
        memory = self._memories.get(shape)
        if memory is None:
            if len(self._memories) >= _MAX_MEMORIES:
                self._memories.clear()
            memory = self._memories[shape] = FilterRejections()
        return memory

    def _remember(self, key: tuple[Shape, int, str | None], failure: _Failure) -> None:
        if self._failures and next(iter(self._failures.values())).generation != failure.generation:
            self._failures.clear()
        self._failures[key] = failure
