"""Rejected offerings: for each new node, why offerings that cost less were not chosen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from dovetail.language import message
from dovetail.planner.explain.filters import of_kind, shown
from dovetail.planner.offerings.catalog import CatalogEntry, OfferingCatalog
from dovetail.planner.packing.resize import NodeConstraints
from dovetail.planner.packing.state import PackingState
from dovetail.planner.plan import Lost
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.resources import PORT
from dovetail.planner.problem.shared_volumes import ATTACH

_MOST = 10


class _Rival(NamedTuple):
    """An offering that costs less, what it has of every dimension, and its bit in masks of offerings that are to be
    had.
    """

    entry: CatalogEntry
    rooms: list[int]
    bit: int


def cheaper(
    state: PackingState, node: int, chosen: CatalogEntry, used: list[int], these: NodeConstraints
) -> tuple[Lost, ...]:
    """Up to ten types that cost less than the chosen one, nearest in price first, each with its reason.

    `these` are the pods on the node, as far as its choice goes.
    """
    catalog, dims = state.problem.catalog, state.problem.dims
    rivals = catalog.recall(("rivals", chosen.index, *dims), lambda: _rivals(catalog, chosen, dims))
    return tuple(
        [Lost(choice=rival.entry.choice, because=_because(state, node, rival, chosen, these, used)) for rival in rivals]
    )


def _rivals(catalog: OfferingCatalog, chosen: CatalogEntry, dims: Sequence[str]) -> list[_Rival]:
    """An offering of each of the types next below in price."""
    entries: dict[str, CatalogEntry] = {}
    for entry in reversed(catalog.rows[: chosen.index]):
        if entry.type.name != chosen.type.name and entry.choice.price != chosen.choice.price:
            entries.setdefault(entry.type.name, entry)
        if len(entries) == _MOST:
            break
    return [
        _Rival(
            entry,
            [max(0, int(catalog.amounts(name)[entry.index])) for name in dims],
            1 << entry.index & catalog.available,
        )
        for entry in entries.values()
    ]


def _because(
    state: PackingState, node: int, rival: _Rival, chosen: CatalogEntry, these: NodeConstraints, used: list[int]
) -> str:
    problem, entry = state.problem, rival.entry
    if not rival.bit:
        return message("not available now")
    if not these.mask & rival.bit:
        return _failed_insertions(state, node, entry)
    for name, amount, room in zip(problem.dims, used, rival.rooms, strict=True):
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
    return _forbidden(state, entry, chosen)


def _forbidden(state: PackingState, entry: CatalogEntry, chosen: CatalogEntry) -> str:
    """What pools say about an offering that the pods would take."""
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


def _failed_insertions(state: PackingState, node: int, entry: CatalogEntry) -> str:
    """The pod on a node whose requirement or preference an offering does not meet, as text."""
    placement_requests = (state.placement_requests[number] for number in state.contents[node])
    unwilling = next(request for request in placement_requests if not request.mask >> entry.index & 1)
    return f"{unwilling.cls.pods[0]} {_verb(state, unwilling, entry)}"


def _verb(state: PackingState, request: PlacementRequest, entry: CatalogEntry) -> str:
    problem = state.problem
    for question in of_kind(problem, request, entry.pool):
        if not question.mask >> entry.index & 1:
            if question.code == "UNTOLERATED_TAINT":
                return message("does not tolerate {words}", words=question.words)
            last = problem.request(request.cls, len(request.cls.levels) - 1)
            return f"{'prefers' if last.mask >> entry.index & 1 else 'asks for'} {question.words}"
    return message("may not run on it")


@lru_cache(maxsize=4096)
def _too_small(name: str, amount: int, room: int) -> str:
    return message("too small: {name} {amount} > {room}", name=name, amount=shown(name, amount), room=shown(name, room))
