"""Markets: problems where other things are for sale, and where pods are of other sizes.

What a scheduler is good at depends on the catalog: a whole region of EC2, a handful of types, prices by size
alone, one zone or six. And pods need not come in batches of one size.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from bench.scenarios.catalogue import EBS, ZONES
from bench.scenarios.variations import some, waiting
from dovetail.cloud.aws.catalog import load
from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE

Object = dict[str, Any]

_REGION = "ap-northeast-2"
#: Labels that follow from a type's name and its offerings.
_FOLLOWING = (INSTANCE_TYPE, ZONE, CAPACITY_TYPE)
_MEMORY_PER_CPU = {"c": 2, "m": 4, "r": 8}


def moved(problem: Object, chance: random.Random) -> Object:
    """The problem in another market, some of its pods in other sizes."""
    chance.choice((_region, _region, _kwok, _line, _few, _few, _one_zone, _two_zones, _six_zones))(problem, chance)
    for way in chance.sample((_own_sizes, _nothing_asked, _giants, _crowd), chance.choice((0, 1, 1, 2))):
        way(problem, chance)
    return problem


# -- what is for sale ----------------------------------------------------------------------------------------------


def _region(problem: Object, chance: random.Random) -> None:
    """All of EC2 in a region."""
    problem["catalog"] = [as_written(kind) for kind in load(_REGION)]


def as_written(kind: InstanceType) -> Object:
    offers = [
        {"zone": each.zone, "capacityType": each.capacity_type, "available": each.available, "price": each.price}
        for each in kind.offerings
        if each.price is not None
    ]
    labels = {key: list(values) for key, values in kind.labels.items() if key not in _FOLLOWING}
    return {
        "name": kind.name,
        "capacity": _amounts(kind.capacity),
        "overhead": _amounts(kind.overhead),
        "labels": labels,
        "offerings": offers,
        "attachLimits": dict(kind.attach_limits),
    }


def _amounts(given: Any) -> Object:
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in given.items()}


def _kwok(problem: Object, chance: random.Random) -> None:
    """Sizes that double, in three ratios and two architectures, a little dearer by the CPU as they grow."""
    made = []
    for cpus in (1, 2, 4, 8, 16, 32, 48, 64):
        for family, ratio in _MEMORY_PER_CPU.items():
            for arch in ("amd64", "arm64"):
                price = 0.025 * cpus + 0.001 * cpus * ratio
                made.append(_offered(f"{family}-{cpus}x-{arch}", family, arch, cpus, ratio * cpus, price, 0.7))
    problem["catalog"] = made


def _line(problem: Object, chance: random.Random) -> None:
    """Every number of CPUs, priced by it; spot costs the same and is sold in two zones."""
    most = chance.choice((20, 50, 100))
    kinds = [_offered(f"line-{cpus}", "m", "amd64", cpus, 2 * cpus, 0.31475 * cpus, 1.0) for cpus in range(1, most + 1)]
    for kind in kinds:
        kind["offerings"] = [
            each for each in kind["offerings"] if (each["capacityType"], each["zone"]) != ("spot", ZONES[2])
        ]
    problem["catalog"] = kinds


def _offered(name: str, family: str, arch: str, cpus: int, memory: int, price: float, spot: float) -> Object:
    labels = {
        "karpenter.k8s.aws/instance-family": [family],
        "karpenter.k8s.aws/instance-category": [family],
        "karpenter.k8s.aws/instance-generation": ["1"],
        "kubernetes.io/arch": [arch],
        "kubernetes.io/os": ["linux"],
        "karpenter.k8s.aws/instance-cpu": [str(cpus)],
    }
    offers = [
        {"zone": zone, "capacityType": way, "price": round(price * part, 5), "available": True}
        for zone in ZONES
        for way, part in (("on-demand", 1.0), ("spot", spot))
    ]
    return {
        "name": name,
        "labels": labels,
        "offerings": offers,
        "attachLimits": {EBS: 26},
        "capacity": {
            "cpu": str(cpus),
            "memory": f"{memory}Gi",
            "pods": str(min(10 * cpus, 110)),
            "ephemeral-storage": "20Gi",
        },
        "overhead": {"cpu": "100m", "memory": "10Mi"},
    }


def _few(problem: Object, chance: random.Random) -> None:
    """A handful of types, as a team that has chosen for itself would allow."""
    known = problem["catalog"]
    problem["catalog"] = sorted(chance.sample(known, chance.choice((2, 4, 8))), key=lambda kind: str(kind["name"]))


def _one_zone(problem: Object, chance: random.Random) -> None:
    _only(problem, chance.sample(ZONES, 1))


def _two_zones(problem: Object, chance: random.Random) -> None:
    _only(problem, chance.sample(ZONES, 2))


def _only(problem: Object, zones: list[str]) -> None:
    for kind in problem["catalog"]:
        kind["offerings"] = [each for each in kind["offerings"] if each["zone"] in zones]


def _six_zones(problem: Object, chance: random.Random) -> None:
    for kind in problem["catalog"]:
        more = [
            {**each, "zone": each["zone"][:-1] + chr(ord(each["zone"][-1]) + 3)}
            for each in kind["offerings"]
            if each["capacityType"] != "reserved"
        ]
        kind["offerings"] += [
            {**each, "price": round(each["price"] * chance.choice((1, 1, 1.05, 0.9)), 5)} for each in more
        ]


# -- how large pods are --------------------------------------------------------------------------------------------


def _requests(pods: list[Object]) -> Iterator[Object]:
    """What each of some pods asks for, its own from now on."""
    for pod in pods:
        pod["spec"]["containers"] = copy.deepcopy(pod["spec"]["containers"])
        yield pod["spec"]["containers"][0]["resources"]["requests"]


def _own_sizes(problem: Object, chance: random.Random) -> None:
    """Pods of one workload that an autoscaler has sized one by one."""
    for pods in some(problem, chance, 0.6):
        for requests in _requests(pods):
            requests |= {"cpu": f"{chance.randint(5, 300) * 10}m", "memory": f"{chance.randint(64, 6000)}Mi"}


def _nothing_asked(problem: Object, chance: random.Random) -> None:
    for pods in some(problem, chance, 0.3):
        gone = chance.choice((("cpu", "memory"), ("cpu",), ("memory",)))
        for requests in _requests(pods):
            for name in gone:
                requests.pop(name, None)


def _giants(problem: Object, chance: random.Random) -> None:
    """A few pods that fill a node each, and some that nothing holds."""
    for pods in some(problem, chance, 0.3):
        size = chance.choice(({"cpu": "14"}, {"cpu": "30"}, {"memory": "110Gi"}, {"cpu": "90", "memory": "300Gi"}))
        for requests in _requests(pods[: chance.choice((1, 3))]):
            requests |= size


def _crowd(problem: Object, chance: random.Random) -> None:
    """Pods so small that the number of pods to a node decides."""
    for pods in list(waiting(problem).values())[:2]:
        for requests in _requests(pods):
            requests |= {"cpu": "10m", "memory": "16Mi"}
