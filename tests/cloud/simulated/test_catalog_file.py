"""The catalogue file of plan-format, read exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.cloud.simulated.catalog_file import CatalogueError, parse, read

ENTRY = b"""[{"name": "m5.large",
  "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29", "ephemeral-storage": "20Gi"},
  "overhead": {"cpu": "70m", "memory": "921Mi"},
  "labels": {"kubernetes.io/arch": ["amd64"], "kubernetes.io/os": "linux"},
  "offerings": [{"zone": "ap-northeast-2a", "capacityType": "on-demand", "price": 0.118, "available": true},
                {"zone": "ap-northeast-2a", "capacityType": "spot"},
                {"zone": "ap-northeast-2a", "capacityType": "reserved", "price": 0.0, "reservationId": "cr-1",
                 "reservationCapacity": 3}],
  "attachLimits": {"ebs.csi.aws.com": 26}}]"""


def test_allocatable_is_capacity_less_overhead_and_a_missing_price_stays_missing() -> None:
    (t,) = parse(ENTRY)
    assert t.allocatable["cpu"] == 1930
    assert t.allocatable["memory"] == (8192 - 921) * 2**20
    assert [o.price for o in t.offerings] == [0.118, None, 0.0]
    assert t.offerings[2].reservation_capacity == 3
    assert t.labels["kubernetes.io/os"] == ("linux",)
    assert t.attach_limits == {"ebs.csi.aws.com": 26}


@pytest.mark.parametrize("text", [b"{}", b"[{]", b'[{"name": "x"}]', ENTRY.replace(b"8Gi", b"8Gb")])
def test_a_file_that_is_no_catalogue_says_where(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "catalogue.json"
    path.write_bytes(text)
    with pytest.raises(CatalogueError, match=r"catalogue\.json"):
        read(path)


def test_a_type_named_twice_is_refused() -> None:
    with pytest.raises(CatalogueError, match="twice"):
        parse(b"[" + ENTRY[1:-1] + b"," + ENTRY[1:-1] + b"]")


def test_a_missing_file_is_one_clear_line() -> None:
    with pytest.raises(CatalogueError, match="No such file"):
        read(Path("nowhere.json"))
