"""What changed from one view to the next, and a view with that applied. Unchanged parts are not compared by value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from dovetail.view.model import FleetView, NodeView, PendingPod, PoolView, RecentDecision, Totals, WatchHealth

V = TypeVar("V")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Parts that are new or different, and the keys of those that are gone. None: as it was."""

    nodes: Mapping[str, NodeView] = {}
    nodes_gone: tuple[str, ...] = ()
    pending: Mapping[str, PendingPod] = {}
    pending_gone: tuple[str, ...] = ()
    pools: Mapping[str, PoolView] | None = None
    totals: Totals | None = None
    health: WatchHealth | None = None
    recent: tuple[RecentDecision, ...] | None = None

    def __bool__(self) -> bool:
        return self != Difference()


def difference(old: FleetView, new: FleetView) -> Difference:
    if new is old:
        return Difference()
    nodes, nodes_gone = _changed(old.nodes, new.nodes)
    pending, pending_gone = _changed(old.pending, new.pending)
    return Difference(
        nodes=nodes,
        nodes_gone=nodes_gone,
        pending=pending,
        pending_gone=pending_gone,
        pools=None if old.pools is new.pools or old.pools == new.pools else new.pools,
        totals=None if old.totals is new.totals or old.totals == new.totals else new.totals,
        health=None if old.health is new.health or old.health == new.health else new.health,
        recent=None if old.recent is new.recent or old.recent == new.recent else new.recent,
    )


def applied(view: FleetView, change: Difference) -> FleetView:
    """The view after the change: `applied(old, difference(old, new))` equals `new`."""
    return FleetView(
        nodes=_merged(view.nodes, change.nodes, change.nodes_gone),
        pending=_merged(view.pending, change.pending, change.pending_gone),
        pools=view.pools if change.pools is None else change.pools,
        totals=view.totals if change.totals is None else change.totals,
        health=view.health if change.health is None else change.health,
        recent=view.recent if change.recent is None else change.recent,
    )


def _changed(old: Mapping[str, V], new: Mapping[str, V]) -> tuple[Mapping[str, V], tuple[str, ...]]:
    if old is new:
        return {}, ()
    changed = {key: value for key, value in new.items() if (before := old.get(key)) is not value and before != value}
    return changed, tuple(key for key in old if key not in new)


def _merged(old: Mapping[str, V], changed: Mapping[str, V], gone: tuple[str, ...]) -> Mapping[str, V]:
    return {key: value for key, value in {**old, **changed}.items() if key not in gone}
