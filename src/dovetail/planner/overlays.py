"""NodeOverlays: corrections to the prices and capacities of some instance types, before anything is planned.

The heavier overlay wins, of equal weight the later name. A price is never below 0; a missing price stays missing
unless an overlay names one.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from dovetail.model.instancetype import InstanceType, Offering
from dovetail.model.kinds.overlay import NodeOverlay
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.model.quantity import resources
from dovetail.model.requirements import Requirements


def overlaid(types: Sequence[InstanceType], overlays: Sequence[NodeOverlay]) -> tuple[InstanceType, ...]:
    """The types with every overlay applied."""
    if not overlays:
        return tuple(types)
    lightest_first = sorted(overlays, key=lambda each: (each.spec.weight or 0, each.metadata.name))
    return tuple(_overlaid(kind, lightest_first) for kind in types)


def _overlaid(kind: InstanceType, overlays: Sequence[NodeOverlay]) -> InstanceType:
    capacity = dict(kind.capacity)
    offerings = list(kind.offerings)
    for overlay in overlays:
        wanted = Requirements.of_entries(overlay.spec.requirements)
        touched = [at for at, offering in enumerate(offerings) if _selected(wanted, kind, offering)]
        if touched:
            capacity.update(resources(overlay.spec.capacity))
        for at in touched:
            price = _price(overlay, kind.offerings[at].price)
            if overlay.spec.price is not None or overlay.spec.price_adjustment is not None:
                offerings[at] = replace(offerings[at], price=price, price_source=f"NodeOverlay {overlay.metadata.name}")
    return InstanceType(
        name=kind.name, capacity=capacity, overhead=kind.overhead, labels=kind.labels, offerings=tuple(offerings),
        attach_limits=kind.attach_limits,
    )  # fmt: skip


def _selected(wanted: Requirements, kind: InstanceType, offering: Offering) -> bool:
    labels = {label: values for label, values in kind.labels.items() if label not in (ZONE, CAPACITY_TYPE)}
    facts = {
        **labels, **{label: (value,) for label, value in offering.labels.items()},
        INSTANCE_TYPE: (kind.name,), ZONE: (offering.zone,), CAPACITY_TYPE: (offering.capacity_type,),
    }  # fmt: skip
    for key, need in wanted.items():
        values = facts.get(key)
        if values is None:
            if not need.negative:
                return False
        elif not any(need.has(value) for value in values):
            return False
    return True


def _price(overlay: NodeOverlay, price: float | None) -> float | None:
    if overlay.spec.price is not None:
        return float(overlay.spec.price)
    change = overlay.spec.price_adjustment
    if change is None or price is None:
        return price
    if change.endswith("%"):
        return max(0.0, price * (1 + float(change[:-1]) / 100))
    return max(0.0, price + float(change))
