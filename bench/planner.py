"""How quick and how cheap the planner is, beside Karpenter's own scheduler on the same pods in the same run.

    python bench/planner.py speed [--karpenter PATH]   Karpenter's benchmark mix: pods a second of both, and growth
    python bench/planner.py live                       1,000 pods onto 5,000 machines with 100,000 pods
    python bench/planner.py cost                       mixed bursts over the packaged catalogue: gap to the bound

The mix is read from `$DOVETAIL_BENCH_PODS` (a folder with `diverse-N.json`), else `../shared/data/bench-pods`.
`--karpenter` is the program built from bench/karpenter (`go build -o karpenter .`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec

from dovetail.model.instancetype import InstanceType, Offering
from dovetail.model.objects import Pod
from dovetail.model.quantity import format_resources
from dovetail.planner.memory import Memory
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import NodeState, Pool, PoolRequirement, Snapshot

SIZES = (500, 1000, 2000, 5000, 10000, 20000)
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


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


def body(name: str, cpu: int, memory: int, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}], **spec},
    }


def mix(count: int) -> list[dict[str, Any]]:
    """Karpenter's diverse pods."""
    folder = Path(os.environ.get("DOVETAIL_BENCH_PODS") or Path(__file__).parents[2] / "shared/data/bench-pods")
    found = []
    for at, each in enumerate(json.loads((folder / f"diverse-{count}.json").read_text())):
        spec: dict[str, Any] = {}
        term = {"labelSelector": {"matchLabels": each.get("selector")}, "topologyKey": each.get("topologyKey")}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        if each["kind"] == "spread":
            spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term}
            spec["topologySpreadConstraints"] = [spread]
        elif each["kind"] == "affinity":
            spec["affinity"] = {"podAffinity": required}
        elif each["kind"] == "antiaffinity":
            spec["affinity"] = {"podAntiAffinity": required}
        found.append(body(f"p{at}", each["cpu_m"], each["mem_mi"], each["labels"], **spec))
    return found


def best_of(runs: int, snapshot: Snapshot) -> tuple[float, Any]:
    times = []
    plan = None
    for _ in range(runs):
        start = time.perf_counter()
        plan = provision(snapshot)
        times.append(time.perf_counter() - start)
    return min(times), plan


def speed(karpenter: str | None) -> None:
    types = fake_types()
    pool = Pool(name="default", types=types, limits={"cpu": 10**10, "memory": 10**7 * 2**30})
    print(f"{'pods':>7} {'ms':>8} {'pods/s':>9} {'machines':>9} {'$/h':>9}   Karpenter: pods/s, machines, $/h, ratio")
    for count in SIZES:
        bodies = mix(count)
        pods = tuple(msgspec.convert(each, Pod) for each in bodies)
        seconds, plan = best_of(3, Snapshot(pools=(pool,), pending=pods))
        line = f"{count:>7} {seconds * 1e3:>8.1f} {count / seconds:>9.0f} {len(plan.machines):>9} "
        line += f"{plan.cost.per_hour:>9.2f}"
        if karpenter is not None and count <= 5000:
            other = _karpenter(karpenter, bodies, types)
            theirs = count / other["seconds"]
            line += f"   {theirs:.0f}, {len(other['machines'])}, {other['cost']:.2f}, {count / seconds / theirs:.0f}x"
        print(line, flush=True)


def _karpenter(program: str, bodies: list[dict[str, Any]], types: tuple[InstanceType, ...]) -> Any:
    catalogue = [
        {
            "name": each.name,
            "capacity": format_resources(each.capacity),
            "overhead": format_resources(each.overhead),
            "labels": {key: list(values) for key, values in each.labels.items()},
            "offerings": [{"zone": o.zone, "capacityType": o.capacity_type, "price": o.price} for o in each.offerings],
        }
        for each in types
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {"spec": {"requirements": [], "nodeClassRef": reference}}
    spec = {"template": template, "limits": {"cpu": "10000000"}}
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": spec}
    pods = [{"apiVersion": "v1", "kind": "Pod", **each} for each in bodies]
    scenario = {"objects": [pool, *pods], "catalog": catalogue}
    done = subprocess.run([program], input=json.dumps(scenario), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def live() -> None:
    rng = random.Random(1)
    nodes = [_node(at, rng) for at in range(5000)]
    memory = Memory()
    pods = tuple(msgspec.convert(each, Pod) for each in mix(1000))
    pool = Pool(name="default", types=fake_types())
    times = []
    for turn in range(21):
        for at in rng.sample(range(5000), 100 if turn else 0):
            nodes[at] = msgspec.structs.replace(nodes[at], pods=nodes[at].pods[1:])
        start = time.perf_counter()
        provision(Snapshot(pools=(pool,), nodes=tuple(nodes), pending=pods, memory=memory))
        times.append(time.perf_counter() - start)
    rest = sorted(times[1:])
    middle = statistics.median(rest)
    print(f"first {times[0] * 1e3:.0f} ms, then median {middle * 1e3:.1f} ms, worst {rest[-1] * 1e3:.1f} ms")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


def _node(at: int, rng: random.Random) -> NodeState:
    pods = []
    for place in range(20):
        app = rng.randrange(300)
        each = body(f"b{at}-{place}", (100, 250, 500, 1000)[app % 4], 128 << app // 4 % 4, {"app": f"a{app}"})
        pods.append(msgspec.convert(each, Pod))
    room = {"cpu": 14000, "memory": 40 * 2**30, "pods": 100}
    labels = {ZONE: f"test-zone-{at % 3 + 1}", HOSTNAME: f"n{at}", "kubernetes.io/arch": "amd64"}
    return NodeState(name=f"n{at}", labels=labels, allocatable=room, capacity=room, pods=tuple(pods), pool="default")


def cost() -> None:
    from dovetail.cloud.catalogue import load

    needs = (
        PoolRequirement(key="karpenter.k8s.aws/instance-category", operator="In", values=("c", "m", "r")),
        PoolRequirement(key="karpenter.sh/capacity-type", operator="In", values=("on-demand",)),
        PoolRequirement(key="kubernetes.io/arch", operator="In", values=("amd64",)),
    )
    pool = Pool(name="default", types=load("us-east-1"), requirements=needs)
    rng = random.Random(7)
    for count in (200, 1000, 5000):
        bodies: list[dict[str, Any]] = []
        while len(bodies) < count:
            cpu = min(4000, max(50, int(rng.lognormvariate(6.0, 1.0))))
            memory = int(cpu * rng.choice((0.5, 1, 2, 4, 8)))
            replicas = min(count - len(bodies), 1 + int(rng.expovariate(1 / 12)))
            name = f"w{len(bodies)}"
            bodies += [body(f"{name}-{n}", cpu, memory + 64, {"app": name}) for n in range(replicas)]
        pods = tuple(msgspec.convert(each, Pod) for each in bodies)
        for deadline in (None, 3.0):
            plan = provision(Snapshot(pools=(pool,), pending=pods), deadline=deadline)
            gap = "" if plan.cost.gap is None else f", gap {plan.cost.gap:.1%}"
            print(f"{count} pods, tier {plan.tier}: ${plan.cost.per_hour:.3f}/h{gap}, {plan.seconds:.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "live", "cost"])
    parser.add_argument("--karpenter", help="the program built from bench/karpenter")
    asked = parser.parse_args()
    if asked.what == "speed":
        speed(asked.karpenter)
    elif asked.what == "live":
        live()
    else:
        cost()


if __name__ == "__main__":
    main()
