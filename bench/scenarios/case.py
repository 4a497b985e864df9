"""A case to be written down by hand: pools, nodes, daemons, volumes and pods, with sensible rest."""

from __future__ import annotations

import copy
import random
from typing import Any

from bench.scenarios.catalogue import EBS, catalogue
from bench.scenarios.cluster import claim, node

Object = dict[str, Any]

ZONE, HOST, CAPACITY = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/capacity-type"
ARCH, TYPE = "kubernetes.io/arch", "node.kubernetes.io/instance-type"
FAMILY, CATEGORY = "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-category"
CPU = "karpenter.k8s.aws/instance-cpu"
_POOL = "karpenter.sh/nodepool"
_SIZES = (
    ("100m", "128Mi"),
    ("250m", "512Mi"),
    ("500m", "1Gi"),
    ("1", "1Gi"),
    ("1", "4Gi"),
    ("2", "2Gi"),
    ("2", "12Gi"),
    ("4", "8Gi"),
)


def spread(app: str, key: str, **more: Any) -> Object:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        **more,
    }


def near(app: str, key: str, soft: bool = False) -> Object:
    return {"podAffinity": _affinity_term(app, key, soft)}


def apart(app: str, key: str, soft: bool = False) -> Object:
    return {"podAntiAffinity": _affinity_term(app, key, soft)}


def _affinity_term(app: str, key: str, soft: bool) -> Object:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    if soft:
        return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


class Case:
    """Collects objects; whatever is not said is drawn from chance or left out."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.types = catalogue(chance, reserved=False, even=chance.random() < 0.7)
        self.pools: list[Object] = []
        self._objects: list[Object] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}]
        self._names: dict[str, int] = {}

    def problem(self) -> Object:
        return {"objects": [*self.pools, *self._objects], "catalog": self.types}

    def add(self, made: Object) -> None:
        self._objects.append(made)

    def need(self, key: str, operator: str, *values: str) -> Object:
        return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}

    def term(self, key: str, operator: str, *values: str) -> Object:
        return {"matchExpressions": [self.need(key, operator, *values)]}

    def _unique(self, stem: str) -> str:
        self._names[stem] = self._names.get(stem, -1) + 1
        return f"{stem}-{self._names[stem]}"

    # -- nodes ---------------------------------------------------------------------------------------------------

    def pool(
        self,
        name: str = "default",
        *,
        needs: list[Object] | None = None,
        capacity: list[str] | None = None,
        taints: list[Object] | None = None,
        startup: list[Object] | None = None,
        weight: int | None = None,
        limits: Object | None = None,
        labels: Object | None = None,
    ) -> None:
        kinds = capacity or self.chance.choice((["on-demand"], ["on-demand", "spot"]))
        template: Object = {
            "requirements": [self.need(CAPACITY, "In", *kinds), *(needs or [])],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "taints": taints or [],
            "startupTaints": startup or [],
        }
        spec: Object = {"template": {"metadata": {"labels": labels or {}}, "spec": template}}
        spec |= {"weight": weight} if weight is not None else {}
        spec |= {"limits": limits} if limits is not None else {}
        self.pools.append(
            {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}
        )

    def node(
        self,
        zone: str,
        *,
        running: list[tuple[str, Object]] | None = None,
        state: str = "up",
        taints: list[Object] | None = None,
        startup: list[Object] | None = None,
        attach: int | None = None,
        labels: Object | None = None,
    ) -> None:
        """A node of the first pool with pods on it (`labels` are theirs)."""
        if not self.pools:
            self.pool()
        size = self.chance.choice(("m5.xlarge", "m5.2xlarge"))
        kind = next(each for each in self.types if each["name"] == size)
        name = self._unique("node")
        own = {key: values[0] for key, values in kind["labels"].items()}
        own |= {ZONE: zone, _POOL: self.pools[0]["metadata"]["name"], CAPACITY: "on-demand", TYPE: kind["name"]}
        template = {"requirements": [], "taints": taints or [], "startupTaints": startup or []}
        self._objects.append(claim(name, own, kind, template, zone, state))
        if state == "claimed":
            return
        self._objects.append(node(name, own, kind, template, zone, state))
        if attach is not None:
            drivers = [{"name": EBS, "nodeID": name, "topologyKeys": [], "allocatable": {"count": attach}}]
            self._objects.append(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "CSINode",
                    "metadata": {"name": name},
                    "spec": {"drivers": drivers},
                }
            )
        for app, spec in running if running and state != "joining" else ():
            self._running(name, app, spec, labels or {})

    def _running(self, where: str, app: str, spec: Object, labels: Object) -> None:
        name = self._unique(f"{app}-on-{where}")
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
        box = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "400m", "memory": "512Mi"}}}
        self._objects.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "status": {"phase": "Running"},
                "spec": {"nodeName": where, "containers": [box], **spec},
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "uid": name,
                    "ownerReferences": [owner],
                    "labels": {"app": app, **labels},
                },
            }
        )

    def daemon(
        self, name: str, *, cpu: str = "100m", memory: str = "128Mi", ports: list[Object] | None = None, **spec: Any
    ) -> None:
        box = {
            "name": "c",
            "image": "i",
            "ports": ports or [],
            "resources": {"requests": {"cpu": cpu, "memory": memory}},
        }
        template = {
            "metadata": {"labels": {"daemon": name}},
            "spec": {"tolerations": [{"operator": "Exists"}], "containers": [box], **spec},
        }
        self._objects.append(
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": name, "namespace": "kube-system", "uid": f"ds-{name}"},
                "spec": {"selector": {"matchLabels": {"daemon": name}}, "template": template},
            }
        )

    def overlay(self, needs: list[Object], **effect: Any) -> None:
        self._objects.append(
            {
                "apiVersion": "karpenter.sh/v1alpha1",
                "kind": "NodeOverlay",
                "metadata": {"name": self._unique("overlay")},
                "spec": {"requirements": needs, **effect},
            }
        )

    def reserve(self, kind: str, zone: str, count: int) -> None:
        found = next(each for each in self.types if each["name"] == kind)
        found["offerings"].append(
            {
                "zone": zone,
                "capacityType": "reserved",
                "available": True,
                "price": 0.0,
                "reservationId": self._unique("cr"),
                "reservationCapacity": count,
            }
        )

    # -- volumes ----------------------------------------------------------------------------------------------------

    def storage_class(self, name: str, zones: list[str]) -> None:
        made: Object = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": EBS,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        if zones:
            made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]
        self._objects.append(made)

    def open_claim(self, name: str, storage_class: str) -> str:
        """A volume claim that waits for its first pod."""
        return self.claim(name, {"storageClassName": storage_class}, {"phase": "Pending"}, {})

    def bound_claim(self, name: str, zone: str) -> str:
        """A volume claim whose volume lies in a zone."""
        where = {"nodeSelectorTerms": [self.term(ZONE, "In", zone)]}
        self._objects.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"pv-{name}"},
                "spec": {
                    "csi": {"driver": EBS, "volumeHandle": f"vol-{name}"},
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": "1Gi"},
                    "nodeAffinity": {"required": where},
                },
            }
        )
        return self.claim(
            name,
            {"volumeName": f"pv-{name}", "storageClassName": ""},
            {"phase": "Bound"},
            {"pv.kubernetes.io/bind-completed": "yes"},
        )

    def claim(self, name: str, spec: Object, status: Object, annotations: Object) -> str:
        """A volume claim in any state."""
        self.add(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "status": status,
                "metadata": {"name": name, "namespace": "default", "annotations": annotations},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
            }
        )
        return name

    # -- pods -------------------------------------------------------------------------------------------------------

    def pods(
        self,
        app: str,
        count: int | None = None,
        *,
        cpu: str | None = None,
        memory: str | None = None,
        more: Object | None = None,
        ports: list[Object] | None = None,
        claims: list[str] | None = None,
        labels: Object | None = None,
        name: str | None = None,
        **spec: Any,
    ) -> None:
        """A workload; what is not said about its size is drawn."""
        some_cpu, some_memory = self.chance.choice(_SIZES)
        requests = {"cpu": cpu or some_cpu, "memory": memory or some_memory, **(more or {})}
        box: Object = {"name": "c", "image": "i", "resources": {"requests": requests}, "ports": ports or []}
        volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims or ()]
        for _ in range(count or self.chance.choice((5, 12, 30, 60, 120, 250))):
            own = self._unique(name or app)
            self._objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": own,
                        "namespace": "default",
                        "uid": own,
                        "labels": {"app": app, **(labels or {})},
                    },
                    "spec": {"containers": [box], "affinity": {}, "volumes": volumes, **copy.deepcopy(spec)},
                }
            )
