"""What a request names of many types, where a claim wants to be launched as several things."""

from __future__ import annotations

from dovetail.cloud.aws.min_values import cut, lacking
from dovetail.cloud.provider import LaunchOption
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.labels import ZONE
from dovetail.model.requirements import Requirement, requirement

FAMILY = "karpenter.k8s.aws/instance-family"


def _option(name: str, zone: str = "a") -> LaunchOption:
    offering = Offering(zone=zone, capacity_type="spot", price=1.0)
    kind = InstanceType(
        name=name,
        capacity={},
        overhead={},
        labels={FAMILY: (name.partition(".")[0],), ZONE: ("a", "b", "c")},
        offerings=(offering,),
    )
    return LaunchOption(instance_type=kind, offering=offering)


def _need(key: str, least: int, *values: str) -> dict[str, Requirement]:
    return {key: requirement(key, "In" if values else "Exists", values, least)}


MANY = [*(_option(f"m5.{n}") for n in range(80)), *(_option(f"{family}.large") for family in ("c5", "r5", "x1"))]


def test_without_needs_the_cheapest_types_are_named() -> None:
    assert [o.instance_type.name for o in cut(MANY, {}, 60)] == [f"m5.{n}" for n in range(60)]


def test_dear_types_displace_cheap_ones_as_far_as_variety_needs_them() -> None:
    kept = cut(MANY, _need(FAMILY, 3), 60)
    families = [o.instance_type.name.partition(".")[0] for o in kept]
    assert (families.count("m5"), families.count("c5"), families.count("r5"), families.count("x1")) == (58, 1, 1, 0)
    assert not lacking(kept, _need(FAMILY, 3))


def test_few_types_are_all_named_with_all_their_offerings() -> None:
    few = [_option("m5.a", "a"), _option("c5.a", "b"), _option("m5.a", "b")]
    assert cut(few, _need(FAMILY, 9), 60) == tuple(few)


def test_only_values_that_are_allowed_and_zones_that_are_offered_count() -> None:
    assert lacking(MANY, _need(FAMILY, 2, "m5", "c5", "z9")) == []
    assert lacking(MANY, _need(FAMILY, 2, "m5", "z9")) == [FAMILY]
    assert lacking(MANY, _need(ZONE, 2)) == [ZONE]
    assert lacking([*MANY, _option("m5.0", "b")], _need(ZONE, 2)) == []
