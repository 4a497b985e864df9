"""Rejected offerings: for each new node, why offerings that cost less were not chosen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from dovetail.language import message
from dovetail.planner.explain.filters import amount_text, label_and_taint_filters
from dovetail.planner.offerings.catalog import CatalogEntry, OfferingCatalog
from dovetail.planner.packing.resize import NodeConstraints
from dovetail.planner.packing.state import PackingState
from dovetail.planner.plan import RejectedOffering
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.resources import PORT
from dovetail.planner.problem.shared_volumes import ATTACH

_MAX_REJECTED_TYPES = 10


class _CheaperOffering(NamedTuple):
    """An offering that costs less, its amount of every dimension, and its bit in masks (0 if it is unavailable)."""

    entry: CatalogEntry
    rooms: list[int]
    bit: int


def rejected_cheaper_offerings(
    state: PackingState, node: int, chosen: CatalogEntry, used: list[int], these: NodeConstraints
) -> tuple[RejectedOffering, ...]:
    """Up to ten types that cost less than the chosen one, nearest in price first, each with its reason.

    `these` are the constraints of the pods on the node.
    """
    catalog, dims = state.problem.catalog, state.problem.dims
    cheaper_offerings = catalog.recall(
        ("rivals", chosen.index, *dims), lambda: _cheaper_offerings(catalog, chosen, dims)
    )
    return tuple(
        [
            RejectedOffering(
                choice=cheaper_offering.entry.choice,
                because=_reason(state, node, cheaper_offering, chosen, these, used),
            )
            for cheaper_offering in cheaper_offerings
        ]
    )


def _cheaper_offerings(catalog: OfferingCatalog, chosen: CatalogEntry, dims: Sequence[str]) -> list[_CheaperOffering]:
    """An offering of each of the types next below in price."""
    entries: dict[str, CatalogEntry] = {}
    for entry in reversed(catalog.rows[: chosen.index]):
        if entry.type.name != chosen.type.name and entry.choice.price != chosen.choice.price:
            entries.setdefault(entry.type.name, entry)
        if len(entries) == _MAX_REJECTED_TYPES:
            break
    return [
        _CheaperOffering(
            entry,
            [max(0, int(catalog.amounts(name)[entry.index])) for name in dims],
            1 << entry.index & catalog.available,
        )
        for entry in entries.values()
    ]


def _reason(
    state: PackingState,
    node: int,
    cheaper_offering: _CheaperOffering,
    chosen: CatalogEntry,
    these: NodeConstraints,
    used: list[int],
) -> str:
    problem, entry = state.problem, cheaper_offering.entry
    if not cheaper_offering.bit:
        return message("not available now")
    if not these.mask & cheaper_offering.bit:
        return _refusing_pod(state, node, entry)
    for name, amount, room in zip(problem.dims, used, cheaper_offering.rooms, strict=True):
        if amount > room:
            return (
                message("too few volumes or ports")
                if name.startswith((PORT, ATTACH))
                else _too_small(name, amount, room)
            )
    for key in these.keys:
        where = problem.catalog.label(chosen, key)
        if problem.catalog.label(entry, key) != where:
            return message("topology constraints pin the node to {key}={where}", key=key, where=where)
    return _pool_reason(state, entry, chosen)


def _pool_reason(state: PackingState, entry: CatalogEntry, chosen: CatalogEntry) -> str:
    """The NodePool's reason against an offering that the pods accept: weight, reservation, limits, minValues."""
    pool, own = state.problem.pools[entry.pool], state.problem.pools[chosen.pool]
    if pool.weight < own.weight:
        return message("NodePool {pool} has less weight", pool=pool.name)
    reservation = entry.offering.reservation_id
    if reservation is not None:
        return message("reservation {reservation} is used up, or serves other nodes only", reservation=reservation)
    back = chosen.type.capacity if pool is own else {}
    for name, left in state.left[entry.pool].items():
        if name != "nodes" and entry.type.capacity.get(name, 0) > left + back.get(name, 0):
            return message("the {name} limit of NodePool {pool}", name=name, pool=pool.name)
    if pool is not own and state.left[entry.pool].get("nodes", 1) < 1:
        return message("the nodes limit of NodePool {pool}", pool=pool.name)
    if entry.pool in state.problem.min_values:
        return f"minValues of NodePool {pool.name}"
    return message("a pod preference, or it would change the node's labels")


def _refusing_pod(state: PackingState, node: int, entry: CatalogEntry) -> str:
    """The pod on a node whose requirement or preference an offering does not meet, as text."""
    placement_requests = (state.placement_requests[number] for number in state.contents[node])
    unwilling = next(request for request in placement_requests if not request.mask >> entry.index & 1)
    return f"{unwilling.cls.pods[0]} {_refusal(state, unwilling, entry)}"


def _refusal(state: PackingState, request: PlacementRequest, entry: CatalogEntry) -> str:
    problem = state.problem
    for offering_filter in label_and_taint_filters(problem, request, entry.pool):
        if not offering_filter.mask >> entry.index & 1:
            if offering_filter.code == "UNTOLERATED_TAINT":
                return message("does not tolerate {words}", words=offering_filter.words)
            last = problem.request(request.cls, len(request.cls.levels) - 1)
            return f"{'prefers' if last.mask >> entry.index & 1 else 'asks for'} {offering_filter.words}"
    return message("may not run on it")


@lru_cache(maxsize=4096)
def _too_small(name: str, amount: int, room: int) -> str:
    return message(
        "too small: {name} {amount} > {room}", name=name, amount=amount_text(name, amount), room=amount_text(name, room)
    )
