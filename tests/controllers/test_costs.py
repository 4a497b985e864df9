"""What a pod's annotation adds to its eviction cost."""

from __future__ import annotations

import msgspec
import pytest

from dovetail.controllers.disruption import consolidation
from dovetail.model.pods import Pod


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("134217728", 2.0),
        ("-134217728", 0.0),
        ("+134217728", 2.0),
        ("00134217728", 2.0),
        ("2147483647", 10.0),
        ("2147483648", 1.0),
        ("1.5", 1.0),
        ("-+5", 1.0),
        (" 5", 1.0),
        ("1_000", 1.0),
        ("", 1.0),
        ("9" * 5000, 1.0),
    ],
)
def test_a_disruption_cost_that_is_no_32_bit_integer_counts_as_none(text: str, cost: float) -> None:
    pod = msgspec.convert({"metadata": {"annotations": {consolidation.DISRUPTION_COST: text}}}, Pod)
    assert consolidation.eviction_cost(pod) == pytest.approx(cost)
