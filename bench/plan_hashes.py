"""What the planner answers on some six hundred random problems, one line each: for comparing before and after a change.

    python -m bench.plan_hashes record FILE [--seeds N] [--processes N]     write a line for every problem
    python -m bench.plan_hashes compare BEFORE AFTER                        list the problems whose plan differs

A line has the seed, the tier, a hash of the plan, its price, the pods without a node, the preferences that were
relaxed and the zones of the new nodes. The hash covers decisions only: placements, NodeClaims with their offerings and
requirements, the price and the reason codes. Messages are not in it. The optimiser is bounded by work, not by time,
so the lines do not depend on how busy the computer is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from bench.scenarios import scenario
from dovetail.offline import objects as objects_module
from dovetail.offline import snapshot as snapshot_module
from dovetail.planner.optimise.improve import better_by_work
from dovetail.planner.plan import Plan
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify

#: The first seed of each family of problems; see `bench.scenarios`.
FAMILIES = (0, 1_000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000)
#: Every so many problems the optimiser runs as well.
OPTIMISED_EVERY = 5
#: Seconds of work that the optimiser gets.
OPTIMISER_SECONDS = 0.1


class Line(NamedTuple):
    """One plan: what identifies it, its hash, and the figures a person compares."""

    seed: int
    tier: int
    digest: str
    price: float
    pending: int
    relaxed: int
    zones: int
    violations: int

    def __str__(self) -> str:
        return (
            f"{self.seed} {self.tier} {self.digest} {self.price:.5f} {self.pending} {self.relaxed} {self.zones} "
            f"{self.violations}"
        )


def snapshot_of(seed: int) -> Snapshot:
    """The snapshot of a random problem, read as `dovetail plan` reads its files."""
    problem = scenario(seed)
    with tempfile.TemporaryDirectory() as folder:
        objects, catalogue = Path(folder) / "objects.json", Path(folder) / "catalog.json"
        objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": problem["objects"]}))
        catalogue.write_text(json.dumps(problem["catalog"]))
        types = snapshot_module.catalogue(str(catalogue))
        return snapshot_module.snapshot(objects_module.read([str(objects)]), types, any_type=True)


def decisions(plan: Plan) -> object:
    """What the plan decides, without words and without seconds."""
    placements = {
        pod: [
            placement.node,
            placement.new_node,
            placement.unschedulable and placement.unschedulable.code,
            len(placement.relaxed),
        ]
        for pod, placement in plan.placements.items()
    }
    claims = [
        [
            node.name,
            node.pool,
            [list(_fields(offering)) for offering in node.offerings],
            list(node.requirements),
            dict(node.requests),
            sorted(node.pods),
            dict(node.labels),
        ]
        for node in plan.nodes
    ]
    return [placements, claims, round(plan.cost.per_hour, 9)]


def _fields(offering: object) -> Iterator[object]:
    for name in ("instance_type", "zone", "capacity_type", "price", "reservation_id"):
        yield getattr(offering, name)


def line_of(seed: int, tier: int, plan: Plan, snapshot: Snapshot) -> Line:
    text = json.dumps(decisions(plan), sort_keys=True).encode()
    return Line(
        seed=seed,
        tier=tier,
        digest=hashlib.sha256(text).hexdigest()[:12],
        price=plan.cost.per_hour,
        pending=len(plan.unschedulable),
        relaxed=sum(len(placement.relaxed) for placement in plan.placements.values()),
        zones=len({node.choice.zone for node in plan.nodes}),
        violations=len(verify(plan, snapshot)),
    )


def lines(seed: int, optimised: bool) -> list[Line]:
    snapshot = snapshot_of(seed)
    made = [line_of(seed, 1, provision(snapshot), snapshot)]
    if optimised:
        plan = provision(snapshot, deadline=OPTIMISER_SECONDS, optimiser=better_by_work)
        made.append(line_of(seed, 2, plan, snapshot))
    return made


def seeds(count: int) -> list[int]:
    """The seeds, family by family: as many of each."""
    return [first + number for first in FAMILIES for number in range(count // len(FAMILIES))]


def record(file: Path, count: int, processes: int) -> None:
    problem_seeds = seeds(count)
    optimised = [number % OPTIMISED_EVERY == 0 for number in range(len(problem_seeds))]
    with ProcessPoolExecutor(processes) as pool, file.open("w") as out:
        for made in pool.map(lines, problem_seeds, optimised, chunksize=4):
            out.writelines(f"{line}\n" for line in made)
            out.flush()


def read(file: Path) -> dict[tuple[str, str], list[str]]:
    fields = (text.split() for text in file.read_text().splitlines())
    return {(seed, tier): rest for seed, tier, *rest in fields}


def compare(before: Path, after: Path) -> int:
    """Print the problems whose plans differ; the number of them."""
    old, new = read(before), read(after)
    missing = old.keys() ^ new.keys()
    differing = [key for key in old if key in new and old[key] != new[key]]
    for key in differing:
        (_, price, pending, relaxed, zones, wrong), figures = old[key], new[key][1:]
        ratio = float(figures[0]) / (float(price) or 1.0)
        print(
            f"seed {key[0]} tier {key[1]}: $/h {price} -> {figures[0]} ({ratio:.3f}), "
            f"pending {pending} -> {figures[1]}, relaxed {relaxed} -> {figures[2]}, zones {zones} -> {figures[3]}, "
            f"violations {wrong} -> {figures[4]}"
        )
    both = len(old.keys() & new.keys())
    print(f"{both} plans compared, {len(differing)} differ, {len(missing)} are in one file only")
    for name, plans in (("before", old), ("after", new)):
        values = [plans[key] for key in old.keys() & new.keys()]
        print(
            f"  {name}: $/h {sum(float(value[1]) for value in values):.3f}, pending {_sum(values, 2)}, "
            f"relaxed {_sum(values, 3)}, zones {_sum(values, 4)}, violations {_sum(values, 5)}"
        )
    return len(differing) + len(missing)


def _sum(values: Sequence[list[str]], index: int) -> int:
    return sum(int(value[index]) for value in values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("file", type=Path)
    recording.add_argument("--seeds", type=int, default=640)
    recording.add_argument("--processes", type=int, default=2)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return 1 if compare(arguments.before, arguments.after) else 0
    record(arguments.file, arguments.seeds, arguments.processes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
