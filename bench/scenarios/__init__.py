"""Random planning problems over every constraint the planner knows: the stuff of comparisons.

`scenario(seed)` gives {"name", "objects", "catalog"} in the format of `dovetail plan`; the same seed, the same problem.
From seed 1,000 on problems have a few variations on top, from seed 10,000 on rare features instead, from seed 20,000
on rules that seldom decide anything; from seed 30,000 on they are about one constraint each. From seed 40,000 on any
of these is moved to another market, from seed 50,000 on they are about volumes in every state, and from seed 60,000 on
they are all applications of a customer's cluster.
"""

from __future__ import annotations

import random
from typing import Any

from bench.scenarios.applications import applications_in_a_cluster
from bench.scenarios.catalogue import catalogue
from bench.scenarios.cluster import Fleet, daemonset, node_pool, overlays
from bench.scenarios.markets import moved
from bench.scenarios.rare_features import with_rare_features
from bench.scenarios.rare_rules import with_rare_rules
from bench.scenarios.single_constraints import single_constraint
from bench.scenarios.variations import with_variations
from bench.scenarios.volumes import voluminous
from bench.scenarios.workloads import Workloads

Object = dict[str, Any]

_VARIATIONS, _RARE_FEATURES, _RARE_RULES = 1000, 10_000, 20_000
_SINGLE, _MOVED, _VOLUMES, _APPLICATIONS = 30_000, 40_000, 50_000, 60_000
#: The first seeds of each kind that are moved to another market, beyond those usually compared.
_ELSEWHERE = (500, 2_500, 12_500, 22_500, 32_500)
_SIZES = (5, 10, 20, 40, 80, 150, 250, 400)


def scenario(seed: int) -> Object:
    """A problem of 5 to 400 pods that mixes a few constraints; over some hundred seeds all meet."""
    chance = random.Random(seed)
    if seed >= _APPLICATIONS:
        return applications_in_a_cluster(seed)
    if seed >= _VOLUMES:
        return voluminous(seed)
    if seed >= _MOVED:
        return {**moved(scenario(chance.choice(_ELSEWHERE) + seed % 400), chance), "name": f"seed-{seed}"}
    if seed >= _SINGLE:
        return single_constraint(seed)
    total = chance.choice(_SIZES)
    types = catalogue(chance, reserved=chance.random() < 0.25, even=chance.random() < 0.5)
    pools, taints = _pools(chance)
    objects: list[Object] = [*pools, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}]
    if chance.random() < 0.5:
        objects += [daemonset(name, chance) for name in ("agent", "logs")[: chance.choice((1, 2))]]
    if chance.random() < 0.2:
        objects += overlays(chance)
    running: list[str] = []
    if chance.random() < 0.45:
        fleet = Fleet(chance, pools, types)
        for at in range(chance.randint(1, 8)):
            objects += fleet.node(at)
        running = sorted(set(fleet.names))
    workloads = Workloads(chance, taints, running)
    left, index = total, 0
    while left > 0:
        made = workloads.workload(index, left)
        objects += made
        left -= len(made)
        index += 1
    problem = {"name": f"seed-{seed}", "objects": [*workloads.objects, *objects], "catalog": types}
    if seed < _VARIATIONS:
        return problem
    on_top = with_variations if seed < _RARE_FEATURES else with_rare_features if seed < _RARE_RULES else with_rare_rules
    return on_top(problem, chance)


def _pools(chance: random.Random) -> tuple[list[Object], list[Object]]:
    pools = [node_pool("general", chance, None)]
    taints: list[Object] = []
    for name in ("second", "third")[: chance.choice((0, 0, 1, 2))]:
        effect = chance.choice(("NoSchedule", "NoSchedule", "PreferNoSchedule"))
        taint = {"key": f"only-{name}", "value": "x", "effect": effect} if chance.random() < 0.5 else None
        pools.append(node_pool(name, chance, taint))
        taints += [taint] if taint else []
    return pools, taints
