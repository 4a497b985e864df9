"""A command: machines that go, machines that come first, and why. Carried out by the queue."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from dovetail.controllers.disruption.replacement import Copy
    from dovetail.planner.plan import Plan


class Reason(StrEnum):
    """As on the DisruptionReason condition and in budgets."""

    EMPTY = "Empty"
    DRIFTED = "Drifted"
    UNDERUTILIZED = "Underutilized"
    UNHEALTHY = "Unhealthy"
    EXPIRED = "Expired"


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that may be disrupted. `pods` are those that must find a place elsewhere."""

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


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """`replacements` are the claims that must be up before the candidates go.

    `grace` bounds the drain in seconds, whatever the claims say; `drift` is what a drifted machine no longer matches,
    `ailment` the condition that a repair is for; `terminate_first` is why nothing can come before the candidates go.
    """

    id: str
    reason: Reason
    kind: str = ""  # empty, multi, single, "" for drift and the like
    candidates: tuple[Candidate, ...]
    replacements: tuple[str, ...] = ()
    saving: float = 0.0
    created: float = 0.0
    policy: str = ""
    grace: float | None = None
    drift: str = ""
    ailment: str = ""
    terminate_first: str = ""

    @property
    def evictions(self) -> int:
        return sum(len(each.pods) for each in self.candidates)

    @property
    def decision(self) -> str:
        if self.terminate_first:
            return "terminate-first"
        return "replace" if self.replacements else "delete"

    def words(self) -> str:
        """As Karpenter's log says it, for those who grep."""
        pools = ",".join(sorted({each.pool for each in self.candidates}))
        nodes = ", ".join(each.node for each in self.candidates)
        text = f"{self.reason}/{self.id}: {self.decision}: nodepools=[{pools}]: [{nodes}]"
        if self.replacements:
            count = len(self.replacements)
            text += f" -> [{count} replacement{'' if count == 1 else 's'}]"
        return f"{text} (savings: ${self.saving:.2f})"


class CommandQueue(Protocol):
    """Takes commands: the disruption queue carries them out, a dry run records them."""

    def busy(self) -> frozenset[str]:
        """Claims that a command already has."""
        ...

    def resume(self) -> None: ...

    async def run(self) -> None: ...

    async def start(self, command: Command, plan: Plan | None, copy: Copy | None = None) -> bool:
        """Whether the command began."""
        ...


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A command as its replacements carry it, for a process that comes after us.

    The candidates go without their pods: those are found on the machines again, and an object's annotations may not
    be longer than 256 KiB together.
    """

    id: str
    reason: Reason
    kind: str = ""
    grace: float | None = None
    ailment: str = ""
    candidates: tuple[Candidate, ...] = ()

    @classmethod
    def of(cls, command: Command) -> Note:
        bare = tuple(msgspec.structs.replace(each, pods=()) for each in command.candidates)
        return cls(
            id=command.id,
            reason=command.reason,
            kind=command.kind,
            grace=command.grace,
            ailment=command.ailment,
            candidates=bare,
        )


def old_words(command: Command) -> str:
    """The line of earlier releases (`consolidation delete, terminating 1 nodes …`), which runbooks still grep for.

    An empty machine is a matter of emptiness only where its pool asks for no more than that.
    """
    method = {
        "Empty": "emptiness" if command.policy == "when_empty" else "consolidation",
        "Underutilized": "consolidation",
        "Drifted": "drift",
        "Expired": "expiration",
        "Unhealthy": "repair",
    }
    nodes = ", ".join(f"{each.node}/{each.instance_type}/{each.capacity_type}" for each in command.candidates)
    how = f"{method[command.reason]} {command.decision}"
    text = f"{how}, terminating {len(command.candidates)} nodes {nodes}"
    if command.replacements:
        text += f" and replacing with {len(command.replacements)} nodes"
    return text
