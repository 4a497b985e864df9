"""What a recording says of a fleet over time: prices that change are paid from their moment on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dovetail.model import wellknown
from dovetail.offline.recorded_prices import PriceChange, dollars_of, recorded_prices
from dovetail.offline.recording import OfferingKey, RecordedPrice, Writer, key_of, read
from dovetail.offline.timeline import timeline
from tests.offline.recording.small import IDENTITY, M5, START, later, node, pod

SPOT = OfferingKey("us-west-2", "m5.large", "", "spot")
Json = dict[str, Any]


def _node(name: str, capacity_type: str, zone: str, launched_at: float | None = None) -> Json:
    labels = {
        wellknown.REGION: "us-west-2",
        wellknown.INSTANCE_TYPE: "m5.large",
        wellknown.ZONE: zone,
        wellknown.CAPACITY_TYPE: capacity_type,
    }
    body = node(name)
    body["metadata"] |= {"labels": labels}
    if launched_at is not None:
        body["metadata"]["annotations"] = {wellknown.PRICE: str(launched_at)}
    return body


def _write(path: Path) -> Path:
    """Two nodes for an hour; the spot price is first recorded after ten minutes, and changes after half an hour."""
    with Writer.create(path, START, "test", IDENTITY) as writer:
        writer.put(START, _node("a", "on-demand", "us-west-2a"))
        writer.put(START, _node("b", "spot", "us-west-2b"))
        writer.put(START, _node("c", "spot", "us-west-2c", launched_at=0.03))
        writer.price(START, M5, 0.096, "list")
        writer.begin()
        writer.price(later(600), SPOT, 0.04, "bill")
        writer.price(later(1200), SPOT, 0.04, "another bill")
        writer.price(later(1800), SPOT, 0.06, "bill")
        writer.close(later(3600))
    return path


def test_the_first_price_counts_from_the_start_and_changes_from_their_moment(tmp_path: Path) -> None:
    prices = recorded_prices(read(_write(tmp_path / "prices.dvrec")))
    assert {key: price.dollars for key, price in prices.first.items()} == {M5: 0.096, SPOT: 0.04}
    assert prices.changes == (PriceChange(1800.0, SPOT, RecordedPrice(0.06, "bill")),)
    assert dollars_of(prices.first, "us-west-2", "m5.large", "us-west-2c", "spot") == 0.04
    assert dollars_of(prices.first, "us-west-2", "m5.large", "us-west-2c", "on-demand") is None


def test_a_node_is_paid_for_at_the_price_of_the_moment_unless_it_has_one_of_its_own(tmp_path: Path) -> None:
    recording = read(_write(tmp_path / "prices.dvrec"))
    fleet = timeline(recording, recording.start, 600.0)
    assert [sample.rate for sample in fleet.samples] == [0.166] * 3 + [0.186] * 4
    assert fleet.dollars == pytest.approx(0.096 + 0.03 + (0.04 + 0.06) / 2)
    half_way = timeline(recording, later(2700), 600.0)
    assert half_way.dollars == pytest.approx((0.096 + 0.03 + 0.06) / 4)


def test_the_bound_is_given_the_lowest_prices_so_far(tmp_path: Path) -> None:
    """An instance that was launched cheaper is still paid for at that price: a bound above it would be wrong."""
    seen: list[dict[OfferingKey, float]] = []

    def bound(pods: list[Json], standing: list[Json], lowest: Mapping[OfferingKey, float]) -> float:
        seen.append(dict(lowest))
        return 0.0

    recording = read(_write(tmp_path / "prices.dvrec"))
    timeline(recording, recording.start, 1200.0, bound)
    launched = OfferingKey("us-west-2", "m5.large", "us-west-2c", "spot")
    assert len(seen) >= 4 and all(lowest == {M5: 0.096, SPOT: 0.04, launched: 0.03} for lowest in seen)


def test_a_recording_of_seconds_costs_no_less_than_its_bound(tmp_path: Path) -> None:
    """Pods wait for two seconds, run on a node for six and are gone: what waits is not paid for, nor what is gone."""
    path = tmp_path / "short.dvrec"
    with Writer.create(path, START, "test", IDENTITY) as writer:
        writer.put(START, pod("web-1"))
        writer.begin()
        writer.put(later(2), _node("a", "on-demand", "us-west-2a", launched_at=0.1))
        writer.put(later(2.5), pod("web-1", node="a"))
        writer.delete(later(8.2), key_of(pod("web-1")))
        writer.delete(later(8.5), key_of(node("a")))
        writer.close(later(10))

    def bound(pods: list[Json], standing: list[Json], lowest: Mapping[OfferingKey, float]) -> float:
        return 0.1 * len(pods)

    recording = read(path)
    short = timeline(recording, recording.start, 60.0, bound)
    assert len(short.samples) == 1 and short.samples[0].pending == 1
    assert short.lower_bound is not None
    assert 0.1 * 4 / 3600 < short.lower_bound < short.dollars == pytest.approx(0.1 * 6.5 / 3600, rel=0.01)
