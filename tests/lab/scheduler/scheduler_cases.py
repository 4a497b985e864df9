"""Random small clusters with one pod to place: decided by the real kube-scheduler and by ours."""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]

ZONES = ("za", "zb", "zc")
APPS = ("web", "db", "cache")
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
NAMESPACES = [
    {"metadata": {"name": "default", "labels": {"team": "a"}}},
    {"metadata": {"name": "other", "labels": {"team": "b"}}},
    {"metadata": {"name": "plain"}},
]


class Cases:
    """A stream of cases; the same seed gives the same cases."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.uid = 0

    def odds(self, share: float) -> bool:
        return self.r.random() < share

    def meta(self, name: str, namespace: str | None = None, **more: Any) -> Json:
        self.uid += 1
        found: Json = {"name": name, "uid": f"uid-{self.uid}", **more}
        return found | ({"namespace": namespace} if namespace else {})

    def case(self) -> Json:
        names = [f"n{at}" for at in range(self.r.randint(1, 6))]
        case: Json = {
            "nodes": [self.node(name) for name in names],
            "namespaces": NAMESPACES,
            "services": [],
            "replicaSets": [],
            "claims": [],
            "volumes": [],
            "classes": [],
            "csiNodes": [],
            "budgets": [],
        }
        case["pods"] = [self.pod(f"p{at}", self.r.choice(names)) for at in range(self.r.randint(0, 8))]
        case["pending"] = self.pending(case)
        if self.odds(0.3):
            self.owners(case)
        if self.odds(0.2):
            self.volumes(case, names)
        if self.odds(0.3):
            case["budgets"] = [self.budget(at) for at in range(self.r.randint(1, 2))]
        return case

    def node(self, name: str) -> Json:
        labels: Json = {HOST: name} if self.odds(0.95) else {}
        if self.odds(0.85):
            labels[ZONE] = self.r.choice(ZONES)
        if self.odds(0.5):
            labels["disk"] = self.r.choice(("ssd", "hdd"))
        if self.odds(0.3):
            labels["cores"] = str(self.r.randint(1, 9))
        size = {
            "cpu": self.r.choice(("1", "2", "4", "3920m")),
            "memory": self.r.choice(("2Gi", "4Gi", "7910184Ki")),
            "pods": self.r.choice(("2", "10", "110")),
            "ephemeral-storage": "10Gi",
        }
        if self.odds(0.2):
            size["example.com/gpu"] = str(self.r.randint(0, 2))
        spec: Json = {}
        if self.odds(0.08):
            spec["unschedulable"] = True
        if self.odds(0.25):
            spec["taints"] = [self.taint() for _ in range(self.r.randint(1, 2))]
        status: Json = {"capacity": size, "allocatable": size}
        if self.odds(0.2):
            status["images"] = [{"names": ["nginx:latest", "nginx:1"], "sizeBytes": 400000000}]
        return {"metadata": self.meta(name, labels=labels), "spec": spec, "status": status}

    def taint(self) -> Json:
        effect = self.r.choice(("NoSchedule", "PreferNoSchedule", "NoExecute", "PreferNoSchedule"))
        return {"key": self.r.choice(("a", "b")), "value": self.r.choice(("", "v")), "effect": effect}

    def toleration(self) -> Json:
        found: Json = {"operator": self.r.choice(("Exists", "Equal"))}
        if found["operator"] == "Equal" or self.odds(0.7):
            found["key"] = self.r.choice(("a", "b", "node.kubernetes.io/unschedulable"))
        if found["operator"] == "Equal":
            found["value"] = self.r.choice(("", "v"))
        if self.odds(0.5):
            found["effect"] = self.r.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
        return found

    def requests(self) -> Json:
        found: Json = {}
        if self.odds(0.7):
            found["cpu"] = self.r.choice(("100m", "250m", "500m", "1", "1500m", "3"))
        if self.odds(0.6):
            found["memory"] = self.r.choice(("64Mi", "256Mi", "1Gi", "3Gi", "100M"))
        if self.odds(0.08):
            found["example.com/gpu"] = "1"
        if self.odds(0.08):
            found["ephemeral-storage"] = self.r.choice(("1Gi", "20Gi"))
        return found

    def container(self, name: str) -> Json:
        requests = self.requests()
        found: Json = {"name": name, "image": self.r.choice(("nginx", "nginx:1", "redis:7")), "resources": {}}
        if requests:
            found["resources"] = {"requests": requests, "limits": {k: v for k, v in requests.items() if "/" in k}}
        if self.odds(0.12):
            port = {"containerPort": 80, "hostPort": self.r.choice((80, 443)), "protocol": "TCP"}
            found["ports"] = [port | ({"hostIP": "10.0.0.1"} if self.odds(0.3) else {})]
        return found

    def pod(self, name: str, node: str) -> Json:
        app = self.r.choice(APPS)
        namespace = self.r.choice(("default", "default", "default", "other", "plain"))
        labels = {"app": app} | ({"tier": self.r.choice("xy")} if self.odds(0.5) else {})
        spec: Json = {
            "schedulerName": "default-scheduler",
            "containers": [self.container(f"c{at}") for at in range(self.r.randint(1, 2))],
        }
        if node:
            spec["nodeName"] = node
        if self.odds(0.15):
            spec["initContainers"] = [
                self.container(f"i{at}") | ({"restartPolicy": "Always"} if self.odds(0.5) else {})
                for at in range(self.r.randint(1, 2))
            ]
        if self.odds(0.4):
            spec["priority"] = self.r.choice((-5, 0, 10, 100))
        if self.odds(0.35):
            spec["affinity"] = self.pod_affinities()
        start = f"2026-01-01T00:0{self.r.randint(0, 9)}:00Z"
        status: Json = {"phase": "Running", "startTime": start} if node else {"phase": "Pending"}
        metadata = self.meta(name, namespace, labels=labels, creationTimestamp="2026-01-01T00:00:00Z")
        if node and self.odds(0.05):
            metadata |= {"deletionTimestamp": "2026-01-01T01:00:00Z", "finalizers": ["x/y"]}
        return {"metadata": metadata, "spec": spec, "status": status}

    def pending(self, case: Json) -> Json:
        pod = self.pod("pending", "")
        spec = pod["spec"]
        pod["metadata"]["generation"] = 1
        if self.odds(0.4):
            spec["tolerations"] = [self.toleration() for _ in range(self.r.randint(1, 2))]
        if self.odds(0.15):
            spec["nodeSelector"] = {"disk": self.r.choice(("ssd", "hdd"))}
        if self.odds(0.25):
            spec.setdefault("affinity", {})["nodeAffinity"] = self.node_affinity(case)
        if self.odds(0.35):
            keys = self.r.sample((HOST, ZONE, "disk"), self.r.randint(1, 2))
            spec["topologySpreadConstraints"] = [self.spread(key, pod) for key in keys]
        if self.odds(0.1):
            spec["overhead"] = {"cpu": "100m"}
        if self.odds(0.1):
            spec["resources"] = {"requests": {"cpu": self.r.choice(("500m", "2"))}}
        if self.odds(0.1) and spec.get("priority", 0) > 0:
            spec["preemptionPolicy"] = "Never"
        return pod

    def selector(self) -> Json:
        roll = self.r.random()
        if roll < 0.6:
            return {"matchLabels": {"app": self.r.choice(APPS)}}
        operator = self.r.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        key = self.r.choice(("app", "tier"))
        values = self.r.sample(("web", "db", "x", "y"), 2) if operator in ("In", "NotIn") else None
        expression: Json = {"key": key, "operator": operator} | ({"values": values} if values else {})
        return {"matchExpressions": [expression]} if roll < 0.95 else {}

    def term(self) -> Json:
        found: Json = {"topologyKey": self.r.choice((HOST, ZONE, "disk")), "labelSelector": self.selector()}
        if self.odds(0.2):
            found["namespaces"] = self.r.sample(("default", "other", "plain"), self.r.randint(1, 2))
        if self.odds(0.2):
            chosen: tuple[Json, ...] = (
                {},
                {"matchLabels": {"team": "b"}},
                {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
            )
            found["namespaceSelector"] = self.r.choice(chosen)
        return found

    def pod_affinities(self) -> Json:
        found: Json = {}
        for kind in ("podAffinity", "podAntiAffinity"):
            part: Json = {}
            if self.odds(0.35):
                part["requiredDuringSchedulingIgnoredDuringExecution"] = [
                    self.term() for _ in range(self.r.randint(1, 2))
                ]
            if self.odds(0.35):
                part["preferredDuringSchedulingIgnoredDuringExecution"] = [
                    {"weight": self.r.randint(1, 100), "podAffinityTerm": self.term()}
                    for _ in range(self.r.randint(1, 2))
                ]
            if part:
                found[kind] = part
        return found

    def expression(self) -> Json:
        operator = self.r.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            return {"key": "cores", "operator": operator, "values": [str(self.r.randint(1, 9))]}
        key, values = self.r.choice((("disk", ["ssd"]), (ZONE, ["za", "zb"]), ("cores", ["1", "2", "3"])))
        return {"key": key, "operator": operator} | ({"values": values} if operator in ("In", "NotIn") else {})

    def node_affinity(self, case: Json) -> Json:
        found: Json = {}
        if self.odds(0.5):
            terms: list[Json] = [{"matchExpressions": [self.expression()]} for _ in range(self.r.randint(1, 2))]
            if self.odds(0.15):
                name = self.r.choice(case["nodes"])["metadata"]["name"]
                terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]
            found["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        if self.odds(0.6):
            found["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self.r.randint(1, 100), "preference": {"matchExpressions": [self.expression()]}}
                for _ in range(self.r.randint(1, 2))
            ]
        return found

    def spread(self, key: str, pod: Json) -> Json:
        found: Json = {
            "maxSkew": self.r.randint(1, 3),
            "topologyKey": key,
            "whenUnsatisfiable": self.r.choice(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": self.selector()
            if self.odds(0.5)
            else {"matchLabels": {"app": pod["metadata"]["labels"]["app"]}},
        }
        if self.odds(0.2) and found["whenUnsatisfiable"] == "DoNotSchedule":
            found["minDomains"] = self.r.randint(1, 4)
        if self.odds(0.2):
            found["nodeAffinityPolicy"] = self.r.choice(("Honor", "Ignore"))
        if self.odds(0.2):
            found["nodeTaintsPolicy"] = self.r.choice(("Honor", "Ignore"))
        if self.odds(0.1):
            found["matchLabelKeys"] = ["tier"]
        return found

    def owners(self, case: Json) -> None:
        pending = case["pending"]["metadata"]
        app = {"app": pending["labels"]["app"]}
        if self.odds(0.5):
            case["services"] = [{"metadata": self.meta("svc", pending["namespace"]), "spec": {"selector": app}}]
        if self.odds(0.7):
            spec = {"selector": {"matchLabels": app}, "template": {"metadata": {"labels": app}}}
            owner = {"metadata": self.meta("rs", pending["namespace"]), "spec": spec}
            case["replicaSets"] = [owner]
            pending["ownerReferences"] = [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "rs",
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ]

    def volumes(self, case: Json, names: list[str]) -> None:
        spec, namespace = case["pending"]["spec"], case["pending"]["metadata"]["namespace"]
        case["classes"] = [
            {"metadata": self.meta("slow"), "provisioner": "ebs.csi.aws.com", "volumeBindingMode": "Immediate"},
            {
                "metadata": self.meta("late"),
                "provisioner": self.r.choice(("ebs.csi.aws.com", "kubernetes.io/no-provisioner")),
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        ]
        if self.odds(0.3):
            case["classes"][1]["allowedTopologies"] = [
                {"matchLabelExpressions": [{"key": ZONE, "values": self.r.sample(ZONES, 2)}]}
            ]
        if self.odds(0.5):
            for name in names:
                drivers = [{"name": "ebs.csi.aws.com", "nodeID": name, "allocatable": {"count": self.r.randint(0, 2)}}]
                case["csiNodes"].append({"metadata": self.meta(name), "spec": {"drivers": drivers}})
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]
        if self.odds(0.9):
            case["claims"].append(self.claim(case, namespace))
        for pod in case["pods"]:
            if pod["metadata"]["namespace"] == namespace and self.odds(0.2) and case["claims"]:
                pod["spec"]["volumes"] = spec["volumes"]
        if self.odds(0.4):
            case["volumes"].append(self.volume("free", "late", None))

    def claim(self, case: Json, namespace: str) -> Json:
        claim: Json = {
            "metadata": self.meta("claim", namespace),
            "spec": {
                "accessModes": [self.r.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))],
                "storageClassName": self.r.choice(("slow", "late", "late", "missing")),
                "resources": {"requests": {"storage": self.r.choice(("1Gi", "5Gi"))}},
                "volumeMode": "Filesystem",
            },
            "status": {"phase": "Pending"},
        }
        if self.odds(0.5):
            claim["spec"]["volumeName"] = "pv"
            claim["status"]["phase"] = "Bound"
            claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            if self.odds(0.9) and not case["volumes"]:
                case["volumes"].append(self.volume("pv", claim["spec"]["storageClassName"], claim))
        return claim

    def volume(self, name: str, storage_class: str, claim: Json | None) -> Json:
        found: Json = {
            "metadata": self.meta(name),
            "spec": {
                "capacity": {"storage": "2Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": storage_class,
                "volumeMode": "Filesystem",
                "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}"},
            },
            "status": {"phase": "Bound" if claim else "Available"},
        }
        if claim:
            meta = claim["metadata"]
            found["spec"]["claimRef"] = {"name": "claim", "namespace": meta["namespace"], "uid": meta["uid"]}
        if self.odds(0.6):
            expression = {"key": ZONE, "operator": "In", "values": [self.r.choice(ZONES)]}
            found["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        if self.odds(0.2):
            found["metadata"]["labels"] = {ZONE: self.r.choice(ZONES)}
        return found

    def budget(self, at: int) -> Json:
        return {
            "metadata": self.meta(f"pdb{at}", self.r.choice(("default", "other"))),
            "spec": {"selector": {"matchLabels": {"app": self.r.choice(APPS)}}},
            "status": {"disruptionsAllowed": self.r.randint(0, 1)},
        }
