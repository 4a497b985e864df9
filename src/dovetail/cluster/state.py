"""The cluster state: the cluster as the watches report it, ready for snapshots.

It holds frozen objects by reference and derives the NodeState of a node again only when something about that
node changed, so that a snapshot costs what changed. Nothing here decides anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from dovetail.clock import Clock
from dovetail.cluster import indexes, initial_sync, state_node
from dovetail.cluster.nominations import Nominations, NominationTarget
from dovetail.cluster.pdb import PdbIndex
from dovetail.cluster.pod_cache import PodTransform
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.errors import Forbidden, KubeError
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.store import Index
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.kinds.overlay import NodeOverlay
from dovetail.model.nodes import Namespace, Node, PriorityClass
from dovetail.model.pods import Pod
from dovetail.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from dovetail.model.workloads import DaemonSet, PodDisruptionBudget
from dovetail.planner.cache import PlannerCache
from dovetail.planner.snapshot import NodeState

T = TypeVar("T")
V = TypeVar("V")
Listener = Callable[[CacheChange[Any]], None]

#: How long a nomination outlives the initialization of its node, in seconds (twice Karpenter's batch window).
NOMINATION_TTL_S = 20.0
#: The index of VolumeAttachments by the node they are on.
ON_NODE = "node"
#: Objects on a page of a first list, where a server cannot send its state by a watch.
LIST_PAGE_SIZE = 1000
_NO_PODS: Mapping[str, Pod] = {}


class ClusterState:
    """Runs until cancelled; `synced` is set once every watched kind has been listed.

    A view that decides nothing (`only_viewed`) does without the kinds that a cluster does not serve, or that the
    viewer may not read: of those only nodes are required.
    """

    def __init__(self, kube: Kube, clock: Clock, *, only_viewed: bool = False) -> None:
        self._kube = kube
        self._only_viewed = only_viewed
        self._clock = clock
        self._pod_transform = PodTransform()
        self._listeners: dict[str, list[Listener]] = {}
        #: Receives what a listener raises; without it the error ends the watch.
        self.listener_failed: Callable[[Exception], None] | None = None
        self._optional: list[Reflector[Any]] = []
        self._required: list[Reflector[Any]] = []

        self.pods = self._watch(kinds.PODS, Pod, self._pod, keep=self._pod_transform.keep)
        self.nodes = self._watch(
            kinds.NODES, Node, self._node, keep=self._pod_transform.keep_node, stage=indexes.of_node
        )
        self.claims = self._watch(kinds.NODECLAIMS, NodeClaim, self._claim, stage=indexes.of_claim)
        self.pools = self._watch(kinds.NODEPOOLS, NodePool)
        self.daemonsets = self._watch(kinds.DAEMONSETS, DaemonSet)
        self.namespaces = self._watch(kinds.NAMESPACES, Namespace)
        self.volume_claims = self._watch(kinds.PERSISTENTVOLUMECLAIMS, PersistentVolumeClaim)
        self.volumes = self._watch(kinds.PERSISTENTVOLUMES, PersistentVolume)
        self.storage_classes = self._watch(kinds.STORAGECLASSES, StorageClass)
        self.csi_nodes = self._watch(kinds.CSINODES, CSINode, self._csi_node)
        self.budgets = self._watch(kinds.PDBS, PodDisruptionBudget, self._budget)
        self.priorities = self._watch(kinds.PRIORITYCLASSES, PriorityClass, optional=True)
        self.attachments = self._watch(
            kinds.VOLUMEATTACHMENTS, VolumeAttachment, optional=True, indices={ON_NODE: _attached_to}
        )
        self.overlays = self._watch(kinds.NODEOVERLAYS, NodeOverlay, optional=True)
        self.node_classes = self._watch(kinds.EC2NODECLASSES, dict[str, Any], optional=True)

        self._notify_claim = self._notifier(kinds.NODECLAIMS)
        self.synced = asyncio.Event()
        self.nominations = Nominations()
        self.memory = PlannerCache()
        self._pdbs: PdbIndex | None = None
        self._types: state_node.Types = {}
        self._marked_for_deletion: set[str] = set()
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._by_uid: dict[str, Pod] = {}
        self._unbound: dict[str, Pod] = {}
        self._node_of: dict[str, dict[str, None]] = {}
        self._claim_of: dict[str, str] = {}
        self._states: dict[NominationTarget, NodeState] = {}
        self._bare: dict[NominationTarget, NodeState] = {}
        self._dirty: dict[NominationTarget, None] = {}
        self._notes = [self._dirty]

    # -- running

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in (*self._required, *self._optional):
                group.create_task(reflector.run(), name=f"watch {reflector.resource.name}")
            group.create_task(self._sync(), name="cluster state sync")

    def tolerate_absent(self, *resources: kinds.Resource) -> None:
        """Kinds that the server may be without: where Karpenter's are not installed, there are no NodePools."""
        absent = [reflector for reflector in self._required if reflector.resource in resources]
        self._required = [reflector for reflector in self._required if reflector not in absent]
        self._optional += absent

    async def _sync(self) -> None:
        await initial_sync.read(self._required, self._optional)
        self.synced.set()

    def age(self) -> float:
        """How old the view may be, in seconds: the time since a broken watch last received something."""
        now = self._clock.monotonic()
        return max(
            (now - reflector.heard for reflector in self._required if reflector.failure is not None), default=0.0
        )

    def failures(self) -> Mapping[str, KubeError]:
        """Watches that do not work, by kind."""
        return {
            reflector.resource.name: reflector.failure for reflector in self._required if reflector.failure is not None
        }

    def forbidden(self) -> Mapping[str, KubeError]:
        """Optional watches that are forbidden, by kind."""
        return {
            reflector.resource.name: reflector.failure
            for reflector in self._optional
            if isinstance(reflector.failure, Forbidden)
        }

    def unread(self) -> Mapping[str, KubeError]:
        """Every watch that does not work, by kind: also those that the cluster state does without."""
        return {
            reflector.resource.name: reflector.failure
            for reflector in (*self._required, *self._optional)
            if reflector.failure is not None
        }

    def listen(self, resource: kinds.Resource, listener: Listener) -> None:
        """Call `listener` after every change of a kind; it must only take notes."""
        self._listeners.setdefault(resource.name, []).append(listener)

    def registered(self, register: Callable[[], V]) -> tuple[V, Callable[[], None]]:
        """What `register` returns, and a callable that removes the listeners and notes which it added."""
        before = {name: len(listeners) for name, listeners in self._listeners.items()}
        readers = len(self._notes)
        made = register()
        notes = self._notes[readers:]
        added = [
            (name, listener)
            for name, listeners in self._listeners.items()
            for listener in listeners[before.get(name, 0) :]
        ]

        def remove() -> None:
            self._notes[:] = [note for note in self._notes if not any(note is mine for mine in notes)]
            for name, listener in added:
                if listener in self._listeners[name]:
                    self._listeners[name].remove(listener)

        return made, remove

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listeners and readers of notes that are added while the block runs are removed after it."""
        before = {name: len(listeners) for name, listeners in self._listeners.items()}
        readers = len(self._notes)
        try:
            yield
        finally:
            del self._notes[readers:]
            for name, listeners in self._listeners.items():
                del listeners[before.get(name, 0) :]

    # -- reading

    def unbound(self) -> Collection[Pod]:
        """Pods without a node that are not finished, in order of arrival."""
        return self._unbound.values()

    def pods_on(self, node: str) -> Sequence[Pod]:
        """The pods bound to a node, by name: a decision must not depend on the order in which they were heard of."""
        pods = self._by_node.get(node)
        return tuple(sorted(pods.values(), key=_by_name)) if pods else ()

    def pod(self, uid: str) -> Pod | None:
        return self._by_uid.get(uid)

    def node_for(self, claim: NodeClaim) -> Node | None:
        """The NodeClaim's node, if exactly one has its provider id."""
        nodes = self.nodes_for(claim)
        return nodes[0] if len(nodes) == 1 else None

    def nodes_for(self, claim: NodeClaim) -> list[Node]:
        names = self._node_of.get(claim.status.provider_id) if claim.status.provider_id else None
        return [node for node in map(self.nodes.store.get, names) if node is not None] if names else []

    def claim_for(self, node: Node) -> NodeClaim | None:
        return self.owner(node.spec.provider_id)

    def owner(self, provider_id: str) -> NodeClaim | None:
        """The NodeClaim whose status has a provider id."""
        name = self._claim_of.get(provider_id) if provider_id else None
        return self.claims.store.get(name) if name else None

    @property
    def pdbs(self) -> PdbIndex:
        """Which PDBs select which pods."""
        if self._pdbs is None:
            self._pdbs = PdbIndex(self.budgets.store.all())
        return self._pdbs

    def claims_of(self, pool: str) -> list[NodeClaim]:
        return [claim for claim in self.claims.store.all() if claim.node_pool == pool]

    def states(self, types: state_node.Types) -> tuple[NodeState, ...]:
        """Every node and unregistered NodeClaim as the planner sees it now; unchanged ones keep their identity."""
        if types is not self._types:
            self._types = types
            self._bare.clear()
            self._dirty.update(dict.fromkeys(self._states))
        self.expire()
        for target in self._dirty:
            self._derive(target)
        self._dirty.clear()
        return tuple(self._states.values())

    def notes(self) -> dict[NominationTarget, None]:
        """Targets that change from now on, in order: for one reader, which clears what it has read."""
        self._notes.append({})
        return self._notes[-1]

    @property
    def types(self) -> state_node.Types:
        """The instance types of the last snapshot."""
        return self._types

    @property
    def types_by_name(self) -> dict[str, InstanceType]:
        """The same by name alone, each type once."""
        return {name: t for (pool, name), t in self._types.items() if not pool}

    # -- our own writes, ahead of the watches

    def assume(self, claim: NodeClaim) -> None:
        """A NodeClaim as the server has just returned it: used from now on, even if the watch lags."""
        old = self.claims.store.get(claim.name)
        if old is not None and int(old.metadata.resource_version) >= int(claim.metadata.resource_version):
            return
        self.claims.store.put(claim.name, claim)
        self._notify_claim(CacheChange("added" if old is None else "modified", claim.name, old, claim))

    def nominate(self, pod: Pod, target: NominationTarget, until: float | None = None) -> None:
        before = self.nominations.of(pod.metadata.uid)
        self.nominations.nominate(pod.metadata.uid, target, until)
        for node_key in filter(None, (before, target)):
            self._repopulate(node_key)

    def withdraw_nomination(self, uid: str) -> None:
        target = self.nominations.release(uid)
        if target is not None:
            self._repopulate(target)

    def expire(self) -> tuple[str, ...]:
        """End the nominations whose time has passed; the UIDs of their pods."""
        expired = self.nominations.expire(self._clock.monotonic())
        for _, target in expired:
            self._repopulate(target)
        return tuple(uid for uid, _ in expired)

    def mark_for_deletion(self, provider_ids: Iterable[str], deleting: bool = True) -> None:
        """Mark nodes for deletion: they count as terminating before their NodeClaim is deleted. Or unmark them."""
        for provider_id in filter(None, provider_ids):
            (self._marked_for_deletion.add if deleting else self._marked_for_deletion.discard)(provider_id)
            for name in self._node_of.get(provider_id, ()):
                self._touch(NominationTarget("node", name))
                for pod in () if deleting else self.pods_on(name):
                    self.withdraw_nomination(pod.metadata.uid)
            if provider_id in self._claim_of:
                self._touch(NominationTarget("claim", self._claim_of[provider_id]))

    def is_terminating(self, claim: NodeClaim | None, node: Node | None) -> bool:
        """Whether a node is deleted or marked for deletion."""
        if claim and (claim.metadata.deletion_timestamp or claim.status.provider_id in self._marked_for_deletion):
            return True
        return bool(node and (node.metadata.deletion_timestamp or node.spec.provider_id in self._marked_for_deletion))

    def is_on_terminating_node(self, uid: str) -> bool:
        """Whether a pod is on a terminating node, so that its nomination is for its replacement."""
        pod = self._by_uid.get(uid)
        return pod is not None and bool(pod.spec.node_name) and not self._releases_nomination(pod)

    # -- deriving

    def _derive(self, target: NominationTarget) -> None:
        """Derive the NodeState of a target: the bare node, which seldom changes, and its pods."""
        bare = self._bare.get(target)
        if bare is None:
            bare = self._of_node(target.name) if target.kind == "node" else self._of_claim(target.name)
        if bare is None:
            self._states.pop(target, None)
            return
        self._bare[target] = bare
        pods = self._nominated_pods(target)
        if target.kind == "node":
            pods = [pod for pod in self._by_node.get(target.name, _NO_PODS).values() if not pod.finished] + pods
            if bare.claim is not None:
                nominated_pods = self._nominated_pods(NominationTarget("claim", bare.claim))
                pods += [pod for pod in nominated_pods if pod.spec.node_name != target.name]
        self._states[target] = msgspec.structs.replace(bare, pods=tuple(pods)) if pods else bare

    def _of_node(self, name: str) -> NodeState | None:
        node = self.nodes.store.get(name)
        if node is None:
            return None
        claim = self.claim_for(node)
        csi = self.csi_nodes.store.get(name)
        return state_node.of_node(node, claim, (), csi, self._types, deleting=self.is_terminating(claim, node))

    def _of_claim(self, name: str) -> NodeState | None:
        claim = self.claims.store.get(name)
        if claim is None or self.nodes_for(claim):
            return None
        return state_node.of_claim(claim, (), self._types, deleting=self.is_terminating(claim, None))

    def _nominated_pods(self, target: NominationTarget) -> list[Pod]:
        nominated_pods = self.nominations.on(target)
        return [pod for pod in map(self._by_uid.get, nominated_pods) if pod is not None] if nominated_pods else []

    def _touch(self, target: NominationTarget) -> None:
        """Something about the target changed."""
        for alias in self._aliases(target):
            self._bare.pop(alias, None)
            self._note(alias)

    def _repopulate(self, target: NominationTarget) -> None:
        """Only the pods of the target changed."""
        for alias in self._aliases(target):
            self._note(alias)

    def _aliases(self, target: NominationTarget) -> list[NominationTarget]:
        """A target by its own name, and by that of its node if it is a NodeClaim."""
        claim = self.claims.store.get(target.name) if target.kind == "claim" else None
        return (
            [target, *(NominationTarget("node", node.metadata.name) for node in self.nodes_for(claim))]
            if claim
            else [target]
        )

    def _note(self, target: NominationTarget) -> None:
        for notes in self._notes:
            notes[target] = None

    # -- changes from the watches

    def _pod(self, change: CacheChange[Pod]) -> None:
        old, new = change.old, change.new
        if old is not None:
            self._drop_pod(change.key, old)
        if new is None:
            self.withdraw_nomination(change.object.metadata.uid)
            return
        self._by_uid[new.metadata.uid] = new
        if new.spec.node_name:
            self._by_node.setdefault(new.spec.node_name, {})[change.key] = new
            self._repopulate(NominationTarget("node", new.spec.node_name))
            if self._releases_nomination(new):
                self.withdraw_nomination(new.metadata.uid)
        elif new.finished:
            self.withdraw_nomination(new.metadata.uid)
        else:
            self._unbound[change.key] = new
        nominated_pods = self.nominations.of(new.metadata.uid)
        if nominated_pods is not None:
            self._repopulate(nominated_pods)

    def _releases_nomination(self, pod: Pod) -> bool:
        """A bound pod keeps its nomination only if it must move: its node is terminating."""
        node = self.nodes.store.get(pod.spec.node_name)
        return pod.finished or node is None or not self.is_terminating(self.claim_for(node), node)

    def _drop_pod(self, key: str, old: Pod) -> None:
        self._by_uid.pop(old.metadata.uid, None)
        self._unbound.pop(key, None)
        if old.spec.node_name:
            pods = self._by_node.get(old.spec.node_name, {})
            pods.pop(key, None)
            if not pods:
                self._by_node.pop(old.spec.node_name, None)
            self._repopulate(NominationTarget("node", old.spec.node_name))

    def _node(self, change: CacheChange[Node]) -> None:
        for node in (change.old, change.new):
            if node is not None and node.spec.provider_id:
                names = self._node_of.setdefault(node.spec.provider_id, {})
                names.pop(change.key, None)
                if node is change.new:
                    names[change.key] = None
                elif not names:
                    del self._node_of[node.spec.provider_id]
                claim = self._claim_of.get(node.spec.provider_id)
                if claim:
                    self._touch(NominationTarget("claim", claim))
        if change.new is None:
            self.nominations.release_all(NominationTarget("node", change.key))
        self._touch(NominationTarget("node", change.key))

    def _claim(self, change: CacheChange[NodeClaim]) -> None:
        target = NominationTarget("claim", change.key)
        if change.old is not None and change.old.status.provider_id:
            self._claim_of.pop(change.old.status.provider_id, None)
        claim = change.new
        if claim is None:
            self.nominations.release_all(target)
            for name in self._node_of.get(change.object.status.provider_id, ()):
                self._touch(NominationTarget("node", name))
        else:
            if claim.status.provider_id:
                self._claim_of[claim.status.provider_id] = change.key
            self._update_nominations(change, claim, target)
        self._touch(target)

    def _update_nominations(self, change: CacheChange[NodeClaim], claim: NodeClaim, target: NominationTarget) -> None:
        if claim.metadata.deletion_timestamp is not None:
            self.nominations.release_all(target)
        elif change.old is None and not claim.is_true("Initialized"):
            for uid in state_node.planned(claim):
                self.nominations.nominate(uid, target)
        elif claim.is_true("Initialized") and not (change.old and change.old.is_true("Initialized")):
            self.nominations.limit(target, self._clock.monotonic() + NOMINATION_TTL_S, but=self.is_on_terminating_node)

    def _budget(self, change: CacheChange[PodDisruptionBudget]) -> None:
        self._pdbs = None

    def _csi_node(self, change: CacheChange[CSINode]) -> None:
        self._touch(NominationTarget("node", change.key))

    def _watch(
        self,
        resource: kinds.Resource,
        kind: type[T],
        handler: Callable[[CacheChange[T]], None] | None = None,
        *,
        optional: bool = False,
        keep: Callable[[T, T | None], T] | None = None,
        stage: Index[T] | None = None,
        indices: Mapping[str, Index[T]] | None = None,
    ) -> Reflector[T]:
        if handler is not None:
            self.listen(resource, handler)
        notify = self._notifier(resource)
        indices = {**(indices or {}), **({indexes.STAGE: stage} if stage is not None else {})}
        reflector: Reflector[T] = Reflector(
            self._kube, resource, kind, on_event=notify, keep=keep, indices=indices, page=LIST_PAGE_SIZE, streams=True
        )
        reflector.optional = optional = optional or (self._only_viewed and resource is not kinds.NODES)
        (self._optional if optional else self._required).append(reflector)
        return reflector

    def _notifier(self, resource: kinds.Resource) -> Listener:
        listeners = self._listeners.setdefault(resource.name, [])

        def notify(change: CacheChange[Any]) -> None:
            for listener in tuple(listeners):
                try:
                    listener(change)
                except Exception as problem:  # the other listeners get the change all the same
                    if self.listener_failed is None:
                        raise
                    self.listener_failed(problem)

        return notify


def _by_name(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


def _attached_to(attachment: VolumeAttachment) -> tuple[str]:
    return (attachment.spec.node_name,)
