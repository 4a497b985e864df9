"""Recorded prices on the simulated cloud, as they change, and the lower bound at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.cloud.simulated.config import PriceCurve
from dovetail.model.instance_type import InstanceType
from dovetail.model.meta import view
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.offline.recorded_prices import RecordedPrices, dollars_of
from dovetail.offline.recording import OfferingKey, RecordedPrice
from dovetail.offline.timeline import Bound
from dovetail.studies.bound import OfferBounds, pools_of
from dovetail.studies.workloads.workload import Workload

Json = dict[str, Any]


def priced(kind: InstanceType, region: str, prices: Mapping[OfferingKey, RecordedPrice]) -> InstanceType:
    """The type at the recorded prices; what was not recorded costs what the packaged list says."""
    offerings = tuple(
        msgspec.structs.replace(offering, price=dollars)
        if (dollars := dollars_of(prices, region, kind.name, offering.zone, offering.capacity_type)) is not None
        else offering
        for offering in kind.offerings
    )
    return msgspec.structs.replace(kind, offerings=offerings)


def curves(types: Sequence[InstanceType], region: str, prices: RecordedPrices, lead_s: float) -> Iterator[PriceCurve]:
    """How prices change, for a market that opens `lead_s` before the recording starts; `types` have the first ones."""
    changing = {change.key.instance_type for change in prices.changes}
    for kind in types:
        if kind.name not in changing:
            continue
        for offering in kind.offerings:
            steps = tuple(_steps(kind.name, offering.zone, offering.capacity_type, region, prices, lead_s))
            if steps:
                yield PriceCurve(
                    instance_type=kind.name, zone=offering.zone, capacity_type=offering.capacity_type, steps=steps
                )


def _steps(
    instance_type: str, zone: str, capacity_type: str, region: str, prices: RecordedPrices, lead_s: float
) -> Iterator[tuple[float, float]]:
    current = dict(prices.first)
    first = last = dollars_of(current, region, instance_type, zone, capacity_type)
    if not first:
        return
    for change in prices.changes:
        if change.key.instance_type != instance_type:
            continue
        current[change.key] = change.price
        dollars = dollars_of(current, region, instance_type, zone, capacity_type)
        if dollars is not None and dollars != last:
            last = dollars
            yield lead_s + change.at, dollars / first


def bound_of(workload: Workload) -> Bound:
    """The lower bound of pods and of nodes that stand whatever is launched, in $/h, at the lowest recorded prices."""
    types, region = tuple(workload.types().values()), workload.part.region
    bounds: dict[tuple[float | None, ...], OfferBounds] = {}
    latest: tuple[dict[OfferingKey, float], OfferBounds] | None = None

    def at_prices(lowest: Mapping[OfferingKey, float]) -> OfferBounds:
        nonlocal latest
        if latest is not None and latest[0] == lowest:
            return latest[1]
        recorded = {key: RecordedPrice(dollars, "") for key, dollars in lowest.items()}
        offered = tuple(priced(kind, region, recorded) for kind in types)
        prices = tuple(offering.price for kind in offered for offering in kind.offerings)
        if prices not in bounds:
            bounds[prices] = OfferBounds(pools_of(workload.node_pools(), offered))
        latest = dict(lowest), bounds[prices]
        return latest[1]

    def per_hour(pods: list[Json], standing: list[Json], lowest: Mapping[OfferingKey, float]) -> float:
        bound = at_prices(lowest)
        return bound.per_hour([view(pod, Pod) for pod in pods], [view(node, Node) for node in standing])

    return per_hour
