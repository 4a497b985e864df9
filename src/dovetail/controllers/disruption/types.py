"""A command: nodes to remove, their replacements, and why. Executed by the queue."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from dovetail.cloud.provider import LaunchOption
from dovetail.model.kinds.nodepool import NodePool

if TYPE_CHECKING:
    from dovetail.planner.plan import Plan


class DisruptionReason(StrEnum):
    """As on the DisruptionReason condition and in budgets."""

    EMPTY = "Empty"
    DRIFTED = "Drifted"
    UNDERUTILIZED = "Underutilized"
    UNHEALTHY = "Unhealthy"
    EXPIRED = "Expired"


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node that may be disrupted. `pods` are those that must be rescheduled elsewhere."""

    node: str
    claim: str
    provider_id: str
    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float | None
    cost: float
    pods: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return self.cost <= 1.0


class Copy(msgspec.Struct, frozen=True):
    """One more NodeClaim of a static NodePool, and the offering that it will likely be launched as."""

    pool: NodePool
    likely: LaunchOption | None = None


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """`replacements` are the NodeClaims that must be initialized before the candidates are deleted.

    `grace` bounds the drain in seconds, whatever the NodeClaims say; `drift` is what a drifted node no longer matches,
    `condition` the condition that a repair is for; `terminate_first` is why no replacement can come first.
    """

    id: str
    reason: DisruptionReason
    kind: str = ""  # empty, multi, single, "" for drift and the like
    candidates: tuple[Candidate, ...]
    replacements: tuple[str, ...] = ()
    saving: float = 0.0
    created: float = 0.0
    policy: str = ""
    grace: float | None = None
    drift: str = ""
    condition: str = ""
    terminate_first: str = ""

    @property
    def evictions(self) -> int:
        return sum(len(candidate.pods) for candidate in self.candidates)

    @property
    def decision(self) -> str:
        if self.terminate_first:
            return "terminate-first"
        return "replace" if self.replacements else "delete"

    def log_text(self) -> str:
        """As Karpenter's log formats it, for existing searches."""
        pools = ",".join(sorted({candidate.pool for candidate in self.candidates}))
        nodes = ", ".join(candidate.node for candidate in self.candidates)
        text = f"{self.reason}/{self.id}: {self.decision}: nodepools=[{pools}]: [{nodes}]"
        if self.replacements:
            count = len(self.replacements)
            text += f" -> [{count} replacement{'' if count == 1 else 's'}]"
        return f"{text} (savings: ${self.saving:.2f})"


class CommandQueue(Protocol):
    """Takes commands: the disruption queue executes them, a dry run records them."""

    def busy(self) -> frozenset[str]:
        """NodeClaims that a command already has."""
        ...

    def resume(self) -> None: ...

    async def run(self) -> None: ...

    async def start(self, command: Command, plan: Plan | None, copy: Copy | None = None) -> bool:
        """Whether the command was started."""
        ...


class CommandNote(msgspec.Struct, frozen=True, kw_only=True):
    """A command as annotated on its replacements, for the next process.

    The candidates have no pods there: those are read from the cluster again, and the annotations of an object may not
    be longer than 256 KiB together.
    """

    id: str
    reason: DisruptionReason
    kind: str = ""
    grace: float | None = None
    condition: str = ""
    candidates: tuple[Candidate, ...] = ()

    @classmethod
    def of(cls, command: Command) -> CommandNote:
        bare = tuple(msgspec.structs.replace(candidate, pods=()) for candidate in command.candidates)
        return cls(
            id=command.id,
            reason=command.reason,
            kind=command.kind,
            grace=command.grace,
            condition=command.condition,
            candidates=bare,
        )


def legacy_log_text(command: Command) -> str:
    """The line of earlier releases (`consolidation delete, terminating 1 nodes …`), which runbooks still grep for.

    An empty node is a matter of emptiness only where its NodePool's policy is WhenEmpty.
    """
    method = {
        "Empty": "emptiness" if command.policy == "when_empty" else "consolidation",
        "Underutilized": "consolidation",
        "Drifted": "drift",
        "Expired": "expiration",
        "Unhealthy": "repair",
    }
    nodes = ", ".join(
        f"{candidate.node}/{candidate.instance_type}/{candidate.capacity_type}" for candidate in command.candidates
    )
    how = f"{method[command.reason]} {command.decision}"
    text = f"{how}, terminating {len(command.candidates)} nodes {nodes}"
    if command.replacements:
        text += f" and replacing with {len(command.replacements)} nodes"
    return text
