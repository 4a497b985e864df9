"""How quick and how cheap the planner is, beside Karpenter's own scheduler on the same pods in the same run.

    python -m bench.planner speed [--largest N]   Karpenter's benchmark mix: pods a second of both
    python -m bench.planner growth                how time grows with classes, and with pods of the same classes
    python -m bench.planner scratch               100,000 pods from scratch
    python -m bench.planner live [--rounds N]     bursts of 1,000 pods onto 5,000 nodes with 100,000 pods
    python -m bench.planner cut                   a snapshot after 100 pods changed, and what the cluster state weighs
    python -m bench.planner cost [--deadline S]   mixed bursts over the packaged catalogue: gap to the bound
    python -m bench.planner explain               what recording explanations costs
    python -m bench.planner pools                 100 pods and 1 to 1,000 NodePools that differ in one label
    python -m bench.planner small                 bursts of 1 to 500 pods beside Karpenter, and one pod onto a node
    python -m bench.planner fleet                 what 35 %-used clusters of 5,000 pods could terminate in five seconds

Times are seconds of processor (the node may be shared) and of the clock. Karpenter is built with Go on first use.
`--largest` is up to how many pods Karpenter is asked as well: it takes minutes for 20,000.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench import burst
from dovetail.model.instance_type import InstanceType
from dovetail.model.quantity import format_resources
from dovetail.planner.cache import PlannerCache
from dovetail.planner.consolidate.search import consolidate
from dovetail.planner.plan import Plan
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Pool, Snapshot
from dovetail.planner.verify import verify
from dovetail.runtime.gc_pause import settle, settling

SIZES = (500, 1000, 2000, 5000, 10000, 20000)
#: The controller tidies once a minute; bursts come every few seconds.
TIDY = 10


def timed(make: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds of processor, seconds of the clock, and what was made."""
    wall, cpu = time.perf_counter(), time.process_time()
    made = make()
    return time.process_time() - cpu, time.perf_counter() - wall, made


def best_of(runs: int, snapshot: Snapshot) -> tuple[float, float, Plan]:
    """The least processor time of some runs, what the first took, and the plan."""
    times = []
    for _ in range(runs):
        seconds, _, plan = _planned(snapshot)
        times.append(seconds)
    return min(times), times[0], plan


def speed(largest: int) -> None:
    types = burst.fake_types()
    pool = Pool(name="default", types=types, limits={"cpu": 10**10, "memory": 10**7 * 2**30})
    print(
        f"{'pods':>6} {'classes':>8} {'first ms':>9} {'ms':>7} {'pods/s':>8} {'us/class':>9} {'nodes':>9} "
        f"{'$/h':>8}   Karpenter: pods/s, nodes, $/h, times slower"
    )
    for count in SIZES:
        bodies = burst.mix(count)
        snapshot = Snapshot(pools=(pool,), pending=burst.pods(bodies))
        seconds, first, plan = best_of(5, snapshot)
        assert not plan.unschedulable
        classes = len(Problem(snapshot).classes)
        line = f"{count:>6} {classes:>8} {first * 1e3:>9.1f} {seconds * 1e3:>7.1f} {count / seconds:>8.0f} "
        line += f"{seconds / classes * 1e6:>9.1f} {len(plan.nodes):>9} {plan.cost.per_hour:>8.2f}"
        if count <= largest:
            other = karpenter(bodies, types)
            theirs = count / other["seconds"]
            cost, ratio, launched = other["cost"], count / seconds / theirs, len(other["machines"])
            line += f"   {theirs:.0f}, {launched}, {cost:.2f}, {ratio:.0f}x"
        print(line, flush=True)


def growth() -> None:
    """The same classes with more and more pods, then as many pods of more and more classes."""
    pool = Pool(name="default", types=burst.fake_types())
    print(f"{'pods':>7} {'classes':>8} {'ms':>7} {'us/pod':>7} {'us/class':>9} {'ms to verify':>13}")
    for classes, copies in ((250, 4), (250, 16), (250, 64), (1000, 1), (1000, 4), (1000, 16), (4000, 1), (4000, 4)):
        snapshot = Snapshot(pools=(pool,), pending=burst.pods(burst.alike(classes, copies)))
        seconds, _, plan = best_of(3, snapshot)
        checking, _, wrong = timed(partial(verify, plan, snapshot))
        assert not wrong and not plan.unschedulable
        found, pods = len(Problem(snapshot).classes), len(snapshot.pending)
        print(
            f"{pods:>7} {found:>8} {seconds * 1e3:>7.1f} {seconds / pods * 1e6:>7.1f} {seconds / found * 1e6:>9.1f} "
            f"{checking * 1e3:>13.1f}",
            flush=True,
        )


def pools() -> None:
    """What NodePools cost that differ in one label, from their manifests to the plan.

    No pod mentions the label, or ten pods select each of ten values; or no pod does and the NodePools have limits.
    """
    bodies = burst.mixed(100, 3)
    selecting = [
        {**body, "spec": {**body["spec"], "nodeSelector": {"team": f"t{number % 10}"}}}
        for number, body in enumerate(bodies)
    ]
    print(
        f"{'NodePools':>9} {'ms':>8} {'times one':>9} {'$/h':>8} {'peak MB':>8}   ten labels selected: ms, $/h   "
        "limits of 1,000 CPUs: ms, $/h   Karpenter: ms, $/h"
    )
    base = 0.0
    pool = burst.real_pool()
    for count in (1, 10, 30, 100, 300, 1000):
        seconds, plan = _planned_from_manifests(bodies, _team_pools(pool, count, {}))
        base = base or seconds
        line = f"{count:>9} {seconds * 1e3:>8.1f} {seconds / base:>9.2f} {plan.cost.per_hour:>8.3f} {peak():>8}"
        if count >= 10:
            seconds, plan = _planned_from_manifests(selecting, _team_pools(pool, count, {}))
            line += f"   {seconds * 1e3:.1f}, {plan.cost.per_hour:.3f}"
            seconds, plan = _planned_from_manifests(bodies, _team_pools(pool, count, {"cpu": "1000"}))
            line += f"   {seconds * 1e3:.1f}, {plan.cost.per_hour:.3f}"
        if count <= 100:
            other = karpenter(bodies, pool.types, _team_pools(pool, count, {}))
            line += f"   {other['seconds'] * 1e3:.0f}, {other['cost']:.3f}"
        print(line, flush=True)


def _planned_from_manifests(
    bodies: list[dict[str, Any]], node_pools: list[dict[str, Any]], runs: int = 3
) -> tuple[float, Plan]:
    """The least processor time of some runs from manifests to a plan of tier 1, and the plan."""
    from dovetail.offline.objects import Objects
    from dovetail.offline.snapshot import snapshot

    def planned() -> Plan:
        objects = Objects()
        for manifest in (*bodies, *node_pools):
            objects.add(manifest)
        return provision(snapshot(objects, (), False, "us-east-1"))

    times = [timed(planned) for _ in range(runs)]
    return min(seconds for seconds, _, _ in times), times[-1][2]


def _team_pools(pool: Pool, count: int, limits: dict[str, str]) -> list[dict[str, Any]]:
    """Manifests of NodePools with the requirements of a pool that differ in one label."""
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    requirements = [
        {"key": needed.key, "operator": needed.operator, "values": list(needed.values)} for needed in pool.requirements
    ]
    return [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": f"pool-{number:04}"},
            "spec": {
                "limits": limits,
                "template": {
                    "metadata": {"labels": {"team": f"t{number}"}},
                    "spec": {"requirements": requirements, "nodeClassRef": reference},
                },
            },
        }
        for number in range(count)
    ]


def small() -> None:
    """The bursts that most clusters see. Karpenter's seconds are those of its `Solve` alone."""
    types = burst.fake_types()
    pool = Pool(name="default", types=types)
    room = burst.node(0, random.Random(1))
    one = Snapshot(pools=(pool,), nodes=(room,), pending=burst.pods([burst.body("p", 100, 128, {})]))
    seconds, _, plan = best_of(20, one)
    assert not plan.nodes and not plan.unschedulable
    print(f"one pod onto a node with room: {seconds * 1e3:.2f} ms")
    for count in (1, 10, 50, 100, 200, 500):
        bodies = burst.mix(count) if count in (1, 50, 100, 500) else burst.mix(500)[:: 500 // count]
        snapshot = Snapshot(pools=(pool,), pending=burst.pods(bodies))
        seconds, first, plan = best_of(5, snapshot)
        other = karpenter(bodies, types)
        print(
            f"{count:>5} pods: {seconds * 1e3:.1f} ms (first {first * 1e3:.1f}), ${plan.cost.per_hour:.2f}/h; "
            f"Karpenter {other['seconds'] * 1e3:.1f} ms, ${other['cost']:.2f}/h, "
            f"{other['seconds'] / seconds:.1f}x",
            flush=True,
        )


def karpenter(
    bodies: list[dict[str, Any]], types: tuple[InstanceType, ...], node_pools: list[dict[str, Any]] | None = None
) -> Any:
    """Karpenter's scheduler on the same pods; the seconds are those of its `Solve` alone."""
    from bench.versus_karpenter import oracle

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
    unlimited = {"cpu": "10000000", "memory": "10000000Gi"}
    node_pools = node_pools or _team_pools(Pool(name="default", types=types), 1, unlimited)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "problem.json"
        file.write_text(json.dumps({"name": "mix", "objects": [*bodies, *node_pools], "catalog": catalogue}))
        done = subprocess.run([oracle(), file], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def scratch() -> None:
    rng = random.Random(3)
    pool = Pool(name="default", types=burst.fake_types())
    for name, bodies in (("Karpenter's mix", burst.diverse(100_000, rng, "p")), ("mixed", burst.mixed(100_000, 3))):
        snapshot = Snapshot(pools=(pool,), pending=burst.pods(bodies))
        del bodies
        gc.collect()
        gc.freeze()
        cpu, wall, plan = _planned(snapshot)
        print(
            f"100,000 pods from scratch, {name}: {cpu:.2f} s of processor ({wall:.2f} s), {len(plan.nodes)} "
            f"nodes, {len(plan.unschedulable)} without a place",
            flush=True,
        )
        gc.unfreeze()


def live(rounds: int) -> None:
    rng = random.Random(1)
    nodes = [burst.node(at, rng) for at in range(5000)]
    memory = PlannerCache()
    pool = Pool(name="default", types=burst.fake_types())
    cpu, wall, tidying = [], [], []
    with settling():
        for turn in range(rounds + 1):
            for at in rng.sample(range(5000), 100 if turn else 0):
                held = nodes[at].pods[1:] if turn % 2 else (*nodes[at].pods, *burst.node(10_000 + at, rng).pods[:1])
                nodes[at] = msgspec.structs.replace(nodes[at], pods=held)
            pending = burst.pods(burst.diverse(1000, rng, f"burst{turn}"))
            snapshot = Snapshot(pools=(pool,), nodes=tuple(nodes), pending=pending, memory=memory)
            used, took, plan = _planned(snapshot)
            assert not plan.unschedulable
            cpu.append(used * 1e3)
            wall.append(took * 1e3)
            if turn % TIDY == 0:
                tidying.append(timed(settle)[0] * 1e3)
    print(f"1,000 pods onto 5,000 nodes with 100,000 pods: first {cpu[0]:.0f} ms of processor; {rounds} more:")
    for name, times in (("processor", sorted(cpu[1:])), ("clock", sorted(wall[1:]))):
        middle, high = statistics.median(times), times[int(len(times) * 0.99)]
        print(f"  {name:9} median {middle:.1f} ms, p99 {high:.1f} ms, worst {times[-1]:.1f} ms")
    print(f"  tidying after every {TIDY}th takes {statistics.median(tidying):.1f} ms, at worst {max(tidying):.1f} ms")
    print(f"  peak memory {peak()} MB")


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def cut() -> None:
    asyncio.run(_cut())


async def _cut() -> None:
    from dovetail.chance import Chance
    from dovetail.clock import Clock
    from dovetail.cluster.snapshot import SnapshotBuilder
    from dovetail.cluster.state import ClusterState
    from dovetail.kube.client import Kube
    from dovetail.kube.transport import Request, Response
    from dovetail.lab.in_process import InProcess
    from dovetail.model.nodes import Node
    from dovetail.model.pods import Pod

    class Silent:
        async def handle(self, request: Request) -> Response:
            return Response(status=404)

    from bench import synthetic_pods

    clock = Clock(asyncio.get_running_loop())
    cluster_state = ClusterState(Kube(InProcess(Silent()), clock, chance=Chance(1)), clock)
    before = peak()
    for at in range(5000):
        labels = {burst.ZONE: f"test-zone-{at % 3 + 1}", burst.HOSTNAME: f"node-{at}"}
        room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        meta = {"name": f"node-{at}", "uid": f"node-{at}", "resourceVersion": "1", "labels": labels}
        made = {
            "metadata": meta,
            "spec": {"providerID": f"cloud:///{at}"},
            "status": {"allocatable": room, "capacity": room},
        }
        cluster_state.nodes._put(f"node-{at}", msgspec.convert(made, Node))
    for number in range(100_000):
        cluster_state.pods._put(*_served(synthetic_pods.served(number), number % 5000, Pod))
    snapshot_builder = SnapshotBuilder(cluster_state)
    pool = Pool(name="default", types=burst.fake_types())
    provision(snapshot_builder.build((pool,), burst.pods(burst.diverse(100, random.Random(1), "p"))))
    gc.collect()
    gc.freeze()
    times, rng = [], random.Random(2)
    for turn in range(100):
        for number in rng.sample(range(100_000), 100):
            body = synthetic_pods.served(number)
            body["metadata"]["resourceVersion"] = str(2_000_000 + turn)
            cluster_state.pods._put(*_served(body, (number + turn + 1) % 5000, Pod))
        seconds, _, _ = timed(lambda: snapshot_builder.build((pool,), ()))
        times.append(seconds * 1e3)
    times.sort()
    print(
        f"a snapshot after 100 of 100,000 pods changed: median {statistics.median(times):.2f} ms of processor, "
        f"worst {times[-1]:.2f} ms"
    )
    print(f"5,000 nodes and 100,000 pods, mirrored and planned for: {peak()} MB, {peak() - before} MB above idle")


def _served(body: dict[str, Any], node: int, kind: Any) -> tuple[str, Any]:
    body["spec"]["nodeName"] = f"node-{node}"
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}", msgspec.convert(body, kind)


def cost(deadline: float) -> None:
    pool = burst.real_pool()
    gaps: dict[int, list[float]] = {1: [], 2: []}
    for count in (200, 500, 1000, 2000, 5000):
        for seed in (7, 8, 9, 10):
            _gap(f"{count} mixed pods, seed {seed}", pool, burst.mixed(count, seed), deadline, gaps)
    for tier, found in gaps.items():
        found.sort()
        high = found[int(len(found) * 0.95)]
        print(f"mixed bursts, tier {tier}: median {statistics.median(found):.2%}, p95 {high:.2%}")
    for count in (500, 1000, 2000):
        _gap(f"{count} pods of Karpenter's mix", pool, burst.mix(count), deadline, {1: [], 2: []})


def _gap(name: str, pool: Pool, bodies: list[dict[str, Any]], deadline: float, gaps: dict[int, list[float]]) -> None:
    snapshot = Snapshot(pools=(pool,), pending=burst.pods(bodies))
    quickly, best = provision(snapshot), provision(snapshot, deadline=deadline)
    bound = best.cost.lower_bound
    if not bound:
        print(f"{name}: no bound in {best.seconds:.1f} s")
        return
    for tier, plan in ((1, quickly), (2, best)):
        gaps[tier].append(plan.cost.per_hour / bound - 1)
    print(
        f"{name}: bound ${bound:.3f}/h, quick {gaps[1][-1]:.2%} in {quickly.seconds:.2f} s, "
        f"bettered {gaps[2][-1]:.2%} in {best.seconds:.2f} s, {len(best.nodes)} nodes",
        flush=True,
    )


def fleet() -> None:
    pool = burst.real_pool()
    for cores in (8, 32):
        for seed in (7, 8):
            nodes = burst.fleet(burst.mixed(5000, seed), pool, cores, 0.35, seed)
            used, _, plan = timed(partial(consolidate, Snapshot(pools=(pool,), nodes=nodes), deadline=5.0))
            before, after, bound = plan.cost.before or 0.0, plan.cost.per_hour, plan.cost.lower_bound
            above = f"{after / bound - 1:.2%} above the bound" if bound else "no bound"
            print(
                f"{len(nodes)} nodes of up to {cores} cores, seed {seed}: ${before:.2f}/h to ${after:.2f}/h, "
                f"{1 - after / before:.1%} saved, {above}, {plan.evictions} evictions, {used:.1f} s of processor",
                flush=True,
            )


def explain() -> None:
    from unittest.mock import patch

    from dovetail.planner.explain.unschedulable import unschedulable
    from dovetail.planner.launch.rejected_offerings import rejected_cheaper_offerings

    spent = 0.0
    for_nothing = min(timed(lambda: None)[0] for _ in range(1000))
    """What reading the clock takes itself."""

    def metered(make: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            nonlocal spent
            seconds, _, made = timed(lambda: make(*arguments))
            spent += seconds - for_nothing
            return made

        return run

    pool = Pool(name="default", types=burst.fake_types())
    for count in (1000, 5000):
        oversized = [burst.body(f"giant-{n}", 1_000_000 + n, 64, {}) for n in range(10)]
        snapshot = Snapshot(pools=(pool,), pending=burst.pods([*burst.mix(count), *oversized]))
        provision(snapshot)
        spent, total = 0.0, 0.0
        with (
            patch(
                "dovetail.planner.launch.node_claims.rejected_cheaper_offerings", metered(rejected_cheaper_offerings)
            ),
            patch("dovetail.planner.launch.assemble.unschedulable", metered(unschedulable)),
        ):
            for _ in range(10):
                total += _planned(snapshot)[0]
        print(f"{count} pods and ten that fit nowhere: {spent / total:.1%} of planning goes into explanations")


def _planned(snapshot: Snapshot) -> tuple[float, float, Plan]:
    return timed(lambda: provision(snapshot))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what",
        nargs="?",
        choices=["speed", "growth", "scratch", "live", "cut", "cost", "explain", "pools", "small", "fleet"],
    )
    parser.add_argument("--largest", type=int, default=2000, help="up to how many pods Karpenter is asked as well")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--deadline", type=float, default=3.0)
    arguments = parser.parse_args()
    ways = {
        "speed": lambda: speed(arguments.largest),
        "growth": growth,
        "scratch": scratch,
        "live": lambda: live(arguments.rounds),
        "cut": cut,
        "cost": lambda: cost(arguments.deadline),
        "explain": explain,
        "pools": pools,
        "small": small,
        "fleet": fleet,
    }
    for way in (arguments.what,) if arguments.what else ways:
        ways[way]()


if __name__ == "__main__":
    main()
