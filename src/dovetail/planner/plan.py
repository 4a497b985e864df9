"""A plan: which pod goes where, what to launch for it, what that costs, and why the rest has no node.

Pods are named `namespace/name`. Prices are dollars an hour. A plan is an answer, never an action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.language import message
from dovetail.model.instance_type import Resources


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One offering that holds everything on a node."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float | None
    reservation_id: str | None = None


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """A cheaper offering that was not taken, and what spoke against it."""

    choice: Choice
    because: str


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A new node. `offerings` all hold its pods, cheapest first; the first is the price that counts.

    `requirements` are what its NodeClaim carries, `requests` the sum over its pods and daemons.
    """

    name: str
    pool: str
    offerings: tuple[Choice, ...]
    requirements: tuple[Mapping[str, Any], ...]
    requests: Resources
    pods: tuple[str, ...]
    labels: Mapping[str, str] = {}
    cheaper: tuple[Lost, ...] = ()
    min_values_relaxed: bool = False

    @property
    def choice(self) -> Choice:
        return self.offerings[0]

    @property
    def price(self) -> float:
        return self.offerings[0].price or 0.0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A clause of a funnel: what was asked, how many candidates were left after it, and some types it turned away."""

    clause: str
    left: int
    turned_away: tuple[str, ...] = ()


class Funnel(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pool has no offering for a pod: candidates after each clause, the one that emptied it, the nearest miss.

    `misses` are the things that keep the nearest miss from the pod.
    """

    start: int
    steps: tuple[Step, ...]
    code: str
    emptied_by: str
    remedy: str
    nearest: Choice | None = None
    nearest_lacks: str = ""
    misses: int = 1
    suits: bool = True
    """Whether the pod may use nodes of the pool: its taints, labels, zones and kinds of resources are not the cause."""
    object: str = ""
    """What has to be changed, if the pool launches nothing now."""
    left_over: bool = False
    """Whether offerings were left by every single question: then only all of them together keep the pod out."""

    @property
    def barren(self) -> bool:
        """Whether what the pool itself says leaves nothing, a pod that asks."""
        return self.emptied_by.startswith("its ")

    @property
    def unusable(self) -> bool:
        """Whether the pool launches nothing now, whatever a pod asks for."""
        return bool(self.object)

    @property
    def miss(self) -> str:
        """The nearest miss in words."""
        if self.nearest is None:
            return ""
        return f"{self.nearest.instance_type} in {self.nearest.zone}, {self.miss_detail}"

    @property
    def miss_detail(self) -> str:
        """What the nearest miss costs, and what it lacks."""
        if self.nearest is None:
            return ""
        price = message("unknown price") if self.nearest.price is None else f"${self.nearest.price:.4f}/h"
        return price + (message(", lacks {amount}", amount=self.nearest_lacks) if self.nearest_lacks else "")


class Unschedulable(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod has no node. `code` is of the closed vocabulary (`dovetail.model.reasons`)."""

    code: str
    message: str
    remedy: str = ""
    pools: Mapping[str, Funnel] = {}
    """The funnel of each pool, that of the pool to blame first."""
    object: str = ""
    """What has to be changed, as kind/name; empty where it is the pod."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one of the three is set. `relaxed` says which preferences were relaxed."""

    node: str | None = None
    new_node: str | None = None
    unschedulable: Unschedulable | None = None
    relaxed: tuple[str, ...] = ()


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A running pod that leaves its node for another, or for a new node."""

    source: str
    node: str | None = None
    new_node: str | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """`lower_bound` is proven for the relaxation that `bound_of` names; None where none was computed.

    `unpriced` existing nodes are in none of the sums: what they cost is unknown. `for_zones` is what of the price
    is paid so that nodes lie in more zones.
    """

    per_hour: float
    lower_bound: float | None = None
    bound_of: str = ""
    before: float | None = None
    unpriced: int = 0
    for_zones: float = 0.0

    @property
    def gap(self) -> float | None:
        if self.lower_bound is None:
            return None
        if self.lower_bound <= 0:
            return 0.0 if self.per_hour <= 0 else None
        return max(0.0, self.per_hour / self.lower_bound - 1.0)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What `provision` and `consolidate` answer.

    `remove`, `moves`, `evictions` and `stays` (why nodes do) are consolidation's.
    """

    placements: Mapping[str, Placement]
    nodes: tuple[PlannedNode, ...]
    cost: Cost
    tier: int = 1
    seconds: float = 0.0
    remove: tuple[str, ...] = ()
    moves: Mapping[str, Move] = {}
    evictions: int = 0
    stays: Mapping[str, str] = {}

    @property
    def unschedulable(self) -> dict[str, Unschedulable]:
        return {pod: place.unschedulable for pod, place in self.placements.items() if place.unschedulable is not None}
