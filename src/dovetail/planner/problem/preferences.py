"""Preferences of pod classes, for counting violations on a finished packing.

A preference counts as kept if it holds in the end, whether or not it was relaxed before: preferred node affinity,
preferred pod (anti-)affinity, soft spreads, and PreferNoSchedule taints.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Protocol

import msgspec
import numpy as np

from dovetail.model.nodes import Taint
from dovetail.model.taints import PREFER_NO_SCHEDULE
from dovetail.planner.offerings.catalog import Bools, Ints, OfferingCatalog
from dovetail.planner.problem.frontier import OfferingFrontier, as_bools
from dovetail.planner.problem.pod_classes import ConstraintClass, PodClass
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.problem.topology_groups import TopologyGroup
from dovetail.planner.requirements import Term, tolerates_all
from dovetail.planner.snapshot import Pool


class ClassPreferences(msgspec.Struct, frozen=True):
    """The preferences of a class: violations on each offering and each existing node, and its topology counters."""

    offerings: Ints
    nodes: Ints
    counters: tuple[TopologyCounter, ...]


class PreferenceProblem(Protocol):
    """What preferences read of a problem that is being compiled."""

    pools: list[Pool]
    kinds: list[ConstraintClass]
    classes: list[PodClass]
    catalog: OfferingCatalog
    frontier: OfferingFrontier
    counters: dict[TopologyGroup, TopologyCounter]
    taint_at: Ints

    @property
    def nodes(self) -> Sized: ...

    @property
    def taints(self) -> Sequence[tuple[Taint, ...]]: ...

    @property
    def tainted(self) -> set[tuple[Taint, ...]]: ...

    def passing(self, terms: tuple[Term, ...]) -> Bools: ...


def preferences_of(problem: PreferenceProblem) -> dict[int, ClassPreferences]:
    """The preferences of every class that has some."""
    avoided = {_soft(taints) for taints in _tainted(problem)} - {()}
    soft = {kind for kind in problem.kinds if avoided or kind.levels[0].soft}
    return {
        pod_class.index: _preferences(problem, pod_class, avoided)
        for pod_class in problem.classes
        if (pod_class.shape.preferred or pod_class.kind in soft) and not pod_class.error
    }


def _tainted(problem: PreferenceProblem) -> set[tuple[Taint, ...]]:
    return {pool.taints for pool in problem.pools} | problem.tainted


def _preferences(problem: PreferenceProblem, pod_class: PodClass, avoided: set[tuple[Taint, ...]]) -> ClassPreferences:
    offerings: Ints = np.zeros(problem.frontier.size, dtype=np.int64)
    nodes: Ints = np.zeros(len(problem.nodes), dtype=np.int64)
    for _, term in pod_class.shape.preferred:
        offerings += ~as_bools(problem.catalog, problem.frontier, problem.catalog.term(term))
        nodes += ~problem.passing((term,))
    untolerated = {taints for taints in avoided if not tolerates_all(pod_class.shape.tolerations, taints, prefer=False)}
    if untolerated:
        soft = [_soft(pool.taints) in untolerated for pool in problem.pools]
        offerings += np.array(soft, dtype=np.int64)[problem.frontier.pools]
        nodes += np.array([_soft(taint) in untolerated for taint in problem.taints], dtype=np.int64)[problem.taint_at]
    return ClassPreferences(offerings, nodes, tuple(problem.counters[group] for group in pod_class.levels[0].soft))


def _soft(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    return tuple(taint for taint in taints if taint.effect == PREFER_NO_SCHEDULE)
