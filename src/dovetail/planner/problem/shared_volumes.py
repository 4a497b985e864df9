"""Sharing: volumes that several pods use, which a node attaches once.

What a pod takes of a node is added up, but a shared volume takes an attachment from the first pod alone that uses it
there. So each has a bit, a pod brings a mask of them, and a node knows the mask of those that it has attached: what
a pod takes beside its own is what it brings and the node has not. Whatever nothing limits is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from dovetail.planner.problem.volumes import Storage, Volume

#: Names of dimensions that count attachments begin so; the driver follows.
ATTACH = "attach:"


class Sharing(msgspec.Struct, frozen=True):
    """The `bits` of shared volumes, and which of them each dimension counts (`by_dim`)."""

    bits: Mapping[Volume, int] = {}
    by_dim: tuple[tuple[int, int], ...] = ()

    @property
    def names(self) -> set[str]:
        """The dimensions that count shared volumes."""
        return {ATTACH + driver for driver, _ in self.bits}

    def relieved(self, storage: Storage) -> Storage:
        """The same, with what is shared apart from the pod's own."""
        shared = self.bits.keys() & storage.attached
        own = tuple(volume for volume in storage.attached if volume not in shared)
        return replace(storage, attached=own, shared=tuple(sorted(shared))) if shared else storage

    def over(self, dims: Sequence[str]) -> Sharing:
        """The same for the dimensions that there are."""
        names = self.names
        pairs = [
            (dim, self.mask(bit for bit in self.bits if ATTACH + bit[0] == name))
            for dim, name in enumerate(dims)
            if name in names
        ]
        return replace(self, by_dim=tuple(pairs))

    def mask(self, volumes: Iterable[Volume]) -> int:
        """The bits of those that are shared."""
        return sum(self.bits.get(volume, 0) for volume in {*volumes})

    def amounts(self, mask: int) -> tuple[tuple[int, int], ...]:
        """How many attachments the volumes of a mask take, by dimension."""
        return tuple((dim, (mask & mine).bit_count()) for dim, mine in self.by_dim if mask & mine)


NO_PODS = Sharing()


def driver_of(name: str) -> str:
    """The driver whose attachments a dimension counts."""
    return name.removeprefix(ATTACH)


def sharing(uses: Mapping[Volume, int], limited: Iterable[str]) -> Sharing:
    """How shared volumes are counted: `uses` says how many pods use each, `limited` whose attachments run out."""
    drivers = {*limited}
    shared = sorted(volume for volume, count in uses.items() if count > 1 and volume[0] in drivers)
    return Sharing({volume: 1 << index for index, volume in enumerate(shared)}) if shared else NO_PODS
