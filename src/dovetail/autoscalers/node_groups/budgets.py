"""Deletion budgets: how many of the removable nodes may be deleted now.

At most so many deletions run at once, and of those only so many that drain. Groups that go from their maximum to
zero and back are deleted whole: the first one may exceed the budget, since it would never fit otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dovetail.cloud.node_groups import NodeGroup


class GroupNodes(msgspec.Struct, frozen=True):
    """Nodes of one group, by name."""

    group: NodeGroup
    nodes: tuple[str, ...]


class Allowed(msgspec.Struct, frozen=True):
    """What may be deleted at once."""

    empty: tuple[GroupNodes, ...]
    drain: tuple[GroupNodes, ...]


def crop(
    empty: Sequence[GroupNodes],
    drain: Sequence[GroupNodes],
    *,
    empty_in_progress: int = 0,
    drain_in_progress: int = 0,
    max_parallelism: int = 10,
    max_drain_parallelism: int = 1,
) -> Allowed:
    """Empty nodes first, whole groups before single nodes; the empty and the draining nodes of one go together."""
    budget = _Budget(max_parallelism - empty_in_progress - drain_in_progress, max_drain_parallelism - drain_in_progress)
    whole_empty, single_empty = _split(empty)
    whole_drain, single_drain = _split(drain)
    draining = {entry.group.id: entry for entry in whole_drain}
    partly_empty = {entry.group.id for entry in whole_empty}

    empty_allowed: list[GroupNodes] = []
    drain_allowed: list[GroupNodes] = []
    for entry in whole_empty:
        rest = draining.get(entry.group.id)
        if not budget.take_whole(len(entry.nodes), len(rest.nodes) if rest is not None else 0):
            break
        empty_allowed.append(entry)
        if rest is not None:
            drain_allowed.append(rest)
    for entry in whole_drain:
        if entry.group.id in partly_empty:
            continue
        if not budget.take_whole(0, len(entry.nodes)):
            break
        drain_allowed.append(entry)
    more, used = _single(single_empty, budget.total)
    empty_allowed += more
    budget.total -= used
    more, _ = _single(single_drain, min(budget.total, budget.draining))
    return Allowed(tuple(empty_allowed), tuple(drain_allowed + more))


class _Budget(msgspec.Struct):
    """What is left: deletions in all, and of those ones that drain."""

    total: int
    draining: int
    may_exceed: bool = True

    def take_whole(self, empty: int, draining: int) -> bool:
        """Count a whole group. The first one may exceed what is left, if anything is."""
        drain_room = min(self.total, self.draining)
        if empty + draining > self.total or draining > drain_room:
            nothing_left = self.total <= 0 or (draining > 0 and drain_room <= 0)
            if nothing_left or not self.may_exceed:
                return False
        self.total -= empty + draining
        self.draining -= draining
        self.may_exceed = False
        return True


def _split(groups: Sequence[GroupNodes]) -> tuple[list[GroupNodes], list[GroupNodes]]:
    whole = [entry for entry in groups if entry.group.options.zero_or_max]
    return whole, [entry for entry in groups if not entry.group.options.zero_or_max]


def _single(groups: Sequence[GroupNodes], budget: int) -> tuple[list[GroupNodes], int]:
    left = budget
    allowed: list[GroupNodes] = []
    for entry in groups:
        if left < 1:
            break
        taken = entry.nodes[:left]
        allowed.append(GroupNodes(entry.group, taken))
        left -= len(taken)
    return allowed, budget - left
