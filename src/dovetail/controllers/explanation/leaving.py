"""A machine on its way out: how far its end has come, what it waits for, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dovetail.controllers.disruption import blockers
from dovetail.controllers.explanation.answer import others
from dovetail.controllers.ledger import Decision
from dovetail.controllers.provisioning.pending import AHEAD
from dovetail.controllers.termination import deadline, drain
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import stamp
from dovetail.model.pods import Pod


def line(claim: NodeClaim, pods: Sequence[Pod], held: Sequence[blockers.Blocker], now: datetime) -> str:
    """`held` is what the pods say that will not go."""
    volumes = claim.condition("VolumesDetached")
    if claim.is_true("InstanceTerminating"):
        return "is drained; its machine shuts down"
    if volumes is not None and volumes.status == "Unknown":
        return "is drained; its volumes are being detached"
    left = len(drain.decide(pods, now, deadline.of(claim)).waiting)
    if not left:
        return "is drained; its machine goes next"
    return f"is being drained: {left} pod(s) left" + (f"; {blockers.words(held[0])}{others(held)}" if held else "")


def cause(about: Sequence[Decision]) -> list[str]:
    """Who ended it, and when, if anybody has written it down."""
    last = next((each for each in reversed(about) if each.kind in ("disrupt", "end")), None)
    return [f"goes since {last.time}: {last.summary} (decision {last.id})"] if last is not None else []


def patience(claim: NodeClaim, held: Sequence[blockers.Blocker]) -> list[str]:
    """When the wait ends, if somebody has said it."""
    end = deadline.of(claim)
    if end is not None:
        ahead = f"; room for those that hold it is bought {AHEAD.seconds // 60} minutes before" if held else ""
        return [f"all its pods will be deleted by {stamp(end)}{ahead}"]
    return ["it has no terminationGracePeriod: it waits for as long as they hold it"] if held else []
