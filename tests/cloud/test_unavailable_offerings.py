"""What could not be had lately is not asked for again for a while, and no longer."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.unavailable_offerings import Key, UnavailableOfferings
from dovetail.model.instance_type import InstanceType, Offering


def sold(name: str) -> InstanceType:
    offerings = tuple(Offering(zone=zone, capacity_type="spot", price=1.0) for zone in ("a", "b"))
    return InstanceType(name=name, capacity={}, overhead={}, labels={}, offerings=offerings)


@pytest.mark.parametrize(
    ("refused", "offering", "gone"),
    [
        (("m5.large", "a", "spot"), ("m5.large", "a", "spot"), True),
        (("m5.large", "a", "spot"), ("m5.large", "b", "spot"), False),
        (("m5.large", "*", "spot"), ("m5.large", "b", "spot"), True),
        (("*", "*", "spot"), ("c5.large", "b", "spot"), True),
        (("*", "*", "spot"), ("c5.large", "b", "on-demand"), False),
        (("*", "a", "*"), ("c5.large", "a", "on-demand"), True),
    ],
)
def test_a_refusal_covers_what_it_names(refused: Key, offering: Key, gone: bool) -> None:
    async def main() -> bool:
        memory = UnavailableOfferings(Clock(asyncio.get_running_loop()))
        memory.mark(refused)
        return memory.has(*offering)

    assert run_virtual(main()) is gone


def test_a_refusal_is_forgotten_and_any_caller_keeps_answers_can_tell() -> None:
    async def main() -> None:
        memory = UnavailableOfferings(Clock(asyncio.get_running_loop()), memory=180.0)
        types = (sold("m5.large"), sold("c5.large"))
        before = memory.generation
        memory.mark(("m5.large", "a", "spot"))
        assert memory.generation != before
        shown = memory.apply(types)
        assert [each.available for each in shown[0].offerings] == [False, True]
        assert shown[1] is types[1]
        await asyncio.sleep(179)
        marked = memory.generation
        assert memory.keys() == (("m5.large", "a", "spot"),)
        await asyncio.sleep(2)
        assert memory.generation != marked
        assert memory.apply(types) == types

    run_virtual(main())
