"""Removes the taint under which pods are bound where its writer did not: it crashed, was rolled back, or hangs.

The taint carries the time at which it expires. Nodes without a NodeClaim are covered too.
"""

from __future__ import annotations

from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.nodeclaim import initialization
from dovetail.controllers.nodeclaim.binding import open_node
from dovetail.controllers.worker import Again, Worker
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODES
from dovetail.model import wellknown
from dovetail.model.nodes import Node


class TaintExpiry:
    """The controller `node.taintexpiry`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._worker = Worker(
            "node.taintexpiry", self.reconcile, context.log, context.chance, resource=NODES, metrics=context.metrics
        )
        context.cluster_state.listen(NODES, self._node_changed)

    async def run(self) -> None:
        for node in self._context.cluster_state.nodes.store.all():
            if initialization.placing(node):
                self._worker.add(node.metadata.name)
        await self._worker.run()

    def _node_changed(self, change: CacheChange[Node]) -> None:
        if change.new is not None and initialization.placing(change.new):
            self._worker.add(change.key)

    async def reconcile(self, name: str) -> Again:
        node = self._context.cluster_state.nodes.store.get(name)
        taint = initialization.placing_taint(node) if node is not None else None
        if node is None or taint is None:
            return None
        remaining = wellknown.placing_expires(taint) - self._context.clock.now().timestamp()
        if remaining > 0:
            return remaining
        self._context.log.warning("removing expired taint", Node=logs.ref(name), taint=wellknown.PLACING)
        await open_node(self._context, node)
        return None
