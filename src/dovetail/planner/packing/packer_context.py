"""What choosing nodes and offerings reads of the packer that asks: its problem, strategy and state, and what waits.

The packer owns the candidate nodes, the offering choice and the growth of nodes; they know it by this interface alone.
"""

from __future__ import annotations

from typing import Protocol

from dovetail.planner.offerings.catalog import Bools, Floats
from dovetail.planner.packing.state import PackingState
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.problem.compile import Problem


class PackerContext(Protocol):
    """The packer, while it places pods of one class."""

    problem: Problem
    strategy: Strategy
    state: PackingState
    ignore_counted: bool
    waiting: Floats
    """The resources that pods of later classes request."""
    pods_refusing_to_share: int
    extra: list[tuple[int, Bools]]
    """Further topology keys, with the domains in which the pods must be placed."""
