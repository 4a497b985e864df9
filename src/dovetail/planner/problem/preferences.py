"""Preferences of pod classes, for counting violations on a finished packing.

A preference counts as kept if it holds in the end, whether or not it was relaxed before: preferred node affinity,
preferred pod (anti-)affinity, soft spreads, and PreferNoSchedule taints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from dovetail.model.nodes import Taint
from dovetail.model.taints import PREFER_NO_SCHEDULE
from dovetail.planner.offerings.catalog import Bools, Ints
from dovetail.planner.problem.frontier import as_bools
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.requirements import bears

if TYPE_CHECKING:
    from dovetail.planner.problem.compile import Problem
    from dovetail.planner.problem.pod_classes import PodClass


class ClassPreferences(msgspec.Struct, frozen=True):
    """The preferences of a class: violations on each offering and each existing node, and its topology counters."""

    offerings: Ints
    nodes: Ints
    counters: tuple[TopologyCounter, ...]


def preferences_of(problem: Problem) -> dict[int, ClassPreferences]:
    """The preferences of every class that has some."""
    disliked = {_soft(taints) for taints in _tainted(problem)} - {()}
    soft = {kind for kind in problem.kinds if disliked or kind.levels[0].soft}
    return {
        pod_class.index: _preferences(problem, pod_class, disliked)
        for pod_class in problem.classes
        if (pod_class.shape.preferred or pod_class.kind in soft) and not pod_class.error
    }


def _tainted(problem: Problem) -> set[tuple[Taint, ...]]:
    return {pool.taints for pool in problem.pools} | problem.tainted


def _preferences(problem: Problem, pod_class: PodClass, disliked: set[tuple[Taint, ...]]) -> ClassPreferences:
    offerings: Ints = np.zeros(problem.frontier.size, dtype=np.int64)
    nodes: Ints = np.zeros(len(problem.nodes), dtype=np.int64)
    for _, term in pod_class.shape.preferred:
        offerings += ~as_bools(problem.catalog, problem.frontier, problem.catalog.term(term))
        nodes += ~problem.passing((term,))
    unborne = {taints for taints in disliked if not bears(pod_class.shape.tolerations, taints, prefer=False)}
    if unborne:
        soft = [_soft(pool.taints) in unborne for pool in problem.pools]
        offerings += np.array(soft, dtype=np.int64)[problem.frontier.pools]
        nodes += np.array([_soft(taint) in unborne for taint in problem.taints], dtype=np.int64)[problem.taint_at]
    return ClassPreferences(offerings, nodes, tuple(problem.counters[group] for group in pod_class.levels[0].soft))


def _soft(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    return tuple(taint for taint in taints if taint.effect == PREFER_NO_SCHEDULE)


def welcome(problem: Problem) -> dict[int, Bools]:
    """The offerings on which most node preferences hold, for classes whose relaxation levels may miss them.

    At each level only the heaviest remaining preference counts, so a class with several may miss the others.
    """
    welcome: dict[int, Bools] = {}
    for index, preferences in problem.preferences.items():
        levels_of = problem.levels_of(problem.classes[index])
        first = next((request.offerings for request in levels_of if request.offerings.any()), None)
        if first is not None:
            least = preferences.offerings[levels_of[-1].offerings].min()
            if (preferences.offerings[first] > least).any():
                welcome[index] = preferences.offerings <= least
    return welcome
