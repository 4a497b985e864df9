"""Attachments: the shared volumes attached to each node of a packing state, and the attachments that more pods need.

A volume that several pods on a node share takes one attachment. It is detached when the last of these pods is removed.
A node without a free attachment may have one for a later pod: a pod whose volume is already attached needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Protocol

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Ints
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.request import PlacementRequest


class AttachmentState(Protocol):
    """What attachments read and change of a packing state."""

    problem: Problem
    existing: int
    free: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    attached: dict[int, int]
    contents: list[dict[int, int]]
    placement_requests: list[PlacementRequest]


def new_attachments(state: AttachmentState, request: PlacementRequest, node: int) -> tuple[tuple[int, int], ...]:
    """The attachments that the first pod of the request adds on a node: its volumes that are not attached there yet."""
    return state.problem.sharing.amounts(request.shared & ~state.attached.get(node, 0))


def attachable(state: AttachmentState, request: PlacementRequest, node: int, most: int) -> int:
    """The number of pods of the request, at most `most`, that the node has attachments for."""
    for dim, more in new_attachments(state, request, node):
        left, own = int(state.free[dim, node]) - more, int(request.amounts[dim])
        most = min(most, left // own if own else most) if left >= 0 else 0
    return most


def keep_attachable(state: AttachmentState, request: PlacementRequest, ok: Bools, start: int) -> None:
    """Clear `ok` for the nodes from `start` on that have no attachments for a pod of the request."""
    short: Bools = np.zeros(len(ok), dtype=np.bool_)
    for dim, more in state.problem.sharing.amounts(request.shared):
        short |= state.free[dim, start : start + len(ok)] < request.amounts[dim] + more
    for place in (ok & short).nonzero()[0].tolist():
        ok[place] = attachable(state, request, start + place, 1)


def attach(state: AttachmentState, node: int) -> None:
    """Update the volumes attached to a node to those that its pods use."""
    problem = state.problem
    before, now = state.attached.get(node, 0), problem.attached.get(node, 0) if node < state.existing else 0
    for number in state.contents[node]:
        now |= state.placement_requests[number].shared
    state.attached[node] = now
    for dim, volumes in problem.sharing.by_dim:
        state.free[dim, node] += (before & volumes).bit_count() - (now & volumes).bit_count()


def load_of(problem: Problem, placement_requests: Mapping[PlacementRequest, int]) -> Ints:
    """The resources that these pods (request → count) take of an otherwise empty node."""
    load = np.zeros(len(problem.dims), dtype=np.int64)
    for request, count in placement_requests.items():
        load += request.amounts * count
    for dim, more in problem.sharing.amounts(reduce(or_, [request.shared for request in placement_requests], 0)):
        load[dim] += more
    return load
