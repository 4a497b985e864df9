"""Overlays: whom they speak of, and what happens when they contradict each other."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.model.kinds.overlay import NodeOverlay
from dovetail.model.node_overlays import consistent, overlaid, selection
from tests.planner.conftest import LARGE, SMALL, kind

_POOL = {"karpenter.sh/nodepool": "general", "team": "a"}


def _overlay(name: str, key: str, *values: str, weight: int = 1, **spec: Any) -> NodeOverlay:
    needs = [{"key": key, "operator": "In", "values": list(values)}]
    body = {"metadata": {"name": name}, "spec": {"requirements": needs, "weight": weight, **spec}}
    return msgspec.convert(body, NodeOverlay)


def _prices(*overlays: NodeOverlay, labels: dict[str, str] | None = None) -> dict[str, float | None]:
    return {each.name: each.offerings[0].price for each in overlaid((SMALL, LARGE), overlays, labels)}


def test_an_overlay_may_speak_of_one_pool_alone_by_name_or_label() -> None:
    for key, value in _POOL.items():
        discount = _overlay("discount", key, value, price="0.05")
        assert _prices(discount, labels=_POOL) == {"small": 0.05, "large": 0.05}
        assert _prices(discount, labels={key: "other"}) == _prices()


def test_the_heavier_overlay_wins() -> None:
    light = _overlay("z", "node.kubernetes.io/instance-type", "small", "large", price="0.01")
    heavy = _overlay("a", "node.kubernetes.io/instance-type", "small", price="0.02", weight=2)
    assert _prices(light, heavy) == {"small": 0.02, "large": 0.01}


def test_of_two_that_contradict_each_other_the_first_by_name_does_nothing_at_all() -> None:
    """Not even where it alone would speak."""
    one = _overlay("a", "node.kubernetes.io/instance-type", "small", "large", price="0.01")
    other = _overlay("b", "node.kubernetes.io/instance-type", "small", price="0.02")
    assert _prices(one, other) == {"small": 0.02, "large": 0.80}


def test_a_contradiction_in_any_pool_counts_for_all() -> None:
    one = _overlay("a", "node.kubernetes.io/instance-type", "small", capacity={"example.com/disk": "1"})
    other = _overlay("b", "team", "a", capacity={"example.com/disk": "2"})
    shops = [({}, (SMALL,)), (_POOL, (SMALL,))]
    assert [each.metadata.name for each in consistent((one, other), shops)] == ["b"]
    assert {each.metadata.name for each in consistent((one, other), shops[:1])} == {"a", "b"}


def test_capacity_that_an_overlay_adds_is_there() -> None:
    disk = _overlay("disk", "node.kubernetes.io/instance-type", "big", capacity={"example.com/disk": "2"})
    (found,) = overlaid((kind("big", 4, 16, 0.2),), (disk,))
    assert found.capacity["example.com/disk"] == 2


def test_a_type_that_no_overlay_selects_stays_the_same_object() -> None:
    """Thousands of NodePools share one; the planner takes NodePools with the same objects for one."""
    discount = _overlay("discount", "node.kubernetes.io/instance-type", "small", price="0.01")
    small, large = overlaid((SMALL, LARGE), (discount,))
    assert small is not SMALL
    assert large is LARGE


def test_pools_are_alike_to_overlays_that_select_them_alike() -> None:
    discount = _overlay("discount", "team", "a", price="0.01")
    views = [selection((discount,), labels) for labels in ({"team": "a", "x": "1"}, {"team": "b"}, {"team": "c"}, {})]
    assert views == [(True,), (False,), (False,), (None,)]
