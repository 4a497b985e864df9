"""Drift that repeats itself: a NodeClaim launched from the current NodePool and NodeClass drifts from those very two.

Replacing it would not help, and would go on for ever. So drift stops for that NodePool until the NodePool or its
NodeClass changes. What follows from the objects alone is judged by the NodePool's generation that the NodeClaim was
made from; what a cloud reports, by whether an older NodeClaim drifted for the same reason and version shortly before.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.controllers.disruption import drift
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool

#: A NodeClaim that drifts at a greater age has drifted from something that changed since its launch.
LOOP_MAX_AGE = timedelta(hours=1)
#: Reasons that follow from the NodePool and the NodeClaim alone.
FROM_OBJECTS = frozenset({drift.POOL, drift.REQUIREMENTS})

#: What a NodePool and its NodeClass require of instances; equal while neither changes.
Version = tuple[int, str]


class Stop(msgspec.Struct, frozen=True):
    """Why drift has stopped for a NodePool: the contradictory version, the reason, the NodeClaim that drifted."""

    version: Version
    reason: str
    claim: str


def version(pool: NodePool, node_class: Mapping[str, Any]) -> Version:
    """The generation of the NodePool, and the spec and status of the NodeClass, but for its conditions."""
    resolved = {key: value for key, value in (node_class.get("status") or {}).items() if key != "conditions"}
    text = msgspec.json.encode((node_class.get("spec"), resolved), order="deterministic").decode()
    return pool.metadata.generation, text


def contradicts_itself(claim: NodeClaim, pool: NodePool, reason: str) -> bool:
    """Whether a NodeClaim made from the NodePool as it stands counts as drifted from it."""
    return reason in FROM_OBJECTS and made_from(claim) == str(pool.metadata.generation)


def made_from(claim: NodeClaim) -> str:
    """The generation of the NodePool that a NodeClaim was made from; empty where its creator did not write it."""
    return claim.metadata.annotations.get(wellknown.NODEPOOL_GENERATION, "")


class DriftLoops:
    """Which NodePools drift has stopped for."""

    def __init__(self) -> None:
        self.stopped: dict[str, Stop] = {}
        self._first_drift: dict[tuple[str, str], tuple[Version, datetime]] = {}

    def is_stopped(self, pool: str, current: Version) -> bool:
        """Whether drift has stopped for a NodePool; a change of the NodePool or its NodeClass ends that."""
        stop = self.stopped.get(pool)
        if stop is not None and stop.version != current:
            del self.stopped[pool]
        return pool in self.stopped

    def forget(self, pool: str) -> None:
        self.stopped.pop(pool, None)
        for key in [key for key in self._first_drift if key[0] == pool]:
            del self._first_drift[key]

    def observe(self, claim: NodeClaim, pool: NodePool, current: Version, reason: str, now: datetime) -> Stop | None:
        """A NodeClaim is about to be marked as drifted: the reason to stop instead, if it shows that drift repeats."""
        seen = self._first_drift.get((pool.name, reason))
        if seen is None or seen[0] != current:
            seen = self._first_drift[pool.name, reason] = (current, now)
        if not contradicts_itself(claim, pool, reason) and not _is_successor(claim, reason, seen[1], now):
            return None
        self.stopped[pool.name] = Stop(current, reason, claim.name)
        return self.stopped[pool.name]


def _is_successor(claim: NodeClaim, reason: str, first_drift: datetime, now: datetime) -> bool:
    """Whether a NodeClaim was made after another had drifted for the same reason.

    A type that the cloud no longer offers says nothing about the NodePool, and a NodeClaim with a recorded generation
    is judged by that.
    """
    created = claim.metadata.creation_timestamp
    if created is None or reason == drift.TYPE_GONE or (reason in FROM_OBJECTS and made_from(claim)):
        return False
    return created > first_drift and now - created < LOOP_MAX_AGE
