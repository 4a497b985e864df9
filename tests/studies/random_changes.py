"""Random clusters and random changes to them: what is predicted, and what then happens in the lab."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.cloud.aws import catalog
from dovetail.kube import resources as kinds
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.kubelet.kubelets import ReportingDetail
from dovetail.lab.scenario.autoscaler import Autoscaled, AutoscalerRequest
from dovetail.lab.scenario.manifests import Kinds, apply
from dovetail.model.instance_type import InstanceType
from dovetail.offline.diff.changes import Offerings, PriceOverride, ProposedChange, Replicas
from dovetail.offline.diff.cluster import complete
from dovetail.offline.diff.prediction import PredictedRun
from dovetail.studies.setups import DOVETAIL_SETTINGS
from dovetail.studies.what_if.cloud import RestoredCloud
from dovetail.studies.what_if.observation import Observation
from dovetail.studies.what_if.run import BOOT, WhatIfInput, apply_change, run, until_rest

Json = dict[str, Any]
REGION = "ap-northeast-2"
FAMILIES = ("m5", "c5", "r5", "m6i", "c6i")
EXPORTED = (
    kinds.NODES,
    kinds.PODS,
    kinds.NAMESPACES,
    kinds.DAEMONSETS,
    kinds.PDBS,
    kinds.NODEPOOLS,
    kinds.NODECLAIMS,
    kinds.EC2NODECLASSES,
    kinds.DEPLOYMENTS,
    kinds.REPLICASETS,
    kinds.STATEFULSETS,
    kinds.STORAGECLASSES,
    kinds.PRIORITYCLASSES,
)
WARM_UP_S = 3600.0
HORIZON_S = 6 * 3600.0


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction beside what happened. `kind` names the change."""

    seed: int
    kind: str
    predicted: PredictedRun
    happened: PredictedRun

    @property
    def dollars_hold(self) -> bool:
        """Within 1 %."""
        actual = self.happened.end.per_hour
        return abs(self.predicted.end.per_hour - actual) <= 0.01 * actual + 1e-9

    @property
    def evictions_hold(self) -> bool:
        """Within 10 %: of fewer than ten, all."""
        actual = len(self.happened.evictions)
        return abs(len(self.predicted.evictions) - actual) <= 0.1 * actual

    def line(self) -> str:
        return f"seed {self.seed} {self.kind}: predicted {_line(self.predicted)}; happened {_line(self.happened)}"


def _line(outcome: PredictedRun) -> str:
    return f"${outcome.end.per_hour:.4f}/h, {len(outcome.evictions)} evictions, {outcome.end.nodes} nodes"


def types() -> tuple[InstanceType, ...]:
    return tuple(each for each in catalog.load(REGION) if each.name.partition(".")[0] in FAMILIES)


def compare(seed: int) -> Comparison:
    """Let a random cluster come to rest, predict a random change from its objects, and make the change."""
    return run_virtual(_compare(seed))


def _parts() -> LabParts:
    pace = ReportingDetail(lean=True, heartbeat_seconds=None, grid_seconds=0.5)
    return LabParts(pace=pace, quiet=True, event_sink=lambda *event: None, faults=False)


def _fleet() -> Autoscaled:
    cloud = partial(RestoredCloud, region=REGION, classes={})
    return Autoscaled(
        AutoscalerRequest(types=types(), region=REGION, market=BOOT, make_cloud=cloud, settings=DOVETAIL_SETTINGS)
    )


async def _warm_up(lab: Lab, fleet: Autoscaled, items: list[Json]) -> list[Json]:
    """The objects of a lab that ran for a while."""
    lab.add(fleet.run)
    await asyncio.sleep(2.0)
    server_kinds = Kinds(lab.kube)
    for item in items:
        await apply(lab.kube, server_kinds, item)
    await asyncio.sleep(WARM_UP_S)
    return [
        {"apiVersion": resource.api_version, "kind": resource.kind, **item}
        for resource in EXPORTED
        for item in (await lab.kube.list(resource)).items
    ]


def exported(items: list[Json]) -> tuple[list[Json], datetime]:
    """The objects of a lab in which these were applied, at rest, and the time there."""

    async def play() -> tuple[list[Json], datetime]:
        lab = Lab.embedded(1, _parts(), clock=Clock(asyncio.get_running_loop(), EPOCH))
        async with lab:
            return await _warm_up(lab, _fleet(), items), lab.clock.now()

    return run_virtual(play())


async def _compare(seed: int) -> Comparison:
    chance = Chance(seed).child("random change")
    lab = Lab.embedded(seed, _parts(), clock=Clock(asyncio.get_running_loop(), EPOCH))
    fleet = _fleet()
    async with lab:
        objects = await _warm_up(lab, fleet, cluster(chance))
        setup = WhatIfInput(
            cluster=complete(objects),
            types=types(),
            region=REGION,
            now=lab.clock.now(),
            horizon_s=HORIZON_S,
            seed=seed + 1_000_000,
        )
        kind, asked = change(chance, objects)
        happened = await _happened(lab, fleet, setup, asked)
    return Comparison(seed=seed, kind=kind, predicted=await asyncio.to_thread(run, setup, asked), happened=happened)


async def _happened(lab: Lab, fleet: Autoscaled, setup: WhatIfInput, asked: ProposedChange) -> PredictedRun:
    cloud = fleet.cloud
    assert isinstance(cloud, RestoredCloud)
    cloud.remember(setup.cluster.of("EC2NodeClass"))
    observation = Observation(lab, fleet, {})
    start = await observation.state()
    changed = await apply_change(lab, fleet, setup, asked)
    at_rest = await until_rest(lab, observation, setup)
    return await observation.outcome(start, changed, at_rest=at_rest)


# -- clusters


def cluster(chance: Chance) -> list[Json]:
    pools = [_pool(chance, name) for name in ("default", "other")[: chance.choice((1, 1, 2))]]
    workloads = [_deployment(chance, f"app-{number}") for number in range(chance.randint(2, 5))]
    budgets = [_pdb(chance, item["metadata"]["name"]) for item in workloads if chance.random() < 0.3]
    daemons = [_daemon_set()] if chance.random() < 0.5 else []
    return [*pools, *daemons, *workloads, *budgets]


def _pool(chance: Chance, name: str) -> Json:
    families = sorted(chance.sample(FAMILIES, chance.randint(2, len(FAMILIES))))
    capacity = chance.choice((["on-demand"], ["on-demand"], ["spot", "on-demand"]))
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "weight": chance.choice((1, 1, 10)),
            "template": {
                "spec": {
                    "expireAfter": "Never",
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity},
                        {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": families},
                        {
                            "key": "karpenter.k8s.aws/instance-cpu",
                            "operator": "Lt",
                            "values": [chance.choice(("9", "17", "33"))],
                        },
                    ],
                }
            },
            "disruption": {
                "consolidationPolicy": chance.choice(
                    ("WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "WhenEmpty")
                ),
                "consolidateAfter": chance.choice(("0s", "30s", "5m")),
                "budgets": [{"nodes": chance.choice(("10%", "50%", "100%", "2"))}],
            },
        },
    }


def _pod(chance: Chance, name: str) -> Json:
    requests = {
        "cpu": chance.choice(("100m", "250m", "500m", "1", "1500m", "3")),
        "memory": chance.choice(("128Mi", "512Mi", "1Gi", "2Gi", "5Gi")),
    }
    spec: Json = {
        "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}],
        "terminationGracePeriodSeconds": chance.choice((0, 30)),
    }
    if chance.random() < 0.3:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": chance.choice(("topology.kubernetes.io/zone", "kubernetes.io/hostname")),
                "whenUnsatisfiable": chance.choice(("DoNotSchedule", "ScheduleAnyway")),
                "labelSelector": {"matchLabels": {"app": name}},
            }
        ]
    return spec


def _deployment(chance: Chance, name: str) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": chance.randint(1, 25),
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": _pod(chance, name)},
        },
    }


def _daemon_set() -> Json:
    requests = {"cpu": "50m", "memory": "64Mi"}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [container], "tolerations": [{"operator": "Exists"}]},
            },
        },
    }


def _pdb(chance: Chance, name: str) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"maxUnavailable": chance.choice((1, 2, "30%")), "selector": {"matchLabels": {"app": name}}},
    }


# -- changes


def change(chance: Chance, objects: list[Json]) -> tuple[str, ProposedChange]:
    """One change of any kind, by its name."""
    kind = chance.choice(tuple(CHANGES))
    return kind, CHANGES[kind](chance, objects)


def _of(objects: list[Json], kind: str) -> list[Json]:
    found = [item for item in objects if item["kind"] == kind]
    return sorted(found, key=lambda item: str(item["metadata"]["name"]))


def _scaled(chance: Chance, objects: list[Json]) -> ProposedChange:
    target = chance.choice(_of(objects, "Deployment"))
    count = chance.choice((0, 1, 5, 10, 30, 60))
    return ProposedChange(
        replicas=(Replicas(kind="Deployment", namespace="default", name=target["metadata"]["name"], count=count),)
    )


def _manifest(item: Json) -> Json:
    metadata = {name: item["metadata"][name] for name in ("name", "namespace") if name in item["metadata"]}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": metadata, "spec": item["spec"]}


def _copied(item: Json) -> Json:
    copied: Json = msgspec.json.decode(msgspec.json.encode(_manifest(item)))
    return copied


def _requests(chance: Chance, objects: list[Json]) -> ProposedChange:
    item = _copied(chance.choice(_of(objects, "Deployment")))
    container = item["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": chance.choice(("200m", "800m", "2")), "memory": "700Mi"}}
    return ProposedChange(manifests=(item,))


def _narrowed(chance: Chance, objects: list[Json]) -> ProposedChange:
    item = _copied(chance.choice(_of(objects, "NodePool")))
    for need in item["spec"]["template"]["spec"]["requirements"]:
        if need["key"] == "karpenter.k8s.aws/instance-family":
            need["values"] = [chance.choice(need["values"])]
    return ProposedChange(manifests=(item,))


def _budget(chance: Chance, objects: list[Json]) -> ProposedChange:
    """Another template, so that nodes drift, under another budget."""
    item = _copied(chance.choice(_of(objects, "NodePool")))
    item["spec"]["template"].setdefault("metadata", {})["labels"] = {"team": "shop"}
    item["spec"]["disruption"]["budgets"] = [{"nodes": chance.choice(("1", "30%", "100%"))}]
    return ProposedChange(manifests=(item,))


def _deleted(chance: Chance, objects: list[Json]) -> ProposedChange:
    target = chance.choice(_of(objects, "Deployment"))
    return ProposedChange(deletions=(("Deployment", "default", target["metadata"]["name"]),))


def _added(chance: Chance, objects: list[Json]) -> ProposedChange:
    return ProposedChange(manifests=(_deployment(chance, "added"),))


def _sold_out(chance: Chance, objects: list[Json]) -> ProposedChange:
    node = chance.choice(_of(objects, "Node"))
    scaled = _scaled(chance, objects)
    return msgspec.structs.replace(
        scaled, sold_out=(Offerings(instance_type=node["metadata"]["labels"]["node.kubernetes.io/instance-type"]),)
    )


def _price(chance: Chance, objects: list[Json]) -> ProposedChange:
    node = chance.choice(_of(objects, "Node"))
    name = node["metadata"]["labels"]["node.kubernetes.io/instance-type"]
    factor = chance.choice((0.5, 1.3, 2.0))
    prices = tuple(
        PriceOverride(
            instance_type=name, zone=each.zone, capacity_type=each.capacity_type, dollars=(each.price or 0.0) * factor
        )
        for kind in types()
        if kind.name == name
        for each in kind.offerings
    )
    return ProposedChange(prices=prices)


def _image(chance: Chance, objects: list[Json]) -> ProposedChange:
    return ProposedChange(images={"default": "ami-0new"})


def _zone(chance: Chance, objects: list[Json]) -> ProposedChange:
    node = chance.choice(_of(objects, "Node"))
    return ProposedChange(lost_zones=(node["metadata"]["labels"]["topology.kubernetes.io/zone"],))


def _no_disruption(chance: Chance, objects: list[Json]) -> ProposedChange:
    """A PDB that allows nothing, and nodes that drift."""
    target = chance.choice(_of(objects, "Deployment"))
    pdb = _pdb(chance, target["metadata"]["name"])
    pdb["spec"]["maxUnavailable"] = 0
    return ProposedChange(manifests=(pdb,), images={"default": "ami-0new"})


CHANGES = {
    "scaled": _scaled,
    "requests": _requests,
    "narrowed": _narrowed,
    "budget": _budget,
    "deleted": _deleted,
    "added": _added,
    "sold-out": _sold_out,
    "price": _price,
    "image": _image,
    "zone": _zone,
    "no-disruption": _no_disruption,
}
