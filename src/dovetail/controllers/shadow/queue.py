"""Commands that are not executed: which disruptions would have begun, for how long, and what they would have saved.

The disruption controller offers the same command again and again while it would still begin. It is recorded once; what
it saves counts for as long as it keeps being offered.
"""

from __future__ import annotations

import msgspec

from dovetail.controllers.context import Context
from dovetail.controllers.disruption import validation
from dovetail.controllers.disruption.types import Command, Copy
from dovetail.controllers.history import disruption
from dovetail.controllers.history.decisions import Decision
from dovetail.planner.plan import Plan

#: A command that was not offered again for so long would no longer begin.
UNOFFERED_S = 180.0
SECONDS_PER_HOUR = 3600.0

_Key = tuple[str, frozenset[str]]


class OpenCommand(msgspec.Struct, kw_only=True):
    """A command that would be under way, since when, and when it was last offered."""

    command: Command
    since: float
    seen: float


class ShadowQueue:
    """Takes commands as the disruption queue does, and begins none."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.open: dict[_Key, OpenCommand] = {}

    def busy(self) -> frozenset[str]:
        return frozenset()

    def resume(self) -> None:
        """There is nothing to resume: no command was ever written."""

    async def run(self) -> None:
        """There is nothing to execute."""

    async def start(self, command: Command, plan: Plan | None, copy: Copy | None = None) -> bool:
        """Record the command if it is new. It never begins, so the controller goes on to look for others."""
        context = self._context
        result = validation.before(context, command)
        if not result.candidates:
            return False
        command = msgspec.structs.replace(command, candidates=result.candidates)
        now = context.clock.monotonic()
        key: _Key = (command.reason, frozenset(candidate.node for candidate in command.candidates))
        open_disruption = self.open.get(key)
        if open_disruption is not None:
            open_disruption.seen = now
            return False
        self._supersede(key, now)
        self.open[key] = OpenCommand(command=command, since=now, seen=now)
        names = tuple(f"shadow-{launch.name}" for launch in plan.nodes) if plan else ()
        hypothetical = msgspec.structs.replace(command, replacements=names)
        context.decision_history.record(disruption.started(context, hypothetical, plan, copy))
        context.log.info("would disrupt node(s)", command=hypothetical.log_text(), **{"command-id": command.id})
        metrics = context.metrics.shadow
        metrics.removals.labels(command.reason.lower()).inc(len(command.candidates))
        metrics.evictions.inc(command.evictions)
        return False

    def close_unoffered(self) -> None:
        """End the commands that are no longer offered."""
        now = self._context.clock.monotonic()
        for key, command in tuple(self.open.items()):
            if now - command.seen > UNOFFERED_S:
                self._close(key, command.seen)

    def saving(self) -> float:
        """What the commands that would be under way save together, in dollars an hour."""
        return sum(command.command.saving for command in self.open.values())

    def _supersede(self, key: _Key, now: float) -> None:
        """A command about nodes of another one stands in its place."""
        for other in tuple(self.open):
            if other[1] & key[1]:
                self._close(other, now)

    def _close(self, key: _Key, until: float) -> None:
        ended = self.open.pop(key)
        command, seconds = ended.command, until - ended.since
        saved = max(0.0, command.saving) * seconds / SECONDS_PER_HOUR
        context, gone = self._context, []
        for candidate in command.candidates:
            claim = context.cluster_state.claims.store.get(candidate.claim)
            if claim is None or claim.metadata.deletion_timestamp is not None:
                gone.append(candidate.node)
        context.metrics.shadow.saved.inc(saved)
        context.decision_history.record(
            Decision(
                id=context.decision_history.new_id(),
                kind="shadow",
                time=context.decision_history.now(),
                reason="DisruptionOver",
                subject=command.id,
                cost=saved,
                seconds=seconds,
                removed=tuple(gone),
                about=tuple(candidate.claim for candidate in command.candidates),
                summary=(
                    f"{command.reason} of {len(command.candidates)} node(s) would have saved ${saved:.4f} in"
                    f" {seconds / 60:.0f} min; the cluster's autoscaler removed {len(gone)} of them"
                ),
                detail={"saved": saved, "nodes": len(command.candidates), "gone": len(gone)},
            )
        )
