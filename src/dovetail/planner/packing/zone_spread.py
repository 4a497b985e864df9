"""Zones of the new nodes: how many they reach, and more of them where that costs nothing, or is owed.

One zone's failure should take as little as possible; at the same price more zones are better than fewer, and as many as
the baseline has are worth what the baseline costs.

Dispersal: one more zone for next to nothing.

A node that no topology pins is launched where it is cheapest, and so all of them may end in one zone. One zone's
failure should take as little as possible: a small share of the price is worth another zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.planner.offerings.catalog import Bools
from dovetail.planner.packing.attachments import load_of
from dovetail.planner.packing.objective import ZoneBudget, zone_budget
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import PackingState
from dovetail.planner.packing.topology_validation import lost_affinity, sound
from dovetail.planner.packing.violated_preferences import violated_count
from dovetail.planner.plan import Choice, PlannedNode
from dovetail.planner.problem.request import PlacementRequest

#: So many pods and nodes are tried in a zone that no new node uses: each takes as long as the packing state is large.
_TRIED = 200_000


def zones_reached(state: PackingState, enough: int) -> int:
    """How many zones the new nodes may lie in, counted up to `enough`."""
    topology_key, new_nodes = state.key_index.get(ZONE), state.new_nodes()
    if topology_key is None:
        return min(enough, len(new_nodes))
    free = [
        node
        for node in new_nodes
        if all(ZONE not in state.placement_requests[number].keys for number in state.contents[node])
    ]
    zones = {int(state.domains[topology_key][node]) for node in set(new_nodes).difference(free)}
    for node in free:
        if len(zones) >= enough:
            break
        zones.update(sorted(_open_to(state, node, topology_key) - zones)[:1])
    return min(enough, len(zones))


def _open_to(state: PackingState, node: int, topology_key: int) -> set[int]:
    """The zones in which a node could stand that holds its pods, for all that they ask."""
    frontier, offering = state.frontier, state.offering[node]
    ok: Bools = frontier.kinds == frontier.kinds[offering]
    for number in state.contents[node]:
        ok = ok & state.placement_requests[number].offerings
    rows = np.flatnonzero(ok)
    load = frontier.capacity[:, offering] - state.free[:, node]
    return set(frontier.domains[topology_key][rows[(frontier.capacity[:, rows] >= load[:, None]).all(axis=0)]].tolist())


def widened(state: PackingState, left: Mapping[int, int]) -> PackingState:
    """The packing state with pods moved to zones that no new node uses, as far as every rule allows."""
    if state.problem.reservations:
        state = _rebooked(state)
    topology_key = state.key_index.get(ZONE)
    if topology_key is None:
        return state
    wanted, spare, _ = zone_budget(state.cost(), left, state.run.baseline)
    for domain in range(len(state.problem.topology_keys[topology_key].values)):
        used = [int(state.domains[topology_key][node]) for node in state.new_nodes()]
        if domain in used:
            continue
        limit = state.cost() + (spare if len({*used}) < wanted else 0.0)
        settled = min(_settled(state, topology_key, domain), key=lambda state_: state_.cost(), default=None)
        if settled is not None and settled.cost() <= limit:
            spare -= settled.cost() - state.cost()
            state = settled
    return state


def _rebooked(state: PackingState) -> PackingState:
    """The packing state with nodes of one reservation taken from others in zones that no new node uses, at the same
    price.

    A reservation is of one zone, so these nodes cannot be launched elsewhere as others can.
    """
    twin, frontier, missed = state.clone(), state.frontier, violated_count(state)
    used = Counter(frontier.zones[twin.offering_of(node)] for node in twin.new_nodes())
    for node in twin.new_nodes():
        offering = twin.offering_of(node)
        if frontier.reservations[offering] is None or used[frontier.zones[offering]] < 2:
            continue
        for other in [
            other_offering for other_offering in _alike(twin, node) if frontier.zones[other_offering] not in used
        ]:
            twin.move(node, other)
            if violated_count(twin) <= missed:
                used[frontier.zones[offering]] -= 1
                used[frontier.zones[other]] += 1
                break
            twin.move(node, offering)
    return twin


def _alike(state: PackingState, node: int) -> list[int]:
    """Offerings of reservations that would hold what is on a node, in domains that matter to it and for no more."""
    frontier, offering, load = state.frontier, state.offering_of(node), state.used(node)
    placement_requests = [state.placement_requests[number] for number in state.contents[node]]
    ok = (
        state.open_to(node)
        & (frontier.pools == frontier.pools[offering])
        & (frontier.finite <= frontier.finite[offering])
    )
    ok &= (frontier.capacity >= np.array(load)[:, None]).all(axis=0)
    for request in placement_requests:
        ok &= request.offerings
    if state.problem.diversity is not None:
        ok = state.problem.diversity.holding(ok, placement_requests, load)
    for topology_key in {state.key_index[key] for request in placement_requests for key in request.keys}:
        ok &= frontier.domains[topology_key] == frontier.domains[topology_key][offering]
    return [other_offering for other_offering in ok.nonzero()[0].tolist() if frontier.reservations[other_offering]]


def _settled(state: PackingState, topology_key: int, domain: int) -> Iterator[PackingState]:
    """Boards on which a node of its own stands in a zone: one that stood elsewhere, or one for a single pod."""
    missed = violated_count(state)
    used = [int(state.domains[topology_key][node]) for node in state.new_nodes()]
    tries = _TRIED // (state.size + len(state.problem.counters))
    for node in state.new_nodes():
        lots = [{number: 1} for number in state.contents[node]]
        if used.count(int(state.domains[topology_key][node])) > 1:
            lots.append(dict(state.contents[node]))
        tries -= len(lots)
        if tries < 0:
            return
        for lot in lots:
            twin = _moved(state, node, lot, topology_key, domain)
            if twin is not None and violated_count(twin) <= missed:
                yield twin


def _moved(
    state: PackingState, node: int, lot: Mapping[int, int], topology_key: int, domain: int
) -> PackingState | None:
    twin, frontier = state.clone(), state.frontier
    placement_requests = {twin.placement_requests[number]: count for number, count in lot.items()}
    kind = frontier.kinds[twin.offering[node]]
    for request, count in placement_requests.items():
        twin.put(request, node, -count)
    if twin.contents[node]:
        shrink(twin, (node,))
    else:
        twin.close(node)
    ok = (frontier.kinds == kind) & (frontier.domains[topology_key] == domain)
    load = load_of(state.problem, placement_requests).tolist()
    for dim, amount in enumerate(load):
        ok &= frontier.capacity[dim] >= amount
    for request in placement_requests:
        ok &= request.offerings
    if state.problem.binding or state.problem.reservations:
        ok &= twin.open_to()
    if state.problem.diversity is not None:
        ok = state.problem.diversity.holding(ok, placement_requests, load)
    if not ok.any():
        return None
    fresh = twin.open(int(ok.argmax()))
    for request, count in placement_requests.items():
        if twin.per_new(request) < count or not _allowed(twin, request, fresh, count):
            return None
        twin.put(request, fresh, count)
    return twin if sound(twin) and not lost_affinity(twin, twin.size) else None


def _allowed(state: PackingState, request: PlacementRequest, node: int, count: int) -> bool:
    """Whether topology rules over domains let some pods onto a node."""
    topology_keys = [state.key_index[key] for key in request.keys]
    return all(
        state.allowance(request, topology_key)[state.domains[topology_key][node]] >= count
        for topology_key in topology_keys
    )


#: Dollars an hour that no pod counts.
_CENT = 1e-9


def pin_zones(
    nodes: Sequence[PlannedNode],
    settled: Callable[[PlannedNode, PlannedNode], PlannedNode | None],
    budget: ZoneBudget,
) -> tuple[PlannedNode, ...]:
    """The nodes, some kept to a zone that no new node uses yet.

    `settled` makes what a node was into what it would be; None if too few offerings were left to it.
    """
    pinned = list(nodes)
    wanted, spare, further = budget
    while True:
        used = Counter(planned.choice.zone for planned in pinned)
        purse = max(further, spare) if len(used) < wanted else further
        offers = sorted(
            (extra, index, zone)
            for index, planned in enumerate(pinned)
            if used[planned.choice.zone] > 1
            for zone, extra in _elsewhere(planned, used).items()
            if extra <= purse + _CENT
        )
        moved = ((extra, offer, settled(pinned[offer], _kept_to(pinned[offer], zone))) for extra, offer, zone in offers)
        extra, node, planned = next((move for move in moved if move[2] is not None), (0.0, -1, None))
        if planned is None:
            return tuple(pinned)
        further, spare = further - extra, spare - extra
        pinned[node] = planned


def _elsewhere(planned: PlannedNode, used: Counter[str]) -> dict[str, float]:
    """What the node would cost more in each zone that no new node uses."""
    elsewhere: dict[str, float] = {}
    for choice in planned.offerings:
        if choice.price is not None and choice.zone not in used:
            elsewhere.setdefault(choice.zone, choice.price - planned.price)
    return elsewhere


def _kept_to(planned: PlannedNode, zone: str) -> PlannedNode:
    held = tuple(choice for choice in planned.offerings if choice.zone == zone)
    return replace(
        planned,
        offerings=held,
        requirements=tuple(_narrowed(requirement, held) for requirement in planned.requirements),
    )


def _narrowed(need: Mapping[str, Any], held: Sequence[Choice]) -> Mapping[str, Any]:
    left = {
        INSTANCE_TYPE: {choice.instance_type for choice in held},
        CAPACITY_TYPE: {choice.capacity_type for choice in held},
        ZONE: {choice.zone for choice in held},
    }.get(need["key"])
    return need if left is None else {**need, "values": sorted(left)}
