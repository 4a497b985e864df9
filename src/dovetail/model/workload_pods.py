"""Workloads as the pods they would make, where those pods are not there yet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Set
from typing import Any

from msgspec.structs import replace

from dovetail.model.meta import ObjectMeta, OwnerReference
from dovetail.model.pod_defaults import stored
from dovetail.model.pods import PersistentVolumeClaimUse, Pod, PodTemplateSpec, Volume
from dovetail.model.volumes import PersistentVolumeClaim
from dovetail.model.workloads import Deployment, Job, ReplicaSet, StatefulSet

Lookup = Callable[[type[Any]], list[Any]]


def pods_of(objects: Lookup) -> tuple[list[Pod], list[PersistentVolumeClaim]]:
    """The pods, and the claims that StatefulSets would make for theirs.

    Those of StatefulSets are named first: their numbers mean something, and others of the same name go on from there.
    """
    owned = _owned(objects)
    deployments = {(obj.metadata.namespace or "default", obj.metadata.name) for obj in objects(Deployment)}
    pods: list[Pod] = []
    claims: list[PersistentVolumeClaim] = []
    taken = {f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}" for pod in objects(Pod)}
    for kind in (StatefulSet, Deployment, ReplicaSet, Job):
        for obj in objects(kind):
            namespace, owner = obj.metadata.namespace or "default", obj.metadata.controller
            if (kind.__name__, namespace, obj.metadata.name) in owned:
                continue
            if kind is ReplicaSet and owner is not None and (namespace, owner.name) in deployments:
                continue
            made = _made(obj, kind.__name__, count(obj), taken)
            taken.update(pod.metadata.key for pod in made)
            if isinstance(obj, StatefulSet):
                made, more = _with_claims(obj, made)
                claims += more
            pods += made
    return pods, claims


def _owned(objects: Lookup) -> set[tuple[str, str, str]]:
    """The workloads that have pods in the input; a Deployment through its ReplicaSets."""
    above = {
        (obj.metadata.namespace or "default", obj.metadata.name): obj.metadata.controller for obj in objects(ReplicaSet)
    }
    pods: set[tuple[str, str, str]] = set()
    for pod in objects(Pod):
        owner, namespace = pod.metadata.controller, pod.metadata.namespace or "default"
        if owner is None:
            continue
        pods.add((owner.kind, namespace, owner.name))
        parent = above.get((namespace, owner.name)) if owner.kind == "ReplicaSet" else None
        if parent is not None:
            pods.add((parent.kind, namespace, parent.name))
        elif owner.kind == "ReplicaSet":
            pods.add(("Deployment", namespace, owner.name.rpartition("-")[0]))
    return pods


def count(workload: Any) -> int:
    """How many pods a workload is to have at a time."""
    if isinstance(workload, Job):
        pods = workload.spec.parallelism if workload.spec.completions is None else workload.spec.completions
        return 0 if workload.spec.suspend else max(0, min(workload.spec.parallelism, pods))
    return max(0, int(workload.spec.replicas))


def _made(workload: Any, kind: str, count: int, taken: Set[str]) -> list[Pod]:
    template: PodTemplateSpec = workload.spec.template
    namespace = workload.metadata.namespace or "default"
    owner = OwnerReference(
        kind=kind,
        name=workload.metadata.name,
        uid=workload.metadata.uid or f"{kind}/{namespace}/{workload.metadata.name}",
        controller=True,
    )
    spec = replace(stored(template.spec), node_name="")
    names = (f"{workload.metadata.name}-{index}" for index in itertools.count())
    free = (name for name in names if kind == "StatefulSet" or f"{namespace}/{name}" not in taken)
    return [
        Pod(
            metadata=ObjectMeta(
                name=name,
                namespace=namespace,
                labels=template.metadata.labels,
                annotations=template.metadata.annotations,
                owner_references=(owner,),
            ),
            spec=spec,
        )
        for name in itertools.islice(free, count)
    ]


def _with_claims(stateful_set: StatefulSet, pods: list[Pod]) -> tuple[list[Pod], list[PersistentVolumeClaim]]:
    claims: list[PersistentVolumeClaim] = []
    made: list[Pod] = []
    for pod in pods:
        volumes = list(pod.spec.volumes)
        for template in stateful_set.spec.volume_claim_templates:
            name = f"{template.metadata.name}-{pod.metadata.name}"
            volumes = [volume for volume in volumes if volume.name != template.metadata.name]
            use = PersistentVolumeClaimUse(claim_name=name)
            volumes.append(Volume(name=template.metadata.name, persistent_volume_claim=use))
            meta = ObjectMeta(name=name, namespace=pod.metadata.namespace)
            claims.append(PersistentVolumeClaim(metadata=meta, spec=template.spec))
        made.append(replace(pod, spec=replace(pod.spec, volumes=tuple(volumes))))
    return made, claims
