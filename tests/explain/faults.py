"""Faults of explanations: each makes a case wrong in one way, and says what is right."""

from __future__ import annotations

from typing import Any

from tests.explain.cluster_case import (
    ARCH,
    CAPACITY,
    CATEGORY,
    HOSTNAME,
    TYPE,
    TYPES,
    ZONE,
    ZONES,
    Case,
    Expected,
    Json,
    condition,
    need,
    node,
    nodeclass,
    nodepool,
)


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
