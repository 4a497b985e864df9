"""Violated preferences, counted on the finished packing, and the offerings on which most are kept.

A preference counts as kept if it holds in the end, whether or not it was relaxed before: preferred node affinity,
soft (anti-)affinity and spreads, and staying off PreferNoSchedule taints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dovetail.model.labels import ZONE
from dovetail.planner.offerings.catalog import Bools
from dovetail.planner.packing.baseline import ViolatedPreference, total
from dovetail.planner.packing.state import PackingState
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_classes import PodClass
from dovetail.planner.problem.preferences import ClassPreferences
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.problem.topology_groups import ANTI, SPREAD


def violated_count(state: PackingState) -> int:
    """How many preferences do not hold on a packing state."""
    return total(violated_on(state))


def violated_on(state: PackingState) -> list[ViolatedPreference]:
    """The preferences that do not hold on a packing state, by class and node."""
    placement_requests, contents = state.placement_requests, state.contents
    return [
        (placement_requests[number].cls.index, failing, contents[node][number])
        for node, number, failing in failing_on(state)
        if failing
    ]


def failing_on(state: PackingState) -> Iterator[tuple[int, int, int]]:
    """Yields node, number of the request, and preferences that each pod of the request violates on the node."""
    class_preferences: Mapping[int, ClassPreferences] = state.problem.preferences
    if not class_preferences:
        return
    counts, least = _over_domains(state)
    for node in range(state.size):
        for number in state.contents[node]:
            pod_class = state.placement_requests[number].cls
            preferences = class_preferences.get(pod_class.index)
            if preferences is not None:
                failing = int(
                    preferences.nodes[node] if node < state.existing else preferences.offerings[state.offering[node]]
                )
                yield (
                    node,
                    number,
                    failing
                    + sum(
                        not _kept(state, counter, pod_class, node, counts, least) for counter in preferences.counters
                    ),
                )


def held_by(state: PackingState) -> dict[int, set[tuple[str, str]]]:
    """For each new node, the preferred pod (anti-)affinities and spreads that hold: kind and topology key."""
    preferences: Mapping[int, ClassPreferences] = state.problem.preferences
    counts, least = _over_domains(state)
    held: dict[int, set[tuple[str, str]]] = {}
    for node in state.new_nodes() if counts else ():
        for pod_class in {state.placement_requests[number].cls for number in state.contents[node]}:
            for counter in preferences[pod_class.index].counters if pod_class.index in preferences else ():
                if not counter.host and _kept(state, counter, pod_class, node, counts, least):
                    held.setdefault(node, set()).add((counter.kind, counter.group.key))
    return held


def _over_domains(state: PackingState) -> tuple[dict[int, Sequence[int]], dict[int, int]]:
    """The counts by domain of the topology counters that preferences use, and the minimum of each soft spread."""
    preferences: Mapping[int, ClassPreferences] = state.problem.preferences
    counters = {
        counter.index: counter
        for preferences in preferences.values()
        for counter in preferences.counters
        if not counter.host
    }
    counts: dict[int, Sequence[int]] = {index: _counts(state, counter) for index, counter in counters.items()}
    least = {
        index: _lowest(state, counter, counts[index]) for index, counter in counters.items() if counter.kind == SPREAD
    }
    return counts, least


def _counts(state: PackingState, counter: TopologyCounter) -> list[int]:
    """The pods in each domain that a counter selects, including those that it does not count during the packing."""
    counts = state.counts[counter.slot]
    if counter.group not in state.problem.uncounted:
        return counts
    counts = list(counts)
    for index, contents in enumerate(state.contents):
        domain = state.domain(counter, index)
        for number, count in contents.items() if domain >= 0 and state.counted(counter, index) else ():
            request = state.placement_requests[number]
            if counter.group in request.cls.members and counter not in request.topology.domain_members:
                counts[domain] += count
    return counts


def _lowest(state: PackingState, counter: TopologyCounter, counts: Sequence[int]) -> int:
    """The smallest count of a soft spread: over all possible zones, or the domains of other keys that have nodes."""
    used = _used(state, counter) if counter.group.key != ZONE else counter.among
    return min((counts[node] for node in counter.among if node in used), default=0)


def _used(state: PackingState, counter: TopologyCounter) -> frozenset[int]:
    """The domains of the nodes that a spread counts."""
    new_nodes = state.domains[counter.place][state.existing : state.size]
    if counter.counted_offerings is not None:
        new_nodes = new_nodes[
            counter.counted_offerings[state.frontier.full[state.offering[state.existing : state.size]]]
        ]
    return counter.there.union(new_nodes.tolist())


def _kept(
    state: PackingState,
    counter: TopologyCounter,
    pod_class: PodClass,
    node: int,
    counts: Mapping[int, Sequence[int]],
    least: Mapping[int, int],
) -> bool:
    domain = node if counter.host else state.domain(counter, node)
    if domain < 0:
        return counter.kind == ANTI
    here = state.host_count(counter, node) if counter.host else counts[counter.index][domain]
    if counter.kind == SPREAD:
        return here - least.get(counter.index, 0) <= counter.skew
    others = here - (counter.group in pod_class.members)
    return others <= 0 if counter.kind == ANTI else others > 0


def preferred_offerings(problem: Problem) -> dict[int, Bools]:
    """The offerings on which most node preferences hold, for classes whose relaxation levels may miss them.

    At each level only the heaviest remaining preference counts, so a class with several may miss the others.
    """
    preferred_offerings: dict[int, Bools] = {}
    for index, preferences in problem.preferences.items():
        levels_of = problem.levels_of(problem.classes[index])
        first = next((request.offerings for request in levels_of if request.offerings.any()), None)
        if first is not None:
            least = preferences.offerings[levels_of[-1].offerings].min()
            if (preferences.offerings[first] > least).any():
                preferred_offerings[index] = preferences.offerings <= least
    return preferred_offerings
