"""Balancing: a scale-up split over similar groups, so that their sizes come out as even as they can."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dovetail.cloud.node_groups import NodeGroup


class Increase(msgspec.Struct, frozen=True):
    """A group that grows, and to what."""

    group: NodeGroup
    current_size: int
    new_size: int
    max_size: int

    @property
    def delta(self) -> int:
        return self.new_size - self.current_size

    def __str__(self) -> str:
        return f"{{{self.group.id} {self.current_size}->{self.new_size} (max: {self.max_size})}}"


def balance(groups: Sequence[NodeGroup], new_nodes: int) -> list[Increase]:
    """Nodes go one by one to the smallest group with room; what exceeds the room of all is dropped."""
    growing = [group for group in groups if group.target_size < group.max_size]
    order = sorted(range(len(growing)), key=lambda index: growing[index].target_size)
    sizes = [group.target_size for group in growing]
    left = min(new_nodes, sum(group.room for group in growing))
    while left > 0:
        smallest = min(
            (index for index in order if sizes[index] < growing[index].max_size), key=lambda index: sizes[index]
        )
        sizes[smallest] += 1
        left -= 1
    return [
        Increase(growing[index], growing[index].target_size, sizes[index], growing[index].max_size)
        for index in order
        if sizes[index] != growing[index].target_size
    ]
