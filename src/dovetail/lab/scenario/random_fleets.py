"""What clusters know beside a Deployment and a pool, drawn from a seed: volumes, reservations, schedules, expiry.

Drawn apart from the scenarios of `seeds`, so that those stay what they were. Whatever hinders for good (stock that is
sold out, a budget that allows no disruption, nodes that expire) is over when faults are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.chance import Chance

Json = dict[str, Any]

ZONES = ("ap-northeast-2a", "ap-northeast-2b", "ap-northeast-2c")
GATES = (
    "SpotToSpotConsolidation",
    "NodeRepair",
    "NodeOverlay",
    "TerminateFirstDrift",
    "PodDeletionCostManagement",
    "TerminateFirstRepair",
    "CapacityBuffer",
)
#: Seconds more until rest: nodes that never join are given up after a quarter of an hour, their offerings then avoided.
SETTLE_TIME_S = 1200
CALM: Json = {"boot": [15, 20], "ready": [2, 8], "latency": [0.05, 0.1]}


def widen(document: Json, chance: Chance, begin: float, quiet: float) -> Json:
    """The scenario with more kinds of pools, workloads and trouble between two moments; quiet after the second."""
    pools = [manifest for manifest in document["manifests"] if manifest["kind"] == "NodePool"]
    budgets = [manifest for manifest in document["manifests"] if manifest["kind"] == "PodDisruptionBudget"]
    deployments = [manifest for manifest in document["manifests"] if manifest["kind"] == "Deployment"]
    peace: list[Json] = [{"market": CALM}]
    for pool in pools:
        peace += _wider_pool(chance, pool)
    for budget in budgets:
        peace += _stricter_budget(chance, budget)
    for deployment in deployments:
        _wider_workload(chance, deployment, lasting=_is_ended(pools[0]))
    more = [*_second_pool(chance, pools[0]), *_static_pool(chance, pools[0]), *_stateful(chance)]
    happenings = [_happening(chance, deployments, begin, quiet) for _ in range(chance.randint(2, 7))]
    steps = [*document["steps"], *happenings, *({"at": quiet, **step} for step in peace)]
    autoscaler = document["autoscaler"]
    gates = [gate for gate in GATES if chance.random() < 0.25] + ["StaticCapacity"]
    return document | {
        "duration": document["duration"] + SETTLE_TIME_S,
        "autoscaler": autoscaler
        | {
            "gates": gates,
            "market": autoscaler["market"] | _market(chance),
            "reserved": _reserved(chance),
        },
        "manifests": document["manifests"] + more,
        "steps": sorted(steps, key=lambda step: float(step["at"])),
    }


# What there is


def _wider_pool(chance: Chance, pool: Json) -> list[Json]:
    """Changes a pool; returns what undoes what hinders for good."""
    spec = pool["spec"]
    disruption, template = spec["disruption"], spec["template"]["spec"]
    disruption["consolidationPolicy"] = chance.choice(["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"])
    if chance.random() < 0.4:
        disruption["budgets"] = chance.choice(_SCHEDULED)
    if chance.random() < 0.3:
        template["requirements"][0]["values"] = ["reserved", *template["requirements"][0]["values"]]
    peace: list[Json] = []
    if chance.random() < 0.25:
        template["expireAfter"] = chance.choice(["3m", "5m", "8m"])
        peace.append(_patched_pool(pool, {"template": {"spec": {"expireAfter": "Never"}}}))
    if chance.random() < 0.25:
        spec["limits"] = chance.choice([{"cpu": "4"}, {"cpu": "12"}, {"memory": "24Gi"}, {"nodes": "3"}])
        peace.append(_patched_pool(pool, {"limits": None}))
    return peace


#: Budgets as people write them: for a reason, and at a time of the (virtual) day.
_SCHEDULED: list[list[Json]] = [
    [{"nodes": "0", "schedule": "0 0 * * *", "duration": "5m"}, {"nodes": "50%"}],
    [{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "1"}],
    [{"nodes": "1", "reasons": ["Underutilized"]}, {"nodes": "100%", "reasons": ["Empty"]}, {"nodes": "40%"}],
    [{"nodes": "0", "schedule": "*/10 * * * *", "duration": "4m", "reasons": ["Underutilized", "Drifted"]}],
]


def _is_ended(pool: Json) -> bool:
    """Whether the pool's nodes are terminated even with do-not-disrupt pods."""
    return "terminationGracePeriod" in pool["spec"]["template"]["spec"]


def _patched_pool(pool: Json, spec: Json) -> Json:
    return {"patch": {"kind": "NodePool", "name": pool["metadata"]["name"], "body": {"spec": spec}}}


def _second_pool(chance: Chance, first: Json) -> list[Json]:
    """Another pool that the same pods may use: preferred, or only if all else fails."""
    if chance.random() < 0.6:
        return []
    template = first["spec"]["template"]
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [chance.choice(["spot", "on-demand"])]},
        {"key": "karpenter.k8s.aws/instance-size", "operator": "In", "values": ["large", "xlarge"], "minValues": 1},
        {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": [chance.choice(ZONES)]},
    ]
    spec = {**template["spec"], "requirements": requirements}
    spec.pop("expireAfter", None)
    return [
        first
        | {
            "metadata": {"name": "second"},
            "spec": {
                "weight": chance.choice([1, 50, 100]),
                "disruption": first["spec"]["disruption"],
                "template": {"metadata": template["metadata"], "spec": spec},
            },
        }
    ]


def _static_pool(chance: Chance, first: Json) -> list[Json]:
    if chance.random() < 0.8:
        return []
    spec = {key: value for key, value in first["spec"]["template"]["spec"].items() if key != "expireAfter"}
    return [
        first
        | {
            "metadata": {"name": "static"},
            "spec": {
                "replicas": chance.randint(1, 2),
                "disruption": {"budgets": [{"nodes": "1"}], "consolidateAfter": "0s"},
                "template": {"metadata": {"labels": {"pool": "static"}}, "spec": spec},
            },
        }
    ]


def _stricter_budget(chance: Chance, budget: Json) -> list[Json]:
    selector = budget["spec"]["selector"]
    if chance.random() < 0.5:
        budget["spec"] = {"selector": selector, **chance.choice(_STRICTER)}
    allows = {"maxUnavailable": 1, "minAvailable": None}
    name = budget["metadata"]["name"]
    return [{"patch": {"kind": "PodDisruptionBudget", "name": name, "body": {"spec": allows}}}]


_STRICTER: list[Json] = [
    {"maxUnavailable": 0},
    {"minAvailable": "100%"},
    {"minAvailable": 2},
    {"maxUnavailable": "34%", "unhealthyPodEvictionPolicy": "AlwaysAllow"},
]


def _wider_workload(chance: Chance, deployment: Json, *, lasting: bool) -> None:
    """More pod constraints. A do-not-disrupt pod is only for nodes that are terminated all the same."""
    template = deployment["spec"]["template"]
    spec, metadata = template["spec"], template["metadata"]
    selector = deployment["spec"]["selector"]
    if chance.random() < 0.5:
        for rule in ("affinity", "topologySpreadConstraints"):  # two together may be impossible
            spec.pop(rule, None)
        spec.update(chance.choice(_RULES)(selector))
    if lasting and chance.random() < 0.2:
        metadata["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    if chance.random() < 0.2:
        spec["priorityClassName"] = "system-cluster-critical"


def _levelled(selector: Json) -> Json:
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
            },
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": selector,
            },
        ]
    }


def _together(selector: Json) -> Json:
    term = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": selector}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _rather(selector: Json) -> Json:
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [ZONES[1]]}
    terms = [{"weight": 10, "preference": {"matchExpressions": [zone]}}]
    apart = {"weight": 50, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}}
    return {
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]},
        }
    }


def _port(selector: Json) -> Json:
    container = {
        "name": "c",
        "image": "nginx",
        "ports": [{"containerPort": 80, "hostPort": 8080}],
        "resources": {"requests": {"cpu": "300m", "memory": "256Mi"}},
    }
    return {"containers": [container]}


_RULES: tuple[Callable[[Json], Json], ...] = (_levelled, _together, _rather, _port)


def _stateful(chance: Chance) -> list[Json]:
    """Pods with a volume each, which is in one zone for good."""
    if chance.random() < 0.5:
        return []
    labels = {"app": "db"}
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "gp3",
            "resources": {"requests": {"storage": "8Gi"}},
        },
    }
    container = {
        "name": "c",
        "image": "db",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "resources": {"requests": {"cpu": chance.choice(["400m", "1100m"]), "memory": "1Gi"}},
    }
    spec = {"nodeSelector": {"pool": "default"}, "terminationGracePeriodSeconds": 5, "containers": [container]}
    stateful: list[Json] = [
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "db"},
            "spec": {
                "replicas": chance.randint(1, 3),
                "serviceName": "db",
                "selector": {"matchLabels": labels},
                "podManagementPolicy": chance.choice(["OrderedReady", "Parallel"]),
                "template": {"metadata": {"labels": labels}, "spec": spec},
                "volumeClaimTemplates": [claim],
            },
        }
    ]
    if chance.random() < 0.5:
        stateful.append(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "db"},
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
            }
        )
    return stateful


def _reserved(chance: Chance) -> Json:
    return {"m5.large": chance.randint(1, 3)} if chance.random() < 0.3 else {}


def _market(chance: Chance) -> Json:
    """A cloud with its own faults, until all is calm."""
    market: Json = {}
    if chance.random() < 0.3:
        market["launchesPerSecond"], market["launchBurst"] = chance.choice([0.1, 0.5]), chance.randint(1, 3)
    if chance.random() < 0.25:
        market["neverJoins"] = chance.choice([0.1, 0.4])
    if chance.random() < 0.3:
        market["stock"] = [_stock(chance)]
    if chance.random() < 0.3:
        market["interruptionsPerHour"], market["notice"] = chance.choice([4, 20]), chance.choice([20, 120])
    if chance.random() < 0.3:
        steps = [[chance.randint(100, 200), chance.choice([0.3, 3.0])], [chance.randint(250, 400), 1.0]]
        market["curves"] = [
            {"capacityType": chance.choice(["spot", "*"]), "zone": chance.choice(ZONES), "steps": steps}
        ]
    return market


def _stock(chance: Chance) -> Json:
    return chance.choice(
        [
            {"zone": chance.choice(ZONES), "instances": 0},
            {"capacityType": "spot", "instances": chance.randint(0, 2)},
            {"instanceType": "m5.large", "instances": 1},
            {"instances": chance.randint(1, 3)},
        ]
    )


# What happens


def _happening(chance: Chance, deployments: list[Json], begin: float, quiet: float) -> Json:
    moment = round(chance.uniform(begin, quiet), 1)
    lasting = round(min(chance.uniform(5, 120), quiet - moment), 1)
    name = chance.choice(deployments)["metadata"]["name"]
    return {"at": moment, **chance.choice(_HAPPENINGS)(chance, name, lasting)}


def _crash(chance: Chance, name: str, lasting: float) -> Json:
    return {"crash": {"after": chance.randint(1, 12)}}


def _storm(chance: Chance, name: str, lasting: float) -> Json:
    kind = chance.choice(["spot-interruption", "rebalance", "scheduled-change"])
    return {"interrupt": {"instances": chance.randint(2, 20), "kind": kind, "ids": ["i-unknown"]}}


def _another_market(chance: Chance, name: str, lasting: float) -> Json:
    return {"market": CALM | _market(chance)}


def _roll(chance: Chance, name: str, lasting: float) -> Json:
    template = {"metadata": {"annotations": {"rolled": f"r{chance.randint(0, 99)}"}}}
    return {"patch": {"kind": "Deployment", "name": name, "body": {"spec": {"template": template}}}}


def _burst(chance: Chance, name: str, lasting: float) -> Json:
    return {"scale": {"name": name, "replicas": chance.choice([0, 1, 12])}}


def _another_pool(chance: Chance, name: str, lasting: float) -> Json:
    """A user changes the pool's requirements, or how it consolidates."""
    sizes = {"key": "karpenter.k8s.aws/instance-size", "operator": "In", "values": ["large", "xlarge"]}
    kinds = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [chance.choice(["spot", "on-demand"])]}
    body = chance.choice(
        [
            {"template": {"spec": {"requirements": [kinds, sizes]}}},
            {"disruption": {"consolidateAfter": chance.choice(["0s", "10s", "Never"])}},
            {"disruption": {"budgets": [{"nodes": chance.choice(["0", "1", "100%"])}]}},
            {"template": {"spec": {"terminationGracePeriod": "90s"}}},
            {"template": {"metadata": {"labels": {"team": f"t{chance.randint(0, 9)}"}}}},
        ]
    )
    return {"patch": {"kind": "NodePool", "name": "default", "body": {"spec": body}}}


def _hands(chance: Chance, name: str, lasting: float) -> Json:
    which = f"#{chance.randint(0, 3)}"
    shielded = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": chance.choice(["true", "2m"])}}}
    return chance.choice(
        [
            {"cordon": which},
            {"patch": {"kind": "Node", "name": which, "body": shielded}},
            {"patch": {"kind": "NodeClaim", "name": which, "body": {"metadata": {"finalizers": None}}}},
            {"patch": {"kind": "Node", "name": which, "body": {"metadata": {"finalizers": None}}}},
            {"vanish": {"instances": chance.randint(2, 9)}},
            {"taint": {"key": "example.com/broken", "for": lasting}},
            {"stowaway": {"cpu": "300m", "memory": "256Mi", "for": lasting}},
            {"deschedule": {"every": 7, "times": 6}},
        ]
    )


def _api(chance: Chance, name: str, lasting: float) -> Json:
    kind = chance.choice(["api-throttled", "watch-gulps", "watch-drop", "clock-skew"])
    amount = {"api-throttled": 0.4, "watch-gulps": 20, "watch-drop": 0.6, "clock-skew": -90}[kind]
    return {"fault": {"kind": kind, "amount": amount, "for": lasting, "node": "1" if kind == "clock-skew" else ""}}


_HAPPENINGS: tuple[Callable[[Chance, str, float], Json], ...] = (
    _crash,
    _crash,
    _storm,
    _another_market,
    _roll,
    _burst,
    _another_pool,
    _hands,
    _hands,
    _api,
)
