"""Offerings of the lab's EC2: prices, and which ones are without capacity."""

from __future__ import annotations

import functools
import threading
from datetime import datetime

from dovetail.cloud.aws import catalog

#: (instance type, zone, capacity type); `*` stands for any.
Key = tuple[str, str, str]

INSUFFICIENT_CAPACITY = "InsufficientInstanceCapacity"


class LabOfferings:
    """Shared by the threads that serve AWS; every change is made under one lock.

    `families` narrows the instance types: a small catalog answers quickly.
    """

    def __init__(self, region: str, families: frozenset[str] | None = None) -> None:
        self.region = region
        self._families = families
        self._lock = threading.Lock()
        self._refused: dict[Key, str] = {}
        #: KMS keys that EC2 may not use: instances with volumes under them end as soon as they start.
        self.denied_keys: set[str | None] = set()
        #: Instances whose status checks fail, and since when.
        self.impaired: dict[str, datetime] = {}

    def refuse(self, key: Key, code: str = INSUFFICIENT_CAPACITY) -> None:
        """From now on EC2 answers a launch of `key` with `code`."""
        with self._lock:
            self._refused[key] = code

    def allow(self, key: Key | None = None) -> None:
        with self._lock:
            if key is None:
                self._refused.clear()
            else:
                self._refused.pop(key, None)

    def refusal(self, instance_type: str, zone: str, kind: str) -> str | None:
        """The error code for this offering, if it cannot be had."""
        if not self.offers(instance_type) or instance_type not in self._offered_in(zone):
            return "Unsupported"
        with self._lock:
            for t in (instance_type, "*"):
                for z in (zone, "*"):
                    for k in (kind, "*"):
                        if (t, z, k) in self._refused:
                            return self._refused[(t, z, k)]
        return None

    def on_demand(self, instance_type: str) -> float | None:
        quote = catalog.on_demand(self.region, instance_type)
        return quote[0] if quote else None

    def spot(self, instance_type: str, zone: str) -> float | None:
        """The estimate of the catalogue, a little different in each zone, as real ones are."""
        quote = catalog.on_demand(self.region, instance_type)
        if quote is None:
            return None
        zones = sorted(catalog.region(self.region).zones)
        step = zones.index(zone) if zone in zones else 0
        return round(catalog.spot_estimate(quote, instance_type)[0] * (1 + 0.03 * step), 6)

    def price(self, instance_type: str, zone: str, kind: str) -> float:
        spot = self.spot(instance_type, zone) if kind == "spot" else self.on_demand(instance_type)
        return float("inf") if spot is None else spot

    def offers(self, instance_type: str) -> bool:
        """Whether the region has this type at all."""
        if self._families is not None and instance_type.split(".", 1)[0] not in self._families:
            return False
        return any(instance_type in self._offered_in(zone) for zone in catalog.region(self.region).zones)

    @functools.cache  # noqa: B019  (one market a lab)
    def _offered_in(self, zone: str) -> frozenset[str]:
        return frozenset(catalog.region(self.region).types.get(zone, ()))
