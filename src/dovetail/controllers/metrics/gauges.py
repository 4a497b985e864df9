"""All gauges of a run, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.controllers.context import Context
from dovetail.controllers.gauges.effective_zones import effective_zones
from dovetail.controllers.metrics.conditions import statuses
from dovetail.controllers.metrics.nodepools import decisions, pools
from dovetail.controllers.metrics.nodes import nodes, types
from dovetail.controllers.metrics.pods import pods, waiting


def sheet(context: Context) -> Iterator[str]:
    """In pieces. Each family speaks of one moment, as it was when its turn came."""
    yield from nodes(context.mirror, context.clock)
    yield from types(context.mirror)
    yield from pods(context.mirror)
    yield from waiting(context.waits)
    yield from effective_zones(context.mirror)
    yield from statuses(context.mirror, context.clock)
    yield from pools(context.mirror, context.metrics.unpriced)
    yield from decisions(context.ledger)
