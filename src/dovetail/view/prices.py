"""What a node costs an hour: what it was planned at, or the list price of its type. Spot has no list price."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.cloud.aws import catalog
from dovetail.cluster.state_node import launch_price
from dovetail.language import source
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.labels import COMPUTE_TYPE, FARGATE, ON_DEMAND, RESERVED, SPOT
from dovetail.view.model import HourlyPrice

_EKS_CAPACITY_TYPE = "eks.amazonaws.com/capacityType"
_EKS_CAPACITY_TYPES = {"SPOT": SPOT, "ON_DEMAND": ON_DEMAND, "CAPACITY_BLOCK": RESERVED}
AT_LAUNCH = source("at launch")


def capacity_type(labels: Mapping[str, str]) -> str | None:
    """spot, on-demand, reserved or fargate, by the labels of Karpenter and of EKS; None where neither says."""
    if labels.get(COMPUTE_TYPE) == FARGATE:
        return FARGATE
    return labels.get(wellknown.CAPACITY_TYPE) or _EKS_CAPACITY_TYPES.get(labels.get(_EKS_CAPACITY_TYPE, ""))


def price(labels: Mapping[str, str], claim: NodeClaim | None) -> HourlyPrice | None:
    """The price at launch, else the list price of an on-demand instance in its own region; else None.

    The discount of spot is not known from a list: an on-demand price there would be wrong. So would an estimate be for
    a region that the list lacks: those of China are in yuan, and a sum with dollars would be of neither.
    """
    planned = launch_price(claim) if claim is not None else None
    if planned is not None:
        return HourlyPrice(planned, AT_LAUNCH)
    instance_type, region = labels.get(wellknown.INSTANCE_TYPE), labels.get(wellknown.REGION)
    if not instance_type or not region or capacity_type(labels) != ON_DEMAND:
        return None
    quote = catalog.on_demand(region, instance_type)
    return None if quote is None else HourlyPrice(*quote)
