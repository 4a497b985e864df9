"""What becomes of a machine that nobody has ended: whether it stays, why, and when it is looked at again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from dovetail.cluster.mirror import Mirror
from dovetail.controllers.disruption import blockers
from dovetail.controllers.disruption.expiration import date
from dovetail.controllers.disruption.refusals import FOR
from dovetail.controllers.explanation import pools
from dovetail.controllers.explanation.answer import dollars, others
from dovetail.controllers.ledger import Decision
from dovetail.controllers.returning import returning
from dovetail.model.kinds.conditions import ClaimCondition
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.meta import stamp
from dovetail.model.nodes import Node

_RESTLESS = "stays for now: pods came or went lately"


class Outlook:
    """A machine, its pool, and what was written down about it."""

    def __init__(
        self, mirror: Mirror, node: Node, claim: NodeClaim, about: Sequence[Decision], now: datetime
    ) -> None:
        self._mirror = mirror
        self._claim = claim
        self._now = now
        self._pool: NodePool | None = mirror.pools.store.get(claim.node_pool or "")
        self._drifted = claim.condition("Drifted") if claim.is_true("Drifted") else None
        self.empty = not any(map(returning, mirror.pods_on(node.metadata.name)))
        self.kept = self._last_look(about)

    @property
    def reason(self) -> str:
        """What it would go for, as budgets call it."""
        if self._drifted is not None or (self._pool is not None and self._pool.static):
            return "Drifted"
        return "Empty" if self.empty else "Underutilized"

    def _last_look(self, about: Sequence[Decision]) -> Decision | None:
        """What the last look came to, if it still counts: that no budget was left does only while none is."""
        kept = next((each for each in reversed(about) if each.kind == "keep"), None)
        if kept is None or self.empty or self._spared():
            return None
        return None if kept.reason == "BUDGET" and self._left("Underutilized") else kept

    def _spared(self) -> str:
        """Why its pool never gives back a machine like this for its cost; nothing if it may."""
        pool = self._pool
        if pool is None:
            return "its pool is gone"
        if pool.static:
            return "its pool is static"
        if pool.spec.disruption.consolidate_after == "Never":
            return "consolidation is off for its pool (consolidateAfter: Never)"
        if pool.spec.disruption.consolidation_policy == "WhenEmpty" and not self.empty:
            return "it is not empty, and its pool gives back empty machines only (consolidationPolicy: WhenEmpty)"
        return ""

    def _left(self, reason: str) -> bool:
        return self._pool is None or pools.left(self._mirror, self._pool, reason, self._now)[0] > 0

    def verdict(self, why: Sequence[blockers.Blocker], stopped: str, repair: str) -> str:
        """What becomes of the machine, in one line."""
        rebooting, reason = self._claim.condition("Rebooting"), self._claim.condition("DisruptionReason")
        if rebooting is not None and rebooting.status == "True":
            return f"is {rebooting.message}"
        if reason is not None and reason.status == "True":
            return f"goes as soon as what comes in its place is ready ({reason.reason})"
        if repair:
            return f"is ill: {repair}"
        if why:
            return f"stays: {blockers.words(why[0])}{others(why)}"
        if stopped:
            return f"stays: safe mode. {stopped}"
        return self._replacement(self._drifted) if self._drifted is not None else self._cost()

    def _replacement(self, drifted: ClaimCondition) -> str:
        """What will become of a machine that is no longer what its pool asks for."""
        if self._pool is not None and not self._left("Drifted"):
            shut = pools.allowance(self._mirror, self._pool, "Drifted", self._now)
            return f"has drifted ({drifted.reason}) and waits: {shut}"
        return f"will be replaced within its budget: {drifted.reason}"

    def _cost(self) -> str:
        """What will become of a machine that only its cost speaks against."""
        if self.kept is not None:
            return f"stays: {self.kept.summary} ({self.kept.reason}{saving(self.kept)})"
        spared = self._spared()
        if spared:
            return f"stays: {spared}"
        quiet = self._claim.is_true("Consolidatable")
        if not self.empty:
            return "may be consolidated; nothing cheaper has been found yet" if quiet else _RESTLESS
        if self._pool is not None and not self._left("Empty"):
            return f"is empty and waits: {pools.allowance(self._mirror, self._pool, 'Empty', self._now)}"
        at = self._quiet_at()
        return "is empty and goes within seconds" if quiet or at is None else f"is empty and goes at {at:%H:%M:%SZ}"

    def drift(self) -> list[str]:
        """That it is no longer what its pool asks for, whatever else holds it."""
        if self._drifted is None:
            return []
        at = self._drifted.last_transition_time
        return [f"drifted: {self._drifted.reason}" + (f" since {stamp(at)}" if at else "")]

    def _quiet_at(self) -> datetime | None:
        """When nothing will have happened on it for its pool's consolidateAfter, if nothing does."""
        after = self._pool.spec.disruption.quiet_time if self._pool is not None else None
        initialized = self._claim.condition("Initialized")
        last = self._claim.status.last_pod_event_time or (initialized.last_transition_time if initialized else None)
        return last + after if last is not None and after is not None else None

    def budget(self) -> list[str]:
        return [pools.allowance(self._mirror, self._pool, self.reason, self._now)] if self._pool is not None else []

    def next_look(self, why: Sequence[blockers.Blocker]) -> list[str]:
        """When this machine will be looked at again, and when it ends in any case."""
        expiry = date(self._claim)
        return [self._look(why), *([f"expires {stamp(expiry)}"] if expiry is not None else [])]

    def _look(self, why: Sequence[blockers.Blocker]) -> str:
        ends = [each.until for each in why if each.until is not None]
        if why:
            first = f", the first of it at {stamp(min(ends))}" if ends else ""
            return f"next look as soon as what blocks it is gone{first}"
        if self._spared() or self._pool is None:
            return "no look for its cost unless its pool or its pods change"
        at = self._quiet_at()
        if at is not None and at > self._now:
            text = self._pool.spec.disruption.consolidate_after
            return f"next look at {at:%H:%M:%SZ}: pods came or went lately (consolidateAfter {text})"
        if self.kept is None:
            return "next look within seconds"
        again = datetime.fromisoformat(self.kept.time) + timedelta(seconds=FOR)
        when = f"at {again:%H:%M:%SZ} at the latest" if again > self._now else "within minutes"
        return f"next look {when}, or as soon as its pods, budgets or prices change"


def saving(decision: Decision) -> str:
    found = decision.detail.get("saving")
    return f", saving {dollars(found)}" if isinstance(found, float) else ""
