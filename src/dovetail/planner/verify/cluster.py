"""The cluster that a plan requires, built from the objects: nodes with labels, DaemonSet pods and running pods.

A planned node becomes a node of its first offering. Every domain that a pool could launch nodes in is represented by a
placeholder node without capacity, because a spread counts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec.structs import replace

from dovetail.model.fit.cluster import ClusterNodes
from dovetail.model.fit.local import tolerates_node
from dovetail.model.fit.nodeinfo import NodeInfo
from dovetail.model.fit.podinfo import PodInfo, node_matches, pod_info
from dovetail.model.fit.volumes import VolumeState, attached
from dovetail.model.host_ports import clash
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.labels import ALIASES, CAPACITY_TYPE, HOSTNAME, ZONE
from dovetail.model.meta import ObjectMeta
from dovetail.model.nodes import Node, NodeSpec, NodeStatus, Taint
from dovetail.model.pod_defaults import stored
from dovetail.model.pods import Affinity, Pod
from dovetail.model.quantity import format_resources
from dovetail.model.requirements import Requirements
from dovetail.model.volumes import CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources
from dovetail.model.workloads import DaemonSet
from dovetail.planner.plan import OfferingOption, PlannedNode
from dovetail.planner.snapshot import NodeState, Pool, Snapshot
from dovetail.planner.verify.labels import labels_of, meets, offered
from dovetail.planner.verify.storage import storage_for

PLACEHOLDER = "phantom/"
#: Prefix of the attached volumes of a CSI driver, counted like a resource.
ATTACHED = "attached/"
_NO_LIMIT = 1 << 62


def key_of(pod: Pod) -> str:
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"


class PoolOfferings:
    """The offerings of a pool by name."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._offerings = {
            (kind.name, offering.zone, offering.capacity_type, offering.reservation_id): (kind, offering)
            for kind in pool.types
            for offering in kind.offerings
        }
        self._launchable: list[tuple[OfferingOption, InstanceType, Offering]] | None = None
        self._label_keys = {label for kind in pool.types for label in kind.labels}

    def may_launch(self, kind: InstanceType, offering: Offering) -> bool:
        """Whether the pool may launch it."""
        return offered(self.pool, kind, offering, self._label_keys)

    def admitted_by(self, requirements: Requirements, snapshot: Snapshot) -> list[OfferingOption]:
        """The available offerings of the pool that the requirements of a NodeClaim admit."""
        if self._launchable is None:
            had = (
                entry for entry in self._offerings.values() if available(snapshot, *entry) and self.may_launch(*entry)
            )
            self._launchable = [(_choice(*entry), *entry) for entry in had]
        return [choice for choice, kind, offering in self._launchable if meets(requirements, kind, offering)]

    def find(self, choice: OfferingOption) -> tuple[InstanceType, Offering] | None:
        return self._offerings.get((choice.instance_type, choice.zone, choice.capacity_type, choice.reservation_id))


def _choice(kind: InstanceType, offering: Offering) -> OfferingOption:
    return OfferingOption(
        instance_type=kind.name,
        zone=offering.zone,
        capacity_type=offering.capacity_type,
        price=offering.price,
        reservation_id=offering.reservation_id,
    )


def node(name: str, labels: Mapping[str, str], taints: Iterable[Taint], allocatable: Mapping[str, int]) -> Node:
    """A node as its kubelet reports it: with the deprecated aliases of its labels as well."""
    old = {alias: labels[key] for alias, key in ALIASES.items() if key in labels}
    return Node(
        metadata=ObjectMeta(name=name, labels={**old, **labels}),
        spec=NodeSpec(taints=tuple(taints)),
        status=NodeStatus(allocatable=format_resources({n: max(0, a) for n, a in allocatable.items()})),
    )


class PlannedCluster:
    """A cluster for `dovetail.model.fit`, in which the plan's pods are still to be placed."""

    def __init__(
        self,
        snapshot: Snapshot,
        planned_nodes: Iterable[PlannedNode],
        moved: Iterable[Pod] = (),
        targets: Collection[str] | None = None,
    ) -> None:
        """`targets` are the existing nodes that the plan places pods on, if that is known: of the others, pods are
        counted and not kept."""
        self.snapshot = snapshot
        self._targets = targets
        self.pools = {pool.name: pool for pool in snapshot.pools}
        self.pools_offerings = {pool.name: PoolOfferings(pool) for pool in snapshot.pools}
        self.cluster = ClusterNodes(storage_for(snapshot, (*snapshot.pending, *moved)))
        self._alternative_nodes: dict[object, tuple[InstanceType, Node]] = {}
        self._suits: dict[tuple[int, int], bool] = {}
        self._daemons_by_node: dict[int, list[PodInfo]] = {}
        self._volumes: dict[int, VolumeState] = {}
        self._empty: dict[int, NodeInfo] = {}
        self.cluster.namespaces.update(snapshot.namespaces)
        self.daemons = [_daemon_pod(daemon) for daemon in snapshot.daemons]
        pending = {key_of(pod) for pod in snapshot.pending}
        self._states = {state.name for state in snapshot.nodes}
        for state in snapshot.nodes:
            if not state.deleting:
                self._add_state(state, pending)
        for planned in planned_nodes:
            self.add_new_node(planned.name, planned, planned.choice)
        self._add_domain_placeholders()

    def _add_state(self, state: NodeState, pending: set[str]) -> None:
        named = state.labels.get(HOSTNAME) == state.name
        labels = state.labels if named else {HOSTNAME: state.name, **state.labels}
        self.cluster.set_node(node(state.name, labels, state.taints, state.allocatable))
        self._attach(state.name, state.attach_limits)
        running_daemons = set()
        for pod in state.pods:
            if pod.finished or key_of(pod) in pending:
                continue
            owner = pod.metadata.controller
            running_daemons.add(owner.uid if owner is not None else "")
            self._place(pod_info(pod), state.name)
            if pod.terminating:  # its ReadWriteOncePod claims are free for a pending pod
                self.cluster.storage.use(pod, -1)
        self._add_daemons(state.name, running_daemons)

    def add_new_node(self, name: str, planned: PlannedNode, choice: OfferingOption) -> bool:
        pool = self.pools.get(planned.pool)
        offered = self.pools_offerings[planned.pool].find(choice) if pool is not None else None
        if pool is None or offered is None:
            return False
        kind, offering = offered
        labels = labels_of(pool, kind, offering, planned.labels, name)
        self.cluster.set_node(node(name, labels, pool.taints, kind.allocatable))
        self._attach(name, kind.attach_limits)
        self._add_daemons(name)
        return True

    def alternative(self, planned: PlannedNode, choice: OfferingOption) -> tuple[InstanceType, Node]:
        """The instance type and the node of an offering of a planned node; its name is not set."""
        key = (planned.pool, id(choice), *planned.labels.items())
        cached = self._alternative_nodes.get(key)
        if cached is None:
            offered = self.pools_offerings[planned.pool].find(choice)
            assert offered is not None
            pool = self.pools[planned.pool]
            labels = labels_of(pool, *offered, planned.labels, "new")
            cached = self._alternative_nodes[key] = (
                offered[0],
                node("new", labels, pool.taints, offered[0].allocatable),
            )
        return cached

    def suits(self, info: PodInfo, alternative: Node) -> bool:
        """Whether a pod may run on such a node: by labels, by the topology of its volumes, and by free host ports."""
        key = (id(info.shape), id(alternative))
        cached = self._suits.get(key)
        if cached is None:
            cached = (
                node_matches(info.shape, alternative)
                and self._volumes_allow(info, alternative)
                and self._ports_are_free(info, alternative)
            )
            self._suits[key] = cached
        return cached

    def _volumes_allow(self, info: PodInfo, alternative: Node) -> bool:
        if not info.shape.volumes:
            return True
        volume_state, node = self._volumes.get(id(info.shape)), self._empty.get(id(alternative))
        if volume_state is None:
            volume_state = self._volumes[id(info.shape)] = VolumeState(info, self.cluster)
            volume_state.once = 0  # ReadWriteOncePod claims are checked where the pod is placed
        if node is None:
            node = self._empty[id(alternative)] = NodeInfo(alternative)
        reason = volume_state.check(node)
        return reason is None or reason.plugin not in ("VolumeBinding", "VolumeZone")

    def room(self, kind: InstanceType, alternative: Node, name: str) -> int:
        """The amount of a resource, or of the volumes of a driver, that DaemonSets leave on such a node."""
        if name.startswith(ATTACHED):
            return kind.attach_limits.get(name.removeprefix(ATTACHED), _NO_LIMIT)
        taken = sum(info.held.get(name, 0) + (name == "pods") for info in self._daemons_on(alternative))
        return kind.allocatable.get(name, 0) - taken

    def _ports_are_free(self, info: PodInfo, alternative: Node) -> bool:
        return not info.shape.ports or all(
            clash(info.shape.ports, daemon.shape.ports) is None for daemon in self._daemons_on(alternative)
        )

    def _daemons_on(self, alternative: Node) -> list[PodInfo]:
        """The DaemonSet pods that would run on such a node."""
        cached = self._daemons_by_node.get(id(alternative))
        if cached is None:
            infos = [pod_info(pod) for _, pod in self.daemons]
            cached = self._daemons_by_node[id(alternative)] = [
                info
                for info in infos
                if node_matches(info.shape, alternative) and tolerates_node(info.shape, alternative)
            ]
        return cached

    def needs(self, infos: Iterable[PodInfo]) -> Counter[str]:
        """The total of some pods on one node: resources, pods, and volumes by driver."""
        counter: Counter[str] = Counter()
        volumes: dict[str, str] = {}
        for info in infos:
            counter.update(info.held)
            counter["pods"] += 1
            if info.shape.volumes:
                volumes.update(attached(info.pod, self.cluster.storage, migrated=True))
        counter.update(ATTACHED + driver for driver in volumes.values())
        return counter

    def _attach(self, name: str, limits: Mapping[str, int]) -> None:
        if limits:
            drivers = tuple(
                CSINodeDriver(name=driver, allocatable=VolumeNodeResources(count=count))
                for driver, count in limits.items()
            )
            self.cluster.storage.csi_nodes[name] = CSINode(
                metadata=ObjectMeta(name=name), spec=CSINodeSpec(drivers=drivers)
            )

    def _add_daemons(self, name: str, running_daemons: set[str] | None = None) -> None:
        """Place the DaemonSet pods of a node. On an existing one (`running_daemons` run there), resources are reserved
        for missing ones, but not their host ports."""
        info = self.cluster.nodes[name]
        for uid, pod in self.daemons if running_daemons is None else self._missing_daemons(running_daemons):
            prepared = pod_info(replace(pod, metadata=replace(pod.metadata, uid=f"{uid}/{name}")))
            if node_matches(prepared.shape, info.node) and tolerates_node(prepared.shape, info.node):
                self._place(prepared, name)

    def _place(self, info: PodInfo, name: str) -> None:
        """Place a pod that is bound to its node already."""
        keep = self._targets is None or name in self._targets or name not in self._states
        (self.cluster.place if keep else self.cluster.count)(info, name)

    def _missing_daemons(self, running_daemons: set[str]) -> Iterator[tuple[str, Pod]]:
        for uid, pod in self.daemons:
            if uid not in running_daemons:
                without_ports = tuple(replace(container, ports=()) for container in pod.spec.containers)
                yield uid, replace(pod, spec=replace(pod.spec, containers=without_ports))

    def _add_domain_placeholders(self) -> None:
        keys = set(scheduling_label_keys(self.snapshot.pending))
        seen: set[object] = set()
        for pool in self.snapshot.pools:
            pool_offerings = self.pools_offerings[pool.name]
            for kind in pool.types:
                for offering in kind.offerings:
                    if not available(self.snapshot, kind, offering) or not pool_offerings.may_launch(kind, offering):
                        continue
                    labels = labels_of(pool, kind, offering, {}, "")
                    mark = (pool.name, *((label, labels.get(label)) for label in sorted(keys)))
                    if mark not in seen:
                        seen.add(mark)
                        name = f"{PLACEHOLDER}{len(seen)}"
                        self.cluster.set_node(node(name, {**labels, HOSTNAME: name}, pool.taints, {}))


def available(snapshot: Snapshot, kind: InstanceType, offering: Offering) -> bool:
    if not offering.available or (kind.name, offering.zone, offering.capacity_type) in snapshot.unavailable:
        return False
    return not (offering.capacity_type == "reserved" and offering.reservation_capacity == 0)


def scheduling_label_keys(pods: Iterable[Pod]) -> Iterator[str]:
    """Yields the label keys of node selectors, required node affinities and spreads of some pods."""
    yield from (ZONE, CAPACITY_TYPE)
    for pod in pods:
        yield from pod.spec.node_selector
        yield from (topology_spread.topology_key for topology_spread in pod.spec.topology_spread_constraints)
        affinity = pod.spec.affinity
        if affinity is not None and affinity.node_affinity is not None and affinity.node_affinity.required is not None:
            for term in affinity.node_affinity.required.node_selector_terms:
                yield from (expression.key for expression in term.match_expressions)


def _daemon_pod(daemon: DaemonSet) -> tuple[str, Pod]:
    """The pod of a DaemonSet, without pod affinities and spreads."""
    template = daemon.spec.template
    affinity = _node_part(template.spec.affinity)
    bare = replace(stored(template.spec), affinity=affinity, topology_spread_constraints=())
    name = f"daemon-{daemon.metadata.name}"
    return daemon.metadata.uid, Pod(
        metadata=replace(template.metadata, namespace=daemon.metadata.namespace, name=name), spec=bare
    )


def _node_part(affinity: Affinity | None) -> Affinity | None:
    return None if affinity is None else replace(affinity, pod_affinity=None, pod_anti_affinity=None)
