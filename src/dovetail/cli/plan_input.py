"""What `dovetail plan` reads: manifests as people keep them, made into a snapshot.

Workloads stand for their pods unless those are in the input as well. What is wrong is said with object, field and
value; what is not looked at is noted and left alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from dovetail.cli.manifests import Unreadable, texts
from dovetail.cli.plan_claims import claims_of
from dovetail.cloud.simulated import catalogue as catalogue_file
from dovetail.cluster import machines as views
from dovetail.cluster.pools import for_planner, labels, types_by_name
from dovetail.model.instancetype import InstanceType
from dovetail.model.kinds.convert import ConversionError, expand
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.kinds.overlay import NodeOverlay
from dovetail.model.objects import (
    CSINode,
    DaemonSet,
    Deployment,
    Job,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    StatefulSet,
    StorageClass,
    without_nulls,
)
from dovetail.model.quantity import QuantityError, parse
from dovetail.model.taints import DISRUPTED, same
from dovetail.planner.overlays import agreed, overlaid
from dovetail.planner.snapshot import NodeState, Pool, PoolRequirement, Snapshot
from dovetail.planner.workloads import pods_of

T = TypeVar("T")
Json = dict[str, Any]

_OURS = frozenset({"NodePool", "Provisioner", "NodeClaim", "Machine", "EC2NodeClass", "AWSNodeTemplate", "NodeOverlay",
                   "KWOKNodeClass"})  # fmt: skip
_KINDS: dict[str, type[Any]] = {
    "Pod": Pod, "Node": Node, "NodePool": NodePool, "NodeClaim": NodeClaim, "NodeOverlay": NodeOverlay,
    "Deployment": Deployment, "ReplicaSet": ReplicaSet, "StatefulSet": StatefulSet, "Job": Job,
    "DaemonSet": DaemonSet, "PersistentVolumeClaim": PersistentVolumeClaim, "PersistentVolume": PersistentVolume,
    "StorageClass": StorageClass, "CSINode": CSINode, "PriorityClass": PriorityClass, "Namespace": Namespace,
    "PodDisruptionBudget": PodDisruptionBudget,
}  # fmt: skip
_SILENT = frozenset({"EC2NodeClass", "AWSNodeTemplate", "KWOKNodeClass"})
#: Where amounts stand that planning reads, beside those of containers.
_AMOUNTS = {
    "NodePool": ("spec.limits",),
    "Node": ("status.capacity", "status.allocatable"),
    "NodeClaim": ("spec.resources.requests", "status.capacity", "status.allocatable"),
}
#: Where pods are described.
_PODS = {"Pod": "spec"} | dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "Job", "DaemonSet"),
                                        "spec.template.spec")  # fmt: skip


class InputError(Exception):
    """The input is wrong: object, field, value, and what to do about it."""


class Objects:
    """The objects of the input by kind."""

    def __init__(self) -> None:
        self._by_kind: dict[str, list[Any]] = {}
        self.ignored: dict[str, int] = {}

    def add(self, source: Json) -> None:
        kind = source.get("kind")
        if not isinstance(kind, str):
            name = (source.get("metadata") or {}).get("name") or ", ".join(map(str, list(source)[:3]))
            raise InputError(f"an object ({name}) has no kind; every document needs apiVersion and kind")
        if kind.endswith("List") and isinstance(source.get("items"), list):
            for each in source["items"]:
                self.add({"kind": kind.removesuffix("List"), **each} if kind != "List" else each)
            return
        for each in self._current(kind, source):
            self._add_one(each)

    def _current(self, kind: str, source: Json) -> list[Json]:
        if kind not in _OURS:
            return [source]
        try:
            return list(expand(source))
        except ConversionError as problem:
            raise InputError(f"{_named(source)}: {problem}") from problem

    def _add_one(self, source: Json) -> None:
        kind = source["kind"]
        if kind not in _KINDS:
            if kind not in _SILENT:
                self.ignored[kind] = self.ignored.get(kind, 0) + 1
            return
        try:
            found = msgspec.convert(without_nulls(source), _KINDS[kind], strict=False)
        except msgspec.ValidationError as problem:
            raise InputError(f"{_named(source)}: {_field(str(problem))}") from problem
        for where, amounts in _amounts(source):
            _check_amounts(source, where, amounts)
        self._by_kind.setdefault(kind, []).append(found)

    def of(self, kind: type[T]) -> list[T]:
        return self._by_kind.get(kind.__name__, [])


def _named(source: Json) -> str:
    name = (source.get("metadata") or {}).get("name", "?")
    return f'{source.get("kind")} "{name}"'


def _field(problem: str) -> str:
    what, _, where = problem.partition(" - at ")
    return f"{where.strip('`').removeprefix('$.')}: {what}" if where else what


def _amounts(source: Json) -> Iterator[tuple[str, Json]]:
    """Every mapping of amounts in an object, with the field it stands in."""
    kind = source["kind"]
    for where in _AMOUNTS.get(kind, ()):
        yield where, _at(source, where)
    pods = _PODS.get(kind)
    if pods is None:
        return
    for where in (f"{pods}.overhead", f"{pods}.resources.requests"):
        yield where, _at(source, where)
    for group in ("initContainers", "containers"):
        for number, container in enumerate(_at(source, pods).get(group) or ()):
            for field in ("resources.requests", "resources.limits"):
                yield f"{pods}.{group}[{number}].{field}", _at(container, field)


def _at(source: Json, where: str) -> Json:
    place: Any = source
    for key in where.split("."):
        place = place.get(key) or {}
    found: Json = place
    return found


def _check_amounts(source: Json, where: str, amounts: Json) -> None:
    for name, amount in amounts.items():
        try:
            parse(str(amount))
        except QuantityError as problem:
            told = f'{where}.{name}: "{amount}" is not a quantity (such as 500m or 2Gi)'
            raise InputError(f"{_named(source)}: {told}") from problem


def read(paths: Iterable[str]) -> Objects:
    """Every object in files, folders, or `-` for the standard input."""
    objects = Objects()
    try:
        given = list(texts(paths))
    except Unreadable as problem:
        raise InputError(str(problem)) from problem
    for name, text in given:
        try:
            _add(objects, text)
        except InputError as problem:
            raise InputError(f"{name}: {problem}") from problem
    return objects


def _add(objects: Objects, text: str) -> None:
    for document in _documents(text):
        if document is None:
            continue
        for each in document if isinstance(document, list) else [document]:
            if not isinstance(each, dict):
                raise InputError(f"expected an object, found {type(each).__name__}")
            objects.add(each)


def _documents(text: str) -> list[Any]:
    import yaml

    if text.lstrip().startswith(("{", "[")):
        with suppress(json.JSONDecodeError):  # then it is YAML in its short form, or several documents
            return [json.loads(text)]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return list(yaml.load_all(text, Loader=loader))
    except yaml.YAMLError as problem:
        raise InputError(f"not YAML: {' '.join(str(problem).split())}") from problem


def catalogue(path: str) -> tuple[InstanceType, ...]:
    """A catalogue file: a JSON array of instance types."""
    try:
        return tuple(catalogue_file.read(Path(path)))
    except catalogue_file.CatalogueError as problem:
        raise InputError(str(problem)) from problem


#: What is bought when no NodePool says otherwise: current general machines, on demand.
DEFAULT_POOL = Pool(
    name="default",
    types=(),
    requirements=(
        PoolRequirement(key="karpenter.k8s.aws/instance-category", operator="In", values=("c", "m", "r")),
        PoolRequirement(key="karpenter.k8s.aws/instance-generation", operator="Gt", values=("2",)),
        PoolRequirement(key="kubernetes.io/arch", operator="In", values=("amd64",)),
        PoolRequirement(key="kubernetes.io/os", operator="In", values=("linux",)),
        PoolRequirement(key="karpenter.sh/capacity-type", operator="In", values=("on-demand",)),
    ),
)


def snapshot(objects: Objects, types: tuple[InstanceType, ...], any_type: bool) -> Snapshot:
    """The objects as a snapshot. `any_type`: without a NodePool, everything in the catalogue may be bought."""
    try:
        return _snapshot(objects, types, any_type)
    except QuantityError as problem:
        raise InputError(f"a quantity cannot be read: {problem}") from problem


def _snapshot(objects: Objects, types: tuple[InstanceType, ...], any_type: bool) -> Snapshot:
    pools = _pools(objects, types, any_type)
    made, claims = pods_of(objects.of)
    pods = [*objects.of(Pod), *made]
    values = {each.metadata.name: each.value for each in objects.of(PriorityClass)}
    values[""] = next((each.value for each in objects.of(PriorityClass) if each.global_default), 0)
    nodes = _nodes(objects, pods, {each.name: each for each in types} | types_by_name(pools))
    going = [pod for state in nodes if state.deleting for pod in state.pods if _replaced(pod)]
    waiting = [pod for pod in pods if _waits(pod)]
    return Snapshot(
        pools=pools,
        nodes=tuple(nodes),
        pending=(*waiting, *going),
        daemons=tuple(objects.of(DaemonSet)),
        namespaces={each.metadata.name: each.metadata.labels for each in objects.of(Namespace)},
        claims=claims_of((*claims, *objects.of(PersistentVolumeClaim)), pods),
        volumes={each.metadata.name: each for each in objects.of(PersistentVolume)},
        storage_classes={each.metadata.name: each for each in objects.of(StorageClass)},
        budgets=tuple(objects.of(PodDisruptionBudget)),
        priorities=values,
    )


def _pools(objects: Objects, types: tuple[InstanceType, ...], any_type: bool) -> tuple[Pool, ...]:
    """The pools with what they may buy, at the prices and capacities that overlays give them."""
    overlays = objects.of(NodeOverlay)
    if not objects.of(NodePool):
        requirements = () if any_type else DEFAULT_POOL.requirements
        return (replace(DEFAULT_POOL, types=overlaid(types, overlays), requirements=requirements),)
    wanted = [pool for pool in objects.of(NodePool) if not pool.static and not pool.metadata.deletion_timestamp]
    valid = agreed(overlays, [(labels(pool), types) for pool in objects.of(NodePool)]) if overlays else ()
    return tuple(for_planner(pool, overlaid(types, valid, labels(pool))) for pool in wanted)


def _waits(pod: Pod) -> bool:
    return not (pod.spec.node_name or pod.finished or pod.spec.scheduling_gates or pod.terminating)


def _replaced(pod: Pod) -> bool:
    """Whether a pod of a machine that goes needs another place: the successor of one that leaves waits by itself.

    Only a StatefulSet waits with the successor until the pod is gone.
    """
    kind = pod.metadata.controller.kind if pod.metadata.controller is not None else ""
    return not pod.finished and kind not in ("DaemonSet", "Node") and (not pod.terminating or kind == "StatefulSet")


def _nodes(objects: Objects, pods: list[Pod], types: Mapping[str, InstanceType]) -> list[NodeState]:
    on: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.spec.node_name and not pod.finished:
            on.setdefault(pod.spec.node_name, []).append(pod)
    csi = {each.metadata.name: each for each in objects.of(CSINode)}
    claims = objects.of(NodeClaim)
    by_node = {claim.status.node_name: claim for claim in claims if claim.status.node_name}
    by_machine = {claim.status.provider_id: claim for claim in claims if claim.status.provider_id}
    found, seen = [], set()
    for node in objects.of(Node):
        claim = by_node.get(node.metadata.name) or by_machine.get(node.spec.provider_id)
        if claim is not None:
            seen.add(claim.name)
        going = node.metadata.deletion_timestamp is not None or any(same(t, DISRUPTED) for t in node.spec.taints)
        going = going or (claim is not None and claim.metadata.deletion_timestamp is not None)
        name = node.metadata.name
        state = views.of_node(node, claim, on.get(name, ()), csi.get(name), types, deleting=going)
        found.append(_settled(state, node))
    for claim in claims:
        if claim.name not in seen:
            going = claim.metadata.deletion_timestamp is not None
            found.append(views.of_claim(claim, on.get(claim.name, ()), types, deleting=going))
    return found


def _settled(state: NodeState, node: Node) -> NodeState:
    """A node of a pool is the pool's even without its claim, and may be taken unless something holds it."""
    pool = state.pool or node.metadata.labels.get("karpenter.sh/nodepool")
    held = "" if pool else "it belongs to no NodePool"
    if node.metadata.annotations.get("karpenter.sh/do-not-disrupt") == "true":
        held = "the node asks not to be disrupted"
    for pod in state.pods:
        if pod.metadata.annotations.get("karpenter.sh/do-not-disrupt") == "true":
            held = f"pod {pod.metadata.key} asks not to be disrupted"
    return replace(state, pool=pool, movable=not held, held_by=held)
