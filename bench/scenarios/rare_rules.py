"""Rules that seldom decide anything, made to decide something.

Spreads over labels of one's own, over more domains than there are and over revisions; chains of affinity across
namespaces; volumes with several ways to be reached; nodes that are not even launched; reservations that are used
up; overlays that bring devices or contradict each other; limits on devices; pods that are over, gone or gated; daemons
with alternatives; pods that say how much they take as a whole.
"""

from __future__ import annotations

import copy
import random
from itertools import pairwise
from typing import Any

from bench.scenarios.catalogue import EBS, ZONES
from bench.scenarios.variations import of, shared, some

Object = dict[str, Any]

_ZONE, _HOST, _CAPACITY = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/capacity-type"
_FAMILY, _CPU, _TYPE = (
    "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/instance-cpu",
    "node.kubernetes.io/instance-type",
)
_ROW = "example.com/row"
_DONGLE = "example.com/dongle"


def with_rare_rules(problem: Object, chance: random.Random) -> Object:
    """The problem driven into a few corners; its pods keep their names."""
    ways = (
        _own_spread,
        _many_domains,
        _policies,
        _revisions,
        _chain,
        _volume_choices,
        _unbound,
        _attached,
        _starting,
        _unlaunched,
        _used_up,
        _devices,
        _limits,
        _bystanders,
        _ports,
        _daemons,
        _wholes,
        _systems,
        _choosers,
        _bounds,
    )
    for way in chance.sample(ways, chance.choice((2, 3, 4))):
        way(problem, chance)
    return problem


def _spread(pods: list[Object], **rule: Any) -> None:
    made = {
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": pods[0]["metadata"]["labels"]["app"]}},
        **rule,
    }
    for pod in pods:
        pod["spec"]["topologySpreadConstraints"] = [*pod["spec"].get("topologySpreadConstraints", []), made]


def _own_spread(problem: Object, chance: random.Random) -> None:
    """Rows that only pools know, as people do to split a workload over kinds of nodes."""
    rows = ["1", "2", "3", "4", "5"]
    for at, pool in enumerate(of(problem, "NodePool")):
        held = rows[:4] if at == 0 else rows[4:]
        need = {"key": _ROW, "operator": "In", "values": held}
        pool["spec"]["template"]["spec"]["requirements"].append(need)
    for pods in some(problem, chance, 0.3):
        _spread(pods, topologyKey=_ROW, whenUnsatisfiable=chance.choice(("DoNotSchedule", "ScheduleAnyway")))


def _many_domains(problem: Object, chance: random.Random) -> None:
    for pods in some(problem, chance, 0.3):
        _spread(
            pods,
            topologyKey=chance.choice((_ZONE, _ZONE, _CAPACITY)),
            minDomains=chance.choice((3, 4, 5)),
            maxSkew=chance.choice((1, 2, 4)),
        )


def _policies(problem: Object, chance: random.Random) -> None:
    """Spreads that count nodes which the pods cannot use, or do not; some may use two zones only."""
    for pods in some(problem, chance, 0.35):
        if chance.random() < 0.6:
            zones = {"key": _ZONE, "operator": "In", "values": sorted(chance.sample(ZONES, 2))}
            node = pods[0]["spec"]["affinity"].setdefault("nodeAffinity", {})
            node["requiredDuringSchedulingIgnoredDuringExecution"] = {
                "nodeSelectorTerms": [{"matchExpressions": [zones]}]
            }
            shared(pods)
        _spread(
            pods,
            topologyKey=chance.choice((_ZONE, _ZONE, _HOST)),
            maxSkew=chance.choice((1, 2)),
            whenUnsatisfiable=chance.choice(("DoNotSchedule", "ScheduleAnyway")),
            nodeAffinityPolicy=chance.choice(("Honor", "Ignore")),
            nodeTaintsPolicy=chance.choice(("Honor", "Ignore")),
        )


def _revisions(problem: Object, chance: random.Random) -> None:
    """Workloads in the middle of a rollout: each revision spreads on its own."""
    for pods in some(problem, chance, 0.35):
        for at, pod in enumerate(pods):
            revision = f"{pod['metadata']['labels']['app']}-{'new' if at % 3 else 'old'}"
            pod["metadata"]["labels"] = pod["metadata"]["labels"] | {"pod-template-hash": revision}
        _spread(
            pods,
            topologyKey=chance.choice((_ZONE, _HOST)),
            matchLabelKeys=["pod-template-hash"],
            maxSkew=chance.choice((1, 2)),
        )


def _chain(problem: Object, chance: random.Random) -> None:
    """Each workload leans on the one before it, across namespaces that are chosen by label."""
    problem["objects"].append(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "prod", "labels": {"env": "prod", "kubernetes.io/metadata.name": "prod"}},
        }
    )
    groups = [pods for pods in some(problem, chance, 0.5) if not pods[0]["spec"].get("volumes")][:4]
    for pods in groups[::2]:
        for pod in pods:
            pod["metadata"]["namespace"] = "prod"
    where: Object = {"namespaceSelector": {"matchLabels": {"env": "prod"}}, "namespaces": ["default"]}
    for one, other in pairwise(groups):
        term = {
            "labelSelector": {"matchLabels": {"app": one[0]["metadata"]["labels"]["app"]}},
            "topologyKey": _ZONE,
            **where,
        }
        part = other[0]["spec"]["affinity"].setdefault("podAffinity", {})
        if chance.random() < 0.5:
            part["requiredDuringSchedulingIgnoredDuringExecution"] = [term]
        else:
            part["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": 7, "podAffinityTerm": term}]
        shared(other)


def _volume_choices(problem: Object, chance: random.Random) -> None:
    """Volumes that can be reached in either of two ways, and volumes that live as long as their pod."""
    for each in of(problem, "PersistentVolume"):
        terms = [
            {"matchExpressions": [{"key": _ZONE, "operator": "In", "values": [zone]}]}
            for zone in chance.sample(ZONES, 2)
        ]
        each["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    for each in of(problem, "StorageClass"):
        if chance.random() < 0.6:
            each["allowedTopologies"] = [
                {"matchLabelExpressions": [{"key": _ZONE, "values": [zone]}]} for zone in chance.sample(ZONES, 2)
            ]
    problem["objects"].append(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "provisioner": EBS,
            "metadata": {"name": "scratch"},
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": _ZONE, "values": chance.sample(ZONES, 2)}]}],
        }
    )
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "scratch",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    for pods in some(problem, chance, 0.3):
        for pod in pods:
            made = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
            pod["spec"]["volumes"] = [*pod["spec"].get("volumes", []), made]
            name, meta = pod["metadata"]["name"], pod["metadata"]
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": meta["uid"], "controller": True}
            problem["objects"].append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "spec": spec,
                    "status": {"phase": "Pending"},
                    "metadata": {"name": f"{name}-scratch", "namespace": meta["namespace"], "ownerReferences": [owner]},
                }
            )


def _unbound(problem: Object, chance: random.Random) -> None:
    """Claims that are missing, lost, or wait for a volume that is never created: such pods are not even tried."""
    claims = of(problem, "PersistentVolumeClaim")
    for claim in claims:
        fate = chance.choice(("fine", "fine", "missing", "lost", "unfinished"))
        if fate == "missing":
            problem["objects"].remove(claim)
        elif fate == "lost":
            claim["status"] = {"phase": "Lost"}
        elif fate == "unfinished":
            claim["metadata"].pop("annotations", None)
    for each in of(problem, "StorageClass"):
        if chance.random() < 0.3:
            each["volumeBindingMode"] = "Immediate"


def _attached(problem: Object, chance: random.Random) -> None:
    """Few volumes to a node, of those there and of those for sale."""
    for kind in problem["catalog"]:
        kind["attachLimits"] = {EBS: chance.choice((2, 3, 5))}
    for each in of(problem, "CSINode"):
        driver = each["spec"]["drivers"][0]
        fate = chance.choice(("few", "few", "none", "unsaid"))
        if fate == "unsaid":
            driver.pop("allocatable")
        else:
            driver["allocatable"] = {"count": 2 if fate == "few" else 0}


def _starting(problem: Object, chance: random.Random) -> None:
    """Nodes on their way with every taint of a node on its way, and one that does not go away by itself."""
    taints = [{"key": "cni", "value": "soon", "effect": "NoExecute"}, {"key": "disk", "effect": "NoSchedule"}]
    for pool in of(problem, "NodePool"):
        pool["spec"]["template"]["spec"]["startupTaints"] = taints
    for claim in of(problem, "NodeClaim"):
        claim["spec"]["startupTaints"] = taints
    for node in of(problem, "Node"):
        if "karpenter.sh/initialized" not in node["metadata"]["labels"]:
            node["spec"]["taints"] += taints[: chance.choice((1, 2))]
            node["spec"]["taints"] += chance.sample(
                (
                    {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
                    {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
                    {"key": "example.com/broken", "effect": "NoSchedule"},
                ),
                1,
            )
        elif chance.random() < 0.3:
            node["spec"]["taints"].append(taints[0])


def _unlaunched(problem: Object, chance: random.Random) -> None:
    """Claims that are not launched yet, and nodes that do not know their devices yet."""
    for claim in list(of(problem, "NodeClaim")):
        if "nodeName" not in claim["status"] and chance.random() < 0.5:
            claim["status"] = {"conditions": []}
    for node in of(problem, "Node"):
        if "karpenter.sh/initialized" not in node["metadata"]["labels"]:
            for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
                if "vpc.amazonaws.com/pod-eni" in amounts:
                    amounts["vpc.amazonaws.com/pod-eni"] = "0"


def _used_up(problem: Object, chance: random.Random) -> None:
    """Reservations with nothing left, a pool of reserved nodes alone, and pods that want nothing else."""
    for number, kind in enumerate(chance.sample(problem["catalog"], 4)):
        kind["offerings"].append(
            {
                "zone": chance.choice(ZONES),
                "capacityType": "reserved",
                "available": chance.random() < 0.8,
                "price": 0.0,
                "reservationId": f"cr-used-{number}",
                "reservationCapacity": chance.choice((0, 0, 1, 3)),
            }
        )
    pools = of(problem, "NodePool")
    for need in pools[-1]["spec"]["template"]["spec"]["requirements"]:
        if need["key"] == _CAPACITY:
            need["values"] = ["reserved"] if len(pools) > 1 else sorted({*need["values"], "reserved"})
    for pods in some(problem, chance, 0.15):
        for pod in pods:
            pod["spec"]["nodeSelector"] = {**pod["spec"].get("nodeSelector", {}), _CAPACITY: "reserved"}


def _devices(problem: Object, chance: random.Random) -> None:
    """Overlays that bring devices, and two of one weight that contradict each other."""
    wanted = [
        {"requirements": [{"key": _CPU, "operator": "Gt", "values": ["7"]}], "weight": 3, "capacity": {_DONGLE: "4"}},
        {
            "requirements": [{"key": _FAMILY, "operator": "In", "values": ["m5", "r5"]}],
            "weight": 7,
            "capacity": {_DONGLE: "1", "hugepages-2Mi": "1Gi"},
        },
        {"requirements": [{"key": _FAMILY, "operator": "In", "values": ["c5"]}], "weight": 9, "price": "0.5"},
        {
            "requirements": [{"key": _FAMILY, "operator": "In", "values": ["c5", "c6i"]}],
            "weight": 9,
            "priceAdjustment": "-5%",
        },
    ]
    for at, spec in enumerate(chance.sample(wanted, 3)):
        problem["objects"].append(
            {
                "apiVersion": "karpenter.sh/v1alpha1",
                "kind": "NodeOverlay",
                "metadata": {"name": f"corner-{at}"},
                "spec": spec,
            }
        )
    for pods in some(problem, chance, 0.2):
        for pod in pods:
            _ask(pod, {_DONGLE: chance.choice(("1", "1", "2"))} if pod is pods[0] else _asked(pods[0], _DONGLE))


def _asked(pod: Object, name: str) -> Object:
    return {name: pod["spec"]["containers"][0]["resources"]["requests"][name]}


def _ask(pod: Object, more: Object) -> None:
    resources = pod["spec"]["containers"][0]["resources"]
    pod["spec"]["containers"][0]["resources"] = {**resources, "requests": {**resources["requests"], **more}}


def _limits(problem: Object, chance: random.Random) -> None:
    for pool in of(problem, "NodePool"):
        pool["spec"]["limits"] = chance.choice(
            (
                {"nvidia.com/gpu": "1"},
                {"cpu": "12"},
                {"memory": "64Gi", "cpu": "40"},
                {"cpu": "0"},
                {"pods": "100"},
                {"cpu": "200", "memory": "100Gi"},
                {"nvidia.com/gpu": "0", "cpu": "150"},
            )
        )


def _bystanders(problem: Object, chance: random.Random) -> None:
    """Pods that are over or on their way out, and pods that must not be looked at yet."""
    for pod in of(problem, "Pod"):
        if "nodeName" in pod["spec"]:
            fate = chance.choice(("over", "failed", "leaving", "fine", "fine"))
            if fate in ("over", "failed"):
                pod["status"] = {"phase": "Succeeded" if fate == "over" else "Failed"}
            elif fate == "leaving":
                pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/wait"]}
    for pods in some(problem, chance, 0.2):
        if len(pods) > 1:
            pods[0]["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]


def _ports(problem: Object, chance: random.Random) -> None:
    """The same port over both protocols, on one address or on all."""
    for pods in some(problem, chance, 0.3):
        ports = [
            {"containerPort": 53, "hostPort": 53, "protocol": each, **address}
            for each in chance.choice((("TCP",), ("UDP",), ("TCP", "UDP")))
            for address in chance.choice(([{}], [{"hostIP": "10.0.0.1"}], [{"hostIP": "0.0.0.0"}]))
        ]
        for pod in pods:
            pod["spec"]["containers"][0]["ports"] = ports


def _daemons(problem: Object, chance: random.Random) -> None:
    """Daemons with alternatives, with ports, with limits in place of requests, and one for a pool alone."""
    terms = [{"matchExpressions": [{"key": _FAMILY, "operator": "In", "values": [family]}]} for family in ("m5", "r5")]
    either = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    pool = chance.choice(of(problem, "NodePool"))["metadata"]["name"]
    specs: list[Object] = [
        {"affinity": either},
        {"nodeSelector": {"karpenter.sh/nodepool": pool}},
        {"nodeSelector": {"team": pool}},
    ]
    for at, spec in enumerate(chance.sample(specs, 2)):
        amounts = {"cpu": chance.choice(("200m", "700m")), "memory": chance.choice(("100Mi", "1Gi"))}
        container: Object = {"name": "c", "image": "i", "resources": {chance.choice(("requests", "limits")): amounts}}
        if chance.random() < 0.4:
            container["ports"] = [{"containerPort": 53, "hostPort": 53, "protocol": chance.choice(("TCP", "UDP"))}]
        name = f"corner-{at}"
        problem["objects"].append(
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": name, "namespace": "kube-system", "uid": f"ds-{name}"},
                "spec": {
                    "selector": {"matchLabels": {"daemon": name}},
                    "template": {
                        "metadata": {"labels": {"daemon": name}},
                        "spec": {"tolerations": [{"operator": "Exists"}], "containers": [container], **spec},
                    },
                },
            }
        )


def _wholes(problem: Object, chance: random.Random) -> None:
    """Pods that say what they take as a whole, have an overhead, or only limits."""
    for pods in some(problem, chance, 0.4):
        way = chance.choice(("whole", "overhead", "limits"))
        for pod in pods:
            spec = pod["spec"]
            if way == "whole":
                spec["resources"] = {"requests": {"cpu": "1200m", "memory": "2500Mi"}}
            elif way == "overhead":
                spec["overhead"] = {"cpu": "120m", "memory": "100Mi"}
            else:
                asked = spec["containers"][0]["resources"]["requests"]
                beside = {
                    "name": "beside",
                    "image": "i",
                    "resources": {"limits": {"cpu": "300m"}, "requests": {"cpu": "300m", "memory": "64Mi"}},
                }
                spec["containers"] = [
                    {**spec["containers"][0], "resources": {"limits": asked, "requests": asked}},
                    beside,
                ]


def _systems(problem: Object, chance: random.Random) -> None:
    """Types that may be either of two things until it is decided which."""
    for kind in problem["catalog"]:
        either = kind["name"].startswith(("m5", "c5"))
        only = "quiet" if kind["name"].startswith("r") else "fast"
        kind["labels"]["example.com/mode"] = ["fast", "quiet"] if either else [only]
    for pods in some(problem, chance, 0.25):
        mode = {"example.com/mode": chance.choice(("fast", "quiet"))}
        for pod in pods:
            pod["spec"]["nodeSelector"] = {**pod["spec"].get("nodeSelector", {}), **mode}


def _choosers(problem: Object, chance: random.Random) -> None:
    """Pods that name the pool, the type, the size or the node itself."""
    names = [pool["metadata"]["name"] for pool in of(problem, "NodePool")]
    nodes = [node["metadata"]["name"] for node in of(problem, "Node")]
    for pods in some(problem, chance, 0.35):
        chosen = chance.choice(
            (
                {"karpenter.sh/nodepool": chance.choice(names)},
                {"team": chance.choice(names)},
                {_TYPE: chance.choice(("m5.xlarge", "c6i.4xlarge"))},
                {_FAMILY: "r5", _CAPACITY: "on-demand"},
                {_HOST: chance.choice(nodes)} if nodes else {_CPU: "8"},
                {_CPU: "16"},
            )
        )
        for pod in pods:
            pod["spec"]["nodeSelector"] = {**pod["spec"].get("nodeSelector", {}), **chosen}


def _bounds(problem: Object, chance: random.Random) -> None:
    """Pools with bounds that include themselves, and variety over sizes and categories."""
    for pool in of(problem, "NodePool"):
        needs = pool["spec"]["template"]["spec"]["requirements"]
        needs += copy.deepcopy(
            chance.sample(
                (
                    {"key": _CPU, "operator": "Gte", "values": ["4"]},
                    {"key": _CPU, "operator": "Lte", "values": ["16"]},
                    {
                        "key": "karpenter.k8s.aws/instance-category",
                        "operator": "In",
                        "values": ["c", "m", "r"],
                        "minValues": 2,
                    },
                    {"key": _CPU, "operator": "Exists", "minValues": 3},
                ),
                2,
            )
        )
