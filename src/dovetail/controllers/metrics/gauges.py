"""All gauges of a run, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.controllers.context import Context
from dovetail.controllers.metrics.conditions import statuses
from dovetail.controllers.metrics.effective_zones import effective_zones
from dovetail.controllers.metrics.nodepools import decisions, pools
from dovetail.controllers.metrics.nodes import nodes, types
from dovetail.controllers.metrics.pods import pods, waiting


def sheet(context: Context) -> Iterator[str]:
    """In pieces. Each family is of one moment, when its turn comes."""
    yield from nodes(context.cluster_state, context.clock)
    yield from types(context.cluster_state)
    yield from pods(context.cluster_state)
    yield from waiting(context.pod_latency)
    yield from effective_zones(context.cluster_state)
    yield from statuses(context.cluster_state, context.clock)
    yield from pools(context.cluster_state, context.metrics.unpriced)
    yield from decisions(context.decision_history)
