"""The rarer features of pods and clusters, put on top of a problem.

Selectors in every form, spreads over any label, volumes that run already, are shared or lie in several zones,
tolerations and taints of every kind, nodes that are cordoned or serve daemons, overlays and reservations that
choose, pools that say what they do not want.
"""

from __future__ import annotations

import random
from typing import Any

from bench.scenarios.catalogue import EBS, ZONES
from bench.scenarios.variations import of, shared, some

Object = dict[str, Any]

_ZONE, _HOST, _CAPACITY = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/capacity-type"
_NAME = "kubernetes.io/metadata.name"
_FAMILY, _CPU = "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-cpu"


def with_rare_features(problem: Object, chance: random.Random) -> Object:
    """The problem with a few turns; its pods stay those it had."""
    ways = (
        _selectors,
        _any_key,
        _apart_by_key,
        _open_volumes,
        _running_volumes,
        _tolerations,
        _cordoned,
        _served,
        _choosy_overlays,
        _reserved,
        _unwanted,
        _preferred,
        _lonely,
        _priorities,
        _near_namespaces,
    )
    for way in chance.sample(ways, chance.choice((2, 3, 4, 5))):
        way(problem, chance)
    return problem


def _required(pods: list[Object], way: str, term: Object) -> None:
    part = pods[0]["spec"]["affinity"].setdefault(way, {})
    part.setdefault("requiredDuringSchedulingIgnoredDuringExecution", []).append(term)
    shared(pods)


def _selectors(problem: Object, chance: random.Random) -> None:
    """Spreads whose selectors are expressions, select all pods, or none."""
    for pods in some(problem, chance, 0.3):
        app = pods[0]["metadata"]["labels"]["app"]
        selector = chance.choice(
            (
                {"matchExpressions": [{"key": "app", "operator": "In", "values": [app, "absent"]}]},
                {"matchLabels": {"app": app}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]},
                {
                    "matchExpressions": [
                        {"key": "app", "operator": "Exists"},
                        {"key": "app", "operator": "In", "values": [app]},
                    ]
                },
                {"matchLabels": {"app": "absent"}},
            )
        )
        rule = {
            "maxSkew": chance.choice((1, 2)),
            "topologyKey": chance.choice((_ZONE, _HOST)),
            "whenUnsatisfiable": chance.choice(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": selector,
        }
        for pod in pods:
            pod["spec"].setdefault("topologySpreadConstraints", []).append(rule)


def _any_key(problem: Object, chance: random.Random) -> None:
    """Spreads over architectures, families, sizes and pools."""
    key = chance.choice(("kubernetes.io/arch", _FAMILY, _CPU, "karpenter.sh/nodepool", "team"))
    for pods in some(problem, chance, 0.25):
        rule = {
            "maxSkew": chance.choice((1, 3)),
            "topologyKey": key,
            "whenUnsatisfiable": chance.choice(("DoNotSchedule", "ScheduleAnyway", "ScheduleAnyway")),
            "labelSelector": {"matchLabels": {"app": pods[0]["metadata"]["labels"]["app"]}},
        }
        for pod in pods:
            pod["spec"].setdefault("topologySpreadConstraints", []).append(rule)


def _apart_by_key(problem: Object, chance: random.Random) -> None:
    """Neighbours by pool, capacity type or family."""
    for pods in some(problem, chance, 0.2):
        way = "podAffinity" if len(pods) > 2 else chance.choice(("podAffinity", "podAntiAffinity"))
        selector = {"matchLabels": {"app": pods[0]["metadata"]["labels"]["app"]}}
        key = chance.choice(("team", _CAPACITY, _FAMILY))
        _required(pods, way, {"labelSelector": selector, "topologyKey": key})


def _near_namespaces(problem: Object, chance: random.Random) -> None:
    """Terms that name namespaces, or choose them by label."""
    problem["objects"].append(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "stage", "labels": {_NAME: "stage"}}}
    )
    for pods in some(problem, chance, 0.25):
        if not pods[0]["spec"].get("volumes"):
            for pod in pods:
                pod["metadata"]["namespace"] = "stage"
    for pods in some(problem, chance, 0.25):
        chosen: Object = chance.choice(
            (
                {"namespaces": ["stage"]},
                {"namespaces": ["default", "stage"]},
                {"namespaceSelector": {"matchLabels": {_NAME: "stage"}}},
            )
        )
        tier, key = chance.choice(("front", "back")), chance.choice((_ZONE, _HOST))
        term = {"labelSelector": {"matchLabels": {"tier": tier}}, "topologyKey": key, **chosen}
        part = pods[0]["spec"]["affinity"].setdefault("podAntiAffinity", {})
        part["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": 40, "podAffinityTerm": term}]
        shared(pods)


def _open_volumes(problem: Object, chance: random.Random) -> None:
    """Volumes that may be reached from several zones, and volumes that several pods share."""
    for volume in of(problem, "PersistentVolume"):
        if "nodeAffinity" in volume["spec"] and chance.random() < 0.5:
            needs = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]
            needs["values"] = sorted(chance.sample(ZONES, 2))
    for pods in some(problem, chance, 0.5):
        if pods[0]["spec"].get("volumes") and chance.random() < 0.5:
            for pod in pods:
                pod["spec"]["volumes"] = pods[0]["spec"]["volumes"]


def _running_volumes(problem: Object, chance: random.Random) -> None:
    """Volumes that running pods hold already count against the limit of their node."""
    made: list[Object] = []
    for pod in of(problem, "Pod"):
        if "nodeName" in pod["spec"] and chance.random() < 0.5:
            name = f"held-{pod['metadata']['name']}"
            pod["spec"]["volumes"] = [{"name": "held", "persistentVolumeClaim": {"claimName": name}}]
            made.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {
                        "name": name,
                        "namespace": "default",
                        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
                    },
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "volumeName": f"pv-{name}",
                        "storageClassName": "",
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                    "status": {"phase": "Bound"},
                }
            )
            made.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": f"pv-{name}"},
                    "spec": {
                        "csi": {"driver": EBS, "volumeHandle": f"vol-{name}"},
                        "accessModes": ["ReadWriteOnce"],
                        "capacity": {"storage": "1Gi"},
                    },
                }
            )
    problem["objects"] += made


def _tolerations(problem: Object, chance: random.Random) -> None:
    """A pool with taints of two effects, and pods that tolerate one, both, or everything."""
    taints = [
        {"key": "dedicated", "value": "batch", "effect": "NoSchedule"},
        {"key": "dedicated", "value": "batch", "effect": "NoExecute"},
    ]
    pool = chance.choice(of(problem, "NodePool"))["spec"]["template"]["spec"]
    pool["taints"] = [*pool.get("taints", []), *taints[: chance.choice((1, 2))]]
    for pods in some(problem, chance, 0.6):
        borne = chance.choice(
            (
                [{"operator": "Exists"}],
                [{"key": "dedicated", "operator": "Equal", "value": "batch"}],
                [{"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}],
                [
                    {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"},
                    {"key": "dedicated", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
                ],
            )
        )
        for pod in pods:
            pod["spec"]["tolerations"] = [*pod["spec"].get("tolerations", []), *borne]


def _cordoned(problem: Object, chance: random.Random) -> None:
    """Some nodes take no pods any more, and some have lost their readiness."""
    for node in of(problem, "Node"):
        fate = chance.choice(("cordoned", "tainted", "fine", "fine"))
        if fate == "cordoned":
            node["spec"]["unschedulable"] = True
            node["spec"]["taints"].append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
        elif fate == "tainted":
            node["spec"]["taints"].append({"key": "maintenance", "value": "soon", "effect": "NoSchedule"})


def _served(problem: Object, chance: random.Random) -> None:
    """Daemons that run already on the nodes they belong on; another one that runs nowhere yet."""
    for daemon in of(problem, "DaemonSet"):
        name, spec = daemon["metadata"]["name"], daemon["spec"]["template"]["spec"]
        owner = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": name,
            "uid": daemon["metadata"]["uid"],
            "controller": True,
        }
        for node in of(problem, "Node"):
            if chance.random() < 0.7:
                where = node["metadata"]["name"]
                meta = {
                    "name": f"{name}-{where}",
                    "namespace": "kube-system",
                    "uid": f"{name}-{where}",
                    "labels": {"daemon": name, "app": name},
                    "ownerReferences": [owner],
                }
                running = {"spec": {**spec, "nodeName": where}, "status": {"phase": "Running"}}
                problem["objects"].append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, **running})


def _choosy_overlays(problem: Object, chance: random.Random) -> None:
    """Prices by zone, by capacity type and by pool; the heavier overlay decides."""
    pool = chance.choice(of(problem, "NodePool"))["metadata"]["name"]
    wanted = [
        ({"key": _ZONE, "operator": "In", "values": [chance.choice(ZONES)]}, {"priceAdjustment": "+20%"}),
        ({"key": _CAPACITY, "operator": "In", "values": ["spot"]}, {"priceAdjustment": "+0.03"}),
        ({"key": "karpenter.sh/nodepool", "operator": "In", "values": [pool]}, {"priceAdjustment": "-10%"}),
        ({"key": _CPU, "operator": "Gt", "values": ["15"]}, {"priceAdjustment": "+35%"}),
    ]
    for at, (need, price) in enumerate(chance.sample(wanted, 2)):
        spec = {"requirements": [need], "weight": 20 + at, **price}
        problem["objects"].append(
            {
                "apiVersion": "karpenter.sh/v1alpha1",
                "kind": "NodeOverlay",
                "metadata": {"name": f"choosy-{at}"},
                "spec": spec,
            }
        )


def _reserved(problem: Object, chance: random.Random) -> None:
    """Reservations of one node each, and some that are used up, for all pods that may use reserved nodes."""
    for number, kind in enumerate(chance.sample(problem["catalog"], 3)):
        kind["offerings"].append(
            {
                "zone": chance.choice(ZONES),
                "capacityType": "reserved",
                "available": True,
                "price": 0.0,
                "reservationId": f"cr-more-{number}",
                "reservationCapacity": chance.choice((0, 1, 1, 2)),
            }
        )
    for pool in of(problem, "NodePool"):
        for need in pool["spec"]["template"]["spec"]["requirements"]:
            if need["key"] == _CAPACITY:
                need["values"] = sorted({*need["values"], "reserved"})
    for pods in some(problem, chance, 0.2):
        node = pods[0]["spec"]["affinity"].setdefault("nodeAffinity", {})
        if "preferredDuringSchedulingIgnoredDuringExecution" not in node:
            preference = {"matchExpressions": [{"key": _CAPACITY, "operator": "In", "values": ["reserved"]}]}
            node["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": 5, "preference": preference}]
            shared(pods)


def _unwanted(problem: Object, chance: random.Random) -> None:
    """Pools that say what they do not want."""
    for pool in of(problem, "NodePool"):
        pool["spec"]["template"]["spec"]["requirements"] += chance.sample(
            (
                {"key": _FAMILY, "operator": "NotIn", "values": chance.sample(("c5", "m5", "r5", "m6a"), 2)},
                {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["4"]},
                {"key": _CPU, "operator": "Gt", "values": ["3"]},
                {"key": _ZONE, "operator": "NotIn", "values": [chance.choice(ZONES)]},
                {"key": "example.com/spare", "operator": "DoesNotExist"},
            ),
            2,
        )


def _preferred(problem: Object, chance: random.Random) -> None:
    """Preferences of equal weight, and preferences with several expressions or for fields that no node has."""
    for pods in some(problem, chance, 0.35):
        node = pods[0]["spec"]["affinity"].setdefault("nodeAffinity", {})
        preferences = (
            [
                {"key": _FAMILY, "operator": "In", "values": ["m5", "m6a"]},
                {"key": _ZONE, "operator": "In", "values": chance.sample(ZONES, 2)},
            ],
            [{"key": _CPU, "operator": "Lt", "values": ["9"]}],
            [{"key": "example.com/disk", "operator": "In", "values": ["fast"]}],
            [{"key": _CAPACITY, "operator": "NotIn", "values": ["spot"]}],
        )
        node["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": 30, "preference": {"matchExpressions": each}} for each in chance.sample(preferences, 2)
        ]
        shared(pods)


def _lonely(problem: Object, chance: random.Random) -> None:
    """Workloads that must not meet each other, both ways, and some that lean on each other."""
    groups = list(some(problem, chance, 0.5))
    for one, other in zip(groups[::2], groups[1::2], strict=False):
        selector = {"matchLabels": {"app": other[0]["metadata"]["labels"]["app"]}}
        way = chance.choice(("podAntiAffinity", "podAntiAffinity", "podAffinity"))
        _required(one, way, {"labelSelector": selector, "topologyKey": chance.choice((_HOST, _HOST, _ZONE))})


def _priorities(problem: Object, chance: random.Random) -> None:
    problem["objects"] += [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("urgent", 1000), ("whenever", -5))
    ]
    for pods in some(problem, chance, 0.4):
        name = chance.choice(("urgent", "whenever"))
        for pod in pods:
            pod["spec"]["priorityClassName"] = name
            pod["spec"]["priority"] = 1000 if name == "urgent" else -5
