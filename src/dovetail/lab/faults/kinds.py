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


class UnknownFault(ValueError):
    """No such fault, or no such node."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """`usual` is the default amount; None: the kind takes no amount."""

    node: bool = False
    usual: float | None = None
    share: bool = False
    signed: bool = False


KINDS: dict[str, Kind] = {
    "kubelet-silent": Kind(node=True),
    "instance-gone": Kind(node=True),
    "clock-skew": Kind(node=True, usual=300.0, signed=True),
    "api-slow": Kind(usual=1.0),
    "api-down": Kind(),
    "api-throttled": Kind(usual=0.5, share=True),
    "conflict-storm": Kind(usual=0.5, share=True),
    "watch-cut": Kind(),
    "watch-stale": Kind(),
    "watch-drop": Kind(usual=0.2, share=True),
    "watch-twice": Kind(),
    "watch-gulps": Kind(usual=5.0),
}


#: Kinds of earlier versions, which stay accepted, and those of today.
FORMER_KINDS = {
    "machine-gone": "instance-gone",
    "half-machines": "half-instances",
    "empty-machines": "empty-instances",
}


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"seconds": "for"}):
    """A fault as asked for: its kind, the node it strikes, how long (0: for good), and how much (0: as usual)."""

    kind: str
    node: str = ""
    seconds: Seconds = Seconds(60)
    amount: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what would be ignored, or make no sense; a former kind becomes that of today."""
        msgspec.structs.force_setattr(self, "kind", FORMER_KINDS.get(self.kind, self.kind))
        if not (math.isfinite(self.amount) and math.isfinite(self.seconds)):
            raise ValueError(f"{self.kind}: not a number")
        kind = KINDS.get(self.kind)
        if kind is None:
            return
        if self.node and not kind.node:
            raise ValueError(f"{self.kind} strikes the whole API server; leave the node out")
        if self.amount and kind.usual is None:
            raise ValueError(f"{self.kind} is all or nothing; leave the amount out")
        if kind.share and self.amount > 1:
            raise ValueError(f"{self.kind}: the amount is a share of 1, such as {kind.usual:g}, not {self.amount:g}")
        if self.amount < 0 and not kind.signed:
            raise ValueError(f"{self.kind}: the amount is above 0, such as {kind.usual:g}, not {self.amount:g}")

    @property
    def much(self) -> float:
        """The amount, or the usual one."""
        kind = KINDS.get(self.kind)
        return self.amount or (kind.usual if kind is not None else None) or 0.0

    @property
    def spell(self) -> str:
        """How long it lasts, in words."""
        return f"for {self.seconds:g} s" if self.seconds > 0 else "for good"


def unknown(kind: str, known: Iterable[str]) -> UnknownFault:
    """The message for an unknown kind."""
    names = sorted(known)
    near = difflib.get_close_matches(kind, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
    return UnknownFault(f"no fault {kind!r}; {hint}")
