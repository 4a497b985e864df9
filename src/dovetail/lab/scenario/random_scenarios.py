"""Scenarios from a seed: a pool, workloads that grow and shrink, and faults of every kind, then quiet.

Whatever the seed brings, no invariant may be violated on the way, and once the faults have stopped the cluster comes to
rest: every workload whole, nothing leaked, nothing on its way out. A seed that fails is a command that shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.chance import Chance
from dovetail.lab.scenario.random_fleets import widen
from dovetail.lab.scenario.schema import Scenario, convert

Json = dict[str, Any]

#: Seconds: when faults begin and have stopped, and the end.
BEGIN, QUIET, END = 60, 420, 2400
STEPS = (3, 9)
#: From this seed on, more kinds of pools, workloads and trouble are drawn.
WIDER = 1000


def scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    chance = Chance(seed).child("scenario")
    names = [f"w{number}" for number in range(chance.randint(1, 2))]
    replicas = 2 if chance.random() < 0.1 else 1
    steps = [_step(chance, names, replicas) for _ in range(chance.randint(*STEPS))]
    document = {
        "name": f"seed {seed}",
        "seed": seed,
        "duration": END,
        "cluster": {"pools": [{"count": 1, "type": "m5.large", "zones": ["ap-northeast-2a"]}], "events": "warnings"},
        "autoscaler": _autoscaler(chance, replicas),
        "manifests": [
            _pool(chance),
            *(manifest for name in names for manifest in _workload(chance, name)),
            *_daemon(chance),
        ],
        "steps": _one_lie(sorted(steps, key=lambda step: float(step["at"]))),
        "report": {"every": END},
        "expect": {"settled": True, "pending": 0},
    }
    if seed >= WIDER:
        document = widen(document, Chance(seed).child("wider"), BEGIN, QUIET)
    return convert(document, f"seed {seed}")


def _autoscaler(chance: Chance, replicas: int) -> Json:
    short = {"memory": round(chance.uniform(0.01, 0.08), 3)} if chance.random() < 0.2 else {}
    market = {
        "boot": [15, chance.choice([20, 40, 90])],
        "ready": [2, 8],
        "latency": [0.05, chance.choice([0.1, 1.0, 4.0])],
        "shutdown": chance.choice([0, 5, 40]),
        "errorRate": chance.choice([0, 0, 0.05, 0.2]),
    }
    return {
        "families": ["m5", "c5"],
        "replicas": replicas,
        "short": short,
        "market": market,
        "reuse": chance.random() < 0.2,
    }


def _pool(chance: Chance) -> Json:
    kinds = chance.choice([["on-demand"], ["spot"], ["on-demand", "spot"]])
    sizes = chance.choice([["large"], ["large", "xlarge"], ["large", "xlarge", "2xlarge"]])
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": kinds},
        {"key": "karpenter.k8s.aws/instance-size", "operator": "In", "values": sizes},
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    grace = {"terminationGracePeriod": "2m"} if chance.random() < 0.3 else {}
    disruption = {
        "consolidationPolicy": chance.choice(["WhenEmpty", "WhenEmptyOrUnderutilized"]),
        "consolidateAfter": chance.choice(["Never", "0s", "30s", "2m"]),
        "budgets": [{"nodes": chance.choice(["100%", "1", "20%"])}],
    }
    template = {
        "metadata": {"labels": {"pool": "default"}},
        "spec": {"nodeClassRef": reference, "requirements": requirements, **grace},
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": template, "disruption": disruption},
    }


def _workload(chance: Chance, name: str) -> list[Json]:
    """A Deployment, and sometimes a budget that guards it."""
    labels, selector = {"app": name}, {"matchLabels": {"app": name}}
    requests = {"cpu": chance.choice(["250m", "600m", "1200m"]), "memory": chance.choice(["256Mi", "1Gi", "3Gi"])}
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
            ]
        }
    }
    rule: Json = chance.choice([{}, {}, {"topologySpreadConstraints": [spread]}, {"affinity": apart}])
    shielded = {"karpenter.sh/do-not-disrupt": "3m"} if chance.random() < 0.15 else {}
    spec = {
        "nodeSelector": {"pool": "default"},
        "terminationGracePeriodSeconds": chance.choice([1, 5, 30]),
        "containers": [{"name": "c", "image": "nginx", "resources": {"requests": requests}}],
        **rule,
    }
    template = {"metadata": {"labels": labels, "annotations": shielded}, "spec": spec}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": chance.randint(1, 5), "selector": selector, "template": template},
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"maxUnavailable": 1, "selector": selector},
    }
    return [deployment, budget] if chance.random() < 0.4 else [deployment]


def _daemon(chance: Chance) -> list[Json]:
    if chance.random() < 0.7:
        return []
    container = {"name": "agent", "image": "agent", "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
    selector = {"app": "agent"}
    template = {
        "metadata": {"labels": selector},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "priorityClassName": "system-node-critical",
            "containers": [container],
        },
    }
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent"},
            "spec": {"selector": {"matchLabels": selector}, "template": template},
        }
    ]


def _step(chance: Chance, names: list[str], replicas: int) -> Json:
    """One thing that happens: half of the time to the load, half of the time a fault."""
    moment = round(chance.uniform(BEGIN, QUIET), 1)
    if chance.random() < 0.4:
        return {"at": moment, "scale": {"name": chance.choice(names), "replicas": chance.randint(0, 6)}}
    lasting = round(min(chance.uniform(5, 120), QUIET - moment), 1)
    kinds = [*FAULTS, _stall] if replicas > 1 else FAULTS
    return {"at": moment, **chance.choice(kinds)(chance, lasting)}


def _restart(chance: Chance, lasting: float) -> Json:
    return {"restart": True}


def _stall(chance: Chance, lasting: float) -> Json:
    return {"stall": {"for": chance.choice([8, 20, 30])}}


def _drift(chance: Chance, lasting: float) -> Json:
    labels = {"metadata": {"labels": {"team": f"t{chance.randint(0, 9)}"}}}
    return {"patch": {"kind": "NodePool", "name": "default", "body": {"spec": {"template": labels}}}}


def _api(chance: Chance, lasting: float) -> Json:
    kind = chance.choice(["api-slow", "api-down", "conflict-storm"])
    amount = {"api-slow": chance.choice([0.5, 3, 12]), "conflict-storm": 0.4}.get(kind, 0)
    return {"fault": {"kind": kind, "amount": amount, "for": lasting}}


def _watches(chance: Chance, lasting: float) -> Json:
    kind = chance.choice(["watch-cut", "watch-stale", "watch-drop", "watch-twice"])
    return {"fault": {"kind": kind, "amount": 0.3 if kind == "watch-drop" else 0, "for": lasting}}


def _kubelet(chance: Chance, lasting: float) -> Json:
    return {"fault": {"kind": "kubelet-silent", "node": chance.choice(["1", "2", "*"]), "for": lasting}}


def _cloud(chance: Chance, lasting: float) -> Json:
    kinds = ["empty-types", "half-types", "half-instances", "lost-answers", "denied", "unreachable"]
    return {"cloud": {"kind": chance.choice(kinds), "for": lasting}}


def _false_drift(chance: Chance, lasting: float) -> Json:
    return {"cloud": {"kind": "false-drift", "for": min(lasting, 45)}}


def _one_lie(steps: list[Json]) -> list[Json]:
    """The steps without a second false drift: repeated a minute later, it cannot be distinguished from a true one."""
    lies = [step for step in steps if step.get("cloud", {}).get("kind") == "false-drift"]
    return [step for step in steps if step not in lies[1:]]


def _instance_faults(chance: Chance, lasting: float) -> Json:
    count = {"instances": chance.randint(1, 2)}
    return chance.choice([{"vanish": count}, {"interrupt": count}, {"interrupt": {**count, "kind": "rebalance"}}])


def _hands(chance: Chance, lasting: float) -> Json:
    """A user with kubectl."""
    which = f"#{chance.randint(0, 2)}"
    return chance.choice(
        [
            {"delete": {"kind": "Node", "name": which}},
            {"delete": {"kind": "NodeClaim", "name": which}},
            {"drain": which},
            {"deschedule": {"every": 20, "times": 3}},
        ]
    )


def _clock(chance: Chance, lasting: float) -> Json:
    return {"clock": {"amount": chance.choice([-3600, -60, 60, 3600]), "for": lasting}}


FAULTS: list[Callable[[Chance, float], Json]] = [
    _restart,
    _drift,
    _api,
    _watches,
    _kubelet,
    _cloud,
    _false_drift,
    _instance_faults,
    _hands,
    _clock,
]
