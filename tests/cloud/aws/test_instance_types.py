"""The instance types that EC2 lists."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws.capacity import CapacitySettings
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.instance_types import Types
from dovetail.cloud.aws.pricing import Pricing
from dovetail.cloud.provider import CloudError
from dovetail.cloud.unavailable_offerings import UnavailableOfferings

M5_LARGE = {
    "InstanceType": "m5.large",
    "SupportedUsageClasses": ["on-demand"],
    "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
    "VCpuInfo": {"DefaultVCpus": 2},
    "MemoryInfo": {"SizeInMiB": 8192},
    "NetworkInfo": {"MaximumNetworkInterfaces": 3, "Ipv4AddressesPerInterface": 10, "NetworkPerformance": "x"},
}


@pytest.mark.parametrize("empty", ["InstanceTypes", "InstanceTypeOfferings"])
def test_an_empty_list_of_instance_types_is_not_believed(empty: str) -> None:
    """It would be kept for twelve hours, in which nothing can be launched."""
    answers: dict[str, list[dict[str, Any]]] = {
        "InstanceTypes": [M5_LARGE],
        "InstanceTypeOfferings": [{"InstanceType": "m5.large", "Location": "eu-west-1a"}],
    }
    listed = {**answers, empty: []}
    client = SimpleNamespace(
        describe_instance_types=lambda **_: {"InstanceTypes": listed["InstanceTypes"]},
        describe_instance_type_offerings=lambda **_: {"InstanceTypeOfferings": listed["InstanceTypeOfferings"]},
        close=lambda: None,
    )

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop())
        calls = Calls(clock, region="eu-west-1", session=SimpleNamespace(client=lambda *_, **__: client))
        types = Types(calls, clock, Pricing(calls, clock), UnavailableOfferings(clock), CapacitySettings())
        with pytest.raises(CloudError, match="lists no instance types"):
            await types.list({}, {"eu-west-1a": "euw1-az1"})
        listed.update(answers)
        assert [t.name for t in await types.list({}, {"eu-west-1a": "euw1-az1"})] == ["m5.large"]
        calls.close()

    run_virtual(main())
