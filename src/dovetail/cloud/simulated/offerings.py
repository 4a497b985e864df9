"""What a simulated cloud offers: its catalogue at today's prices, less what is taken or was refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.cloud.unavailable_offerings import UnavailableOfferings
from dovetail.model.instance_type import InstanceType, Offering


class OfferingTable:
    """The market may change at any time, so it comes with every question. Prices age from when the shop opened."""

    def __init__(self, clock: Clock, catalogue: Iterable[InstanceType], unavailable: UnavailableOfferings) -> None:
        self._clock = clock
        self._types = {t.name: t for t in catalogue}
        self._unavailable = unavailable
        self._opened = clock.monotonic()
        self._shown: tuple[object, tuple[InstanceType, ...]] | None = None
        #: Whether anything is sold by reservation.
        self.reserves = any(o.reservation_id is not None for t in self._types.values() for o in t.offerings)

    def declared(self, instance_type: str) -> tuple[Offering, ...]:
        """The offerings of a type as the catalogue has them; none of a type it does not know."""
        cached = self._types.get(instance_type)
        return cached.offerings if cached is not None else ()

    def types(self, market: SimulatedMarket, used: Mapping[str, int]) -> tuple[InstanceType, ...]:
        """All types as they are sold now; `used` counts the instances in each reservation.

        The answer is the same object while nothing changed, so that others can cache what they make of it.
        """
        factors = tuple(curve.factor(self._age()) for curve in market.curves)
        stamp = (self._unavailable.generation, market.curves, factors, dict(used))
        if self._shown is None or self._shown[0] != stamp:
            types = self._types.values()
            changed = (self._today(t, market, used) for t in types) if market.curves or used else types
            self._shown = (stamp, self._unavailable.apply(changed))
        return self._shown[1]

    def price(self, market: SimulatedMarket, instance_type: str, offering: Offering) -> float | None:
        """Today's price."""
        if offering.price is None:
            return None
        price = offering.price
        for curve in market.curves:
            if curve.covers(instance_type, offering.zone, offering.capacity_type):
                price *= curve.factor(self._age())
        return price

    def _age(self) -> float:
        return self._clock.monotonic() - self._opened

    def _today(self, t: InstanceType, market: SimulatedMarket, used: Mapping[str, int]) -> InstanceType:
        offerings = tuple(
            msgspec.structs.replace(
                o, price=self.price(market, t.name, o), reservation_capacity=_remaining_reservation(o, used)
            )
            for o in t.offerings
        )
        return msgspec.structs.replace(t, offerings=offerings)


def _remaining_reservation(offering: Offering, used: Mapping[str, int]) -> int | None:
    """What is left of a reservation; None where the offering is none."""
    if offering.reservation_capacity is None or offering.reservation_id is None:
        return offering.reservation_capacity
    return max(0, offering.reservation_capacity - used.get(offering.reservation_id, 0))
