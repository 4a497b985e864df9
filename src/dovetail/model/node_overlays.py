"""NodeOverlays: corrections to the prices and capacities of some instance types, before anything is planned.

An overlay may select types, offerings and the NodePool they are launched for. The heavier one wins. Of two of equal
weight that speak of the same price or the same resource the later by name holds, and the other one does nothing at all.
A price is never below 0; a missing price stays missing unless an overlay names one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from dovetail.model.instance_type import OVERLAY, InstanceType, Offering
from dovetail.model.kinds.overlay import NodeOverlay
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.model.quantity import resources
from dovetail.model.requirements import Requirements

#: What is sold to one pool: the labels of its nodes, and the types.
Shop = tuple[Mapping[str, str], Sequence[InstanceType]]


def consistent(overlays: Iterable[NodeOverlay], shops: Sequence[Shop]) -> list[NodeOverlay]:
    """The overlays that contradict none of equal weight, in any pool."""
    weights: dict[object, int] = {}
    accepted: list[NodeOverlay] = []
    for overlay in sorted(overlays, key=_rank, reverse=True):
        spoken = {(index, *spoken_of) for index, shop in enumerate(shops) for spoken_of in _speaks_of(overlay, shop)}
        if all(weights.get(subject) != _weight(overlay) for subject in spoken):
            weights |= dict.fromkeys(spoken, _weight(overlay))
            accepted.append(overlay)
    return accepted


def overlaid(
    types: Sequence[InstanceType], overlays: Iterable[NodeOverlay], labels: Mapping[str, str] | None = None
) -> tuple[InstanceType, ...]:
    """The types that a pool with these labels launches, with every overlay applied."""
    given = labels or {}
    lightest_first = sorted(consistent(overlays, [(given, types)]), key=_rank)
    return tuple(_overlaid(kind, lightest_first, given) for kind in types) if lightest_first else tuple(types)


def selection(overlays: Iterable[NodeOverlay], labels: Mapping[str, str]) -> tuple[bool | None, ...]:
    """What overlays make of a pool's labels, requirement by requirement: where pools agree, the same types are sold."""
    return tuple(
        need.has(labels[key]) if key in labels else None
        for overlay in overlays
        for key, need in Requirements.of_entries(overlay.spec.requirements).items()
    )


def _weight(overlay: NodeOverlay) -> int:
    return overlay.spec.weight or 0


def _rank(overlay: NodeOverlay) -> tuple[int, str]:
    return (_weight(overlay), overlay.metadata.name)


def _priced(overlay: NodeOverlay) -> bool:
    return overlay.spec.price is not None or overlay.spec.price_adjustment is not None


def _speaks_of(overlay: NodeOverlay, shop: Shop) -> Iterable[tuple[object, ...]]:
    """The prices and the resources of types that an overlay says something about."""
    labels, types = shop
    requirements = Requirements.of_entries(overlay.spec.requirements)
    for kind in types:
        touched = [
            index for index, offering in enumerate(kind.offerings) if _selected(requirements, kind, offering, labels)
        ]
        yield from ((kind.name, index) for index in touched if _priced(overlay))
        yield from ((kind.name, name) for name in overlay.spec.capacity if touched)


def _overlaid(kind: InstanceType, overlays: Sequence[NodeOverlay], labels: Mapping[str, str]) -> InstanceType:
    capacity = dict(kind.capacity)
    offerings = list(kind.offerings)
    is_selected = False
    for overlay in overlays:
        requirements = Requirements.of_entries(overlay.spec.requirements)
        touched = [index for index, offering in enumerate(offerings) if _selected(requirements, kind, offering, labels)]
        if touched:
            is_selected = True
            capacity.update(resources(overlay.spec.capacity))
        for index in touched if _priced(overlay) else ():
            price = _price(overlay, kind.offerings[index].price)
            offerings[index] = replace(offerings[index], price=price, price_source=f"{OVERLAY}{overlay.metadata.name}")
    return replace(kind, capacity=capacity, offerings=tuple(offerings)) if is_selected else kind


def _selected(requirements: Requirements, kind: InstanceType, offering: Offering, labels: Mapping[str, str]) -> bool:
    own = {label: values for label, values in kind.labels.items() if label not in (ZONE, CAPACITY_TYPE)}
    facts = {
        **{label: (value,) for label, value in labels.items()},
        **own,
        **{label: (value,) for label, value in offering.labels.items()},
        INSTANCE_TYPE: (kind.name,),
        ZONE: (offering.zone,),
        CAPACITY_TYPE: (offering.capacity_type,),
    }
    for key, need in requirements.items():
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
