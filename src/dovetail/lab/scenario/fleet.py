"""What a scenario asks of the autoscaler that launches its nodes, whichever that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from dovetail.lab.cluster import Lab
from dovetail.lab.scenario.schema import ScenarioStep


class ScenarioFleet(Protocol):
    """An autoscaler with its instances and its bill.

    `totals` counts instances launched and terminated, `said` what its log said, `changed` is when an instance was last
    launched or terminated.
    """

    totals: Counter[str]
    said: Counter[str]
    changed: float

    async def run(self, lab: Lab) -> None:
        """Until cancelled."""
        ...

    async def leaks(self, lab: Lab) -> list[str]:
        """Instances and objects that belong together and do not, in words."""
        ...

    def bill(self, now: float) -> float:
        """Dollars spent until now."""
        ...

    def rate(self) -> float:
        """What the instances of now cost, in dollars an hour."""
        ...

    def provider_ids(self) -> frozenset[str]:
        """The instances of now."""
        ...

    def calls(self) -> Mapping[str, int]:
        """Requests so far: `kubernetes` to the API server, `cloud` to the cloud."""
        ...

    def give_up(self, provider_ids: Iterable[str]) -> None:
        """Another actor deletes the objects of these instances: that they end is no violation."""
        ...

    def inject(self, lab: Lab, step: ScenarioStep) -> str:
        """Do what a step does to the autoscaler, its cloud or its instances; returns it in words."""
        ...
