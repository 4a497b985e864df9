"""NodeClaims that another version of Dovetail, or Karpenter, has hashed in another way.

Such a hash cannot be compared with today's, so the NodeClaims of a NodePool or NodeClass are taken to be up to date
once and annotated anew. A NodeClaim that has drifted already stays so: it cannot be checked any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.kube.client import Kube
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import NODECLAIMS
from dovetail.model.kinds.nodeclaim import NodeClaim


async def rehash(kube: Kube, claims: Iterable[NodeClaim], marks: Mapping[str, str], version: str) -> None:
    """Put `marks`, a hash and its version, on the NodeClaims hashed otherwise; `version` is the latter's key."""
    for claim in claims:
        if claim.metadata.annotations.get(version) == marks[version]:
            continue
        drifted = claim.condition("Drifted") is not None
        annotations = {version: marks[version]} if drifted else dict(marks)
        try:
            await kube.patch(NODECLAIMS, claim.name, {"metadata": {"annotations": annotations}})
        except NotFound:
            continue
