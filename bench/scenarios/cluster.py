"""What is there already: pools, nodes up and coming up with pods on them, daemonsets, overlays."""

from __future__ import annotations

import random
from typing import Any

from bench.scenarios.catalogue import EBS, ZONES
from dovetail.model.quantity import resources

Object = dict[str, Any]

_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
_GROUP = "karpenter.sh/v1"
_LONG_AGO = "2026-01-01T00:00:00Z"


def node_pool(name: str, chance: random.Random, taint: Object | None) -> Object:
    kinds = chance.choice((["on-demand"], ["spot", "on-demand"], ["on-demand", "spot", "reserved"]))
    requirements: list[Object] = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": kinds}]
    if chance.random() < 0.6:
        requirements.append({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]})
    if chance.random() < 0.4:
        requirements.append({"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["33"]})
    if chance.random() < 0.15:
        requirements.append({"key": "topology.kubernetes.io/zone", "operator": "In", "values": chance.sample(ZONES, 2)})
    if chance.random() < 0.15:
        requirements.append(
            {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": chance.choice((3, 8))}
        )
    if chance.random() < 0.15:
        requirements.append(
            {"key": "karpenter.k8s.aws/instance-family", "operator": "Exists", "minValues": chance.choice((2, 3))}
        )
    template: Object = {"requirements": requirements, "nodeClassRef": _CLASS}
    if taint is not None:
        template["taints"] = [taint]
    if chance.random() < 0.2:
        template["startupTaints"] = [{"key": "starting", "effect": "NoSchedule"}]
    spec: Object = {"template": {"metadata": {"labels": {"team": name}}, "spec": template}}
    if chance.random() < 0.4:
        spec["weight"] = chance.choice((1, 10, 50))
    if chance.random() < 0.25:
        spec["limits"] = chance.choice(
            ({"cpu": "32"}, {"cpu": "100"}, {"memory": "200Gi"}, {"nodes": "6"}, {"cpu": "64", "nodes": "10"})
        )
    return {"apiVersion": _GROUP, "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def overlays(chance: random.Random) -> list[Object]:
    """Prices by family, and a device that only an overlay knows."""
    family = {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": [chance.choice(("m5", "c5"))]}
    price = chance.choice(({"priceAdjustment": "-30%"}, {"priceAdjustment": "+0.05"}, {"price": "0.2"}))
    found = [{"requirements": [family], "weight": 5, **price}]
    if chance.random() < 0.5:
        other = {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["r5", "m6a"]}
        found.append({"requirements": [other], "capacity": {"example.com/dongle": "2"}})
    kind = {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay"}
    return [{**kind, "metadata": {"name": f"overlay-{at}"}, "spec": spec} for at, spec in enumerate(found)]


def daemonset(name: str, chance: random.Random) -> Object:
    spec: Object = {
        "tolerations": [{"operator": "Exists"}] if chance.random() < 0.7 else [],
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {
                    "requests": {
                        "cpu": f"{chance.choice((50, 100, 300))}m",
                        "memory": f"{chance.choice((64, 200, 512))}Mi",
                    }
                },
            }
        ],
    }
    if chance.random() < 0.3:
        spec["nodeSelector"] = {"kubernetes.io/arch": "amd64"}
    if chance.random() < 0.2:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8000 + chance.randrange(6)}]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system", "uid": f"ds-{name}"},
        "spec": {
            "selector": {"matchLabels": {"daemon": name}},
            "template": {"metadata": {"labels": {"daemon": name}}, "spec": spec},
        },
    }


class Fleet:
    """Nodes of the pools: up with pods on them, coming up, or going."""

    def __init__(self, chance: random.Random, pools: list[Object], types: list[Object]) -> None:
        self.chance = chance
        self.pools = pools
        self.types = [each for each in types if each["name"].split(".")[1] in ("xlarge", "2xlarge")]
        self.names: list[str] = []
        """Apps that run already."""

    def node(self, at: int) -> list[Object]:
        chance = self.chance
        state = chance.choice(("up", "up", "up", "joining", "claimed", "going"))
        pool, kind, zone = chance.choice(self.pools), chance.choice(self.types), chance.choice(ZONES)
        name = f"node-{at}"
        labels = {key: values[0] for key, values in kind["labels"].items()} | {
            "topology.kubernetes.io/zone": zone,
            "karpenter.sh/nodepool": pool["metadata"]["name"],
            "karpenter.sh/capacity-type": "on-demand",
            "node.kubernetes.io/instance-type": kind["name"],
            "team": pool["metadata"]["name"],
        }
        template = pool["spec"]["template"]["spec"]
        found = [claim(name, labels, kind, template, zone, state)]
        if state == "claimed":
            return found
        found.append(node(name, labels, kind, template, zone, state))
        if chance.random() < 0.5:
            found.append(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "CSINode",
                    "metadata": {"name": name},
                    "spec": {
                        "drivers": [
                            {
                                "name": EBS,
                                "nodeID": name,
                                "topologyKeys": [],
                                "allocatable": {"count": chance.choice((3, 26))},
                            }
                        ]
                    },
                }
            )
        count = chance.randint(0, 4) if state != "joining" else 0
        return found + [self._running(name, number) for number in range(count)]

    def _running(self, node: str, number: int) -> Object:
        chance = self.chance
        app = f"run{chance.randrange(4)}"
        self.names.append(app)
        spec: Object = {
            "nodeName": node,
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "resources": {
                        "requests": {
                            "cpu": f"{chance.choice((100, 250, 500))}m",
                            "memory": f"{chance.choice((128, 512))}Mi",
                        }
                    },
                }
            ],
        }
        if app == "run3":
            term = {"labelSelector": {"matchLabels": {"tier": "back"}}, "topologyKey": "kubernetes.io/hostname"}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if chance.random() < 0.2:
            spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8000 + chance.randrange(6)}]
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
        name = f"{node}-{number}"
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "status": {"phase": "Running"},
            "spec": spec,
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "ownerReferences": [owner],
                "labels": {"app": app, "tier": "front"},
            },
        }


def claim(name: str, labels: Object, kind: Object, template: Object, zone: str, state: str) -> Object:
    """The NodeClaim of a node that is "up", "joining", merely "claimed", or "going"."""
    done = {"up": 3, "going": 3, "joining": 2, "claimed": 1}[state]
    conditions = [
        {"type": each, "status": "True", "reason": each, "lastTransitionTime": _LONG_AGO}
        for each in ("Launched", "Registered", "Initialized")[:done]
    ]
    meta: Object = {"name": f"claim-{name}", "labels": labels, "creationTimestamp": _LONG_AGO}
    if state == "going":
        meta |= {"deletionTimestamp": _LONG_AGO, "finalizers": ["karpenter.sh/termination"]}
    spec: Object = {
        "requirements": template["requirements"][:1],
        "nodeClassRef": _CLASS,
        "taints": template.get("taints", []),
        "startupTaints": template.get("startupTaints", []),
    }
    status: Object = {
        "providerID": f"aws:///{zone}/{name}",
        "capacity": kind["capacity"],
        "allocatable": allocatable(kind),
        "conditions": conditions,
    }
    if state != "claimed":
        status["nodeName"] = name
    return {"apiVersion": _GROUP, "kind": "NodeClaim", "metadata": meta, "spec": spec, "status": status}


def node(name: str, labels: Object, kind: Object, template: Object, zone: str, state: str) -> Object:
    """The Node of a node that is up, joining or going."""
    taints = list(template.get("taints", []))
    own = labels | {"kubernetes.io/hostname": name, "karpenter.sh/registered": "true"}
    if state == "joining":
        taints += template.get("startupTaints", [])
        taints += [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    else:
        own["karpenter.sh/initialized"] = "true"
    ready = "False" if state == "joining" else "True"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": own},
        "spec": {"providerID": f"aws:///{zone}/{name}", "taints": taints},
        "status": {
            "capacity": kind["capacity"],
            "allocatable": allocatable(kind),
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def allocatable(kind: Object) -> Object:
    """Capacity less overhead."""
    left = resources(kind["capacity"])
    for name, amount in resources(kind["overhead"]).items():
        left[name] -= amount
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in left.items()}
