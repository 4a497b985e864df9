"""Which faults a cluster knows, what each strikes, and what may be asked of it.

The same table checks a scenario before it runs and a fault typed at a running lab. A cloud may add kinds of its own,
which only the lab that has it knows.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

import msgspec

from dovetail.lab.durations import Seconds
from dovetail.language import message


class UnknownFault(ValueError):
    """No such fault, or no such node."""


class FaultKind(msgspec.Struct, frozen=True, kw_only=True):
    """`usual` is the default amount; None: the kind takes no amount."""

    node: bool = False
    usual: float | None = None
    share: bool = False
    signed: bool = False


KINDS: dict[str, FaultKind] = {
    "kubelet-silent": FaultKind(node=True),
    "instance-gone": FaultKind(node=True),
    "clock-skew": FaultKind(node=True, usual=300.0, signed=True),
    "api-slow": FaultKind(usual=1.0),
    "api-down": FaultKind(),
    "api-throttled": FaultKind(usual=0.5, share=True),
    "conflict-storm": FaultKind(usual=0.5, share=True),
    "watch-cut": FaultKind(),
    "watch-stale": FaultKind(),
    "watch-drop": FaultKind(usual=0.2, share=True),
    "watch-twice": FaultKind(),
    "watch-gulps": FaultKind(usual=5.0),
}


#: Kinds of earlier versions, which stay accepted, and those of today.
FORMER_KINDS = {
    "machine-gone": "instance-gone",
    "half-machines": "half-instances",
    "empty-machines": "empty-instances",
}


class InjectedFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"seconds": "for"}):
    """A fault as asked for: its kind, the node it strikes, how long (0: for good), and how much (0: as usual)."""

    kind: str
    node: str = ""
    seconds: Seconds = Seconds(60)
    amount: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what would be ignored, or make no sense; a former kind becomes that of today."""
        msgspec.structs.force_setattr(self, "kind", FORMER_KINDS.get(self.kind, self.kind))
        if not (math.isfinite(self.amount) and math.isfinite(self.seconds)):
            raise ValueError(message("{kind}: not a number", kind=self.kind))
        kind = KINDS.get(self.kind)
        if kind is None:
            return
        if self.node and not kind.node:
            raise ValueError(message("{kind} strikes the whole API server; leave the node out", kind=self.kind))
        if self.amount and kind.usual is None:
            raise ValueError(message("{kind} is all or nothing; leave the amount out", kind=self.kind))
        if kind.share and self.amount > 1:
            raise ValueError(
                message(
                    "{kind}: the amount is a share of 1, such as {usual:g}, not {amount:g}",
                    kind=self.kind,
                    usual=kind.usual,
                    amount=self.amount,
                )
            )
        if self.amount < 0 and not kind.signed:
            raise ValueError(
                message(
                    "{kind}: the amount is above 0, such as {usual:g}, not {amount:g}",
                    kind=self.kind,
                    usual=kind.usual,
                    amount=self.amount,
                )
            )

    @property
    def much(self) -> float:
        """The amount, or the usual one."""
        kind = KINDS.get(self.kind)
        return self.amount or (kind.usual if kind is not None else None) or 0.0

    @property
    def spell(self) -> str:
        """How long it lasts, in words."""
        return message("for {seconds:g} s", seconds=self.seconds) if self.seconds > 0 else message("for good")


def unknown(kind: str, kinds: Iterable[str]) -> UnknownFault:
    """The message for an unknown kind."""
    names = sorted(kinds)
    near = difflib.get_close_matches(kind, names, 1)
    hint = (
        message("did you mean {near}?", near=near[0]) if near else message("there are {names}", names=", ".join(names))
    )
    return UnknownFault(message("no fault {kind!r}; {hint}", kind=kind, hint=hint))
