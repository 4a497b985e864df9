"""Squeeze: let one machine be smaller, or go, by moving a few of its pods into room that others have left.

Pods move within their domains, so no spread or affinity over domains notices. It is the cheapest kind of improvement:
nothing is bought, and each try looks at one machine alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.planner.offerings.catalog import Bools
from dovetail.planner.packing.state import PackingState
from dovetail.planner.problem.request import PlacementRequest, TopologyConstraints
from dovetail.planner.problem.topology_groups import AFFINITY

#: Smaller columns tried for one machine, and how many pods may leave it.
_MAX_OFFERINGS, _MOST_PODS = 6, 12
_MOST_PASSES = 6


def downsized(state: PackingState, out_of_time: Callable[[], bool]) -> PackingState:
    """The board with machines made smaller as long as there is one to be had; the board given is not changed."""
    problem = state.problem
    if problem.binding or problem.reservations or problem.diversity is not None:
        return state
    twin = state.clone()
    for _ in range(_MOST_PASSES):
        gained = False
        for at in sorted(twin.new_nodes(), key=lambda each: (-_waste(twin, each), each)):
            if out_of_time():
                return twin
            gained |= _smaller(twin, at)
        if not gained:
            break
    return twin


def _waste(state: PackingState, at: int) -> float:
    """What of a machine's price is paid for room that is empty."""
    offering = int(state.offering[at])
    capacity = np.maximum(state.frontier.capacity[:, offering], 1)
    return float(state.frontier.prices[offering] * (state.free[:, at] / capacity)[: len(capacity)].min())


def _smaller(state: PackingState, at: int) -> bool:
    placement_requests = [state.placement_requests[number] for number in state.contents[at]]
    if not placement_requests or any(_together(request.topology) for request in placement_requests):
        return False
    if sum(state.contents[at].values()) <= _MOST_PODS and _moved(state, at, dict(state.contents[at])):
        state.close(at)
        return True
    used = state.used(at)
    for offering in _columns(state, at, placement_requests):
        room = state.frontier.sizes[offering]
        leaving = _excess(state, at, [amount - most for amount, most in zip(used, room, strict=True)])
        if leaving is not None and _moved(state, at, leaving):
            state.move(at, offering)
            return True
    return False


def _together(topology: TopologyConstraints) -> bool:
    """Whether pods must be on a machine with others."""
    return any(counter.kind == AFFINITY for counter in (*topology.host_owned, *topology.host_members))


def _columns(state: PackingState, at: int, placement_requests: list[PlacementRequest]) -> list[int]:
    """Cheaper columns for a machine in its domains, the cheapest first, one of each price."""
    frontier, offering = state.frontier, int(state.offering[at])
    ok: Bools = (frontier.kinds == frontier.kinds[offering]) & (frontier.prices < frontier.prices[offering])
    for request in placement_requests:
        ok &= request.offerings
    for topology_key in {state.key_index[key] for request in placement_requests for key in request.keys}:
        ok &= frontier.domains[topology_key] == state.domains[topology_key][at]
    ok &= (frontier.capacity * _MOST_PODS >= np.array(state.used(at))[:, None]).all(axis=0)
    found = np.flatnonzero(ok)
    return [int(each) for each in found[-_MAX_OFFERINGS:]]


def _excess(state: PackingState, at: int, over: list[int]) -> dict[int, int] | None:
    """A few pods without which a machine holds less by `over`: each time the one that is nearest to what is missing."""
    leaving: dict[int, int] = {}
    held = dict(state.contents[at])
    for _ in range(_MOST_PODS):
        if max(over) <= 0:
            return leaving
        best, number = max([(_help(state.placement_requests[each], over), -each) for each in held])
        if best <= 0.0:
            return None
        leaving[-number] = leaving.get(-number, 0) + 1
        held[-number] -= 1
        if not held[-number]:
            del held[-number]
        for dim, amount in state.placement_requests[-number].steps:
            over[dim] -= amount
        if not held:
            return None
    return leaving if max(over) <= 0 else None


def _help(request: PlacementRequest, over: list[int]) -> float:
    """How much of what must go a pod takes with it; what it takes beyond that is hard to place elsewhere."""
    took = wasted = 0.0
    for dim, amount in request.steps:
        need = max(0, over[dim])
        if need:
            took += min(amount, need) / need
        if amount > need:
            wasted += (amount - need) / amount
    return took - 0.2 * wasted


def _moved(state: PackingState, at: int, leaving: dict[int, int]) -> bool:
    """Move pods off a machine into room elsewhere, all or none."""
    done: list[tuple[PlacementRequest, int, int]] = []
    numbers = sorted(leaving, key=lambda each: -int(state.placement_requests[each].amounts.max()))
    for number in numbers:
        request, count = state.placement_requests[number], leaving[number]
        state.put(request, at, -count)
        done.append((request, at, count))
        for place, fits in _places(state, request, at, count):
            take = min(fits, count)
            state.put(request, place, take)
            done.append((request, place, -take))
            count -= take
            if not count:
                break
        if count:
            for one, place, amount in reversed(done):
                state.put(one, place, amount)
            return False
    return True


def _places(state: PackingState, request: PlacementRequest, at: int, count: int) -> list[tuple[int, int]]:
    """Other machines with room for pods of the ask in the same domains, the fullest first."""
    bins, room = state.room(request, count)
    ok = bins != at
    for key in request.keys:
        lying = state.domains[state.key_index[key]]
        ok &= lying[bins] == lying[at]
    bins, room = bins[ok], room[ok]
    left = np.zeros(len(bins))
    for dim, amount in request.steps:
        left += state.free[dim].take(bins) / amount
    order = np.argsort(left, kind="stable")
    return list(zip(bins[order].tolist(), room[order].tolist(), strict=True))
