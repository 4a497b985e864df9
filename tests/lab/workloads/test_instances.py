"""Simulated instances of every type."""

from __future__ import annotations

import pytest

from dovetail.lab.instances import UnknownType, plain_pool, size_of


def test_a_type_that_is_not_at_hand_is_found_in_the_catalogue() -> None:
    size = size_of("c7g.2xlarge")
    assert (size.cpu, size.memory, size.pods, size.arch) == (8, 16, 58, "arm64")
    (instance,) = plain_pool(1, "c7g.2xlarge", ["us-west-2a"])
    assert (instance.arch, instance.capacity["cpu"]) == ("arm64", 8000)


def test_a_misspelt_instance_type_gets_a_suggestion() -> None:
    with pytest.raises(UnknownType, match=r"no instance type 'm5.larg'; did you mean m5.large\?"):
        size_of("m5.larg")
    with pytest.raises(UnknownType, match=r"no instance type 'nonsense'; try m5.large"):
        size_of("nonsense")
