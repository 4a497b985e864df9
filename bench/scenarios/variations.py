"""What a problem may have beside the usual, put on top of it.

Other namespaces, init containers and sidecars, disks, labels of one's own, zones that differ in price, spreads over
anything, anti-affinity over zones, alternatives, nodes that belong to no pool, daemonsets that choose.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from bench.scenarios.catalogue import ZONES
from bench.scenarios.cluster import allocatable

Object = dict[str, Any]

_ZONE, _HOST, _CAPACITY = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/capacity-type"
_OWN = "example.com/tier"


def with_variations(problem: Object, chance: random.Random) -> Object:
    """The problem with a few twists; its pods stay those it had."""
    ways = (
        _own_labels,
        _other_namespace,
        _containers,
        _disks,
        _zone_prices,
        _spreads,
        _apart,
        _alternatives,
        _stranger,
        _choosy_daemons,
        _preferences,
        _plain,
    )
    for way in chance.sample(ways, chance.choice((1, 2, 3, 4))):
        way(problem, chance)
    return problem


def waiting(problem: Object) -> dict[str, list[Object]]:
    """The pods to be placed, by workload; those of one are alike and share what is in them."""
    found: dict[str, list[Object]] = {}
    for each in problem["objects"]:
        if each["kind"] == "Pod" and "nodeName" not in each["spec"]:
            found.setdefault(each["metadata"]["labels"]["app"], []).append(each)
    return found


def some(problem: Object, chance: random.Random, share: float = 0.4) -> Iterable[list[Object]]:
    return [pods for pods in waiting(problem).values() if chance.random() < share]


def of(problem: Object, kind: str) -> list[Object]:
    return [each for each in problem["objects"] if each["kind"] == kind]


def _own_labels(problem: Object, chance: random.Random) -> None:
    """A label that pools leave open, and pods that select it, avoid it or spread over it.

    Every pool knows it: where one does not, a pod that avoids a value lets Karpenter give its node any other.
    """
    for pool in of(problem, "NodePool"):
        need: Object = {"key": _OWN, "operator": "In", "values": chance.choice((["gold"], ["gold", "silver"]))}
        if chance.random() < 0.2:
            need = {"key": _OWN, "operator": "Exists"}
        pool["spec"]["template"]["spec"]["requirements"].append(need)
    for pods in some(problem, chance):
        value = chance.choice(("gold", "silver"))
        part = chance.choice(("selector", "avoid", "prefer"))
        for pod in pods:
            spec = pod["spec"]
            if part == "selector":
                spec["nodeSelector"] = {**spec.get("nodeSelector", {}), _OWN: value}
                continue
            node = spec["affinity"].setdefault("nodeAffinity", {})
            term = {
                "matchExpressions": [{"key": _OWN, "operator": "NotIn" if part == "avoid" else "In", "values": [value]}]
            }
            if part == "avoid":
                node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [term]})
            else:
                node["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": 20, "preference": term}]
        if part != "selector":
            shared(pods)


def shared(pods: list[Object]) -> None:
    """Let pods that were alike share one affinity again."""
    for pod in pods[1:]:
        pod["spec"]["affinity"] = pods[0]["spec"]["affinity"]


def _other_namespace(problem: Object, chance: random.Random) -> None:
    """Some workloads live elsewhere, where no selectors look unless they say so."""
    problem["objects"].append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    for pods in some(problem, chance):
        if not any("persistentVolumeClaim" in each for each in pods[0]["spec"].get("volumes", ())):
            for pod in pods:
                pod["metadata"]["namespace"] = "other"


def _containers(problem: Object, chance: random.Random) -> None:
    """Init containers that ask for more than the pod does later, sidecars, and overhead."""
    for pods in some(problem, chance):
        cpu = chance.choice(("700m", "2500m"))
        first = {"name": "first", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "600Mi"}}}
        beside = {
            "name": "beside",
            "image": "i",
            "restartPolicy": "Always",
            "resources": {"requests": {"cpu": "150m", "memory": "200Mi"}},
        }
        more = chance.choice(([first], [beside], [beside, first]))
        for pod in pods:
            pod["spec"]["initContainers"] = more


def _disks(problem: Object, chance: random.Random) -> None:
    for kind in problem["catalog"]:
        kind["capacity"]["ephemeral-storage"] = "20Gi"
    for pods in some(problem, chance, 0.3):
        size = chance.choice(("1Gi", "3Gi", "9Gi"))
        for pod in pods:
            pod["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"] = size


def _zone_prices(problem: Object, chance: random.Random) -> None:
    dear = chance.choice(ZONES)
    factor = chance.choice((1.04, 1.25))
    for kind in problem["catalog"]:
        for offer in kind["offerings"]:
            if offer["zone"] == dear:
                offer["price"] = round(offer["price"] * factor, 5)


def _spreads(problem: Object, chance: random.Random) -> None:
    """Spreads over capacity types, teams and nodes, hard or soft, by name or over all pods of a tier."""
    for pods in some(problem, chance, 0.35):
        labels = pods[0]["metadata"]["labels"]
        key = chance.choice((_CAPACITY, "team", _HOST, _ZONE))
        made: Object = {
            "maxSkew": chance.choice((1, 2, 5)),
            "topologyKey": key,
            "whenUnsatisfiable": chance.choice(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": {"matchLabels": {"app": labels["app"]}},
        }
        for pod in pods:
            pod["spec"]["topologySpreadConstraints"] = [*pod["spec"].get("topologySpreadConstraints", []), made]


def _apart(problem: Object, chance: random.Random) -> None:
    """Anti-affinity over zones for a few, affinity over zones to themselves for others."""
    for pods in some(problem, chance, 0.25):
        way = "podAntiAffinity" if len(pods) <= 3 or chance.random() < 0.2 else "podAffinity"
        if pods[0]["spec"]["affinity"].get(way):
            continue
        term = {"labelSelector": {"matchLabels": {"app": pods[0]["metadata"]["labels"]["app"]}}, "topologyKey": _ZONE}
        pods[0]["spec"]["affinity"][way] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        shared(pods)


def _alternatives(problem: Object, chance: random.Random) -> None:
    """Required terms of which any will do."""
    for pods in some(problem, chance, 0.3):
        node = pods[0]["spec"]["affinity"].setdefault("nodeAffinity", {})
        terms = [
            {
                "matchExpressions": [
                    {
                        "key": "karpenter.k8s.aws/instance-family",
                        "operator": "In",
                        "values": [chance.choice(("m5", "c5", "r5"))],
                    }
                ]
            },
            {
                "matchExpressions": [
                    {"key": _CAPACITY, "operator": "In", "values": ["spot"]},
                    {"key": _ZONE, "operator": "In", "values": [chance.choice(ZONES)]},
                ]
            },
            {"matchExpressions": [{"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["5"]}]},
        ]
        chance.shuffle(terms)
        node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms[: chance.choice((2, 3))]}
        shared(pods)


def _stranger(problem: Object, chance: random.Random) -> None:
    """A node that no pool knows."""
    kind, zone = chance.choice(problem["catalog"]), chance.choice(ZONES)
    labels = {key: values[0] for key, values in kind["labels"].items()} | {
        _ZONE: zone,
        _HOST: "stranger",
        "node.kubernetes.io/instance-type": kind["name"],
    }
    problem["objects"].append(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "stranger", "labels": labels},
            "spec": {"providerID": "aws:///x/stranger", "taints": []},
            "status": {
                "capacity": kind["capacity"],
                "allocatable": allocatable(kind),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )


def _choosy_daemons(problem: Object, chance: random.Random) -> None:
    for daemon in of(problem, "DaemonSet"):
        where = {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": [chance.choice("cmr")]}
        term = {"nodeSelectorTerms": [{"matchExpressions": [where]}]}
        daemon["spec"]["template"]["spec"]["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}
        }


def _preferences(problem: Object, chance: random.Random) -> None:
    """Several preferences at once, some of them against each other."""
    for pods in some(problem, chance, 0.35):
        app = pods[0]["metadata"]["labels"]["app"]
        node = pods[0]["spec"]["affinity"].setdefault("nodeAffinity", {})
        node["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": weight, "preference": {"matchExpressions": [{"key": _ZONE, "operator": "In", "values": [zone]}]}}
            for weight, zone in zip((100, 50, 50), ZONES, strict=True)
        ]
        soft = [
            {
                "weight": 10,
                "podAffinityTerm": {
                    "topologyKey": chance.choice((_HOST, _ZONE)),
                    "labelSelector": {"matchLabels": {"app": app}},
                },
            }
        ]
        way = chance.choice(("podAffinity", "podAntiAffinity"))
        part = pods[0]["spec"]["affinity"].setdefault(way, {})
        part["preferredDuringSchedulingIgnoredDuringExecution"] = soft
        shared(pods)


def _plain(problem: Object, chance: random.Random) -> None:
    """Most workloads ask for nothing but room."""
    for pods in some(problem, chance, 0.8):
        for pod in pods:
            kept = {key: pod["spec"][key] for key in ("containers", "volumes", "tolerations") if key in pod["spec"]}
            pod["spec"] = {**kept, "affinity": {}}
