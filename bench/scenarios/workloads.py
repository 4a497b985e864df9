"""Workloads for planning problems: pods alike in everything, with one or several constraints each."""

from __future__ import annotations

import random
from typing import Any

from bench.scenarios.catalogue import EBS, ZONES

Object = dict[str, Any]

_CPU = (100, 250, 500, 1000, 1500, 2000, 3000)
_MEMORY = (128, 256, 512, 1024, 2048, 4096, 8192)
_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_CATEGORY, _CAPACITY = "karpenter.k8s.aws/instance-category", "karpenter.sh/capacity-type"


class Workloads:
    """Makes one workload after another; remembers their names, so that later ones can lean on earlier ones."""

    def __init__(self, chance: random.Random, taints: list[Object], running: list[str]) -> None:
        self.chance = chance
        self.taints = taints
        self.names = list(running)
        self.objects: list[Object] = []
        """What pods need beside themselves: volume claims, volumes, storage classes."""

    def workload(self, index: int, budget: int) -> list[Object]:
        chance, name = self.chance, f"w{index}"
        count = max(1, min(budget, int(chance.paretovariate(1.1) * 3)))
        spec: Object = {"affinity": {}}
        labels = {"app": name, "tier": chance.choice(("front", "back"))}
        makers = (
            self._spread,
            self._spread,
            self._near,
            self._near,
            self._node,
            self._node,
            self._volume,
            self._tolerate,
            self._port,
            self._device,
            self._priority,
        )
        for make in chance.sample(makers, chance.choice((0, 0, 1, 1, 1, 2, 3))):
            make(name, spec, labels)
        if self.taints and chance.random() < 0.3:
            self._tolerate(name, spec, labels)
        requests = {"cpu": f"{chance.choice(_CPU)}m", "memory": f"{chance.choice(_MEMORY)}Mi"}
        requests |= spec.pop("requests", {})
        claim = spec.pop("claims", None)
        ports = spec.pop("ports", None)
        self.names.append(name)
        return [self._pod(name, at, labels, spec, requests, ports, claim) for at in range(count)]

    def _pod(
        self, name: str, at: int, labels: Object, spec: Object, requests: Object, ports: Any, claim: Any
    ) -> Object:
        container = {"name": "c", "image": "i", "resources": {"requests": requests}}
        if ports:
            container["ports"] = ports
        own: Object = {}
        if claim is not None:
            names = [f"{name}-{at}-{volume}" for volume in range(claim["count"])]
            own["volumes"] = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in names]
            for each in names:
                self._claim(each, claim)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{at}", "namespace": "default", "uid": f"{name}-{at}", "labels": labels},
            "spec": {"containers": [container], **spec, **own},
        }

    # -- constraints --------------------------------------------------------------------------------------------

    def _spread(self, name: str, spec: Object, labels: Object) -> None:
        chance = self.chance
        key = chance.choice((_ZONE, _ZONE, _HOST, _CAPACITY))
        hard = key == _CAPACITY or chance.random() < 0.65
        made: Object = {
            "maxSkew": chance.choice((1, 1, 2, 3)),
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
            "labelSelector": _selector(chance.choice((name, name, name, "")), labels),
        }
        if key == _CAPACITY:
            made |= {"whenUnsatisfiable": "ScheduleAnyway"}
        elif hard and key == _ZONE and chance.random() < 0.3:
            made["minDomains"] = chance.choice((2, 3))
        if chance.random() < 0.25:
            made["nodeAffinityPolicy"] = chance.choice(("Honor", "Ignore"))
        if chance.random() < 0.25:
            made["nodeTaintsPolicy"] = chance.choice(("Honor", "Ignore"))
        if chance.random() < 0.2:
            labels["pod-template-hash"] = f"{name}x1"
            made["matchLabelKeys"] = ["pod-template-hash"]
        spec.setdefault("topologySpreadConstraints", []).append(made)

    def _near(self, name: str, spec: Object, labels: Object) -> None:
        chance = self.chance
        anti = chance.random() < 0.6
        other = bool(self.names) and chance.random() < 0.35
        target = chance.choice(self.names) if other else name
        key = _HOST if anti and not other else chance.choice((_ZONE, _HOST))
        term: Object = {"labelSelector": _selector(target, labels), "topologyKey": key}
        if chance.random() < 0.15:
            term["namespaceSelector"] = {}
        field = "podAntiAffinity" if anti else "podAffinity"
        part = spec["affinity"].setdefault(field, {})
        if chance.random() < 0.4:
            preference = {"weight": chance.choice((1, 50, 100)), "podAffinityTerm": term}
            part.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(preference)
        else:
            part.setdefault("requiredDuringSchedulingIgnoredDuringExecution", []).append(term)

    def _node(self, name: str, spec: Object, labels: Object) -> None:
        chance = self.chance
        preferences = [
            {"key": _ZONE, "operator": "In", "values": chance.sample(ZONES, 2)},
            {"key": _CATEGORY, "operator": "In", "values": [chance.choice("cmr")]},
            {"key": _CATEGORY, "operator": "NotIn", "values": [chance.choice("cmr")]},
            {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": [chance.choice(("3", "7", "15"))]},
            {"key": _CAPACITY, "operator": "In", "values": ["on-demand"]},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
            {"key": "karpenter.k8s.aws/instance-family", "operator": "Exists"},
        ]
        style = chance.choice(("required", "alternatives", "preferred", "preferred", "selector"))
        if style == "selector":
            spec.setdefault("nodeSelector", {})[_ZONE] = chance.choice(ZONES)
            return
        part = spec["affinity"].setdefault("nodeAffinity", {})
        if style == "preferred":
            part["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": weight, "preference": {"matchExpressions": [each]}}
                for weight, each in zip(chance.sample((1, 10, 50, 100), 2), chance.sample(preferences, 2), strict=True)
            ][: chance.choice((1, 1, 2))]
            return
        terms = [
            {"matchExpressions": [each]} for each in chance.sample(preferences[:5], 2 if style != "required" else 1)
        ]
        part["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}

    def _tolerate(self, name: str, spec: Object, labels: Object) -> None:
        if self.taints:
            taint = self.chance.choice(self.taints)
            spec["tolerations"] = [{"key": taint["key"], "operator": "Exists"}]

    def _port(self, name: str, spec: Object, labels: Object) -> None:
        port: Object = {"containerPort": 80, "hostPort": 8000 + self.chance.randrange(6)}
        if self.chance.random() < 0.3:
            port["hostIP"] = self.chance.choice(("10.0.0.1", "10.0.0.2"))
        spec["ports"] = [port]

    def _device(self, name: str, spec: Object, labels: Object) -> None:
        device = self.chance.choice(("nvidia.com/gpu", "vpc.amazonaws.com/pod-eni", "vpc.amazonaws.com/pod-eni"))
        spec["requests"] = {device: "1"}

    def _priority(self, name: str, spec: Object, labels: Object) -> None:
        spec["priority"] = self.chance.choice((-10, 100, 1000))

    # -- volumes ------------------------------------------------------------------------------------------------

    def _volume(self, name: str, spec: Object, labels: Object) -> None:
        style = self.chance.choice(("waits", "topology", "bound"))
        zones = self.chance.sample(ZONES, 2)
        spec["claims"] = {"style": style, "count": self.chance.choice((1, 1, 2, 4)), "zones": zones}
        if style != "bound":
            made: Object = {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": EBS,
                "volumeBindingMode": "WaitForFirstConsumer",
            }
            if style == "topology":
                made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": _ZONE, "values": zones}]}]
            self.objects.append(made)

    def _claim(self, name: str, claim: Object) -> None:
        meta: Object = {"name": name, "namespace": "default"}
        spec: Object = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": name.split("-")[0],
        }
        status = {"phase": "Pending"}
        if claim["style"] == "bound":
            meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            spec |= {"volumeName": f"pv-{name}"}
            status = {"phase": "Bound"}
            zone = claim["zones"][0]
            where = {"key": _ZONE, "operator": "In", "values": [zone]}
            self.objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": f"pv-{name}"},
                    "spec": {
                        "csi": {"driver": EBS, "volumeHandle": f"vol-{name}"},
                        "accessModes": ["ReadWriteOnce"],
                        "capacity": {"storage": "1Gi"},
                        "storageClassName": spec["storageClassName"],
                        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}},
                    },
                }
            )
        self.objects.append(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec, "status": status}
        )


def _selector(name: str, labels: Object) -> Object:
    return {"matchLabels": {"app": name} if name else {"tier": labels["tier"]}}
