"""The sale: every machine that pools may buy, less what daemons take of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.planner.cells import tolerated
from dovetail.planner.columns import Asked, Columns
from dovetail.planner.fleet import Daemon
from dovetail.planner.ports import with_ports
from dovetail.planner.snapshot import Pool

Unavailable = frozenset[tuple[str, str, str]]


def on_sale(pools: Sequence[Pool], asked: Asked, unavailable: Unavailable, daemons: Iterable[Daemon]) -> Columns:
    columns = Columns(pools, asked, unavailable)
    for daemon in daemons:
        mask = columns.any_term(daemon.shape.required) & tolerated(columns, daemon.tolerations, prefer=True)
        columns.charge(mask, with_ports(daemon.shape.requests, daemon.shape.ports))
    return columns
