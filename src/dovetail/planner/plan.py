"""A plan: the placement of each pod, the nodes to launch, their cost, and why the other pods stay pending.

Pods are named `namespace/name`. Prices are dollars an hour. A plan is a value; making one changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dovetail.language import message
from dovetail.model.instance_type import Resources


class OfferingOption(msgspec.Struct, frozen=True, kw_only=True):
    """One offering that holds everything on a node."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float | None
    reservation_id: str | None = None


def total_price(prices: Iterable[float | None]) -> float | None:
    """The sum of prices; None where one is not known."""
    total = 0.0
    for price in prices:
        if price is None:
            return None
        total += price
    return total


class RejectedOffering(msgspec.Struct, frozen=True, kw_only=True):
    """A cheaper offering that was not chosen, and the reason."""

    choice: OfferingOption
    because: str


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A new node. `offerings` all hold its pods, cheapest first; the first is the price that counts.

    `requirements` are what its NodeClaim carries, `requests` the sum over its pods and daemons.
    """

    name: str
    pool: str
    offerings: tuple[OfferingOption, ...]
    requirements: tuple[Mapping[str, Any], ...]
    requests: Resources
    pods: tuple[str, ...]
    labels: Mapping[str, str] = {}
    cheaper: tuple[RejectedOffering, ...] = ()
    min_values_relaxed: bool = False

    @property
    def choice(self) -> OfferingOption:
        return self.offerings[0]

    @property
    def price(self) -> float:
        return self.offerings[0].price or 0.0


class FunnelStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a funnel: the requirement, the number of candidates that pass it, and some types that it rejects."""

    clause: str
    left: int
    turned_away: tuple[str, ...] = ()


class Exclusion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What leaves a NodePool without an offering for a pod, as data: only what applies is set."""

    taints: tuple[str, ...] = ()
    """Keys of the NodePool's taints that the pod does not tolerate."""
    labels: tuple[str, ...] = ()
    """Keys of the labels that the pod requires and no offering that was left has."""
    unknown_label: bool = False
    """Whether nodes of no NodePool have the label."""
    meant: str = ""
    """The label, value, resource or NodeClass that was meant, if the one that is named looks misspelt."""
    meant_of: str = ""
    """The NodePool that has the value that was meant, if it is another one."""
    resource: str = ""
    """The resource of which the pod requests more than any offering that was left has."""
    available: int | None = None
    """The amount of it that the nearest miss has for pods."""
    limit: str = ""
    """The resource whose limit is reached."""
    limit_left: int = 0
    min_values: Mapping[str, int] = {}
    """By label, the number of values that are left where minValues asks for more; 0 if it is not known."""
    own_requirements: tuple[tuple[str, str], ...] = ()
    """Key and operator of the NodePool's requirements that leave nothing, whatever the pod requires."""
    forbidding: tuple[tuple[str, str], ...] = ()
    """Key and operator of the NodePool's requirements that forbid the nearest miss."""


class Funnel(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pool has no offering for a pod: candidates after each step, the step that left none, the nearest miss.

    `misses` are the requirements that the nearest miss does not meet.
    """

    start: int
    steps: tuple[FunnelStep, ...]
    code: str
    emptied_by: str
    remedy: str
    nearest: OfferingOption | None = None
    nearest_lacks: str = ""
    misses: int = 1
    suits: bool = True
    """Whether the pod may use nodes of the pool: its taints, labels, zones and kinds of resources are not the cause."""
    object: str = ""
    """The object to change, if the pool launches nothing now."""
    exclusion: Exclusion = Exclusion()
    """What `emptied_by` says in words."""
    offers_nothing: bool = False
    """Whether the pool's own requirements leave no offering, whatever the pod requires."""
    left_over: bool = False
    """Whether every single requirement leaves offerings: then only their combination excludes the pod."""

    @property
    def unusable(self) -> bool:
        """Whether the pool launches nothing now, whatever the pod requires."""
        return bool(self.object)

    @property
    def miss(self) -> str:
        """The nearest miss as text."""
        if self.nearest is None:
            return ""
        return f"{self.nearest.instance_type} in {self.nearest.zone}, {self.miss_detail}"

    @property
    def miss_detail(self) -> str:
        """The price of the nearest miss, and the requirements that it does not meet."""
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
    """The object to change, as kind/name; empty where it is the pod."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one of `node`, `new_node` and `unschedulable` is set. `relaxed` are the preferences that were relaxed."""

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

    `unpriced` existing nodes are in none of the sums: their price is unknown. `for_zones` is the part of the price
    that is paid for spreading nodes over more zones.
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
    """The result of `provision` and `consolidate`.

    `remove`, `moves`, `evictions` and `stays` (why nodes are kept) are set by consolidation.
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
