"""A machine's seat in the fleet: what its kubelet knows beyond the machine itself."""

from __future__ import annotations

import msgspec

from dovetail.lab.machines import Machine


class Seat(msgspec.Struct):
    """`silent_since` is a time of the loop; `skew` is how far its clock is off, in seconds."""

    machine: Machine
    registered: bool = False
    ready: bool = False
    ready_since: str = ""
    node_uid: str = ""
    silent_since: float | None = None
    skew: float = 0.0
    pressed: bool = False
    pods: dict[str, None] = msgspec.field(default_factory=dict)
    images: set[str] = msgspec.field(default_factory=set)
