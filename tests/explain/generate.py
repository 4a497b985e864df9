"""The labelled corpus of explanations: clusters in which one thing is wrong, and which.

Each case is a small cluster of several NodePools, a pod that one of them is meant for, and one fault. The other
NodePools are none that the pod may use: another team's, tainted, too old to be ready. What is right follows from how
the case is made, never from what the explanation says. `python -m tests.explain.generate` writes the corpus again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).with_name("corpus.jsonl")
Json = dict[str, Any]

ZONE, ARCH, CAPACITY = "topology.kubernetes.io/zone", "kubernetes.io/arch", "karpenter.sh/capacity-type"
TYPE, HOSTNAME = "node.kubernetes.io/instance-type", "kubernetes.io/hostname"
CATEGORY = "karpenter.k8s.aws/instance-category"
ZONES = ("z1", "z2", "z3")
TEAMS = ("payments", "search", "checkout", "orders", "frontend", "billing")
#: name: cpu, GiB, price, category, arch, extended resources
TYPES: dict[str, tuple[int, int, float, str, str, Json]] = {
    "c.large": (2, 4, 0.085, "c", "amd64", {}),
    "c.xlarge": (4, 8, 0.17, "c", "amd64", {}),
    "m.large": (2, 8, 0.10, "m", "amd64", {}),
    "m.xlarge": (4, 16, 0.20, "m", "amd64", {}),
    "m.4xlarge": (16, 64, 0.80, "m", "amd64", {}),
    "r.4xlarge": (16, 128, 1.0, "r", "amd64", {}),
    "t.medium": (2, 4, 0.04, "t", "arm64", {}),
    "g.xlarge": (4, 16, 1.2, "g", "amd64", {"nvidia.com/gpu": "1"}),
}


def catalogue() -> list[Json]:
    """The instance types that all cases share, as a catalogue file has them."""
    return [
        {
            "name": name,
            "capacity": {"cpu": str(cpu), "memory": f"{gib}Gi", "pods": "58", "ephemeral-storage": "20Gi", **more},
            "overhead": {"cpu": "100m", "memory": "500Mi"},
            "labels": {ARCH: [arch], "kubernetes.io/os": ["linux"], CATEGORY: [category]},
            "offerings": [
                {"zone": zone, "capacityType": kind, "price": round(price * (0.4 if kind == "spot" else 1.0), 4)}
                for zone in ZONES
                for kind in ("on-demand", "spot")
            ],
        }
        for name, (cpu, gib, price, category, arch, more) in TYPES.items()
    ]


class Case:
    """A cluster, a pod in it, and the one thing that is wrong."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.team, *self.others = chance.sample(TEAMS, 4)
        self.name = f"pool-{self.team}"
        self.pool = nodepool(self.name, labels={"team": self.team})
        self.node_class = nodeclass("main")
        self.pod = pod("app", nodeSelector={"team": self.team})
        self.more: list[Json] = []
        self.unavailable: list[list[str]] = []
        self.meant = True
        """Whether the pool that the pod is meant for is in the cluster."""
        self.decoys = [self._decoy(team, chance.choice(_DECOYS)) for team in self.others[: chance.randint(0, 3)]]

    def _decoy(self, team: str, kind: str) -> Json:
        found = nodepool(f"pool-{team}", labels={"team": team})
        if kind == "tainted":
            found["spec"]["template"]["spec"]["taints"] = [{"key": "team", "value": team, "effect": "NoSchedule"}]
        elif kind == "unready":
            found["status"] = {"conditions": [condition("Ready", "False", "NotReady", f"{team} is not set up")]}
        elif kind == "leaving":
            found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            found["metadata"]["finalizers"] = ["karpenter.sh/termination"]
        elif kind == "small":
            need(found, TYPE, "In", "c.large")
        return found

    def manifests(self) -> list[Json]:
        pools = [*self.decoys, *([self.pool] if self.meant else [])]
        self.chance.shuffle(pools)
        return [*pools, self.node_class, *self.more, self.pod]

    @property
    def spec(self) -> Json:
        found: Json = self.pool["spec"]["template"]["spec"]
        return found

    @property
    def asked(self) -> Json:
        found: Json = self.pod["spec"]["containers"][0]["resources"]["requests"]
        return found


_DECOYS = ("plain", "tainted", "unready", "leaving", "small")


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason or kind,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def nodepool(name: str, labels: Json | None = None) -> Json:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "main"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "metadata": {"labels": labels or {}},
                "spec": {
                    "nodeClassRef": reference,
                    "requirements": [
                        {"key": CAPACITY, "operator": "In", "values": ["on-demand"]},
                        {"key": ARCH, "operator": "In", "values": ["amd64"]},
                        {"key": CATEGORY, "operator": "In", "values": ["c", "m", "r"]},
                    ],
                },
            },
        },
    }


def need(pool: Json, key: str, operator: str, *values: str, **more: Any) -> None:
    """Require something of a pool; what it required of the label before is gone."""
    found = pool["spec"]["template"]["spec"]["requirements"]
    found[:] = [each for each in found if each["key"] != key]
    found.append({"key": key, "operator": operator, "values": list(values), **more})


def nodeclass(name: str) -> Json:
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "role": "node",
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
        },
    }


def pod(name: str, cpu: str = "500m", memory: str = "512Mi", labels: Json | None = None, **spec: Any) -> Json:
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {"app": name}},
        "spec": {"containers": [container], **spec},
    }


def node(name: str, pool: str, kind: str = "m.large", zone: str = "z1") -> list[Json]:
    """A node of a pool and its NodeClaim, full with one pod."""
    cpu, gib = TYPES[kind][:2]
    amounts = {"cpu": str(cpu), "memory": f"{gib}Gi", "pods": "58", "ephemeral-storage": "20Gi"}
    labels = {
        "karpenter.sh/nodepool": pool,
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
        TYPE: kind,
        ZONE: zone,
        CAPACITY: "on-demand",
        ARCH: "amd64",
        HOSTNAME: name,
    }
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": f"claim-{name}", "labels": labels},
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "main"},
        },
        "status": {"nodeName": name, "providerID": f"aws:///z/{name}", "capacity": amounts, "allocatable": amounts},
    }
    made = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": f"aws:///z/{name}"},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    full = pod(f"on-{name}", cpu=str(cpu), memory="1Gi", labels={"app": "other"})
    full["spec"]["nodeName"] = name
    full["status"] = {"phase": "Running"}
    return [claim, made, full]


Expected = tuple[str, str, bool]
"""The code, the object to change, and whether a change of one object mends it."""


# -- faults: each makes a case wrong in one way, and says what is right


def misspelt_value(case: Case) -> Expected:
    at = case.chance.randrange(1, len(case.team) - 1)
    wrong = case.team[:at] + case.team[at + 1 :]
    case.pod["spec"]["nodeSelector"]["team"] = wrong
    return "NO_TYPE_MATCHES", "pod/default/app", True


def unknown_label(case: Case) -> Expected:
    del case.pod["spec"]["nodeSelector"]["team"]
    key = case.chance.choice(["example.com/rack", "tier", "gpu-model", "disk"])
    case.pod["spec"]["nodeSelector"][key] = case.chance.choice(["a", "fast", "x1"])
    return "UNKNOWN_LABEL", "pod/default/app", True


def misspelt_label(case: Case) -> Expected:
    case.pod["spec"]["nodeSelector"] = {"taem": case.team}
    return "UNKNOWN_LABEL", "pod/default/app", True


def taint(case: Case) -> Expected:
    effect = case.chance.choice(["NoSchedule", "NoExecute"])
    case.spec["taints"] = [{"key": case.chance.choice(["dedicated", "batch"]), "value": case.team, "effect": effect}]
    return "UNTOLERATED_TAINT", "pod/default/app", True


def two_taints(case: Case) -> Expected:
    case.spec["taints"] = [{"key": key, "effect": "NoSchedule"} for key in ("dedicated", "night")]
    case.pod["spec"]["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    return "UNTOLERATED_TAINT", "pod/default/app", True


def too_much_cpu(case: Case) -> Expected:
    case.asked["cpu"] = case.chance.choice(["16", "20", "48", "200"])
    return "NO_TYPE_FITS", f"nodepool/{case.name}", True


def too_much_memory(case: Case) -> Expected:
    case.asked["memory"] = case.chance.choice(["130Gi", "200Gi", "1000Gi"])
    return "NO_TYPE_FITS", f"nodepool/{case.name}", True


def too_small_pool(case: Case) -> Expected:
    """Others have types that are large enough; this pool allows small ones."""
    need(case.pool, TYPE, "In", "m.large", "c.large")
    case.asked["cpu"] = case.chance.choice(["3", "6", "12"])
    return "NO_TYPE_FITS", f"nodepool/{case.name}", True


def too_much_disk(case: Case) -> Expected:
    case.asked["ephemeral-storage"] = case.chance.choice(["40Gi", "100Gi"])
    return "NO_TYPE_FITS", f"nodepool/{case.name}", True


def cpu_limit(case: Case) -> Expected:
    used = case.chance.randint(1, 3)
    for number in range(used):
        case.more += node(f"n{number}", case.name)
    case.pool["spec"]["limits"] = {"cpu": str(2 * used + case.chance.randint(0, 1))}
    return "LIMIT_REACHED", f"nodepool/{case.name}", True


def memory_limit(case: Case) -> Expected:
    case.more += node("n0", case.name)
    case.pool["spec"]["limits"] = {"memory": "9Gi", "cpu": "1000"}
    return "LIMIT_REACHED", f"nodepool/{case.name}", True


def node_limit(case: Case) -> Expected:
    case.more += node("n0", case.name)
    case.pool["spec"]["limits"] = {"nodes": "1"}
    return "LIMIT_REACHED", f"nodepool/{case.name}", True


def zero_limit(case: Case) -> Expected:
    case.pool["spec"]["limits"] = {"cpu": "0"}
    return "LIMIT_REACHED", f"nodepool/{case.name}", True


def volume_zone(case: Case) -> Expected:
    allowed, other = case.chance.sample(ZONES, 2)
    need(case.pool, ZONE, "In", allowed)
    case.more += bound_volume(other)
    case.pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return "VOLUME_ZONE", "pod/default/app", True


def bound_volume(zone: str) -> list[Json]:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"name": "data", "namespace": "default"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
        "status": {"phase": "Bound"},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOnce"], "storageClassName": "gp3"},
        "status": {"phase": "Bound"},
    }
    return [volume, claim]


def min_values(case: Case) -> Expected:
    names = case.chance.sample([name for name, row in TYPES.items() if row[3] in "cm"], 3)
    need(case.pool, TYPE, "In", *names, minValues=3)
    need(case.pool, ZONE, "In", "z1", "z2")
    case.pool["spec"]["template"]["spec"]["requirements"][-2]["minValues"] = 3
    case.asked["memory"] = "60Gi" if "m.4xlarge" in names else "12Gi"
    if not any(TYPES[name][1] > 12 for name in names):
        need(case.pool, TYPE, "In", *names[:2], "m.4xlarge", minValues=3)
    return "MIN_VALUES", f"nodepool/{case.name}", True


def pool_not_ready(case: Case) -> Expected:
    why = case.chance.choice(["requirements conflict", "unknown field", "invalid budget schedule"])
    failed = condition("ValidationSucceeded", "False", "NodePoolValidationFailed", why)
    case.pool["status"] = {"conditions": [failed, condition("Ready", "False", "UnhealthyDependents")]}
    return "NO_NODEPOOL", f"nodepool/{case.name}", False


def pool_leaving(case: Case) -> Expected:
    case.pool["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    case.pool["metadata"]["finalizers"] = ["karpenter.sh/termination"]
    return "NO_NODEPOOL", f"nodepool/{case.name}", False


def class_not_ready(case: Case) -> Expected:
    kind, reason, message = case.chance.choice(
        [
            ("SubnetsReady", "SubnetsNotFound", "SubnetSelector did not match any Subnets"),
            ("SecurityGroupsReady", "SecurityGroupsNotFound", "SecurityGroupSelector did not match any"),
            ("AMIsReady", "AMINotFound", "AMISelector did not match any AMIs"),
            ("InstanceProfileReady", "RoleNotFound", 'role "node" does not exist'),
        ]
    )
    case.pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "broken"
    broken = nodeclass("broken")
    broken["status"] = {"conditions": [condition(kind, "False", reason, message), condition("Ready", "False")]}
    case.more.append(broken)
    return "BAD_NODECLASS", "ec2nodeclass/broken", False


def no_pool(case: Case) -> Expected:
    """The others are not ready, and are not meant for it either."""
    case.meant = False
    case.decoys = []
    static = nodepool("fixed")
    static["spec"]["replicas"] = 2
    case.decoys = [static] if case.chance.random() < 0.5 else [nodepool("gone")]
    if "replicas" not in case.decoys[0]["spec"]:
        case.decoys[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        case.pod["spec"]["nodeSelector"] = {}
        return "NO_NODEPOOL", "nodepool/gone", False
    case.pod["spec"]["nodeSelector"] = {}
    return "NO_NODEPOOL", "pod/default/app", False


def zone_not_allowed(case: Case) -> Expected:
    allowed, other = case.chance.sample(ZONES, 2)
    need(case.pool, ZONE, "In", allowed)
    case.pod["spec"]["nodeSelector"][ZONE] = other
    return "NO_TYPE_MATCHES", "pod/default/app", True


def other_arch(case: Case) -> Expected:
    case.pod["spec"]["nodeSelector"][ARCH] = "arm64"
    return "NO_TYPE_MATCHES", "pod/default/app", True


def spot_only(case: Case) -> Expected:
    case.pod["spec"]["nodeSelector"][CAPACITY] = "spot"
    return "NO_TYPE_MATCHES", "pod/default/app", True


def wrong_type(case: Case) -> Expected:
    case.pod["spec"]["nodeSelector"][TYPE] = case.chance.choice(["m.9xlarge", "x.large", "m.lrage"])
    return "NO_TYPE_MATCHES", "pod/default/app", True


def required_affinity(case: Case) -> Expected:
    term = {"matchExpressions": [{"key": CATEGORY, "operator": "In", "values": ["t", "g"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    case.pod["spec"]["affinity"] = {"nodeAffinity": required}
    return "NO_TYPE_MATCHES", "pod/default/app", True


def letters_as_types(case: Case) -> Expected:
    case.spec["requirements"] = [each for each in case.spec["requirements"] if each["key"] != CATEGORY]
    need(case.pool, TYPE, "In", *case.chance.sample(["c", "m", "r"], 2))
    return "NO_TYPE_MATCHES", f"nodepool/{case.name}", True


def zone_of_nowhere(case: Case) -> Expected:
    need(case.pool, ZONE, "In", case.chance.choice(["z9", "zone-1", "us-east-1a"]))
    return "NO_TYPE_MATCHES", f"nodepool/{case.name}", True


def no_gpu(case: Case) -> Expected:
    case.asked["nvidia.com/gpu"] = "1"
    case.pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    return "NO_TYPE_FITS", "pod/default/app", True


def tainted_gpu_pool(case: Case) -> Expected:
    """The general pool has no GPU; the GPU pool has a taint."""
    case.asked["nvidia.com/gpu"] = "1"
    case.pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    gpu = nodepool("gpu", labels={"team": case.team})
    need(gpu, CATEGORY, "In", "g")
    gpu["spec"]["template"]["spec"]["taints"] = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    case.more.append(gpu)
    return "UNTOLERATED_TAINT", "pod/default/app", True


def missing_claim(case: Case) -> Expected:
    case.pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "lost"}}]
    return "VOLUME_MISSING", "pod/default/app", False


def too_many_domains(case: Case) -> Expected:
    selector = {"matchLabels": {"app": "app"}}
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    case.pod["spec"]["topologySpreadConstraints"] = [{**spread, "minDomains": 3}]
    need(case.pool, ZONE, "In", "z1", "z2")
    for number, zone in enumerate(("z1", "z2")):
        made = node(f"n{number}", case.name, zone=zone)
        made[2]["metadata"]["labels"] = {"app": "app"}
        made[1]["metadata"]["labels"]["team"] = case.team
        case.more += made
    return "SPREAD", f"nodepool/{case.name}", True


def kept_apart(case: Case) -> Expected:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "other"}}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    case.pod["spec"]["affinity"] = rule
    for number, zone in enumerate(ZONES):
        case.more += node(f"n{number}", case.name, zone=zone)
    return "ANTI_AFFINITY", f"nodepool/{case.name}", True


def alone(case: Case) -> Expected:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "database"}}}
    case.pod["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return "AFFINITY", f"nodepool/{case.name}", True


def port_of_daemons(case: Case) -> Expected:
    port = case.chance.choice([80, 8080, 9100])
    ports = [{"containerPort": port, "hostPort": port}]
    spec = {"containers": [{"name": "a", "ports": ports}], "tolerations": [{"operator": "Exists"}]}
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": spec}
    selector = {"matchLabels": {"app": "agent"}}
    daemon = {"selector": selector, "template": template}
    case.more.append(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": "kube-system"},
            "spec": daemon,
        }
    )
    case.pod["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return "HOST_PORT_TAKEN", f"nodepool/{case.name}", True


def out_of_capacity(case: Case) -> Expected:
    case.unavailable = [[name, zone, "on-demand"] for name in TYPES for zone in ZONES]
    return "NO_OFFERING", f"nodepool/{case.name}", False


def node_of_another_name(case: Case) -> Expected:
    case.pod["spec"]["nodeSelector"] = {HOSTNAME: "ip-10-0-0-1"}
    return "NO_TYPE_MATCHES", "pod/default/app", True


def devices(case: Case) -> Expected:
    case.pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return "DEVICES", "pod/default/app", False


# -- two pools that the pod may use, each with a trouble of its own: the one that gets further is to blame


def _second(case: Case, kind: str = "c.large") -> Json:
    """Another pool of the team, with one small type."""
    other = nodepool("second", labels={"team": case.team})
    need(other, TYPE, "In", kind)
    case.more.append(other)
    return other


def limit_beside_too_small(case: Case) -> Expected:
    _second(case)
    case.asked["cpu"] = "3"
    case.pool["spec"]["limits"] = {"cpu": "1"}
    return "LIMIT_REACHED", f"nodepool/{case.name}", True


def class_not_ready_beside_too_small(case: Case) -> Expected:
    _second(case)
    case.asked["cpu"] = case.chance.choice(["3", "8"])
    return class_not_ready(case)


def leaving_beside_limit(case: Case) -> Expected:
    second = _second(case)
    second["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return zero_limit(case)


def tainted_beside_too_small(case: Case) -> Expected:
    second = _second(case, "m.4xlarge")
    second["spec"]["template"]["spec"]["taints"] = [{"key": "dedicated", "effect": "NoSchedule"}]
    return too_small_pool(case)


def other_zone_beside_too_small(case: Case) -> Expected:
    """The large pool is where the volume is not; the small one is where it is."""
    need(_second(case, "m.4xlarge"), ZONE, "In", "z1")
    need(case.pool, ZONE, "In", "z2")
    need(case.pool, TYPE, "In", "m.large")
    case.more += bound_volume("z2")
    case.pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    case.asked["cpu"] = "3"
    return "NO_TYPE_FITS", f"nodepool/{case.name}", True


# -- two troubles of the pool that the pod is meant for: no other pool is to blame


def class_not_ready_at_the_limit(case: Case) -> Expected:
    cpu_limit(case)
    return class_not_ready(case)


def taint_at_the_limit(case: Case) -> Expected:
    zero_limit(case)
    return taint(case)


def taint_of_a_pool_not_ready(case: Case) -> Expected:
    pool_not_ready(case)
    code, thing, _ = taint(case)
    return code, thing, False


def misspelt_value_at_the_limit(case: Case) -> Expected:
    """Others are tainted: tolerating their taints would not help."""
    case.decoys = [case._decoy(team, "tainted") for team in case.others]
    cpu_limit(case)
    return misspelt_value(case)


def unknown_label_beside_taints(case: Case) -> Expected:
    case.decoys = [case._decoy(team, "tainted") for team in case.others]
    too_small_pool(case)
    return unknown_label(case)


def exceeded_limit(case: Case) -> Expected:
    """Nodes were there before the limit was lowered."""
    for number in range(case.chance.randint(2, 4)):
        case.more += node(f"n{number}", case.name)
    case.pool["spec"]["limits"] = {"cpu": "1"}
    return "LIMIT_REACHED", f"nodepool/{case.name}", True


def too_much_of_two(case: Case) -> Expected:
    too_much_cpu(case)
    return too_much_disk(case)


def contradicting_pool(case: Case) -> Expected:
    """Two requirements of the pool itself have no type in common."""
    need(case.pool, TYPE, "In", "g.xlarge")
    return "NO_TYPE_MATCHES", f"nodepool/{case.name}", True


def other_system(case: Case) -> Expected:
    need(case.pool, "kubernetes.io/os", "In", "windows")
    return "NO_TYPE_MATCHES", f"nodepool/{case.name}", True


def another_pool_by_name(case: Case) -> Expected:
    """The pod names its pool with a slip of the finger."""
    wrong = case.name[:-1] + case.chance.choice("xyz")
    case.pod["spec"]["nodeSelector"] = {"karpenter.sh/nodepool": wrong}
    return "NO_TYPE_MATCHES", "pod/default/app", True


def absent_class_of_claim(case: Case) -> Expected:
    case.pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    case.more.append(_claim(storageClassName="absent"))
    return "VOLUME_MISSING", "pod/default/app", False


def claim_without_class(case: Case) -> Expected:
    case.pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    case.more.append(_claim())
    return "VOLUME_CLASS", "pod/default/app", False


def _claim(**spec: Any) -> Json:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "data", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": wanted | spec}


def larger_than_any(case: Case) -> Expected:
    case.pod["spec"]["affinity"] = _affinity("karpenter.k8s.aws/instance-cpu", "Gt", "500")
    return "NO_TYPE_MATCHES", "pod/default/app", True


def _affinity(key: str, operator: str, *values: str) -> Json:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def kept_from_its_team(case: Case) -> Expected:
    """The selector asks for a value that the affinity forbids."""
    case.pod["spec"]["affinity"] = _affinity("team", "NotIn", case.team)
    return "NO_TYPE_MATCHES", "pod/default/app", True


def memory_limit_beside_taint(case: Case) -> Expected:
    """Its own pool is at the limit; the one with room has another team's taint."""
    case.pool["spec"]["limits"] = {"memory": "1Gi"}
    second = nodepool("second", labels={"team": case.team})
    second["spec"]["template"]["spec"]["taints"] = [{"key": "night", "effect": "NoSchedule"}]
    case.more.append(second)
    return "LIMIT_REACHED", f"nodepool/{case.name}", True


FAULTS: tuple[Callable[[Case], Expected], ...] = (
    misspelt_value,
    unknown_label,
    misspelt_label,
    taint,
    two_taints,
    too_much_cpu,
    too_much_memory,
    too_small_pool,
    too_much_disk,
    cpu_limit,
    memory_limit,
    node_limit,
    zero_limit,
    volume_zone,
    min_values,
    pool_not_ready,
    pool_leaving,
    class_not_ready,
    no_pool,
    zone_not_allowed,
    other_arch,
    spot_only,
    wrong_type,
    required_affinity,
    letters_as_types,
    zone_of_nowhere,
    no_gpu,
    tainted_gpu_pool,
    missing_claim,
    too_many_domains,
    kept_apart,
    alone,
    port_of_daemons,
    out_of_capacity,
    node_of_another_name,
    devices,
    limit_beside_too_small,
    class_not_ready_beside_too_small,
    leaving_beside_limit,
    tainted_beside_too_small,
    other_zone_beside_too_small,
    class_not_ready_at_the_limit,
    taint_at_the_limit,
    taint_of_a_pool_not_ready,
    misspelt_value_at_the_limit,
    unknown_label_beside_taints,
    exceeded_limit,
    too_much_of_two,
    contradicting_pool,
    other_system,
    another_pool_by_name,
    absent_class_of_claim,
    claim_without_class,
    larger_than_any,
    kept_from_its_team,
    memory_limit_beside_taint,
)
CASES_PER_FAULT = 6


def cases() -> list[Json]:
    """The corpus: every fault in several clusters, always the same."""
    made = []
    for fault in FAULTS:
        for number in range(CASES_PER_FAULT):
            case = Case(random.Random(f"{fault.__name__} {number}"))
            code, thing, mends = fault(case)
            made.append(
                {
                    "name": f"{fault.__name__}-{number}",
                    "pod": "default/app",
                    "code": code,
                    "object": thing,
                    "usable": [case.name] if case.meant else [],
                    "remedy": mends,
                    "unavailable": case.unavailable,
                    "manifests": case.manifests(),
                }
            )
    return made


def main() -> None:
    CORPUS.write_text("".join(json.dumps(case, sort_keys=True) + "\n" for case in cases()))


if __name__ == "__main__":
    main()
