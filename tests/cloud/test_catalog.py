"""The packaged catalogue: labels and allocatable by the provider's formulas, prices with a source or none at all."""

import json
from pathlib import Path

import pytest

from dovetail.cloud.aws import capacity, catalog, instance_type_labels

GOLDEN = json.loads((Path(__file__).parent.parent / "data/instance_types.json").read_text())
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


def shown(name: str, amount: int) -> str:
    """An amount as a table of allocatable prints it."""
    if name == "cpu":
        return f"{amount}m"
    if name == "memory":
        return f"{amount >> 20}Mi"
    return f"{amount >> 30}Gi" if name == "ephemeral-storage" else str(amount)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_type_allocates_what_a_real_node_of_it_allocates(name: str) -> None:
    spec = catalog.specs()[name]
    total, kept = capacity.capacity(spec), capacity.overhead(spec)
    left = {key: shown(key, amount - kept.get(key, 0)) for key, amount in total.items()}
    assert left == GOLDEN[name]["allocatable"]


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_type_carries_the_labels_pods_select_by(name: str) -> None:
    labels = instance_type_labels.labels(catalog.specs()[name])
    known = {key: values[0] for key, values in labels.items() if key in GOLDEN[name]["labels"]}
    assert known == GOLDEN[name]["labels"]


def test_an_arm_instance_gives_firmware_its_share_before_the_hypervisor() -> None:
    spec = catalog.specs()["a1.medium"]
    total, kept = capacity.capacity(spec), capacity.overhead(spec)
    assert total["cpu"] - kept["cpu"] == 940
    assert (total["memory"] - kept["memory"]) >> 20 == 1392
    assert total["vpc.amazonaws.com/pod-eni"] == 10


def test_a_node_class_changes_capacity_by_kubelet_disk_and_family() -> None:
    spec = catalog.specs()["m5d.xlarge"]
    few = capacity.KubeletConfig(max_pods=20, pods_per_core=2, eviction_memory=5.0, system_reserved={"cpu": 100})
    assert capacity.capacity(spec, kubelet=few)["pods"] == 8
    assert capacity.capacity(spec, capacity.FAMILIES["Bottlerocket"], few)["pods"] == 20
    assert capacity.capacity(spec, disk=capacity.Disk(raid0=True))["ephemeral-storage"] == 150 * 10**9
    assert capacity.capacity(spec, capacity.FAMILIES["Windows2022"])["pods"] == 110
    plain, kept = capacity.overhead(spec), capacity.overhead(spec, kubelet=few)
    assert kept["cpu"] == plain["cpu"] + 100
    assert kept["memory"] > plain["memory"]


def test_seoul_sells_the_usual_instances_at_list_price() -> None:
    types = {t.name: t for t in catalog.load("ap-northeast-2")}
    large = next(o for o in types["m5.large"].offerings if o.capacity_type == "on-demand")
    assert (large.price, large.price_source) == (0.118, "observed 2022-05")
    assert {o.zone for o in types["m5.large"].offerings} == {f"ap-northeast-2{z}" for z in "abcd"}
    assert len(types) > 700


@pytest.mark.parametrize("region", ["ap-northeast-2", "us-east-1", "us-west-2", "eu-west-1", "eu-central-1"])
def test_a_price_is_known_with_its_source_or_missing_and_never_zero(region: str) -> None:
    offers = [o for t in catalog.load(region) for o in t.offerings]
    assert all(o.price is None or o.price > 0 for o in offers)
    assert all((o.price is None) == (o.price_source == "") and o.available == (o.price is not None) for o in offers)
    assert sum(o.price is not None for o in offers) > 0.95 * len(offers)


def test_an_unknown_region_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(catalog.UnknownRegion, match=r"ap-north-2.*ap-northeast-2"):
        catalog.load("ap-north-2")
