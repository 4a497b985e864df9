"""NodeClaim creation: none is created twice, also where an answer is lost and the watch is broken.

A server may have created a NodeClaim although its answer was lost or cannot be read, and the last leader may have
created some that this replica has not heard of. While that is possible, the NodeClaims are read before anything is
planned: the pods of one that the cluster state does not have would get another at every attempt.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.cluster.state import ClusterState
from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError, Disconnected, KubeError
from dovetail.kube.resources import NODECLAIMS
from dovetail.model.kinds.nodeclaim import NodeClaim


class NodeClaimCreator:
    """Creates NodeClaims, and keeps in mind whether the server may have one that the cluster state does not have."""

    def __init__(self, kube: Kube, cluster_state: ClusterState) -> None:
        self._kube = kube
        self._cluster_state = cluster_state
        self._reading = asyncio.Lock()
        self._incomplete = True

    def begin(self) -> None:
        """A leadership begins: the last leader may have written what the watch has not brought."""
        self._incomplete = True

    async def create(self, body: dict[str, Any]) -> NodeClaim:
        try:
            claim = await self._kube.create(NODECLAIMS, body, type=NodeClaim)
        except KubeError as problem:
            self._incomplete |= may_be_done(problem)
            raise
        self._cluster_state.assume(claim)
        return claim

    async def complete(self) -> None:
        """Read what the cluster state may lack, once. Raises a KubeError: then nothing may be planned."""
        async with self._reading:
            if not self._incomplete:
                return
            self._incomplete = False
            try:
                claims = await self._kube.list(NODECLAIMS, type=NodeClaim)
            except BaseException:
                self._incomplete = True
                raise
            if int(claims.resource_version) > int(self._cluster_state.claims.version or 0):  # else the watch has all
                for claim in claims.items:
                    self._cluster_state.assume(claim)


def may_be_done(problem: KubeError) -> bool:
    """Whether a write that failed may have been done all the same: its answer was lost, or is none."""
    if isinstance(problem, Disconnected):
        return problem.sent
    return not isinstance(problem, ApiError) or problem.status >= 500
