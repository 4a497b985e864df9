"""Termination deadlines: pods that may not be evicted will be forced out, and their replacements need capacity then.

A node launched when the drain begins would be idle for as long as they are protected; one launched when they are gone
comes too late. So it is planned shortly before the deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime

from dovetail.clock import Clock
from dovetail.cluster.state import ClusterState
from dovetail.controllers.node.termination import deadline
from dovetail.controllers.provisioning.provisionable_pods import launch_time
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.pods import returning


class TerminationDeadlines:
    """The NodeClaims with a termination deadline, kept up by the watch."""

    def __init__(self, cluster_state: ClusterState, clock: Clock) -> None:
        self._cluster_state = cluster_state
        self._clock = clock
        self._dates: dict[str, datetime] = {}
        self._changed_event = asyncio.Event()
        for claim in cluster_state.claims.store.all():
            self._note(claim.name, claim)
        cluster_state.listen(NODECLAIMS, self._changed)

    def _changed(self, change: CacheChange[NodeClaim]) -> None:
        self._note(change.key, change.new)

    def _note(self, name: str, claim: NodeClaim | None) -> None:
        terminating = claim is not None and claim.metadata.deletion_timestamp is not None
        date = deadline.of(claim) if terminating else None
        if date is None:
            self._dates.pop(name, None)
        elif self._dates.get(name) != date:
            self._dates[name] = date
            self._changed_event.set()

    async def run(self, trigger: Callable[[str], None]) -> None:
        """Call `trigger` with a NodeClaim's name whenever it is time to plan for some of its pods."""
        while True:
            name, left = min(self._upcoming(), key=lambda upcoming: upcoming[1], default=("", None))
            self._changed_event.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed_event.wait()
            except TimeoutError:
                trigger(name)

    def _upcoming(self) -> Iterator[tuple[str, float]]:
        """The moments to come, in seconds from now."""
        now = self._clock.now()
        for name, end in self._dates.items():
            claim = self._cluster_state.claims.store.get(name)
            node = self._cluster_state.node_for(claim) if claim is not None else None
            for pod in self._cluster_state.pods_on(node.metadata.name) if node is not None else ():
                left = (launch_time(pod, end) - now).total_seconds()
                if returning(pod) and left > 0:
                    yield name, left + 0.001
