"""Our plans against Karpenter's own scheduler on the same problems: pods left out, cost, preferences kept, zones, time.

    python -m bench.versus_karpenter [COUNT] [FIRST_SEED] [DEADLINE]

Builds `bench/karpenter` with Go on first use. Problems go through the objects and the catalogue of `dovetail plan`.
Prints a line for every problem, what is wrong with it if anything is, and the quartiles of the cost ratio. Our search
is paid in work alone, so that a busy node does not change the answers. Karpenter's placements are held to the same
verifier: a pod that it puts where a rule of its own forbids it counts as left out. Of pods that are alike it leaves out
some by chance, so those are counted, not named.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from bench.expanded_workloads import unrolled
from bench.go_programs import MODULE_FOLDER, build
from bench.preferences_kept import ZONE, Scene, holds, kept
from bench.scenarios import scenario
from dovetail.cli.plan_json import as_json
from dovetail.model.fit.podinfo import pod_info
from dovetail.offline import snapshot
from dovetail.offline.objects import read
from dovetail.planner.optimise.improve import better_by_work, default_deadline
from dovetail.planner.plan import Cost, OfferingOption, Placement, Plan, PlannedNode
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify
from dovetail.planner.verify.bind_order import unbindable
from dovetail.planner.verify.cluster import PlannedCluster

Object = dict[str, Any]
_LABELS, _CAPACITY = "karpenter.sh/nodepool", "karpenter.sh/capacity-type"
_TYPE = "node.kubernetes.io/instance-type"
#: Up to here a plan may cost more than Karpenter's, for another zone; more is named.
_DEARER = 1.02


@cache
def oracle() -> Path:
    """The Go program that solves one problem with Karpenter's scheduler, built once for each state of its source."""
    sources = sorted(MODULE_FOLDER.glob("*.go"))
    state = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    return build(f"solve-{state}", ".")


class Problem:
    """A scenario and the two answers to it."""

    def __init__(self, given: Object, theirs: Object, folder: Path, deadline: float | None) -> None:
        self.given = given
        self.theirs = theirs
        theirs["errors"] |= dict.fromkeys(theirs["ignored"], "ignored")
        self.by_kind: dict[str, list[Object]] = {}
        for each in unrolled(given["objects"]):
            self.by_kind.setdefault(each["kind"], []).append(each)
        self.snapshot = self._snapshot(folder)
        allowed = deadline if deadline is not None else default_deadline(len(self.snapshot.pending))
        self.plan = provision(self.snapshot, deadline=allowed, optimiser=better_by_work)
        self.refused = [str(each) for each in verify(self.plan, self.snapshot)]
        self.ours = as_json(self.plan, consolidating=False)
        self.broken = self._broken()
        theirs["errors"] |= self.broken

    def _snapshot(self, folder: Path) -> Snapshot:
        objects, catalogue = folder / "objects.json", folder / "catalog.json"
        objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": self.given["objects"]}))
        catalogue.write_text(json.dumps(self.given["catalog"]))
        types = snapshot.catalogue(str(catalogue))
        return snapshot.snapshot(read([str(objects)]), types, any_type=True)

    def _broken(self) -> dict[str, str]:
        """The pods that Karpenter places against the rules, and why."""
        placements = {key: Placement(node=name) for key, name in self.theirs["existing"].items()}
        planned_nodes = []
        for at, each in enumerate(self.theirs["machines"] or ()):
            choice = OfferingOption(
                instance_type=each["instanceType"],
                zone=each["zone"],
                price=each["price"],
                capacity_type=each["capacityType"],
                reservation_id=each.get("reservationId"),
            )
            planned_nodes.append(
                PlannedNode(
                    name=f"k-{at}",
                    pool=each["nodePool"],
                    offerings=(choice,),
                    requirements=(),
                    requests={},
                    pods=tuple(each["pods"]),
                    labels=each["labels"],
                )
            )
            placements |= dict.fromkeys(each["pods"], Placement(new_node=f"k-{at}"))
        pods = {each.metadata.key: pod_info(each) for each in self.snapshot.pending}
        theirs = Plan(placements=placements, nodes=tuple(planned_nodes), cost=Cost(per_hour=self.theirs["cost"]))
        return unbindable(theirs, pods, PlannedCluster(self.snapshot, planned_nodes))

    @property
    def ratio(self) -> float | None:
        """Our cost in parts of theirs, where both place the same pods and Karpenter keeps to the limits."""
        if not self._alike or self.overdrawn:
            return None
        ours, theirs = self.ours["cost"]["perHour"], self.theirs["cost"]
        return ours / theirs if theirs else 1.0 if ours < 1e-9 else float("inf")

    @property
    def overdrawn(self) -> bool:
        """Whether Karpenter launches more nodes than a pool's limit: it does not count them within a round."""
        held = Counter(each["metadata"]["labels"][_LABELS] for each in self.by_kind.get("NodeClaim", ()))
        held.update(planned["nodePool"] for planned in self.theirs["machines"] or ())
        limits = {pool["metadata"]["name"]: pool["spec"].get("limits", {}) for pool in self.by_kind["NodePool"]}
        return any(held[name] > int(each["nodes"]) for name, each in limits.items() if "nodes" in each)

    def wrong(self) -> Iterator[str]:
        """Everything that a user of Karpenter would miss."""
        if self.refused:
            yield f"refused: {self.refused[:2]}"
        if self.overdrawn:
            return
        left = self._alike_left(self.plan.unschedulable) - self._alike_left(self.theirs["errors"])
        if left:
            yield f"left out {left.total()}: {dict(left)}"
        ratio = self.ratio
        if ratio is not None and ratio > _DEARER:
            yield f"dearer: {ratio:.3f}"
        bound = self.ours["cost"]["lowerBound"]
        if bound is not None and self._alike and self.theirs["cost"] < bound - 1e-6:
            yield f"bound {bound:.4f} undercut by {self.theirs['cost']:.4f}"
        preferences, zones = self.preferences, self.zones
        if preferences[0] < preferences[1]:
            yield f"preferences {preferences[0]} < {preferences[1]}"
        if zones[0] < zones[1] and self.plan.nodes:
            yield f"zones {zones[0]} < {zones[1]}"

    @property
    def _alike(self) -> bool:
        return self._alike_left(self.plan.unschedulable) == self._alike_left(self.theirs["errors"]) and not self.broken

    @staticmethod
    def _alike_left(names: Iterable[str]) -> Counter[str]:
        """How many of each workload go without; its pods are alike."""
        return Counter(name.rpartition("-")[0] for name in names)

    # -- what is kept -------------------------------------------------------------------------------------------

    @property
    def preferences(self) -> tuple[int, int]:
        """Preferences kept by us and by them, over as many pods of each workload as both place: those with most."""
        open_to = self._open_zones()
        places = [pod for pod, place in self.ours["pods"].items() if "unschedulable" not in place]
        ours = _by_workload(kept(self._our_scene(), set(places), open_to))
        theirs = _by_workload(kept(self._their_scene(), self.ours["pods"].keys() - self.theirs["errors"], open_to))
        both = {name: min(len(ours[name]), len(theirs[name])) for name in ours.keys() & theirs.keys()}
        return (
            sum(sum(ours[name][:count]) for name, count in both.items()),
            sum(sum(theirs[name][:count]) for name, count in both.items()),
        )

    def _open_zones(self) -> set[str]:
        """The zones in which some pool may launch something."""
        described = {ZONE, _CAPACITY, _TYPE}.union(*(kind["labels"] for kind in self.given["catalog"]))
        asked = [
            [need for need in pool["spec"]["template"]["spec"]["requirements"] if need["key"] in described]
            for pool in self.by_kind["NodePool"]
        ]
        return {
            offer["zone"]
            for kind in self.given["catalog"]
            for offer in kind["offerings"]
            for needs in asked
            if offer["available"] and all(_met(need, kind, offer) for need in needs)
        }

    @property
    def zones(self) -> tuple[int, int]:
        """Zones of the nodes that each launches; of theirs, those that a pod may run on."""
        kept = [each for each in self.theirs["machines"] or () if not self.broken.keys() >= {*each["pods"]}]
        return len({each["zone"] for each in self.ours["machines"]}), len({each["zone"] for each in kept})

    def _scene(self, planned_nodes: dict[str, tuple[Object, str]], places: dict[str, str]) -> Scene:
        taints = {
            pool["metadata"]["name"]: pool["spec"]["template"]["spec"].get("taints", [])
            for pool in self.by_kind["NodePool"]
        }
        nodes = {name: (labels, taints[pool]) for name, (labels, pool) in planned_nodes.items()}
        for node in (*self.by_kind.get("NodeClaim", ()), *self.by_kind.get("Node", ())):
            nodes[node["metadata"]["name"]] = (node["metadata"]["labels"], node["spec"].get("taints", []))
        pods: dict[str, list[Object]] = {name: [] for name in nodes}
        for pod in self.by_kind["Pod"]:
            key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            where = places.get(key) or pod["spec"].get("nodeName")
            if where is not None:
                pods[where].append(pod)
        return Scene(nodes, pods)

    def _our_scene(self) -> Scene:
        known = {kind["name"]: kind for kind in self.given["catalog"]}
        teams = {
            pool["metadata"]["name"]: pool["spec"]["template"].get("metadata", {}).get("labels", {})
            for pool in self.by_kind["NodePool"]
        }
        planned_nodes = {}
        for planned in self.ours["machines"]:
            labels = {key: values[0] for key, values in known[planned["instanceType"]]["labels"].items()}
            labels |= {
                ZONE: planned["zone"],
                _CAPACITY: planned["capacityType"],
                _TYPE: planned["instanceType"],
                _LABELS: planned["nodePool"],
                **teams[planned["nodePool"]],
            }
            labels |= {
                each["key"]: each["values"][0]
                for each in planned["requirements"]
                if each["operator"] == "In" and each["key"] not in labels
            }
            planned_nodes[planned["name"]] = (labels, planned["nodePool"])
        places = {pod: place.get("node") or place.get("machine") for pod, place in self.ours["pods"].items()}
        return self._scene(planned_nodes, {pod: place for pod, place in places.items() if place})

    def _their_scene(self) -> Scene:
        planned_nodes, places = {}, dict(self.theirs["existing"])
        for at, planned in enumerate(self.theirs["machines"] or ()):
            planned_nodes[f"m-{at}"] = (planned["labels"], planned["nodePool"])
            places |= dict.fromkeys(planned["pods"], f"m-{at}")
        return self._scene(planned_nodes, places)


def _by_workload(counts: dict[str, int]) -> dict[str, list[int]]:
    """Counts of pods by their workload, the largest first."""
    found: dict[str, list[int]] = {}
    for name in sorted(counts, key=lambda name: -counts[name]):
        found.setdefault(name.rpartition("-")[0], []).append(counts[name])
    return found


def _met(need: Object, kind: Object, offer: Object) -> bool:
    """Whether a node of an offering could be as a pool requires."""
    sold = {ZONE: [offer["zone"]], _CAPACITY: [offer["capacityType"]], _TYPE: [kind["name"]]}
    return any(holds(need, value) for value in sold.get(need["key"]) or kind["labels"].get(need["key"], [None]))


def problems(count: int, first: int, deadline: float | None) -> Iterator[Problem]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for seed in range(first, first + count):
            given = scenario(seed)
            file = folder / "problem.json"
            file.write_text(json.dumps({**given, "objects": unrolled(given["objects"])}))
            solved = subprocess.run([oracle(), file], capture_output=True, text=True)
            if solved.returncode:
                raise SystemExit(f"{given['name']}: {solved.stderr}")
            yield Problem(given, json.loads(solved.stdout), folder, deadline)


def main(count: int, first: int, deadline: float | None) -> None:
    ratios, faults = [], 0
    for problem in problems(count, first, deadline):
        ratio, cost = problem.ratio, problem.ours["cost"]
        wrong = list(problem.wrong())
        faults += bool(wrong)
        ratios += [ratio] if ratio is not None else []
        shown = "-" if ratio is None else f"{ratio:.3f}"
        left = f"{len(problem.plan.unschedulable)}/{len(problem.theirs['errors'])} ({len(problem.broken)} broken)"
        print(
            f"{problem.given['name']:9} {len(problem.ours['pods']):4} pods  ours ${cost['perHour']:8.3f} "
            f"bound {cost['lowerBound'] or 0:8.3f} karpenter ${problem.theirs['cost']:8.3f}  ratio {shown:5}  "
            f"left {left}  preferences {problem.preferences} "
            f"zones {problem.zones} {problem.plan.seconds:.1f}s  {'; '.join(wrong)}",
            flush=True,
        )
    spread = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios
    quartiles = [round(each, 3) for each in spread]
    print(
        f"{len(ratios)} of {count} place the same pods within the limits: cost ratio, quartiles {quartiles}, "
        f"worst {max(ratios, default=0.0):.3f}; {faults} with something wrong"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=60, help="how many problems")
    parser.add_argument("first", nargs="?", type=int, default=0, help="the seed of the first")
    parser.add_argument("deadline", nargs="?", type=float, help="seconds for the search, paid in work")
    given = parser.parse_args()
    main(given.count, given.first, given.deadline)
