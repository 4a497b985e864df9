"""Shared volumes: volumes that several pods use and that a node attaches once.

Requests of pods are summed, but a shared volume takes an attachment only for the first pod on a node that uses it. So
each shared volume has a bit, a pod has a mask of them, and a node the mask of those attached: a pod adds attachments
for the bits that the node does not have. Volumes of drivers without an attach limit are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from dovetail.planner.problem.volumes import Volume, VolumeConstraints

#: Prefix of dimensions that count attachments; the CSI driver follows.
ATTACH = "attach:"


class SharedVolumes(msgspec.Struct, frozen=True):
    """The `bits` of shared volumes, and which of them each dimension counts (`by_dim`)."""

    bits: Mapping[Volume, int] = {}
    by_dim: tuple[tuple[int, int], ...] = ()

    @property
    def names(self) -> set[str]:
        """The dimensions that count shared volumes."""
        return {ATTACH + driver for driver, _ in self.bits}

    def with_shared_separated(self, storage: VolumeConstraints) -> VolumeConstraints:
        """The storage with its shared volumes separated from the pod's own."""
        shared = self.bits.keys() & storage.attached
        own = tuple(volume for volume in storage.attached if volume not in shared)
        return replace(storage, attached=own, shared=tuple(sorted(shared))) if shared else storage

    def over(self, dims: Sequence[str]) -> SharedVolumes:
        """The same for the dimensions of a problem."""
        names = self.names
        pairs = [
            (dim, self.mask(bit for bit in self.bits if ATTACH + bit[0] == name))
            for dim, name in enumerate(dims)
            if name in names
        ]
        return replace(self, by_dim=tuple(pairs))

    def mask(self, volumes: Iterable[Volume]) -> int:
        """The bits of the shared ones among some volumes."""
        return sum(self.bits.get(volume, 0) for volume in {*volumes})

    def amounts(self, mask: int) -> tuple[tuple[int, int], ...]:
        """The attachments of the volumes of a mask, by dimension."""
        return tuple((dim, (mask & mine).bit_count()) for dim, mine in self.by_dim if mask & mine)


NO_SHARED_VOLUMES = SharedVolumes()


def driver_of(name: str) -> str:
    """The driver whose attachments a dimension counts."""
    return name.removeprefix(ATTACH)


def sharing(uses: Mapping[Volume, int], limited: Iterable[str]) -> SharedVolumes:
    """How shared volumes are counted: `uses` are the pods of each volume, `limited` the drivers with a limit."""
    drivers = {*limited}
    shared = sorted(volume for volume, count in uses.items() if count > 1 and volume[0] in drivers)
    return SharedVolumes({volume: 1 << index for index, volume in enumerate(shared)}) if shared else NO_SHARED_VOLUMES
