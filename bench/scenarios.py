"""Random planning problems over every constraint the planner knows: the stuff of comparisons.

`scenario(seed)` gives {"name", "objects", "catalog"}; the same seed, the same problem.
"""

from __future__ import annotations

import random
from typing import Any

ZONES = ("ap-northeast-2a", "ap-northeast-2b", "ap-northeast-2c")
FAMILIES = {  # family: (memory GiB per vCPU, $ per vCPU, arch)
    "c5": (2, 0.048, "amd64"),
    "m5": (4, 0.059, "amd64"),
    "r5": (8, 0.076, "amd64"),
    "m6g": (4, 0.047, "arm64"),
    "c6i": (2, 0.048, "amd64"),
}
SIZES = {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32, "12xlarge": 48, "16xlarge": 64}
CPU = (100, 250, 500, 1000, 1500, 2000, 3000)
MEMORY = (128, 256, 512, 1024, 2048, 4096, 8192)
Object = dict[str, Any]


def catalog(chance: random.Random, gpu: bool = False) -> list[Object]:
    found = []
    for family, (ratio, price, arch) in FAMILIES.items():
        for size, vcpus in SIZES.items():
            rate = price * vcpus
            offers = [
                {"zone": zone, "capacityType": kind, "available": chance.random() > 0.04,
                 "price": round(rate * (1 if kind == "on-demand" else chance.uniform(0.25, 0.6)), 5)}
                for zone in ZONES for kind in ("on-demand", "spot")
            ]
            found.append({
                "name": f"{family}.{size}",
                "capacity": {"cpu": str(vcpus), "memory": f"{vcpus * ratio}Gi",
                             "pods": str(min(29 * vcpus // 2, 234)), "ephemeral-storage": "20Gi"},
                "overhead": {"cpu": f"{60 + 5 * vcpus}m", "memory": f"{400 + vcpus * ratio * 75}Mi"},
                "labels": {"kubernetes.io/arch": [arch], "kubernetes.io/os": ["linux"],
                           "karpenter.k8s.aws/instance-family": [family],
                           "karpenter.k8s.aws/instance-category": [family[0]],
                           "karpenter.k8s.aws/instance-cpu": [str(vcpus)]},
                "offerings": offers,
                "attachLimits": {"ebs.csi.aws.com": 26},
            })
    if gpu:
        for size, count in (("xlarge", 1), ("12xlarge", 4)):
            found.append({
                "name": f"g5.{size}",
                "capacity": {"cpu": str(4 * count), "memory": f"{16 * count}Gi", "pods": "58",
                             "ephemeral-storage": "20Gi", "nvidia.com/gpu": str(count)},
                "overhead": {"cpu": "100m", "memory": "1Gi"},
                "labels": {"kubernetes.io/arch": ["amd64"], "kubernetes.io/os": ["linux"],
                           "karpenter.k8s.aws/instance-family": ["g5"],
                           "karpenter.k8s.aws/instance-category": ["g"],
                           "karpenter.k8s.aws/instance-cpu": [str(4 * count)]},
                "offerings": [{"zone": z, "capacityType": "on-demand", "price": 1.237 * count, "available": True}
                              for z in ZONES],
            })
    return found


def node_pool(name: str, chance: random.Random, **extra: Any) -> Object:
    kinds = chance.choice((["on-demand"], ["spot", "on-demand"], ["on-demand"]))
    requirements = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": kinds}]
    if chance.random() < 0.7:
        requirements.append({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]})
    if chance.random() < 0.4:
        requirements.append({"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["33"]})
    template: Object = {"metadata": {"labels": {"team": name}}, "spec": {
        "requirements": requirements,
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
    }}
    template["spec"] |= extra.pop("template", {})
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {"template": template} | extra}


def pods(name: str, count: int, chance: random.Random, **spec: Any) -> list[Object]:
    labels = {"app": name} | spec.pop("labels", {})
    requests = spec.pop("requests", None) or {
        "cpu": f"{chance.choice(CPU)}m", "memory": f"{chance.choice(MEMORY)}Mi"}
    return [
        {"apiVersion": "v1", "kind": "Pod",
         "metadata": {"name": f"{name}-{i}", "namespace": "default", "labels": labels},
         "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]} | spec}
        for i in range(count)
    ]


def _selector(name: str) -> Object:
    return {"matchLabels": {"app": name}}


def spread(name: str, chance: random.Random) -> Object:
    key = chance.choice(("topology.kubernetes.io/zone", "kubernetes.io/hostname", "topology.kubernetes.io/zone"))
    constraint: Object = {"maxSkew": chance.choice((1, 1, 2)), "topologyKey": key, "labelSelector": _selector(name),
                          "whenUnsatisfiable": chance.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"))}
    if key.endswith("zone") and constraint["whenUnsatisfiable"] == "DoNotSchedule" and chance.random() < 0.3:
        constraint["minDomains"] = chance.choice((2, 3))
    return {"topologySpreadConstraints": [constraint]}


def affinity(name: str, chance: random.Random, others: list[str]) -> Object:
    key = chance.choice(("topology.kubernetes.io/zone", "kubernetes.io/hostname"))
    anti = chance.random() < 0.6
    target = name if anti or not others or chance.random() < 0.7 else chance.choice(others)
    term = {"labelSelector": _selector(target), "topologyKey": key if not anti else "kubernetes.io/hostname"}
    field = "podAntiAffinity" if anti else "podAffinity"
    if chance.random() < 0.3:
        return {"affinity": {field: {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": chance.choice((1, 50, 100)), "podAffinityTerm": term}]}}}
    return {"affinity": {field: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def node_affinity(chance: random.Random) -> Object:
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": chance.sample(ZONES, 2)}
    family = {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": [chance.choice("cmr")]}
    style = chance.choice(("required", "preferred", "selector"))
    if style == "selector":
        return {"nodeSelector": {"topology.kubernetes.io/zone": chance.choice(ZONES)}}
    if style == "required":
        terms = [{"matchExpressions": [chance.choice((zone, family))]}]
        return {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": chance.choice((1, 10, 100)), "preference": {"matchExpressions": [chance.choice((zone, family))]}}]}}}


def node(name: str, vcpus: int, memory: int, zone: str, pool: str) -> Object:
    amounts = {"cpu": str(vcpus), "memory": f"{memory}Gi", "pods": "58", "ephemeral-storage": "20Gi"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, "karpenter.sh/nodepool": pool,
              "karpenter.sh/capacity-type": "on-demand", "node.kubernetes.io/instance-type": "m5.xlarge",
              "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "karpenter.sh/registered": "true",
              "karpenter.sh/initialized": "true", "team": pool}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": f"aws:///{zone}/{name}"},
            "status": {"capacity": amounts, "allocatable": amounts,
                       "conditions": [{"type": "Ready", "status": "True"}]}}


def daemonset(name: str, cpu: int, memory: int) -> Object:
    template = {"metadata": {"labels": {"daemon": name}}, "spec": {
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "i",
                        "resources": {"requests": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}}}]}}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"selector": {"matchLabels": {"daemon": name}}, "template": template}}


def workload(index: int, budget: int, chance: random.Random, names: list[str], taint: Object | None) -> list[Object]:
    name = f"w{index}"
    count = max(1, min(budget, int(chance.paretovariate(1.1) * 3)))
    kind = chance.choice(("plain", "plain", "spread", "spread", "affinity", "node", "port", "tolerate", "mixed"))
    spec: Object = {}
    if kind in ("spread", "mixed"):
        spec |= spread(name, chance)
    if kind in ("affinity", "mixed"):
        spec |= affinity(name, chance, names)
    if kind == "node":
        spec |= node_affinity(chance)
    if kind == "tolerate" and taint:
        spec["tolerations"] = [{"key": taint["key"], "operator": "Exists"}]
    made = pods(name, count, chance, **spec)
    if kind == "port":
        for pod in made:
            pod["spec"]["containers"][0]["ports"] = [{"containerPort": 8080, "hostPort": 8080 + index}]
    names.append(name)
    return made


def scenario(seed: int) -> Object:
    chance = random.Random(seed)
    total = chance.choice((5, 10, 20, 40, 80, 150, 250, 400))
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"} if chance.random() < 0.25 else None
    pools = [node_pool("general", chance)]
    if chance.random() < 0.4:
        extra: Object = {"weight": chance.choice((10, 50))} if chance.random() < 0.6 else {}
        if chance.random() < 0.4:
            extra["limits"] = {"cpu": str(chance.choice((8, 32, 100)))}
        template = {"taints": [taint]} if taint else {}
        pools.append(node_pool("second", chance, template=template, **extra))
    objects: list[Object] = list(pools)
    if chance.random() < 0.5:
        objects += [daemonset("agent", 100, 128), daemonset("logs", 50, 200)][: chance.choice((1, 2))]
    if chance.random() < 0.35:
        objects += [node(f"node-{i}", 4, 15, chance.choice(ZONES), "general") for i in range(chance.randint(1, 6))]
    names: list[str] = []
    left, index = total, 0
    while left > 0:
        made = workload(index, left, chance, names, taint)
        objects += made
        left -= len(made)
        index += 1
    if chance.random() < 0.15:
        objects += pods("gpu", chance.randint(1, 4), chance,
                        requests={"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"})
    return {"name": f"seed-{seed}", "objects": objects, "catalog": catalog(chance, gpu=True)}
