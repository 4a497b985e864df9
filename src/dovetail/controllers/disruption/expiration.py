"""Expiration: a machine's last day. Its replacement comes first, but not for ever.

Expiry is a promise, not a wish: budgets and protected pods do not hold it back, as in Karpenter, and if the room
for its pods cannot be had within a while the machine goes all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from dovetail.model import duration
from dovetail.model.kinds.nodeclaim import NodeClaim

NEVER = "Never"


def date(claim: NodeClaim) -> datetime | None:
    """When a claim expires; None if it never does."""
    text, created = claim.spec.expire_after, claim.metadata.creation_timestamp
    if text is None or text == NEVER or created is None:
        return None
    return created + duration.parse(text)


def remaining(claim: NodeClaim, now: datetime) -> float:
    """The share of its life that a claim still has before it: 1 if it never expires."""
    end, created = date(claim), claim.metadata.creation_timestamp
    if end is None or created is None or end <= created:
        return 1.0
    return min(1.0, max(0.0, (end - now) / (end - created)))


def due(claims: Iterable[NodeClaim], now: datetime) -> list[NodeClaim]:
    """Claims past their date, oldest date first."""
    dated = [(when, claim.name, claim) for claim in claims if (when := date(claim)) is not None and when <= now]
    return [claim for _, _, claim in sorted(dated, key=lambda row: row[:2])]
