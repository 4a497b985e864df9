"""Build the packaged EC2 catalogue from registry packages.

    python scripts/build_catalogue.py

Reads data members of packages fetched with pip and go (nothing of them is imported or run):

- moto: instance types as EC2 describes them (older types from an older moto), and which zone offers which type;
- cloudwright-ai: on-demand list prices of us-east-1;
- apache-libcloud 3.6.0 and 3.9.1: on-demand prices of the other regions;
- the Go module of Karpenter's AWS provider: interfaces, branch interfaces, baseline bandwidth (so that both
  autoscalers show a pod the same), and us-east-1 prices of types newer than the others.

Regional prices rest on one fact: inside a family, regional price over us-east-1 price is constant.
Every price carries the tag of how it was found; a type without a price has none.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import msgspec

from dovetail.cloud.aws.instance_type_info import InstanceTypeLimits, InstanceTypeSpec, from_ec2

HERE = Path(__file__).resolve().parent.parent
TARGET = HERE / "src/dovetail/cloud/data"
MOTO, OLDER_MOTO, CLOUDWRIGHT = "moto==5.2.5", "moto==5.0.0", "cloudwright-ai==1.10.0"
LIBCLOUD = ("apache-libcloud==3.6.0", "apache-libcloud==3.9.1")
KARPENTER = "github.com/aws/karpenter-provider-aws@v1.14.1"

#: Sustained clock speeds (GHz) that EC2 documents otherwise than moto's snapshot has them, by family.
CLOCKS = {"c9g": 2.8, "c9gd": 2.8, "m9g": 2.8, "m9gd": 2.8, "i7i": 2.4, "i7ie": 3.6}

Prices = dict[str, dict[str, float]]
FAMILY = re.compile(r"([a-z]+)-?(\d+)?(.*)")


def wheel(requirement: str, folder: Path) -> zipfile.ZipFile:
    target = folder / requirement.replace("==", "-")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "--python-version",
            "3.12",
            "-d",
            target,
            requirement,
        ],
        check=True,
    )
    return zipfile.ZipFile(next(target.glob("*.whl")))


def module(path: str) -> Path:
    out = subprocess.run(["go", "mod", "download", "-json", path], check=True, capture_output=True, text=True)
    return Path(json.loads(out.stdout)["Dir"])


def network_limits(text: str) -> dict[str, tuple[int, int]]:
    """type -> interfaces of the default network card, branch interfaces of its trunk."""
    limits = {}
    for name, body in re.findall(r'"([a-z0-9.-]+)":\s*\{\n(.*?)\n\t\},', text, re.S):
        trunks = re.search(r"IsTrunkingCompatible:\s*true", body)
        branches = re.search(r"BranchInterface:\s*(\d+)", body)
        default = re.search(r"DefaultNetworkCardIndex:\s*(\d+)", body)
        cards = {
            card: int(most)
            for most, card in re.findall(r"MaximumNetworkInterfaces:\s*(\d+),\s*NetworkCardIndex:\s*(\d+)", body)
        }
        interfaces = cards.get(default.group(1) if default else "0", 0)
        limits[name] = (interfaces, int(branches.group(1)) if trunks and branches else 0)
    return limits


def numbers(text: str, pattern: str = r"(\d+)") -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(rf'"([a-z0-9.-]+)":\s*{pattern}', text)}


def records(moto: zipfile.ZipFile) -> dict[str, Any]:
    """type -> its element of DescribeInstanceTypes' answer."""
    plain = "moto/ec2/resources/instance_types.json"
    packed = f"{plain}.gz" in moto.namelist()
    document: dict[str, Any] = json.loads(gzip.decompress(moto.read(f"{plain}.gz")) if packed else moto.read(plain))
    return document


def specs(described: dict[str, Any], karpenter: Path) -> list[InstanceTypeSpec]:
    tables = karpenter / "pkg/providers/instancetype"
    network = network_limits((tables / "zz_generated.vpclimits.go").read_text())
    bandwidth = numbers((tables / "zz_generated.bandwidth.go").read_text(), r"(\d+),")
    specs_read = []
    for name, record in sorted(described.items()):
        interfaces, branches = network.get(name, (0, 0))
        spec = from_ec2(record, InstanceTypeLimits(branches, int(bandwidth[name]) if name in bandwidth else None))
        spec = msgspec.structs.replace(
            spec, interfaces=interfaces or spec.interfaces, clock_ghz=CLOCKS.get(family(name), spec.clock_ghz)
        )
        if spec.arches and "hvm" in record.get("SupportedVirtualizationTypes", ()):
            specs_read.append(spec)
    return specs_read


def offerings(moto: zipfile.ZipFile) -> dict[str, dict[str, Any]]:
    """region -> zones (name -> zone id) and the types each zone offers."""
    root = "moto/ec2/resources/instance_type_offerings"
    regions: dict[str, dict[str, Any]] = {}
    for member in sorted(moto.namelist()):
        match = re.fullmatch(rf"{root}/availability-zone/(.+)\.json\.gz", member)
        if not match:
            continue
        region = match.group(1)
        by_zone: dict[str, list[str]] = {}
        for row in json.loads(gzip.decompress(moto.read(member))):
            by_zone.setdefault(row["Location"], []).append(row["InstanceType"])
        ids = {
            row["Location"]
            for row in json.loads(gzip.decompress(moto.read(f"{root}/availability-zone-id/{region}.json.gz")))
        }
        zones = dict(zip(sorted(by_zone), sorted(ids), strict=False))
        regions[region] = {"zones": zones, "types": {z: sorted(names) for z, names in sorted(by_zone.items())}}
    return regions


def libcloud(archive: zipfile.ZipFile) -> Prices:
    """region -> type -> price."""
    regions: Prices = {}
    for name, row in json.loads(archive.read("libcloud/data/pricing.json"))["compute"]["ec2_linux"].items():
        for region, price in row.items():
            if price and float(price) > 0:
                regions.setdefault(region, {})[name] = float(price)
    return regions


def list_prices(cloudwright: zipfile.ZipFile, karpenter: Path, folder: Path) -> dict[str, tuple[float, str]]:
    database = cloudwright.extract("cloudwright/data/catalog.db", folder)
    rows = sqlite3.connect(database).execute(
        "select i.name, p.price_per_hour from pricing p join instance_types i on i.id = p.instance_type_id"
        " where p.region_id = 'aws:us-east-1' and p.os = 'linux' and p.price_type = 'on_demand'"
    )
    text = (karpenter / "pkg/providers/pricing/zz_generated.pricing_aws.go").read_text()
    prices = {name: (price, "list 2026-07") for name, price in numbers(text, r"(\d+\.\d+)").items()}
    return prices | {name: (float(price), "list 2026-02") for name, price in rows if price}


def family(name: str) -> str:
    return name.split(".", 1)[0]


def ratios(region: str, base: dict[str, float], clean: Prices, later: Prices) -> dict[str, float]:
    """family -> regional price over us-east-1 price, from the clean source or the later one's lowest cluster."""
    ratios_by_family: dict[str, list[float]] = {}
    for name, price in clean.get(region, {}).items():
        if home := clean["us-east-1"].get(name):
            ratios_by_family.setdefault(family(name), []).append(price / home)
    medians = {fam: statistics.median(values) for fam, values in ratios_by_family.items()}
    clusters: dict[str, list[float]] = {}
    for name, price in later.get(region, {}).items():
        if name in base and family(name) not in medians:
            clusters.setdefault(family(name), []).append(price / base[name])
    for fam, values in clusters.items():
        lowest = [v for v in values if v <= min(values) * 1.002]
        ratio, usual = statistics.median(lowest), sibling(fam, medians)
        # A price cut since then makes the old row look dear against today's list price.
        if (len(lowest) >= 2 or len(values) == 1) and (usual is None or ratio < usual * 1.08):
            medians[fam] = ratio
    return medians


def sibling(fam: str, medians: dict[str, float]) -> float | None:
    """The ratio of the families nearest in name: same category, same attributes, then nearest generation."""
    shape = FAMILY.match(fam)
    if not shape:
        return None
    near: list[tuple[bool, int, float]] = []
    for other, ratio in medians.items():
        match = FAMILY.match(other)
        if match and match.group(1) == shape.group(1) and other != fam:
            distance = abs(int(match.group(2) or 0) - int(shape.group(2) or 0))
            near.append((match.group(3) != shape.group(3), distance, ratio))
    if not near:
        return None
    nearest = min(row[:2] for row in near)
    return statistics.median(ratio for *key, ratio in near if tuple(key) == nearest)


def regional(
    region: str, offered: set[str], base: dict[str, float], clean: Prices, later: Prices
) -> dict[str, tuple[float, str]]:
    medians = ratios(region, base, clean, later)
    prices: dict[str, tuple[float, str]] = {}
    for name in sorted(offered):
        observed, home = clean.get(region, {}).get(name), clean["us-east-1"].get(name)
        ratio = medians.get(family(name))
        newer = later.get(region, {}).get(name)
        if observed and home and name in base and abs(base[name] / home - 1) < 0.001:
            prices[name] = (observed, "observed 2022-05")
        elif ratio and name in base and newer and abs(newer / base[name] / ratio - 1) < 0.002:
            prices[name] = (newer, "observed 2025-03")
        elif ratio and name in base:
            prices[name] = (round(base[name] * ratio, 6), "derived by family ratio")
        elif name in base and (near := sibling(family(name), medians)):
            prices[name] = (round(base[name] * near, 6), "estimated by sibling family")
        elif observed:
            prices[name] = (observed, "observed 2022-05")
    return prices


def write(name: str, value: Any) -> None:
    """Compressed without a time stamp, so that the same input gives the same bytes."""
    TARGET.mkdir(parents=True, exist_ok=True)
    (TARGET / name).write_bytes(gzip.compress(msgspec.json.encode(value), mtime=0))


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        moto, karpenter = wheel(MOTO, folder), module(KARPENTER)
        clean, later = (libcloud(wheel(version, folder)) for version in LIBCLOUD)
        home = list_prices(wheel(CLOUDWRIGHT, folder), karpenter, folder)
        base = {name: price for name, (price, _) in home.items()}
        all_specs = specs(records(wheel(OLDER_MOTO, folder)) | records(moto), karpenter)
        regions = offerings(moto)
        names = {spec.name for spec in all_specs}
        prices = {}
        for region, entry in regions.items():
            offered = {t for types in entry["types"].values() for t in types} & names
            entry["types"] = {zone: [t for t in types if t in names] for zone, types in entry["types"].items()}
            prices[region] = (
                {name: home[name] for name in sorted(offered) if name in home}
                if region == "us-east-1"
                else regional(region, offered, base, clean, later)
            )
            print(f"{region:16} {len(offered):5} types offered, {len(prices[region]):5} priced")
        write("types.json.gz", all_specs)
        write("regions.json.gz", regions)
        write("prices.json.gz", {"built": "2026-11", "currency": "USD", "regions": prices})


if __name__ == "__main__":
    main()
