"""The snapshot, the planner's only input: existing nodes, NodePools with their offerings, and pending pods.

A snapshot is immutable and holds Kubernetes objects as they are, nothing derived. `memory` caches results about the
same objects (by identity) from earlier snapshots, so that compiling after a small change costs only what changed; it
never changes a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from dovetail.model.instance_type import InstanceType, Resources
from dovetail.model.nodes import Taint
from dovetail.model.pods import Pod, TopologySpreadConstraint
from dovetail.model.selector import LabelSelector
from dovetail.model.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.model.workloads import DaemonSet, PodDisruptionBudget
from dovetail.planner.cache import PlannerCache


class Preferences(StrEnum):
    """Whether preferences are first treated as required, or ignored."""

    RESPECT = "Respect"
    IGNORE = "Ignore"


class MinValues(StrEnum):
    """What to do when a pool's minValues cannot be met: refuse, or take what there is."""

    STRICT = "Strict"
    BEST_EFFORT = "BestEffort"


class PoolRequirement(msgspec.Struct, frozen=True, kw_only=True):
    """One requirement of a pool's template, as written."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    min_values: int | None = None


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A NodePool that may launch: its template and the types its provider offers it.

    `types` have overlays and the pool's NodeClass applied. `limits` are resources of the pool's nodes in
    total, `nodes` among them. `labels` has the template's labels and the NodeClass label.
    """

    name: str
    types: tuple[InstanceType, ...]
    weight: int = 0
    requirements: tuple[PoolRequirement, ...] = ()
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    limits: Resources = {}


class UnusablePool(msgspec.Struct, frozen=True, kw_only=True):
    """A NodePool that launches nothing now: not ready, being deleted, or paused because its launches fail.

    It is not used for planning. It explains why a pod is pending that it would have suited: `why` completes a sentence
    about the NodePool, `code` is the reason, `object` is the object to change. `pool.types` are the types that it would
    have, as far as they are known.
    """

    pool: Pool
    code: str
    why: str
    remedy: str
    object: str
    leaving: bool = False
    """Being deleted: it will not be usable again."""
    meant: str = ""
    """The NodeClass that was meant, if the one that it names does not exist."""


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """An existing node, or a NodeClaim without a node yet, and the pods bound to it.

    `name` is the node's, or the claim's while there is no node. `taints` are those a pod must tolerate: until
    a node is initialised its startup taints and Kubernetes' own temporary ones are left out. `attach_limits`
    are volumes by CSI driver, from CSINode or, until that is published, from the type.
    Unchanged nodes keep their identity from one snapshot to the next.
    """

    name: str
    labels: Mapping[str, str]
    allocatable: Resources
    capacity: Resources = {}
    taints: tuple[Taint, ...] = ()
    pods: tuple[Pod, ...] = ()
    attach_limits: Mapping[str, int] = {}
    pool: str | None = None
    claim: str | None = None
    initialized: bool = True
    deleting: bool = False
    price: float | None = None
    movable: bool = True
    """Whether consolidation may remove it: managed, initialised, and no pod forbids it."""
    held_by: str = ""
    """Why it is not movable, in words."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """Everything that `provision` and `consolidate` read.

    `pending` are the pods to place: unbound ones, and those of nodes that are being deleted (`deleting`).
    `claims` are keyed namespace/name, `selectors` by the UID of a pod's controller (for default spreading),
    `unavailable` is (type, zone, capacity type).
    """

    pools: tuple[Pool, ...]
    unusable_pools: tuple[UnusablePool, ...] = ()
    nodes: tuple[NodeState, ...] = ()
    pending: tuple[Pod, ...] = ()
    daemons: tuple[DaemonSet, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    claims: Mapping[str, PersistentVolumeClaim] = {}
    volumes: Mapping[str, PersistentVolume] = {}
    storage_classes: Mapping[str, StorageClass] = {}
    budgets: tuple[PodDisruptionBudget, ...] = ()
    priorities: Mapping[str, int] = {}
    default_spread: tuple[TopologySpreadConstraint, ...] = ()
    selectors: Mapping[str, LabelSelector] = {}
    unavailable: frozenset[tuple[str, str, str]] = frozenset()
    preferences: Preferences = Preferences.RESPECT
    min_values: MinValues = MinValues.STRICT
    memory: PlannerCache = msgspec.field(default_factory=PlannerCache)
