"""The planner's whole world: what there is, what may be launched and what waits, at one instant.

A snapshot is immutable and plain: Kubernetes objects as they are, nothing derived. `memory` carries what
earlier snapshots already worked out about the same objects (by identity), so that a cut after a small change
costs what changed; it never changes an answer.
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
from dovetail.planner.cache import Memory


class Preferences(StrEnum):
    """Whether soft constraints are tried as hard ones first, or not looked at."""

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

    It is no candidate for a plan. It explains why a pod waits that it would have suited: `why` says what is wrong in
    words that end a sentence about the NodePool, `code` is the reason, `object` is what has to be changed.
    `pool.types` are those that it would have, as far as they are known.
    """

    pool: Pool
    code: str
    why: str
    remedy: str
    object: str
    leaving: bool = False
    """Being deleted: it will not be usable again."""


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """An existing node or on its way, and the pods bound to it.

    `name` is the node's, or the claim's while there is no node. `taints` are those a pod must tolerate: until
    a node is initialised its startup taints and Kubernetes' own passing ones are left out. `attach_limits`
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
    """Whether consolidation may take it: managed, initialised, no pod forbids it."""
    held_by: str = ""
    """Why it is not movable, in words."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """Everything `provision` and `consolidate` look at.

    `pending` are the pods to place: unbound ones, and those of nodes that are going (`deleting`).
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
    memory: Memory = msgspec.field(default_factory=Memory)
