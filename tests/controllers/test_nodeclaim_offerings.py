"""The launch options of a NodeClaim."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.controllers.nodeclaim.offerings import options
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.kinds.nodeclaim import NodeClaim


def _type(name: str, cpu: int, price: float, **labels: str) -> InstanceType:
    return InstanceType(
        name=name,
        capacity={"cpu": cpu, "memory": 8 << 30, "pods": 29},
        overhead={},
        labels={"kubernetes.io/arch": ("amd64",), **{key: (value,) for key, value in labels.items()}},
        offerings=(
            Offering(zone="a", capacity_type="on-demand", price=price),
            Offering(zone="b", capacity_type="spot", price=price / 2),
            Offering(zone="b", capacity_type="on-demand", price=price, available=False),
            Offering(
                zone="a", capacity_type="reserved", price=0.0, reservation_id=f"cr-{name}", reservation_capacity=cpu % 3
            ),
        ),
    )


GPU = "karpenter.k8s.aws/instance-gpu-name"
TYPES = (_type("small", 2000, 0.1), _type("big", 8000, 0.4), _type("gpu", 8000, 0.9, **{GPU: "t4"}))


def _claim(*terms: dict[str, Any], cpu: str = "1", labels: dict[str, str] | None = None) -> NodeClaim:
    return msgspec.convert(
        {
            "metadata": {"name": "c", "labels": labels or {}},
            "spec": {"requirements": list(terms), "resources": {"requests": {"cpu": cpu}}},
        },
        NodeClaim,
    )


def _names(claim: NodeClaim) -> list[tuple[str, str, str]]:
    return [
        (each.instance_type.name, each.offering.zone, each.offering.capacity_type) for each in options(claim, TYPES)
    ]


def test_reserved_first_then_the_cheapest_and_never_what_is_unavailable() -> None:
    found = _names(_claim())
    assert found[0][2] == "reserved"
    launched = [each for each in found if each[2] != "reserved"]
    assert launched[:2] == [("small", "b", "spot"), ("small", "a", "on-demand")]
    assert ("small", "b", "on-demand") not in found


def test_a_type_too_small_for_the_requests_is_excluded() -> None:
    assert "small" not in {name for name, _, _ in _names(_claim(cpu="3"))}


def test_requirements_narrow_types_zones_and_capacity_types() -> None:
    wanted = _claim(
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["big"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["b"]},
    )
    assert _names(wanted) == [("big", "a", "on-demand")]


def test_a_well_known_label_that_a_type_lacks_excludes_it() -> None:
    wanted = _claim({"key": GPU, "operator": "Exists"})
    assert {name for name, _, _ in _names(wanted)} == {"gpu"}
    spared = _claim({"key": GPU, "operator": "DoesNotExist"})
    assert "small" in {name for name, _, _ in _names(spared)}


def test_a_custom_label_of_the_nodepool_excludes_no_offering() -> None:
    assert _names(_claim({"key": "team", "operator": "In", "values": ["x"]}))
