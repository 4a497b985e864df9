"""Topology validation: whether the spreads and affinities of a packing state hold, in any binding order.

The packer keeps every rule when it places a pod, but removing pods may lower the minimum that a spread depends on or
take away the target of a required affinity.
"""

from __future__ import annotations

from dovetail.planner.packing.state import PackingState
from dovetail.planner.packing.topology_rules import minimum
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.problem.topology_groups import AFFINITY, SPREAD


def spreads_hold(state: PackingState) -> bool:
    """Whether every spread over domains holds; removing pods may have lowered a minimum."""
    for counter in state.problem.counters.values():
        if counter.host or counter.kind != SPREAD:
            continue
        if any(state.owners[counter.slot]) and not _within_skew(
            counter, state.owners[counter.slot], state.counts[counter.slot]
        ):
            return False
    return True


def _within_skew(counter: TopologyCounter, owners: list[int], counts: list[int]) -> bool:
    """Whether the counts of the domains with owners exceed the minimum by at most maxSkew."""
    top = minimum(counter, counts) + counter.skew
    return all(not inverse or count <= top for inverse, count in zip(owners, counts, strict=True))


def hosts_sound(state: PackingState) -> bool:
    """Whether every spread over hostnames holds for any order in which pods are bound."""
    size = state.size
    for counter in state.problem.counters.values():
        if counter.host and counter.kind == SPREAD:
            inverse = state.host_owners[counter.slot, :size] > 0
            if bool((state.host_counts[counter.slot, :size][inverse] > counter.skew).any()):
                return False
    return True


def lost_affinity(state: PackingState, nodes: int) -> bool:
    """Whether the required affinity of some pod on the first `nodes` nodes does not hold."""
    if not any(counter.kind == AFFINITY for counter in state.problem.counters.values()):
        return False
    return any(has_lost_affinity(state, node) for node in range(nodes) if state.contents[node])


def has_lost_affinity(state: PackingState, node: int) -> bool:
    """Whether the required affinity of some pod on a node does not hold."""
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
