"""Evaluation: what would happen to a pod now, planned from the objects of a cluster or of files.

It needs no autoscaler and no history: `dovetail explain` asks it about a cluster that runs Karpenter, about files, and
about changes that were not made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from dovetail.cloud.aws.catalog import load
from dovetail.language import english
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.nodepool import NodePool
from dovetail.offline import snapshot as snapshot_module
from dovetail.offline.objects import Objects
from dovetail.offline.region import region_of
from dovetail.planner.plan import Placement, Plan, PlannedNode, Unschedulable
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Pool, Snapshot, UnusablePool

Json = dict[str, Any]


class PlanEvaluation:
    """A plan for the pods of some manifests.

    `unavailable` are offerings that are known to be out of capacity. `whole_cluster`: the manifests are all that there
    is, so that no NodePool among them means that there is none.
    """

    def __init__(
        self,
        manifests: Sequence[Json],
        *,
        region: str | None = None,
        types: tuple[InstanceType, ...] = (),
        unavailable: frozenset[tuple[str, str, str]] = frozenset(),
        whole_cluster: bool = False,
    ) -> None:
        self.manifests = manifests
        self._region, self._types, self._unavailable = region, types, unavailable
        self._whole_cluster = whole_cluster
        self.objects = Objects()
        for manifest in manifests:
            self.objects.add(manifest)
        self.region = "" if types else region_of(region or _region_of_classes(self.objects.node_classes), self.objects)
        offered = types or load(self.region)
        snapshot = snapshot_module.snapshot(self.objects, offered, any_type=bool(types), region=self.region)
        if whole_cluster and not self.objects.of(NodePool):
            snapshot = replace(snapshot, pools=())
        self.snapshot = replace(_within_subnets(snapshot, self.objects), unavailable=unavailable)
        with english():  # a plan is data: its texts are translated where they are shown
            self.plan: Plan = provision(self.snapshot)

    def changed(self, manifests: Sequence[Json]) -> PlanEvaluation:
        """The same with other manifests."""
        return PlanEvaluation(
            manifests,
            region=self._region,
            types=self._types,
            unavailable=self._unavailable,
            whole_cluster=self._whole_cluster,
        )

    def placement(self, key: str) -> Placement | None:
        """What the plan has for a pod (`namespace/name`); None if it does not wait."""
        return self.plan.placements.get(key)

    def refusal(self, key: str) -> Unschedulable | None:
        place = self.placement(key)
        return place.unschedulable if place is not None else None

    def new_node(self, key: str) -> PlannedNode | None:
        """The node that would be launched for a pod."""
        return next((node for node in self.plan.nodes if key in node.pods), None)

    def pods_like(self, prefix: str) -> list[str]:
        """The planned pods of a workload, by the names that it gives them."""
        return [key for key in self.plan.placements if key == prefix or key.startswith(f"{prefix}-")]


def _region_of_classes(classes: Mapping[str, Json]) -> str | None:
    """The region of the subnets that NodeClasses have resolved."""
    for node_class in classes.values():
        for subnet in (node_class.get("status") or {}).get("subnets") or ():
            zone = str(subnet.get("zone") or "")
            if zone[-1:].isalpha():
                return zone[:-1]
    return None


def _within_subnets(snapshot: Snapshot, objects: Objects) -> Snapshot:
    """Offerings only in zones in which the NodeClass of a pool has a subnet, where its status says so."""
    zones: dict[str, frozenset[str]] = {}
    for name, node_class in objects.node_classes.items():
        subnets = (node_class.get("status") or {}).get("subnets") or ()
        zones[name] = frozenset(str(subnet.get("zone")) for subnet in subnets if subnet.get("zone"))
    if not any(zones.values()):
        return snapshot
    kept: dict[tuple[int, frozenset[str]], tuple[InstanceType, ...]] = {}

    def limited(pool: Pool) -> Pool:
        own = zones.get(pool.labels.get("karpenter.k8s.aws/ec2nodeclass", ""), frozenset())
        if not own:
            return pool
        key = (id(pool.types), own)
        if key not in kept:
            kept[key] = tuple(
                replace(kind, offerings=tuple(offering for offering in kind.offerings if offering.zone in own))
                for kind in pool.types
            )
        return replace(pool, types=kept[key])

    def limited_too(unusable: UnusablePool) -> UnusablePool:
        return replace(unusable, pool=limited(unusable.pool))

    return replace(
        snapshot,
        pools=tuple(map(limited, snapshot.pools)),
        unusable_pools=tuple(map(limited_too, snapshot.unusable_pools)),
    )


def manifests_of(documents: Iterable[Any]) -> list[Json]:
    """Documents with their lists taken apart."""
    manifests: list[Json] = []
    for document in documents:
        if isinstance(document, list):
            manifests += manifests_of(document)
        elif isinstance(document, dict) and str(document.get("kind", "")).endswith("List") and "items" in document:
            kind = str(document["kind"]).removesuffix("List")
            items = [item if "kind" in item or not kind else {"kind": kind, **item} for item in document["items"] or ()]
            manifests += manifests_of(items)
        elif isinstance(document, dict):
            manifests.append(document)
    return manifests
