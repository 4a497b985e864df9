"""Offerings: masks of what is on offer answer as asking one node after the other would."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.planner.offerings.catalog import LabelQueries, OfferingCatalog

from .conftest import ZONE, kind, pool

_TEAM = "example.com/team"


def _columns(*cores: int) -> OfferingCatalog:
    types = tuple(kind(f"t{at}", size, 4 * size, 0.1 * size) for at, size in enumerate(cores))
    return OfferingCatalog((pool(types=types, labels={_TEAM: "a"}),), LabelQueries((), ()), frozenset())


@given(st.lists(st.integers(1, 64), min_size=1, max_size=12), st.integers(-1, 70_000))
@settings(max_examples=80, deadline=None)
def test_offerings_that_hold_an_amount_are_those_that_have_it(cores: list[int], amount: int) -> None:
    catalog = _columns(*cores)
    amounts = catalog.amounts("cpu").tolist()
    expected = sum(1 << at for at, room in enumerate(amounts) if room >= amount)
    assert catalog.holding("cpu", amount) == expected


def test_a_resource_that_no_type_has_is_nowhere() -> None:
    catalog = _columns(2, 4)
    assert catalog.amounts("example.com/card").tolist() == [0] * catalog.size
    assert catalog.holding("example.com/card", 1) == 0


def test_a_label_is_looked_for_wherever_it_may_be_reported() -> None:
    catalog = _columns(2, 4)
    assert catalog.by_label(_TEAM) == {"a": catalog.everything}
    assert catalog.by_label("example.com/unheard-of") == {None: catalog.everything}
    assert sum(catalog.by_label(ZONE).values()) == catalog.everything
    assert catalog.by_label("karpenter.sh/initialized") == {"true": catalog.everything}
