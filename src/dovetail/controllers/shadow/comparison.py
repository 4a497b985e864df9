"""What was planned for some pods, against the nodes that the cluster's own autoscaler launched for the same pods.

An unknown price is not zero: where one is missing, the difference is unknown and counts neither way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from dovetail.cluster.state_node import Types, price
from dovetail.model import wellknown
from dovetail.model.nodes import Node
from dovetail.planner.plan import PlannedNode

#: A node that is so much older than a decision may still have been launched for its pods: clocks differ.
CLOCK_SKEW = timedelta(seconds=10)
#: $/h below which two fleets cost the same.
SAME_COST = 1e-6
#: The label of EKS on nodes of managed node groups, and its values as Karpenter's.
EKS_CAPACITY_TYPE = "eks.amazonaws.com/capacityType"
_CAPACITY_TYPES = {"SPOT": "spot", "ON_DEMAND": "on-demand", "CAPACITY_BLOCK": "reserved"}


class ComparisonOutcome(StrEnum):
    SAME = "Same"
    CHEAPER = "PlannedCheaper"
    DEARER = "PlannedDearer"
    DIFFERENT = "SameCostOtherNodes"
    UNKNOWN = "PriceUnknown"


class ActualNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that the cluster's autoscaler launched."""

    name: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars are per hour. `planned` and `actual` count nodes by `type/capacity type`."""

    outcome: ComparisonOutcome
    planned_cost: float
    actual_cost: float | None
    planned: Mapping[str, int]
    actual: Mapping[str, int]

    @property
    def differs(self) -> bool:
        return self.outcome is not ComparisonOutcome.SAME


def actual_node(node: Node, types: Types) -> ActualNode:
    """A node with its price, by Karpenter's labels or by those of an EKS node group."""
    labels = node.metadata.labels
    capacity_type = labels.get(wellknown.CAPACITY_TYPE) or _CAPACITY_TYPES.get(labels.get(EKS_CAPACITY_TYPE, ""))
    completed = {**labels, wellknown.CAPACITY_TYPE: capacity_type or "on-demand"}
    return ActualNode(
        name=node.metadata.name,
        instance_type=labels.get(wellknown.INSTANCE_TYPE, ""),
        zone=labels.get(wellknown.ZONE, ""),
        capacity_type=completed[wellknown.CAPACITY_TYPE],
        price=price(completed, types),
    )


def launched_since(nodes: Iterable[Node], decided: datetime) -> list[Node]:
    """The nodes that can have been launched for a decision."""
    return [
        node
        for node in nodes
        if node.metadata.creation_timestamp is not None and node.metadata.creation_timestamp >= decided - CLOCK_SKEW
    ]


def compare(launches: Sequence[PlannedNode], actual: Sequence[ActualNode]) -> Comparison:
    planned_cost = sum(launch.price for launch in launches)
    prices = [node.price for node in actual]
    actual_cost = None if None in prices else sum(value for value in prices if value is not None)
    planned = Counter(f"{launch.choice.instance_type}/{launch.choice.capacity_type}" for launch in launches)
    launched = Counter(f"{node.instance_type}/{node.capacity_type}" for node in actual)
    return Comparison(
        outcome=_outcome(planned_cost, actual_cost, same_nodes=planned == launched),
        planned_cost=planned_cost,
        actual_cost=actual_cost,
        planned=dict(planned),
        actual=dict(launched),
    )


def _outcome(planned: float, actual: float | None, *, same_nodes: bool) -> ComparisonOutcome:
    if actual is None:
        return ComparisonOutcome.UNKNOWN
    if abs(planned - actual) <= SAME_COST:
        return ComparisonOutcome.SAME if same_nodes else ComparisonOutcome.DIFFERENT
    return ComparisonOutcome.CHEAPER if planned < actual else ComparisonOutcome.DEARER
