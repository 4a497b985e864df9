"""NodeClaims beside node groups: pods for which a NodePool gets a node already are no reason to grow a group.

Each NodeClaim of Dovetail names the pods that it was created for. They count as served until its node is initialised;
a pod that still pends then may grow a group. A cluster without the kind, or a role that may not read it, has none.
"""

from __future__ import annotations

from dovetail.kube.client import Kube
from dovetail.kube.reflector import Reflector
from dovetail.kube.resources import NODECLAIMS
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim


class NodeClaimWatch:
    """`served` is empty as long as NodeClaims cannot be read."""

    def __init__(self, kube: Kube) -> None:
        self._claims: Reflector[NodeClaim] = Reflector(kube, NODECLAIMS, NodeClaim)
        self._claims.optional = True

    async def run(self) -> None:
        await self._claims.run()

    def served(self) -> dict[str, str]:
        """Names of NodeClaims by the UIDs of the pods that wait for them."""
        return {
            uid: claim.metadata.name
            for claim in self._claims.store
            if claim.metadata.deletion_timestamp is None and not claim.is_true("Initialized")
            for uid in claim.metadata.annotations.get(wellknown.PODS, "").split(",")
            if uid
        }
