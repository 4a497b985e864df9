"""Estimated on-demand prices for regions that the packaged list does not cover: a factor on what us-east-1 costs.

GovCloud credentials may not ask the price list at all, and an isolated VPC cannot. Without any price nothing would be
launched there; an estimate keeps the order of types by cost, and says what it is. The factors are medians over the
types that both lists have (GovCloud list of 2024, China list of 2023). Prices in China are in yuan, as the price list
and the spot price history of its regions tell them: one region's prices are compared with each other alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.cloud.aws import catalog

REFERENCE_REGION = "us-east-1"

#: Prefix of the region -> currency, factor by category of instance types (the letter), factor of the others.
_FACTORS: Mapping[str, tuple[str, Mapping[str, float], float]] = {
    "us-gov-": ("USD", {"c": 1.20, "m": 1.26, "r": 1.20, "t": 1.17}, 1.26),
    "cn-": ("CNY", {"c": 8.7, "m": 10.5, "r": 9.7, "t": 6.3}, 9.9),
}
_ELSEWHERE: tuple[str, Mapping[str, float], float] = ("USD", {}, 1.0)


def on_demand(region: str, instance_type: str) -> catalog.Quote | None:
    """The packaged price, or an estimate for a region in no packaged list; None where the list lacks the type."""
    if packaged := catalog.on_demand(region, instance_type):
        return packaged
    if catalog.is_priced(region):
        return None
    reference = catalog.on_demand(REFERENCE_REGION, instance_type)
    if reference is None:
        return None
    currency, factors, other = next((f for prefix, f in _FACTORS.items() if region.startswith(prefix)), _ELSEWHERE)
    factor = factors.get(catalog.category(instance_type), other)
    price_source = f"estimated {factor:g} of {REFERENCE_REGION} ({reference[1]})"
    return round(reference[0] * factor, 6), price_source if currency == "USD" else f"{price_source}, in {currency}"
