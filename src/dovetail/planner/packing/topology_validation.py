"""Soundness: do the rules of a packing state hold, in the order pods were put or in some other?

The packer keeps every rule as it goes, but pods that are taken off again may lower a minimum that others relied on.
"""

from __future__ import annotations

from dovetail.planner.packing.state import PackingState
from dovetail.planner.packing.topology_rules import minimum
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.problem.topology_groups import AFFINITY, SPREAD


def sound(state: PackingState) -> bool:
    """Whether every spread over domains still holds after pods were taken and put: a minimum may have fallen."""
    for counter in state.problem.counters.values():
        if counter.host or counter.kind != SPREAD:
            continue
        if any(state.owners[counter.slot]) and not _level(
            counter, state.owners[counter.slot], state.counts[counter.slot]
        ):
            return False
    return True


def _level(counter: TopologyCounter, owners: list[int], counts: list[int]) -> bool:
    """Whether the domains with owners rise above the lowest by no more than a spread allows."""
    top = minimum(counter, counts) + counter.skew
    return all(not inverse or count <= top for inverse, count in zip(owners, counts, strict=True))


def hosts_sound(state: PackingState) -> bool:
    """Whether every spread over nodes holds whatever the order in which pods arrive."""
    size = state.size
    for counter in state.problem.counters.values():
        if counter.host and counter.kind == SPREAD:
            inverse = state.host_owners[counter.slot, :size] > 0
            if bool((state.host_counts[counter.slot, :size][inverse] > counter.skew).any()):
                return False
    return True


def lost_affinity(state: PackingState, nodes: int) -> bool:
    """Whether any pod on the first so many nodes has lost the co-located pods it needs."""
    if not any(counter.kind == AFFINITY for counter in state.problem.counters.values()):
        return False
    return any(has_lost_affinity(state, node) for node in range(nodes) if state.contents[node])


def has_lost_affinity(state: PackingState, node: int) -> bool:
    """Whether a pod on a node has lost the co-located pods it needs."""
    for number in state.contents[node]:
        request = state.placement_requests[number]
        for counter in request.topology.domain_owned:
            if counter.kind == AFFINITY:
                domain = state.domains[state.key_index[counter.group.key]][node]
                if domain >= 0 and state.counts[counter.slot][domain] == 0:
                    return True
        for counter in request.topology.host_owned:
            if counter.kind == AFFINITY and state.host_counts[counter.slot, node] == 0:
                return True
    return False
