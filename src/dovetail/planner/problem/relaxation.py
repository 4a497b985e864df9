"""Relaxation levels: the preferences that a pod gives up, one at a time, before it stays unplaced.

At first every preference is required. Each level drops one: the heaviest preferred pod affinity, then anti-affinity,
then node affinity, then a soft spread, then avoiding PreferNoSchedule taints. Of the node preferences only the
heaviest remaining one counts at each level.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import msgspec
from msgspec.structs import replace

from dovetail.language import message, source
from dovetail.model.labels import HOSTNAME
from dovetail.planner.problem.pod_spec import AffinityRule, PodConstraints, SpreadConstraint
from dovetail.planner.problem.topology_groups import (
    AFFINITY,
    ANTI,
    TopologyGroup,
    affinity_group,
    affinity_groups,
    spread_group,
)
from dovetail.planner.requirements import Term, text
from dovetail.planner.snapshot import Preferences

_AWAY = source("the node that has its volume attached")


class RelaxationLevel(msgspec.Struct, frozen=True, cache_hash=True):
    """One level. `hard` groups bind all pods and are counted; `soft` ones bind only this pod, at this `level`."""

    terms: tuple[Term, ...]
    hard: tuple[TopologyGroup, ...]
    soft: tuple[TopologyGroup, ...]
    tolerates_prefer_no_schedule: bool
    relaxed: tuple[str, ...]
    level_index: int


def relaxation_levels(
    shape: PodConstraints,
    spreads: tuple[SpreadConstraint, ...],
    preferences: Preferences,
    namespaces: Mapping[str, Mapping[str, str]],
    has_avoided_taints: bool,
) -> tuple[RelaxationLevel, ...]:
    """The levels from all preferences to none. `has_avoided_taints`: some node or NodePool has a PreferNoSchedule
    taint.
    """
    hard = [spread_group(shape, spread) for spread in spreads if spread.hard]
    hard += affinity_groups([rule for rule in shape.affinity if not rule.weight], namespaces)
    hard += [affinity_group(rule, ANTI, namespaces) for rule in shape.anti if not rule.weight]
    respect = preferences is Preferences.RESPECT
    near = _heaviest_first(shape.affinity) if respect else []
    apart = _heaviest_first(shape.anti) if respect else []
    nodes = sorted(shape.preferred, key=lambda preference: -preference[0]) if respect else []
    loose = [spread for spread in spreads if not spread.hard] if respect else []
    tolerates_all = not respect or not has_avoided_taints
    relaxed: list[str] = []
    levels_of: list[RelaxationLevel] = []
    while True:
        soft = [affinity_group(rule, AFFINITY, namespaces) for rule in near]
        soft += [affinity_group(rule, ANTI, namespaces) for rule in apart]
        soft += [spread_group(shape, spread) for spread in loose]
        terms = _both(shape.required, (nodes[0][1],)) if nodes else shape.required
        binding = (tuple(dict.fromkeys(hard)), tuple(dict.fromkeys(soft)))
        levels_of.append(RelaxationLevel(terms, *binding, tolerates_all, tuple(relaxed), len(levels_of)))
        if near:
            relaxed.append(message("preferred pod affinity on {key}", key=near.pop(0).key))
        elif apart:
            relaxed.append(message("preferred pod anti-affinity on {key}", key=apart.pop(0).key))
        elif nodes:
            relaxed.append(message("preferred node affinity ") + ", ".join(text(clause) for clause in nodes.pop(0)[1]))
        elif loose:
            relaxed.append(message("ScheduleAnyway spread on {key}", key=loose.pop(0).key))
        elif not tolerates_all:
            tolerates_all = True
            relaxed.append(message("avoiding PreferNoSchedule taints"))
        else:
            return tuple(levels_of)


def on_one_node(levels: tuple[RelaxationLevel, ...], groups: Set[TopologyGroup]) -> tuple[RelaxationLevel, ...]:
    """The same relaxation levels, with some affinity groups required on the same node."""
    if groups.isdisjoint(levels[0].hard):
        return levels
    hard = tuple(replace(group, key=HOSTNAME) if group in groups else group for group in levels[0].hard)
    return tuple(replace(level, hard=tuple(dict.fromkeys(hard))) for level in levels)


def with_home_node(levels: tuple[RelaxationLevel, ...], home: tuple[Term, ...]) -> tuple[RelaxationLevel, ...]:
    """The relaxation levels of pods whose volumes are on a node already: that node is given up last."""
    at_home = (replace(level, terms=_both(level.terms, home)) for level in levels)
    away = (
        replace(level, relaxed=(_AWAY, *level.relaxed), level_index=len(levels) + level.level_index) for level in levels
    )
    return (*at_home, *away)


def levels_without_preferences(levels: tuple[RelaxationLevel, ...]) -> tuple[int, ...]:
    """The indices of the levels that have no preference left: the last, and for pods with volumes the last at home."""
    last = len(levels) - 1
    if _AWAY not in levels[last].relaxed:
        return (last,)
    return (len(levels) // 2 - 1, last)


def _heaviest_first(terms: tuple[AffinityRule, ...]) -> list[AffinityRule]:
    return sorted((term for term in terms if term.weight), key=lambda term: -term.weight)


def _both(required: tuple[Term, ...], more: tuple[Term, ...]) -> tuple[Term, ...]:
    return tuple(dict.fromkeys(tuple(sorted({*term, *other})) for term in required for other in more))
