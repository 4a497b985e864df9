"""A cluster put into a lab: objects with their identities and ages, kubelets that run their pods, instances."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from dovetail.cloud.provider import Instance
from dovetail.errors import UserError
from dovetail.kube.errors import AlreadyExists, ApiError
from dovetail.kube.resources import CRDS
from dovetail.lab.apiserver.create_update import key_of
from dovetail.lab.apiserver.request import table_of
from dovetail.lab.cluster import Lab
from dovetail.lab.instances import SimulatedInstance
from dovetail.lab.scenario.manifests import Kinds, apply
from dovetail.lab.scenario.schema import ScenarioError
from dovetail.model import labels as keys
from dovetail.model.kinds import crds
from dovetail.model.meta import stamp
from dovetail.model.quantity import resources
from dovetail.offline.diff.cluster import DiffInput, label_of

Json = dict[str, Any]


async def define_kinds(lab: Lab) -> None:
    """Our kinds, so that their objects can be stored."""
    for definition in crds.definitions():
        try:
            await lab.kube.create(CRDS, definition)
        except AlreadyExists:
            continue


def store(lab: Lab, objects: Iterable[Json], now: datetime) -> None:
    """Put objects where the API server keeps them, as another server has stored them: UID, age and status stay."""
    assert lab.server is not None
    server = lab.server
    for item in objects:
        group, _, version = str(item["apiVersion"]).rpartition("/")
        served = server.registry.by_kind(group, version, str(item["kind"]))
        resource = server.registry.stored(group, served.plural) if served is not None else None
        if resource is None:
            raise LookupError(f"no resource of kind {item['kind']} in {item['apiVersion']}")
        stored = copy.deepcopy(item)
        stored["metadata"].setdefault("creationTimestamp", stamp(now))
        resource.strategy.default(stored)  # else the first write would fill them in, and look like a change
        server.store.put(table_of(resource), key_of(resource, stored), stored)


async def create(lab: Lab, cluster: DiffInput) -> None:
    """Create what is a manifest yet: the server fills in defaults, and refuses what is wrong."""
    kinds = Kinds(lab.kube)
    for item in cluster.manifests:
        try:
            await apply(lab.kube, kinds, item)
        except ApiError as problem:
            raise UserError(f"{label_of(item)}: {problem.message}") from problem
        except ScenarioError as problem:
            raise UserError(f"{label_of(item)}: {problem}") from problem


def is_ready(node: Mapping[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return all(condition.get("status") == "True" for condition in conditions if condition.get("type") == "Ready")


def kubelet(node: Json) -> SimulatedInstance:
    """The instance of a Node that is there: its kubelet takes the Node over as it is."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    labels: Mapping[str, str] = metadata.get("labels") or {}
    addresses = {address.get("type"): address.get("address") for address in status.get("addresses") or ()}
    return SimulatedInstance(
        name=metadata["name"],
        provider_id=str(spec.get("providerID") or ""),
        instance_type=labels.get(keys.INSTANCE_TYPE, ""),
        zone=labels.get(keys.ZONE, ""),
        region=labels.get(keys.REGION, ""),
        ip=str(addresses.get("InternalIP") or "10.0.0.1"),
        capacity=resources(status.get("capacity") or {}),
        allocatable=resources(status.get("allocatable") or {}),
        capacity_type=labels.get(keys.CAPACITY_TYPE, ""),
        arch=labels.get("kubernetes.io/arch", "amd64"),
        labels=labels,
    )


def instances(cluster: DiffInput, now: datetime) -> dict[str, Instance]:
    """The instances that NodeClaims stand for, by the names of their Nodes; those without a Node by their own."""
    instances: dict[str, Instance] = {}
    nodes = {str((node.get("spec") or {}).get("providerID") or ""): node for node in cluster.of("Node")}
    for claim in cluster.of("NodeClaim"):
        metadata, status = claim["metadata"], claim.get("status") or {}
        provider_id = str(status.get("providerID") or "")
        if not provider_id:
            continue
        node = nodes.get(provider_id)
        labels = {**(metadata.get("labels") or {}), **((node or {}).get("metadata", {}).get("labels") or {})}
        amounts = (node or claim).get("status") or {}
        created = metadata.get("creationTimestamp")
        instance = Instance(
            provider_id=provider_id,
            instance_type=labels.get(keys.INSTANCE_TYPE, ""),
            zone=labels.get(keys.ZONE, ""),
            capacity_type=labels.get(keys.CAPACITY_TYPE, ""),
            image_id=str(status.get("imageID") or ""),
            capacity=resources(amounts.get("capacity") or {}),
            allocatable=resources(amounts.get("allocatable") or {}),
            labels=labels,
            created=datetime.fromisoformat(created) if created else now,
            claim_uid=metadata.get("uid"),
            claim_name=metadata["name"],
            node_pool=labels.get(keys.NODEPOOL),
        )
        instances[node["metadata"]["name"] if node is not None else metadata["name"]] = instance
    return instances
