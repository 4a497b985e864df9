"""Pods, types and nodes for the planner's benchmarks: Karpenter's mix, mixed bursts, a live cluster."""

from __future__ import annotations

import json
import lzma
import random
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod
from dovetail.planner.snapshot import NodeState, Pool, PoolRequirement

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
CPU, MEMORY = (100, 250, 500, 1000, 1500), (100, 256, 512, 1024, 2048, 4096)
KINDS = ("generic", "zone", "host", "affinity", "antiaffinity")
#: Sums over the pods of a size that Karpenter's benchmark draws: milli-CPU, MiB, pods with anti-affinity.
CHECKSUMS = {
    500: (324400, 676592, 100),
    1000: (663350, 1341084, 200),
    2000: (1319500, 2769052, 400),
    5000: (3309000, 6708012, 1000),
    10000: (6628950, 13375332, 2000),
    20000: (13399850, 26928028, 4000),
}


def fake_types() -> tuple[InstanceType, ...]:
    """The 400 types of Karpenter's benchmark: price linear in size."""
    found = []
    places = [("test-zone-1", "spot"), ("test-zone-2", "spot"), *((f"test-zone-{n}", "on-demand") for n in (1, 2, 3))]
    for size in range(1, 401):
        memory = 2 * size * 2**30
        price = 0.1 * size + 0.1 * memory / 1e9
        offerings = tuple(Offering(zone=zone, capacity_type=kind, price=price) for zone, kind in places)
        found.append(
            InstanceType(
                name=f"fake-it-{size - 1}",
                capacity={"cpu": size * 1000, "memory": memory, "pods": 10 * size},
                overhead={"cpu": 100, "memory": 10 * 2**20},
                labels={"kubernetes.io/arch": ("amd64",), "kubernetes.io/os": ("linux",)},
                offerings=offerings,
            )
        )
    return tuple(found)


def real_pool(region: str = "us-east-1", zones: tuple[str, ...] = ("us-east-1a", "us-east-1b", "us-east-1c")) -> Pool:
    """On-demand c, m and r nodes of the packaged catalogue, in zones that offer all of them."""
    from dovetail.cloud.aws.catalog import load

    needs = (
        PoolRequirement(key="karpenter.k8s.aws/instance-category", operator="In", values=("c", "m", "r")),
        PoolRequirement(key="karpenter.sh/capacity-type", operator="In", values=("on-demand",)),
        PoolRequirement(key="kubernetes.io/arch", operator="In", values=("amd64",)),
        PoolRequirement(key=ZONE, operator="In", values=zones),
    )
    return Pool(name="default", types=load(region), requirements=needs)


def body(name: str, cpu: int, memory: int, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}], **spec},
    }


def pods(bodies: list[dict[str, Any]]) -> tuple[Pod, ...]:
    return tuple(msgspec.convert(each, Pod) for each in bodies)


def constrained(kind: str, term: dict[str, Any]) -> dict[str, Any]:
    """The part of a pod's spec that makes it one of Karpenter's kinds."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    if kind == "spread":
        return {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term}]}
    if kind == "affinity":
        return {"affinity": {"podAffinity": required}}
    return {"affinity": {"podAntiAffinity": required}} if kind == "antiaffinity" else {}


def mix(count: int) -> list[dict[str, Any]]:
    """The pods that Karpenter's benchmark draws for a size, checked by their sums."""
    drawn = _drawn()[str(count)]
    anti_affine = sum(kind == "antiaffinity" for kind, *_ in drawn)
    sums = (sum(row[4] for row in drawn), sum(row[5] for row in drawn), anti_affine)
    assert sums == CHECKSUMS.get(count, sums), f"not the pods of Karpenter's benchmark: {sums}"
    pods = []
    for number, (kind, topology_key, labels, selector, cpu, memory) in enumerate(drawn):
        term = {"labelSelector": {"matchLabels": selector}, "topologyKey": topology_key}
        pods.append(body(f"p{number}", cpu, memory, labels, **constrained(kind, term)))
    return pods


@cache
def _drawn() -> dict[str, list[Any]]:
    """By number of pods: kind, topology key, labels, selector, milli-CPU and MiB of each."""
    file = Path(__file__).parent / "data" / "diverse-pods.json.xz"
    drawn: dict[str, list[Any]] = json.loads(lzma.decompress(file.read_bytes()))
    return drawn


def diverse(count: int, rng: random.Random, name: str) -> list[dict[str, Any]]:
    """Pods like Karpenter's mix from another seed, so that no two bursts are the same."""
    found = []
    for at in range(count):
        kind, labels = KINDS[at % 5], {"my-label": rng.choice("abcdefg")}
        key = HOSTNAME if kind in ("host", "antiaffinity") else ZONE
        chosen = {"my-label": rng.choice("abcdefg")}
        if kind == "affinity":
            labels = chosen = {"my-affinity": rng.choice("abcdefg")}
        elif kind == "antiaffinity":
            labels = chosen = {"app": "nginx"}
        term = {"labelSelector": {"matchLabels": chosen}, "topologyKey": key}
        spec = constrained("spread" if kind in ("zone", "host") else kind, term)
        found.append(body(f"{name}-{at}", rng.choice(CPU), rng.choice(MEMORY), labels, **spec))
    return found


def mixed(count: int, seed: int) -> list[dict[str, Any]]:
    """A burst of workloads as clusters have them: sizes log-normal, memory for CPU as it comes, a few replicas each."""
    rng = random.Random(seed)
    found: list[dict[str, Any]] = []
    while len(found) < count:
        cpu = min(4000, max(50, int(rng.lognormvariate(6.0, 1.0))))
        memory = int(cpu * rng.choice((0.5, 1, 2, 4, 8)))
        replicas = min(count - len(found), 1 + int(rng.expovariate(1 / 12)))
        name = f"w{len(found)}"
        found += [body(f"{name}-{n}", cpu, memory + 64, {"app": name}) for n in range(replicas)]
    return found


def fleet(bodies: list[dict[str, Any]], pool: Pool, cores: int, share: float, seed: int) -> tuple[NodeState, ...]:
    """Nodes of up to so many cores that pods run on, of which they ask for a share: what scaling down leaves."""
    rng = random.Random(seed)
    category, waiting = "karpenter.k8s.aws/instance-category", [*reversed(bodies)]
    zones = next(need.values for need in pool.requirements if need.key == ZONE)
    types = [
        each
        for each in pool.types
        if each.labels.get(category, ("",))[0] in "cmr"
        and "amd64" in each.labels["kubernetes.io/arch"]
        and 2000 <= each.capacity["cpu"] <= 1000 * cores
    ]
    found: list[NodeState] = []
    while waiting:
        kind, zone, held = rng.choice(types), rng.choice(zones), list[Pod]()
        price = next((o.price for o in kind.offerings if (o.zone, o.capacity_type) == (zone, "on-demand")), None)
        if price is None:
            continue
        room = {name: amount * share for name, amount in kind.allocatable.items()}
        while waiting and min(room["cpu"], room["memory"]) > 0:
            held.append(msgspec.convert(waiting.pop(), Pod))
            for name, amount in requests(held[-1]).items():
                room[name] -= amount
        labels = {
            ZONE: zone,
            HOSTNAME: f"n{len(found)}",
            "node.kubernetes.io/instance-type": kind.name,
            "karpenter.sh/nodepool": pool.name,
            "karpenter.sh/capacity-type": "on-demand",
        }
        labels |= {key: values[0] for key, values in kind.labels.items()}
        found.append(
            NodeState(
                name=f"n{len(found)}",
                labels=labels,
                allocatable=kind.allocatable,
                price=price,
                capacity=kind.capacity,
                pods=tuple(held),
                pool=pool.name,
            )
        )
    return tuple(found)


def alike(classes: int, copies: int) -> list[dict[str, Any]]:
    """Classes of as many pods each: sizes all different, a fifth of them each of Karpenter's kinds."""
    found: list[dict[str, Any]] = []
    for at in range(classes):
        kind, app = KINDS[at % 5], {"app": f"a{at % 35}"}
        key = HOSTNAME if kind in ("host", "antiaffinity") else ZONE
        term = {"labelSelector": {"matchLabels": app}, "topologyKey": key}
        spec = constrained("spread" if kind in ("zone", "host") else kind, term)
        found += [body(f"c{at}-{n}", 100 + at, 128 + at * 7 % 900, app, **spec) for n in range(copies)]
    return found


def node(at: int, rng: random.Random) -> NodeState:
    """A node with twenty pods of some of three hundred workloads."""
    held = []
    for place in range(20):
        app = rng.randrange(300)
        made = body(f"b{at}-{place}", CPU[app % 4], 128 << app // 4 % 4, {"app": f"a{app}"})
        held.append(msgspec.convert(made, Pod))
    room = {"cpu": 14000, "memory": 40 * 2**30, "pods": 100}
    labels = {ZONE: f"test-zone-{at % 3 + 1}", HOSTNAME: f"n{at}", "kubernetes.io/arch": "amd64"}
    return NodeState(name=f"n{at}", labels=labels, allocatable=room, capacity=room, pods=tuple(held), pool="default")
