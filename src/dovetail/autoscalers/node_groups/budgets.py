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
    """Empty nodes first, whole groups before single nodes."""
    budget = max_parallelism - empty_in_progress - drain_in_progress
    drain_budget = max_drain_parallelism - drain_in_progress
    whole_empty, single_empty = _split(empty)
    whole_drain, single_drain = _split(drain)

    empty_allowed, used, may_exceed = _whole(whole_empty, budget, True)
    budget -= used
    drain_budget = min(budget, drain_budget)
    drain_allowed, used, _ = _whole(whole_drain, drain_budget, may_exceed)
    budget -= used
    drain_budget -= used
    more, used = _single(single_empty, budget)
    empty_allowed += more
    budget -= used
    more, _ = _single(single_drain, min(budget, drain_budget))
    return Allowed(tuple(empty_allowed), tuple(drain_allowed + more))


def _split(groups: Sequence[GroupNodes]) -> tuple[list[GroupNodes], list[GroupNodes]]:
    whole = [entry for entry in groups if entry.group.options.zero_or_max]
    return whole, [entry for entry in groups if not entry.group.options.zero_or_max]


def _whole(groups: Sequence[GroupNodes], budget: int, may_exceed: bool) -> tuple[list[GroupNodes], int, bool]:
    left = budget
    allowed: list[GroupNodes] = []
    for entry in groups:
        if left < len(entry.nodes) and (left == 0 or (entry.nodes and not may_exceed)):
            break
        allowed.append(entry)
        left -= len(entry.nodes)
        may_exceed = False
    return allowed, budget - left, may_exceed


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
