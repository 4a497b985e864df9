"""What `dovetail plan` plans for: the objects of the input, made into a snapshot.

Workloads stand for their pods unless those are in the input as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from dovetail.cloud.simulated import catalog_file as catalogue_file
from dovetail.cluster import state_node as views
from dovetail.cluster.nodepools import for_planner, labels, types_by_pool
from dovetail.cluster.unusable_nodepools import UnusableCause, cause
from dovetail.errors import UserError
from dovetail.language import message
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.kinds.overlay import NodeOverlay
from dovetail.model.node_overlays import Shop, consistent, overlaid, selection
from dovetail.model.nodes import Namespace, Node, PriorityClass
from dovetail.model.pod_defaults import stored
from dovetail.model.pods import Pod
from dovetail.model.quantity import QuantityError
from dovetail.model.taints import DISRUPTED, same
from dovetail.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.model.wellknown import NODEPOOL
from dovetail.model.workload_pods import count, pods_of
from dovetail.model.workloads import DaemonSet, Deployment, Job, PodDisruptionBudget, ReplicaSet, StatefulSet
from dovetail.offline.objects import Objects
from dovetail.offline.region import types_of_pools
from dovetail.offline.volume_claims import claims_of
from dovetail.planner.snapshot import NodeState, Pool, PoolRequirement, Snapshot, UnusablePool


def catalogue(path: str) -> tuple[InstanceType, ...]:
    """A catalogue file: a JSON array of instance types."""
    try:
        return tuple(catalogue_file.read(Path(path)))
    except catalogue_file.CatalogueError as problem:
        raise UserError(str(problem)) from problem


#: What is launched when no NodePool says otherwise: current general instance types, on demand.
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


#: The priorities that every cluster has, by class.
CRITICAL = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
#: More pods than any cluster runs; a slip of the hand asks for billions.
MOST_PODS = 1_000_000


def snapshot(objects: Objects, types: tuple[InstanceType, ...], any_type: bool, region: str = "") -> Snapshot:
    """The objects as a snapshot. `any_type`: without a NodePool, everything in the catalogue may be launched.

    Types that are packaged for a `region` are as the NodeClass of each pool makes them.
    """
    try:
        return _snapshot(objects, types, any_type, region)
    except QuantityError as problem:
        raise UserError(message("a quantity cannot be read: {problem}", problem=problem)) from problem


def _snapshot(objects: Objects, types: tuple[InstanceType, ...], any_type: bool, region: str) -> Snapshot:
    pools, unusable = _pools(objects, types, any_type, region)
    _check_crowd(objects)
    made, claims = pods_of(objects.of)
    pods = [*map(_stored, objects.of(Pod)), *made]
    values = CRITICAL | {
        priority_class.metadata.name: priority_class.value for priority_class in objects.of(PriorityClass)
    }
    values[""] = next(
        (priority_class.value for priority_class in objects.of(PriorityClass) if priority_class.global_default), 0
    )
    nodes = _nodes(
        objects, pods, {("", instance_type.name): instance_type for instance_type in types} | types_by_pool(pools)
    )
    going = [pod for state in nodes if state.deleting for pod in state.pods if _replaced(pod)]
    waiting = [pod for pod in pods if _waits(pod)]
    return Snapshot(
        pools=pools,
        unusable_pools=unusable,
        nodes=tuple(nodes),
        pending=(*waiting, *going),
        daemons=tuple(objects.of(DaemonSet)),
        namespaces=_namespaces(objects, pods),
        claims=claims_of((*claims, *objects.of(PersistentVolumeClaim)), pods),
        volumes={volume.metadata.name: volume for volume in objects.of(PersistentVolume)},
        storage_classes={storage_class.metadata.name: storage_class for storage_class in objects.of(StorageClass)},
        budgets=tuple(objects.of(PodDisruptionBudget)),
        priorities=values,
    )


def _check_crowd(objects: Objects) -> None:
    requested = 0
    made: list[Deployment | ReplicaSet | StatefulSet | Job] = []
    for kind in (Deployment, ReplicaSet, StatefulSet, Job):
        made += objects.of(kind)
    for workload in made:
        pods = count(workload)
        requested += pods
        if requested > MOST_PODS:
            raise UserError(
                message(
                    '{name__} "{each}": with its {pods} pods there are {asked}; plans are for at most {most_pods}',
                    name__=type(workload).__name__,
                    each=workload.metadata.name,
                    pods=pods,
                    asked=requested,
                    most_pods=MOST_PODS,
                )
            )


def _pools(
    objects: Objects, types: tuple[InstanceType, ...], any_type: bool, region: str
) -> tuple[tuple[Pool, ...], tuple[UnusablePool, ...]]:
    """The pools with what they may launch, at the prices and capacities that overlays give them; and the others."""
    overlays = objects.of(NodeOverlay)
    if not objects.of(NodePool):
        requirements = () if any_type else DEFAULT_POOL.requirements
        return (replace(DEFAULT_POOL, types=overlaid(types, overlays), requirements=requirements),), ()
    offered = _types_by_pool(objects, types, overlays, region)
    usable: list[Pool] = []
    unusable: list[UnusablePool] = []
    for pool in objects.of(NodePool):
        planned = for_planner(pool, offered[pool.name])
        cause = why_unusable(pool, objects)
        if cause is not None:
            unusable.append(
                UnusablePool(
                    pool=planned,
                    code=cause.code,
                    why=cause.why,
                    remedy=cause.remedy,
                    object=cause.object,
                    leaving=cause.leaving,
                    meant=cause.meant,
                )
            )
        elif not pool.static:
            usable.append(planned)
    return tuple(usable), tuple(unusable)


def _types_by_pool(
    objects: Objects, types: tuple[InstanceType, ...], overlays: Sequence[NodeOverlay], region: str
) -> dict[str, tuple[InstanceType, ...]]:
    """What each NodePool launches, with overlays; the types of pools that nothing distinguishes are one object."""
    pools = objects.of(NodePool)
    sold = types_of_pools(pools, objects.node_classes, region) if region else {pool.name: types for pool in pools}
    if not overlays:
        return sold
    shops: dict[object, Shop] = {}
    key_of: dict[str, object] = {}
    for pool in pools:
        key = key_of[pool.name] = (id(sold[pool.name]), selection(overlays, labels(pool)))
        shops.setdefault(key, (labels(pool), sold[pool.name]))
    valid = consistent(overlays, [*shops.values()])
    corrected = {key: overlaid(shop_types, valid, shop_labels) for key, (shop_labels, shop_types) in shops.items()}
    return {name: corrected[key] for name, key in key_of.items()}


def why_unusable(pool: NodePool, objects: Objects) -> UnusableCause | None:
    """Why a pool launches nothing for pods, by the conditions in the input; what is not in the input is no evidence."""
    if pool.static:
        return None
    node_class = objects.node_classes.get(pool.spec.template.spec.node_class_ref.name)
    return cause(pool, node_class, class_required=False, reconciled=False)


def why_idle(pool: NodePool, objects: Objects) -> str:
    """Why a pool launches nothing for pods; empty if it does."""
    if pool.static:
        return message("it has replicas, and launches nothing for pods")
    cause = why_unusable(pool, objects)
    return f"it {cause.why}" if cause is not None else ""


def _namespaces(objects: Objects, pods: list[Pod]) -> dict[str, dict[str, str]]:
    """The labels of every namespace: those that pods live in are there, and each is labelled with its name."""
    given = {namespace.metadata.name: namespace.metadata.labels for namespace in objects.of(Namespace)}
    names = dict.fromkeys((*given, *(pod.metadata.namespace or "default" for pod in pods)))
    return {name: {**given.get(name, {}), "kubernetes.io/metadata.name": name} for name in names}


def _stored(pod: Pod) -> Pod:
    spec = stored(pod.spec)
    return pod if spec is pod.spec else replace(pod, spec=spec)


def _waits(pod: Pod) -> bool:
    return not (pod.spec.node_name or pod.finished or pod.spec.scheduling_gates or pod.terminating)


def _replaced(pod: Pod) -> bool:
    """Whether a pod of a node that goes needs another place: the successor of one that leaves waits by itself.

    Only a StatefulSet waits with the successor until the pod is gone.
    """
    kind = pod.metadata.controller.kind if pod.metadata.controller is not None else ""
    return not pod.finished and kind not in ("DaemonSet", "Node") and (not pod.terminating or kind == "StatefulSet")


def _nodes(objects: Objects, pods: list[Pod], types: views.Types) -> list[NodeState]:
    on: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.spec.node_name and not pod.finished:
            on.setdefault(pod.spec.node_name, []).append(pod)
    csi = {csi_node.metadata.name: csi_node for csi_node in objects.of(CSINode)}
    claims = objects.of(NodeClaim)
    by_node = {claim.status.node_name: claim for claim in claims if claim.status.node_name}
    by_provider_id = {claim.status.provider_id: claim for claim in claims if claim.status.provider_id}
    states, seen = [], set()
    for node in objects.of(Node):
        claim = by_node.get(node.metadata.name) or by_provider_id.get(node.spec.provider_id)
        if claim is not None:
            seen.add(claim.name)
        going = node.metadata.deletion_timestamp is not None or any(same(t, DISRUPTED) for t in node.spec.taints)
        going = going or (claim is not None and claim.metadata.deletion_timestamp is not None)
        name = node.metadata.name
        state = views.of_node(node, claim, on.get(name, ()), csi.get(name), types, deleting=going)
        states.append(replace(state, pool=state.pool or node.metadata.labels.get(NODEPOOL)))
    for claim in claims:
        if claim.name not in seen:
            going = claim.metadata.deletion_timestamp is not None
            states.append(views.of_claim(claim, on.get(claim.name, ()), types, deleting=going))
    return states
