"""Zone spread of the new nodes: how many zones they use, and moving nodes to unused zones for a bounded extra cost.

A node without a zone constraint is launched where it is cheapest, so all new nodes may be in one zone, and that zone's
failure would affect all of them. `widened` moves pods of a packing to unused zones; `pin_zones` restricts planned nodes
to unused zones. The extra cost is bounded by `objective.zone_budget`: up to the baseline's number of zones within the
baseline's cost, further zones for a smaller share.
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
from dovetail.planner.packing.topology_validation import lost_affinity, spreads_hold
from dovetail.planner.packing.violated_preferences import violated_count
from dovetail.planner.plan import OfferingOption, PlannedNode
from dovetail.planner.problem.request import PlacementRequest

#: Bound on the moves tried for one zone, times the nodes and counters of the packing state that each move copies.
_MAX_MOVE_WORK = 200_000


def zones_reached(state: PackingState, enough: int) -> int:
    """The number of zones that the new nodes can use, counted up to `enough`."""
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
    """The zones with an offering of the node's kind that holds its pods and that they accept."""
    frontier, offering = state.frontier, state.offering[node]
    ok: Bools = frontier.kinds == frontier.kinds[offering]
    for number in state.contents[node]:
        ok = ok & state.placement_requests[number].offerings
    rows = np.flatnonzero(ok)
    load = frontier.capacity[:, offering] - state.free[:, node]
    return set(frontier.domains[topology_key][rows[(frontier.capacity[:, rows] >= load[:, None]).all(axis=0)]].tolist())


def widened(state: PackingState, left: Mapping[int, int]) -> PackingState:
    """The packing state with pods moved to zones that no new node uses, within every rule and the zone budget."""
    if state.problem.reservations:
        state = _with_reservations_spread(state)
    topology_key = state.key_index.get(ZONE)
    if topology_key is None:
        return state
    enough_zones, spare, _ = zone_budget(state.cost(), left, state.run.baseline, state.run.cheapest)
    for domain in range(len(state.problem.topology_keys[topology_key].values)):
        used = [int(state.domains[topology_key][node]) for node in state.new_nodes()]
        if domain in used:
            continue
        limit = state.cost() + (spare if len({*used}) < enough_zones else 0.0)
        settled = min(_with_node_in_zone(state, topology_key, domain), key=lambda state_: state_.cost(), default=None)
        if settled is not None and settled.cost() <= limit:
            spare -= settled.cost() - state.cost()
            state = settled
    return state


def _with_reservations_spread(state: PackingState) -> PackingState:
    """The packing state with reserved nodes moved to reservations in zones that no new node uses, at the same price.

    A capacity reservation belongs to one zone, so a reserved node can change its zone only with its reservation.
    """
    twin, frontier, missed = state.clone(), state.frontier, violated_count(state)
    used = Counter(frontier.zones[twin.offering_of(node)] for node in twin.new_nodes())
    for node in twin.new_nodes():
        offering = twin.offering_of(node)
        if frontier.reservations[offering] is None or used[frontier.zones[offering]] < 2:
            continue
        for other in [
            other_offering
            for other_offering in _equivalent_reserved_offerings(twin, node)
            if frontier.zones[other_offering] not in used
        ]:
            twin.move(node, other)
            if violated_count(twin) <= missed:
                used[frontier.zones[offering]] -= 1
                used[frontier.zones[other]] += 1
                break
            twin.move(node, offering)
    return twin


def _equivalent_reserved_offerings(state: PackingState, node: int) -> list[int]:
    """Reserved offerings of no higher price that hold a node's pods and keep the domains that they use."""
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


def _with_node_in_zone(state: PackingState, topology_key: int, domain: int) -> Iterator[PackingState]:
    """Packing states with a new node in the zone: one moved from another zone, or one opened for a single pod."""
    missed = violated_count(state)
    used = [int(state.domains[topology_key][node]) for node in state.new_nodes()]
    tries = _MAX_MOVE_WORK // (state.size + len(state.problem.counters))
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
    return twin if spreads_hold(twin) and not lost_affinity(twin, twin.size) else None


def _allowed(state: PackingState, request: PlacementRequest, node: int, count: int) -> bool:
    """Whether topology rules over domains allow `count` more pods on a node."""
    topology_keys = [state.key_index[key] for key in request.keys]
    return all(
        state.allowance(request, topology_key)[state.domains[topology_key][node]] >= count
        for topology_key in topology_keys
    )


#: Tolerance of price comparisons in $/h.
_PRICE_TOLERANCE = 1e-9


def pin_zones(
    nodes: Sequence[PlannedNode],
    settled: Callable[[PlannedNode, PlannedNode], PlannedNode | None],
    budget: ZoneBudget,
) -> tuple[PlannedNode, ...]:
    """The nodes, some of them restricted to a zone that no other new node uses.

    `settled` returns the restricted node as it would be launched; None if too few offerings are left.
    """
    pinned = list(nodes)
    enough_zones, spare, further = budget
    while True:
        used = Counter(planned.choice.zone for planned in pinned)
        max_extra = max(further, spare) if len(used) < enough_zones else further
        moves = sorted(
            (extra, index, zone)
            for index, planned in enumerate(pinned)
            if used[planned.choice.zone] > 1
            for zone, extra in _extra_cost_by_zone(planned, used).items()
            if extra <= max_extra + _PRICE_TOLERANCE
        )
        moved = (
            (extra, offer, settled(pinned[offer], _restricted_to_zone(pinned[offer], zone)))
            for extra, offer, zone in moves
        )
        extra, node, planned = next((move for move in moved if move[2] is not None), (0.0, -1, None))
        if planned is None:
            return tuple(pinned)
        further, spare = further - extra, spare - extra
        pinned[node] = planned


def _extra_cost_by_zone(planned: PlannedNode, used: Counter[str]) -> dict[str, float]:
    """Zone that no new node uses → extra cost of the node there, in $/h."""
    extra_by_zone: dict[str, float] = {}
    for choice in planned.offerings:
        if choice.price is not None and choice.zone not in used:
            extra_by_zone.setdefault(choice.zone, choice.price - planned.price)
    return extra_by_zone


def _restricted_to_zone(planned: PlannedNode, zone: str) -> PlannedNode:
    held = tuple(choice for choice in planned.offerings if choice.zone == zone)
    return replace(
        planned,
        offerings=held,
        requirements=tuple(_narrowed(requirement, held) for requirement in planned.requirements),
    )


def _narrowed(need: Mapping[str, Any], held: Sequence[OfferingOption]) -> Mapping[str, Any]:
    left = {
        INSTANCE_TYPE: {choice.instance_type for choice in held},
        CAPACITY_TYPE: {choice.capacity_type for choice in held},
        ZONE: {choice.zone for choice in held},
    }.get(need["key"])
    return need if left is None else {**need, "values": sorted(left)}
