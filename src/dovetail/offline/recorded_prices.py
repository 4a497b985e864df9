"""Recorded prices over time. Before the first record of an offering its price is taken to be that of the first."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dovetail.offline.recording import OfferingKey, RecordedPrice, Recording


class PriceChange(msgspec.Struct, frozen=True):
    """Another price of an offering, so many seconds after the recording's start."""

    at: float
    key: OfferingKey
    price: RecordedPrice


class RecordedPrices(msgspec.Struct, frozen=True):
    """What offerings cost at first, and how that changed, in order."""

    first: dict[OfferingKey, RecordedPrice]
    changes: tuple[PriceChange, ...]


def recorded_prices(recording: Recording) -> RecordedPrices:
    """The prices of a recording."""
    first, changes = recording.prices_at(recording.start), list[PriceChange]()
    current = dict(first)
    for time, key, price in recording.price_records():
        if key not in first:
            first[key] = price
        elif current[key].dollars != price.dollars:
            changes.append(PriceChange((time - recording.start).total_seconds(), key, price))
        current[key] = price
    return RecordedPrices(dict(sorted(first.items())), tuple(changes))


def dollars_of(
    prices: Mapping[OfferingKey, RecordedPrice], region: str, instance_type: str, zone: str, capacity_type: str
) -> float | None:
    """The price of an offering: of its zone, or of all zones of the region; None where neither was recorded."""
    for place in (zone, ""):
        price = prices.get(OfferingKey(region, instance_type, place, capacity_type))
        if price is not None:
            return price.dollars
    return None
