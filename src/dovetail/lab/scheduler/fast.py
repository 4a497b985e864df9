"""The same decision on a board: all nodes at once.

`decide` answers None where it must not answer: pods with volumes or ports, images that are somewhere already, and
pods that fit nowhere (whoever asks wants the reasons). `decision.schedule` does those.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from dovetail.lab.scheduler.board import Board, Bools, Ints
from dovetail.lab.scheduler.decision import Decision, Nominated, passes
from dovetail.lab.scheduler.fastaffinity import Company
from dovetail.lab.scheduler.fastspread import SoftSpread
from dovetail.lab.scheduler.scores import merit
from dovetail.lab.scheduler.spreadscore import soft_constraints
from dovetail.model.fit import Fit, PodInfo
from dovetail.model.fit.local import check_resources, check_static, is_scalar, tolerates_node
from dovetail.model.fit.podinfo import Shape, node_matches, term_matches
from dovetail.model.fit.terms import Spread
from dovetail.model.meta import OwnerReference
from dovetail.model.taints import PREFER_NO_SCHEDULE, tolerates

_MAX = 100
_COUNTED = ("cpu", "memory", "ephemeral-storage")
_LARGEST_CACHE = 10_000
#: So many rows are faster one by one.
_FEW = 8


class _Stance:
    """What the nodes are to one shape, row by row: in themselves, and with what runs on them."""

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
        #: How much of the board's log of changed rows these have taken in.
        self.followed = 0
        self.room: Bools = np.zeros(0, dtype=np.bool_)
        self.merit: Ints = np.zeros(0, dtype=np.int64)
        #: Where a pod fits by these; until it fits somewhere else.
        self.rows: Ints | None = None
        self.spread: SoftSpread | None = None


_COLUMNS = ("allowed", "matched", "tolerated", "soft_taints", "preference", "room", "merit")


class Fast:
    """Decisions on one board."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._stances: dict[Shape, _Stance] = {}
        self._spreads: dict[tuple[Shape, OwnerReference | None], tuple[Spread, ...]] = {}
        self._owners_seen = -1

    def decide(self, pod: PodInfo, nominated: Nominated) -> Decision | None:
        """The node of a pod that needs no closer look."""
        board, shape = self.board, pod.shape
        board.sync()
        if not self._answerable(pod):
            return None
        stance = self._stance(pod)
        company = Company(board, shape) if shape.has_affinity or board.vocal else None
        rows = self._rows(shape, stance, company)
        total = len(board.rows)
        if not len(rows):
            return None
        scores = self._scores(pod, stance, rows)
        liked = company.scores(rows) if company is not None else None
        if liked is not None:
            scores = scores + 2 * liked
        return self._pick(pod, rows, scores, nominated, total)

    def _rows(self, shape: Shape, stance: _Stance, company: Company | None) -> Ints:
        """The rows that the pod fits; the same object while they depend on nothing that changed."""
        if stance.rows is None:
            stance.rows = np.flatnonzero(stance.allowed & self.board.alive & stance.room)
        rows = stance.rows
        if shape.spread:
            rows = rows[self._even(shape, stance)[rows]]
        return rows if company is None else rows[company.allowed()[rows]]

    def _pick(self, pod: PodInfo, rows: Ints, scores: Ints, nominated: Nominated, total: int) -> Decision | None:
        rank = self.board.ranks()
        while len(rows):
            top = rows[scores == scores.max()]
            info = self.board.infos[int(top[rank[top].argmin()])]
            assert info is not None
            best = info.name
            if best not in nominated or passes(Fit(pod, self.board.cluster), info, nominated) is None:
                return Decision(best, total, feasible=len(rows))
            keep = rows != self.board.rows[best]
            rows, scores = rows[keep], scores[keep]
        return None

    def _answerable(self, pod: PodInfo) -> bool:
        shape = pod.shape
        if shape.volumes or shape.ports or pod.pod.spec.node_name:
            return False
        if pod.pod.status.nominated_node_name or self.board.with_images:
            return False
        return not (shape.node_terms and any(term.match_fields for term in shape.node_terms))

    def _stance(self, pod: PodInfo) -> _Stance:
        board, shape = self.board, pod.shape
        stance = self._stances.get(shape)
        if stance is None:
            if len(self._stances) > _LARGEST_CACHE:
                self._stances.clear()
            stance = self._stances[shape] = _Stance()
        if len(stance.allowed) < len(board.alive):
            for name in _COLUMNS:
                setattr(stance, name, board.longer(getattr(stance, name)))
        everything = range(len(board.infos))
        fresh = stance.restarts != board.restarts
        renewed = everything if fresh else board.static_log[stance.seen :]
        for row in renewed:
            _take_stance(stance, shape, board, row)
        if renewed:
            stance.rows = None
            stance.wary, stance.choosy = bool(stance.soft_taints.any()), bool(stance.preference.any())
        self._weigh(pod, stance, everything if fresh else board.log[stance.followed :])
        stance.restarts, stance.seen, stance.followed = board.restarts, len(board.static_log), len(board.log)
        return stance

    def _weigh(self, pod: PodInfo, stance: _Stance, moved: Sequence[int]) -> None:
        """Bring room and merit up to date: a few rows one by one, many in one stroke."""
        board, shape = self.board, pod.shape
        if len(moved) > _FEW:
            rows = np.array(moved, dtype=np.int64)
            stance.room[rows], stance.rows = _room(board, shape, rows), None
            stance.merit[rows] = _least_allocated(board, shape, rows) + _balance(board, shape, rows)
            return
        for row in set(moved):
            info = board.infos[row]
            room = info is not None and check_resources(shape, info) is None
            if room != stance.room[row]:
                stance.room[row], stance.rows = room, None
            stance.merit[row] = merit(pod, info) if info is not None else 0

    def _soft(self, pod: PodInfo) -> tuple[Spread, ...]:
        """The soft constraints of a pod, the same objects for all its likes."""
        owners = self.board.cluster.owners
        if self._owners_seen != owners.generation or len(self._spreads) > _LARGEST_CACHE:
            self._spreads.clear()
            self._owners_seen = owners.generation
        key = (pod.shape, pod.pod.metadata.controller)
        found = self._spreads.get(key)
        if found is None:
            found = self._spreads[key] = soft_constraints(pod, self.board.cluster)
        return found

    def _included(self, constraint: Spread, stance: _Stance) -> Bools:
        included = self.board.alive.copy()
        if constraint.honor_affinity:
            included &= stance.matched
        if constraint.honor_taints:
            included &= stance.tolerated
        return included

    def _even(self, shape: Shape, stance: _Stance) -> Bools:
        """Where every hard constraint holds."""
        board = self.board
        columns = [board.domains(each.topology_key) for each in shape.spread]
        has_all = np.logical_and.reduce([column >= 0 for column, _ in columns])
        even: Bools = has_all.copy()
        for constraint, (column, numbers) in zip(shape.spread, columns, strict=True):
            part = has_all & self._included(constraint, stance)
            where = column[part]
            sums = np.bincount(where, weights=board.counts(shape.namespace, constraint)[part], minlength=len(numbers))
            seen = np.bincount(where, minlength=len(numbers)) > 0
            fewest = sums[seen].min() if seen.any() else float((1 << 31) - 1)
            if seen.sum() < constraint.min_domains:
                fewest = 0.0
            mine = 1 if constraint.selects(shape.labels) else 0
            ahead = np.where(column >= 0, sums[np.maximum(column, 0)] if len(sums) else 0, 0) + mine - fewest
            even &= ahead <= constraint.max_skew
        return even

    def _scores(self, pod: PodInfo, stance: _Stance, rows: Ints) -> Ints:
        total: Ints = stance.merit[rows]
        if stance.wary:
            taints = stance.soft_taints[rows]
            total = total + 3 * (_MAX - _MAX * taints // max(int(taints.max()), 1))
        if stance.choosy:
            preference = stance.preference[rows]
            total = total + 2 * (_MAX * preference // max(int(preference.max()), 1))
        constraints = self._soft(pod)
        if constraints:
            total = total + 2 * self._spread(pod.shape, constraints, stance, rows).scores(pod.shape.namespace)
        return total

    def _spread(self, shape: Shape, constraints: tuple[Spread, ...], stance: _Stance, rows: Ints) -> SoftSpread:
        held = stance.spread
        if held is None or not held.holds(constraints, rows):
            of = partial(self._included, stance=stance)
            held = stance.spread = SoftSpread(self.board, constraints, rows, of, strict=shape.own_spread)
        return held


def _take_stance(stance: _Stance, shape: Shape, board: Board, row: int) -> None:
    info = board.infos[row]
    if info is None:
        stance.allowed[row] = False
        return
    node = info.node
    stance.allowed[row] = check_static(shape, node) is None
    stance.matched[row] = node_matches(shape, node)
    stance.tolerated[row] = tolerates_node(shape, node)
    excuses = [each for each in shape.tolerations if each.effect in ("", PREFER_NO_SCHEDULE)]
    stance.soft_taints[row] = sum(
        1
        for taint in node.spec.taints
        if taint.effect == PREFER_NO_SCHEDULE and not any(tolerates(each, taint) for each in excuses)
    )
    stance.preference[row] = sum(
        each.weight for each in shape.node_preferences if each.weight and term_matches(each.preference, node)
    )


def _room(board: Board, shape: Shape, rows: Ints) -> Bools:
    """Where what is left is enough."""
    capacity = board.total.get("pods")
    if capacity is None:
        return np.zeros(len(rows), dtype=np.bool_)
    room: Bools = board.pods[rows] + 1 <= capacity[rows]
    for name, wanted in shape.requests.items():
        if wanted <= 0 or not (name in _COUNTED or is_scalar(name)):
            continue
        room &= _column(board.total, name, rows) - _column(board.used, name, rows) >= wanted
    return room


def _column(columns: dict[str, Ints], name: str, rows: Ints) -> Ints:
    column = columns.get(name)
    return column[rows] if column is not None else np.zeros(len(rows), dtype=np.int64)


def _least_allocated(board: Board, shape: Shape, rows: Ints) -> Ints:
    score = np.zeros(len(rows), dtype=np.int64)
    weights = np.zeros(len(rows), dtype=np.int64)
    for name, scored in (("cpu", board.scored_cpu), ("memory", board.scored_memory)):
        capacity = _column(board.total, name, rows)
        requested = scored[rows] + shape.scored.get(name, 0)
        known = capacity > 0
        room = np.where(known & (requested <= capacity), (capacity - requested) * _MAX, 0)
        score += room // np.maximum(capacity, 1)
        weights += known
    return score // np.maximum(weights, 1)


def _balance(board: Board, shape: Shape, rows: Ints) -> Ints:
    cpu, memory = shape.requests.get("cpu", 0), shape.requests.get("memory", 0)
    if not cpu and not memory:
        return np.zeros(len(rows), dtype=np.int64)
    all_cpu, all_memory = _column(board.total, "cpu", rows), _column(board.total, "memory", rows)
    used_cpu, used_memory = _column(board.used, "cpu", rows), _column(board.used, "memory", rows)

    def evenness(of_cpu: Ints, of_memory: Ints) -> Ints:
        fractions = (
            np.minimum(of_cpu / np.maximum(all_cpu, 1), 1.0),
            np.minimum(of_memory / np.maximum(all_memory, 1), 1.0),
        )
        even = ((1 - np.abs((fractions[0] - fractions[1]) / 2)) * _MAX).astype(np.int64)
        return np.where((all_cpu > 0) & (all_memory > 0), even, _MAX)

    after, before = evenness(used_cpu + cpu, used_memory + memory), evenness(used_cpu, used_memory)
    return _MAX // 2 + (_MAX // 2 + after - before) // 2
