"""A customer's cluster on the real EC2 catalog: what its region offers, pools, daemons, overlays, nodes.

Applications arrive as the manifests that people apply, or as the pods that their controllers have made; of these some
may run on the nodes already, from the revision before.
"""

from __future__ import annotations

import copy
import random
from functools import cache
from typing import Any

from bench.preferences_kept import ZONE, holds
from bench.scenarios.catalogue import EBS
from bench.scenarios.cluster import claim, node
from bench.scenarios.markets import as_written
from dovetail.cloud.aws.catalog import load

Object = dict[str, Any]

AWS = "karpenter.k8s.aws/instance-"
CAPACITY, ARCH, OS = "karpenter.sh/capacity-type", "kubernetes.io/arch", "kubernetes.io/os"
TYPE, TENANT = "node.kubernetes.io/instance-type", "example.com/tenant"
GPU, ENI = "nvidia.com/gpu", "vpc.amazonaws.com/pod-eni"
_REGIONS = ("ap-northeast-2", "us-east-1", "eu-west-1", "us-west-2")
_ONE, _SIZE = ["ReadWriteOnce"], {"storage": "20Gi"}
_HARD, _SOFT = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


# -- words ---------------------------------------------------------------------------------------------------------


def need(key: str, operator: str, *values: str, least: int | None = None) -> Object:
    return {
        "key": key,
        "operator": operator,
        **({"values": list(values)} if values else {}),
        **({"minValues": least} if least else {}),
    }


def required(*alternatives: list[Object]) -> Object:
    return {_HARD: {"nodeSelectorTerms": [{"matchExpressions": each} for each in alternatives]}}


def preferred(*preferences: tuple[int, Object]) -> Object:
    return {_SOFT: [{"weight": weight, "preference": {"matchExpressions": [each]}} for weight, each in preferences]}


def affinity_terms(app: str, key: str, weight: int | None = None, **where: Any) -> Object:
    """A term about pods of an app, required unless it has a weight."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **where}
    return {_HARD: [term]} if weight is None else {_SOFT: [{"weight": weight, "podAffinityTerm": term}]}


def spread(app: str, key: str, soft: bool = False, **more: Any) -> Object:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway" if soft else "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        **more,
    }


def box(cpu: int, memory: int, name: str = "main", **more: Any) -> Object:
    """A container that asks for millis of CPU and MiB of memory."""
    return {"name": name, "image": name, "resources": {"requests": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}}, **more}


@cache
def _offered(region: str) -> dict[str, list[Object]]:
    """What a region sells, by family."""
    found: dict[str, list[Object]] = {}
    for kind in load(region):
        made = as_written(kind)
        if made["offerings"]:
            found.setdefault(made["labels"][f"{AWS}family"][0], []).append(made)
    return found


class CustomerCluster:
    """Collects what a customer has: a catalog to launch from, pools, nodes and workloads."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.objects: list[Object] = []
        self.pools: list[Object] = []
        self.apps: list[tuple[str, Object, Object]] = []
        """Name, labels and spec of what may run already as well."""
        self.names: list[str] = []
        """The applications so far, as their pods are labelled."""
        self.waiting = 0
        self.types = self._catalog()
        self.zones = sorted({offer["zone"] for kind in self.types for offer in kind["offerings"]})
        for name in ("default", "shop", "data", "batch"):
            labels = {"team": name, "kubernetes.io/metadata.name": name}
            self.objects.append(_object("v1", "Namespace", name, None, labels))
        for name, value in (("urgent", 10_000), ("idle", -100)):
            self.objects.append(_object("scheduling.k8s.io/v1", "PriorityClass", name, None, value=value))
        self._platform()

    def has(self, pool: str) -> bool:
        return any(each["metadata"]["name"] == pool for each in self.pools)

    def some(self, share: float) -> bool:
        return self.chance.random() < share

    # -- what the platform is ---------------------------------------------------------------------------------------

    def _catalog(self) -> list[Object]:
        """Some families of a region, or a few types: with spot prices by zone, gaps and small reservations."""
        chance = self.chance
        sold = _offered(chance.choice(_REGIONS))
        common = [each for each in sold if each[0] in "cmr" and each[1] in "5678"]
        rare = [each for each in sold if each not in common]
        if self.some(0.25):
            kinds = [kind for each in chance.sample(common, 3) for kind in chance.sample(sold[each], 3)]
        else:
            wide = chance.choice((4, 8, 20, 40))
            chosen = {*chance.sample(common, min(wide, len(common))), *chance.sample(rare, wide // 2), "g5", "g4dn"}
            kinds = [kind for each in sorted(chosen) for kind in sold.get(each, ())][:600]
        kinds = copy.deepcopy(kinds)
        missing = chance.choice((0, 0, 0.05, 0.25))
        for kind in kinds:
            for offer in kind["offerings"]:
                offer["available"] = offer["available"] and not self.some(missing)
                if offer["capacityType"] == "spot":
                    offer["price"] = round(offer["price"] * chance.uniform(0.7, 1.4), 6)
            if self.some(0.1):
                kind["labels"][OS] = ["linux", "windows"]
        for at, kind in enumerate(chance.sample(kinds, 3) if self.some(0.3) else ()):
            offer = chance.choice([each for each in kind["offerings"] if each["capacityType"] == "on-demand"])
            kind["offerings"].append(
                {
                    **offer,
                    "capacityType": "reserved",
                    "price": offer["price"] / 10_000_000,
                    "reservationId": f"cr-{at}",
                    "reservationCapacity": chance.randint(1, 3),
                    "available": True,
                }
            )
        return kinds

    def _platform(self) -> None:
        chance = self.chance
        general = [need(f"{AWS}category", "In", "c", "m", "r"), need(f"{AWS}generation", "Gt", "4")]
        narrow = chance.choice(
            (
                [need(ARCH, "In", "amd64")],
                [need(f"{AWS}memory", "Gte", "8192")],
                [need(f"{AWS}cpu", "Lte", "16"), need(f"{AWS}size", "NotIn", "metal")],
                [need(f"{AWS}hypervisor", "In", "nitro"), need(TYPE, "Exists", least=5)],
                [need(f"{AWS}family", "Exists", least=2)],
                [],
            )
        )
        ways = chance.choice((["on-demand"], ["spot", "on-demand"], ["reserved", "on-demand"]))
        self._pool("general", ways, general + narrow, startup=self.some(0.3))
        if self.some(0.4):
            least = chance.choice((None, 3, 15))
            taint = chance.choice((None, "PreferNoSchedule", "NoSchedule"))
            self._pool(
                "spot",
                ["spot"],
                [*general, need(TYPE, "Exists", least=least)],
                weight=chance.choice((0, 50)),
                taint=taint,
                limits=self._limits(),
            )
        if self.some(0.3):
            self._pool("reserved", ["reserved"], [], weight=100)
        if self.some(0.5):
            cap = chance.choice(({}, {GPU: "4"}, {"cpu": "64", GPU: "8"}))
            needs = [need(f"{AWS}gpu-count", "Gt", "0"), need(f"{AWS}gpu-manufacturer", "In", "nvidia")]
            self._pool("gpu", ["on-demand", "spot"], needs, taint="NoSchedule", limits=cap, startup=True)
        if self.some(0.3):
            self._pool(
                "tenants",
                ["on-demand"],
                [*general, need(TENANT, "In", "red", "blue")],
                taint="NoSchedule",
                limits=self._limits(),
            )
        if self.some(0.2):
            self._pool("windows", ["on-demand"], [need(OS, "In", "windows")], taint="NoSchedule")
        self._platform_daemons()
        if self.some(0.25):
            turn = chance.choice(("-20%", "+15%"))
            self._overlay([need(f"{AWS}category", "In", "m")], weight=10, priceAdjustment=turn)
            self._overlay(
                [need(f"{AWS}generation", "Lte", "6"), need(CAPACITY, "In", "on-demand")],
                weight=5,
                priceAdjustment="+0.03",
            )
            self._overlay([need(f"{AWS}cpu", "Gte", "8")], capacity={"example.com/fuse": "10"})

    def _platform_daemons(self) -> None:
        everywhere = [{"operator": "Exists"}]
        self._daemon("cni", box(50, 100), tolerations=everywhere, hostNetwork=True)
        if self.some(0.6):
            ports = [{"containerPort": 9100, "hostPort": 9100}]
            self._daemon("exporter", box(100, 180, ports=ports), nodeSelector={OS: "linux"}, tolerations=everywhere)
        if self.some(0.4):
            self._daemon(
                "device-plugin",
                box(100, 256),
                tolerations=everywhere,
                affinity={
                    "nodeAffinity": required(
                        [need(f"{AWS}gpu-count", "Exists")], [need(f"{AWS}accelerator-count", "Exists")]
                    )
                },
            )
        if self.some(0.3):
            self._daemon("logs", box(self.chance.choice((200, 500)), 512))

    def _limits(self) -> Object:
        small: tuple[Object, ...] = ({"cpu": "24"}, {"memory": "96Gi"}, {"nodes": "4"})
        large: tuple[Object, ...] = ({"cpu": "96", "nodes": "40"}, {}, {})
        return self.chance.choice((*small, *large))

    def _pool(
        self,
        name: str,
        ways: list[str],
        needs: list[Object],
        *,
        weight: int | None = None,
        taint: str | None = None,
        limits: Object | None = None,
        startup: bool = False,
    ) -> None:
        template: Object = {
            "requirements": [need(CAPACITY, "In", *ways), *needs],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "taints": [{"key": f"for/{name}", "value": "yes", "effect": taint}] if taint else [],
            "startupTaints": [{"key": "cilium/starting", "effect": "NoExecute"}] if startup else [],
        }
        labels = {"example.com/pool": name}
        spec: Object = {"template": {"metadata": {"labels": labels}, "spec": template}, "limits": limits or {}}
        spec |= {"weight": weight} if weight else {}
        self.pools.append(_object("karpenter.sh/v1", "NodePool", name, None, spec=spec))

    def _daemon(self, name: str, box: Object, **spec: Any) -> None:
        template = {"metadata": {"labels": {"daemon": name}}, "spec": {"containers": [box], **spec}}
        self.objects.append(
            _object(
                "apps/v1",
                "DaemonSet",
                name,
                namespace="kube-system",
                spec={"selector": {"matchLabels": {"daemon": name}}, "template": template},
            )
        )

    def _overlay(self, needs: list[Object], **effect: Any) -> None:
        name = f"overlay-{sum(each['kind'] == 'NodeOverlay' for each in self.objects)}"
        self.objects.append(
            _object(
                "karpenter.sh/v1alpha1", "NodeOverlay", name, namespace=None, spec={"requirements": needs, **effect}
            )
        )

    # -- what is there ----------------------------------------------------------------------------------------------

    def fleet(self, count: int) -> None:
        """Nodes of the pools, partly filled with what also waits."""
        for at in range(count):
            pool = self.chance.choice(self.pools)
            template = pool["spec"]["template"]["spec"]
            kinds = [
                kind
                for kind in self.types
                if kind["labels"][f"{AWS}cpu"][0] in ("4", "8", "16")
                and all(
                    holds(need, (kind["labels"].get(need["key"]) or [None])[0])
                    for need in template["requirements"]
                    if need["key"].startswith(AWS)
                )
            ]
            if kinds:
                self._node(f"ip-10-0-0-{at}", pool, self.chance.choice(kinds))

    def _node(self, name: str, pool: Object, kind: Object) -> None:
        template, zone = pool["spec"]["template"], self.chance.choice(kind["offerings"])["zone"]
        labels = {key: values[0] for key, values in kind["labels"].items()} | template["metadata"]["labels"]
        labels |= {
            ZONE: zone,
            "karpenter.sh/nodepool": pool["metadata"]["name"],
            TYPE: kind["name"],
            CAPACITY: next(iter(template["spec"]["requirements"][0]["values"])),
        }
        labels |= {
            each["key"]: each["values"][0] for each in template["spec"]["requirements"] if each["key"] in (TENANT, OS)
        }
        state = self.chance.choice(("up", "up", "up", "joining", "claimed", "going"))
        self.objects.append(claim(name, labels, kind, template["spec"], zone, state))
        if state == "claimed":
            return
        self.objects.append(node(name, labels, kind, template["spec"], zone, state))
        if state == "joining" or template["spec"]["taints"]:
            return
        for app, tags, spec in self.chance.sample(self.apps, min(len(self.apps), self.chance.randint(0, 4))):
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-old", "uid": app}
            running = _object(
                "v1",
                "Pod",
                f"{app}-old-{name}",
                tags["ns"],
                tags,
                spec={**spec, "nodeName": name},
                status={"phase": "Running"},
            )
            running["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
            self.objects.append(running)

    # -- what waits -------------------------------------------------------------------------------------------------

    def app(
        self,
        name: str,
        count: int,
        boxes: list[Object],
        *,
        kind: str = "Deployment",
        namespace: str = "default",
        claims: list[Object] | None = None,
        **spec: Any,
    ) -> None:
        """A workload as a manifest, or as the pods that its controller has made, some of which may run."""
        tags = {"app": name.partition("-")[0], "ns": namespace}
        spec = {"containers": boxes, **spec}
        self.waiting += count
        self.names.append(tags["app"])
        if kind != "Deployment" or self.some(0.4):
            amount = {"parallelism": count, "completions": count} if kind == "Job" else {"replicas": count}
            rest: Object = {} if kind == "Job" else {"selector": {"matchLabels": tags}}
            rest |= {"volumeClaimTemplates": claims} if claims else {}
            group, template = "batch/v1" if kind == "Job" else "apps/v1", {"metadata": {"labels": tags}, "spec": spec}
            self.objects.append(_object(group, kind, name, namespace, spec={**amount, **rest, "template": template}))
            return
        for at in range(count):
            made = {**tags, "pod-template-hash": "new"}
            self.objects.append(_object("v1", "Pod", f"{name}-{at}", namespace, made, spec=spec))
        pinned = {"nodeSelector", "tolerations", "volumes"} & {*spec} or "nodeAffinity" in spec.get("affinity", {})
        if not pinned:
            self.apps.append((name, {**tags, "pod-template-hash": "old"}, spec))

    def name(self, stem: str) -> str:
        """The stem with a number that no other workload has."""
        return f"{stem}{self.waiting}"

    def bearing(self, pool: str) -> list[Object]:
        """What pods say that may run in a pool which others are kept off."""
        return [
            self.chance.choice(
                (
                    {"key": f"for/{pool}", "operator": "Exists"},
                    {"key": f"for/{pool}", "value": "yes", "effect": "NoSchedule"},
                )
            )
        ]

    # -- disks ------------------------------------------------------------------------------------------------------

    def storage_class(self, name: str, zones: list[str]) -> None:
        if any(each["kind"] == "StorageClass" for each in self.objects):
            return
        where = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}] if zones else []
        self.objects.append(
            _object(
                "storage.k8s.io/v1",
                "StorageClass",
                name,
                None,
                provisioner=EBS,
                volumeBindingMode="WaitForFirstConsumer",
                allowedTopologies=where,
            )
        )

    def claim_template(self, name: str, storage_class: str) -> Object:
        spec = {"accessModes": _ONE, "storageClassName": storage_class, "resources": {"requests": _SIZE}}
        return {"metadata": {"name": name}, "spec": spec}

    def bound(self, name: str, zone: str, namespace: str) -> str:
        """A claim whose volume lies in a zone."""
        where = {"required": {"nodeSelectorTerms": [{"matchExpressions": [need(ZONE, "In", zone)]}]}}
        self.objects.append(
            _object(
                "v1",
                "PersistentVolume",
                f"pv-{name}",
                None,
                spec={
                    "csi": {"driver": EBS, "volumeHandle": f"vol-{name}"},
                    "accessModes": _ONE,
                    "capacity": _SIZE,
                    "nodeAffinity": where,
                    "claimRef": {"name": name, "namespace": namespace},
                },
            )
        )
        made = _object(
            "v1",
            "PersistentVolumeClaim",
            name,
            namespace,
            status={"phase": "Bound"},
            spec={
                "accessModes": _ONE,
                "storageClassName": "",
                "volumeName": f"pv-{name}",
                "resources": {"requests": _SIZE},
            },
        )
        made["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        self.objects.append(made)
        return name


def _object(
    group: str, kind: str, name: str, namespace: str | None = "default", labels: Object | None = None, **rest: Any
) -> Object:
    meta: Object = {"name": name, "uid": f"{kind}/{name}", "labels": labels or {}}
    meta |= {"namespace": namespace} if namespace else {}
    return {"apiVersion": group, "kind": kind, "metadata": meta, **copy.deepcopy(rest)}
