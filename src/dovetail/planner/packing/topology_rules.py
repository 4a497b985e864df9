"""Topology rules: how many more pods a topology group allows in each domain, or on each node for the hostname key.

A group has owners (pods with the constraint) and members (pods that its selector counts); each have a rule.
`allowed` has an entry for each domain and a last one for nodes in no domain. `fits` has an entry for each node. A rule
only lowers them. A new node is always possible, so the lowest count of a spread over hostnames is zero.
"""

from __future__ import annotations

import numpy as np

from dovetail.planner.offerings.catalog import Ints
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.problem.topology_groups import AFFINITY, ANTI, SPREAD


def minimum(counter: TopologyCounter, counts: list[int]) -> int:
    """The smallest count over the domains of a spread; 0 if there are fewer than minDomains."""
    among = counter.among
    if not among or len(among) < counter.group.min_domains:
        return 0
    return min(counts) if len(among) == len(counts) else min([counts[node] for node in among])


def allow_owner(request: PlacementRequest, counter: TopologyCounter, counts: list[int], allowed: list[int]) -> None:
    """Lower `allowed` by a group that the request owns."""
    mine = counter in request.topology.own
    if counter.kind == SPREAD:
        top = minimum(counter, counts) + counter.skew
        for index, count in enumerate(counts):
            if count > top:
                allowed[index] = 0
            elif mine and top - count < allowed[index]:
                allowed[index] = top - count
        for node in counter.beyond:
            allowed[node] = 0
        allowed[-1] = 0
    elif counter.kind == ANTI:
        for position, count in enumerate(counts):
            if count or mine:
                allowed[position] = 0 if count else min(allowed[position], 1)
    else:
        allowed[-1] = 0
        if not mine or any(counts):
            for node_index, count in enumerate(counts):
                if not count:
                    allowed[node_index] = 0


def allow_member(counter: TopologyCounter, counts: list[int], owners: list[int], allowed: list[int]) -> None:
    """Lower `allowed` by a group that counts the request and is owned by other pods."""
    if counter.kind == AFFINITY or not any(owners):
        return
    top = minimum(counter, counts) + counter.skew if counter.kind == SPREAD else 0
    for index, count in enumerate(owners):
        if count > 0:
            allowed[index] = min(allowed[index], max(top - counts[index], 0)) if counter.kind == SPREAD else 0


def cap_owner(counter: TopologyCounter, mine: bool, counts: Ints, bins: Ints, fits: Ints) -> None:
    """Lower `fits` by a group that the pods own; `mine`: it also counts them; `counts` are those of all nodes."""
    here = counts.take(bins)
    if counter.kind == SPREAD:
        if mine:
            np.minimum(fits, np.maximum(counter.skew - here, 0), out=fits)
        else:
            fits[here > counter.skew] = 0
    elif counter.kind == ANTI:
        fits[here > 0] = 0
        if mine:
            np.minimum(fits, 1, out=fits)
    elif not mine or bool((counts > 0).any()):
        fits[here == 0] = 0


def cap_member(counter: TopologyCounter, counts: Ints, owners: Ints, bins: Ints, fits: Ints) -> None:
    """Lower `fits` by a group that counts the pods and is owned by other pods."""
    if counter.kind == AFFINITY:
        return
    inverse = owners.take(bins) > 0
    if not inverse.any():
        return
    if counter.kind == ANTI:
        fits[inverse] = 0
    else:
        allowed = np.maximum(counter.skew - counts.take(bins), 0)
        np.minimum(fits, allowed, out=fits, where=inverse)
