"""The world a plan requires, rebuilt from the objects: nodes with labels, daemons and running pods.

New nodes become nodes of one of their offerings. Every zone that a pool could open is there as an empty
node that takes no pods, because a spread must count it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec.structs import replace

from dovetail.model.fit.cluster import Cluster
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
from dovetail.planner.plan import Choice, PlannedNode
from dovetail.planner.snapshot import NodeState, Pool, Snapshot
from dovetail.planner.verify.labels import labels_of, meets, offered
from dovetail.planner.verify.storage import storage_for

PHANTOM = "phantom/"
#: Volumes by driver, counted beside a node's resources.
ATTACHED = "attached/"
_LIMITLESS = 1 << 62


def key_of(pod: Pod) -> str:
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"


class PoolOfferings:
    """What a pool offers, found by name."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._sold = {
            (kind.name, offering.zone, offering.capacity_type, offering.reservation_id): (kind, offering)
            for kind in pool.types
            for offering in kind.offerings
        }
        self._stock: list[tuple[Choice, InstanceType, Offering]] | None = None
        self._described = {label for kind in pool.types for label in kind.labels}

    def sells(self, kind: InstanceType, offering: Offering) -> bool:
        """Whether the pool may launch it."""
        return offered(self.pool, kind, offering, self._described)

    def meeting(self, asked: Requirements, snapshot: Snapshot) -> list[Choice]:
        """Whatever the pool can have now that a claim asks for."""
        if self._stock is None:
            had = (sold for sold in self._sold.values() if available(snapshot, *sold) and self.sells(*sold))
            self._stock = [(_choice(*sold), *sold) for sold in had]
        return [choice for choice, kind, offering in self._stock if meets(asked, kind, offering)]

    def find(self, choice: Choice) -> tuple[InstanceType, Offering] | None:
        return self._sold.get((choice.instance_type, choice.zone, choice.capacity_type, choice.reservation_id))


def _choice(kind: InstanceType, offering: Offering) -> Choice:
    return Choice(
        instance_type=kind.name,
        zone=offering.zone,
        capacity_type=offering.capacity_type,
        price=offering.price,
        reservation_id=offering.reservation_id,
    )


def node(name: str, labels: Mapping[str, str], taints: Iterable[Taint], allocatable: Mapping[str, int]) -> Node:
    """A node as its kubelet would report it: with the old names of its labels beside the new ones."""
    old = {alias: labels[key] for alias, key in ALIASES.items() if key in labels}
    return Node(
        metadata=ObjectMeta(name=name, labels={**old, **labels}),
        spec=NodeSpec(taints=tuple(taints)),
        status=NodeStatus(allocatable=format_resources({n: max(0, a) for n, a in allocatable.items()})),
    )


class World:
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
        self.cluster = Cluster(storage_for(snapshot, (*snapshot.pending, *moved)))
        self._twins: dict[object, tuple[InstanceType, Node]] = {}
        self._suits: dict[tuple[int, int], bool] = {}
        self._served: dict[int, list[PodInfo]] = {}
        self._volumes: dict[int, VolumeState] = {}
        self._empty: dict[int, NodeInfo] = {}
        self.cluster.namespaces.update(snapshot.namespaces)
        self.daemons = [_daemon_pod(daemon) for daemon in snapshot.daemons]
        coming = {key_of(pod) for pod in snapshot.pending}
        self._states = {state.name for state in snapshot.nodes}
        for state in snapshot.nodes:
            if not state.deleting:
                self._add_state(state, coming)
        for planned in planned_nodes:
            self.add_new_node(planned.name, planned, planned.choice)
        self._add_phantoms()

    def _add_state(self, state: NodeState, coming: set[str]) -> None:
        named = state.labels.get(HOSTNAME) == state.name
        labels = state.labels if named else {HOSTNAME: state.name, **state.labels}
        self.cluster.set_node(node(state.name, labels, state.taints, state.allocatable))
        self._attach(state.name, state.attach_limits)
        served = set()
        for pod in state.pods:
            if pod.finished or key_of(pod) in coming:
                continue
            owner = pod.metadata.controller
            served.add(owner.uid if owner is not None else "")
            self._place(pod_info(pod), state.name)
            if pod.terminating:  # it leaves its volumes to a pod that waits for them
                self.cluster.storage.use(pod, -1)
        self._add_daemons(state.name, served)

    def add_new_node(self, name: str, planned: PlannedNode, choice: Choice) -> bool:
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

    def twin(self, planned: PlannedNode, choice: Choice) -> tuple[InstanceType, Node]:
        """The node that another offering of a node would be, its name aside."""
        key = (planned.pool, id(choice), *planned.labels.items())
        cached = self._twins.get(key)
        if cached is None:
            offered = self.pools_offerings[planned.pool].find(choice)
            assert offered is not None
            pool = self.pools[planned.pool]
            labels = labels_of(pool, *offered, planned.labels, "new")
            cached = self._twins[key] = (offered[0], node("new", labels, pool.taints, offered[0].allocatable))
        return cached

    def suits(self, info: PodInfo, twin: Node) -> bool:
        """Whether a pod may run on such a node: by its labels, by where its volumes are, and by ports that are free."""
        key = (id(info.shape), id(twin))
        cached = self._suits.get(key)
        if cached is None:
            cached = node_matches(info.shape, twin) and self._reaches(info, twin) and self._listens(info, twin)
            self._suits[key] = cached
        return cached

    def _reaches(self, info: PodInfo, twin: Node) -> bool:
        if not info.shape.volumes:
            return True
        asked, node = self._volumes.get(id(info.shape)), self._empty.get(id(twin))
        if asked is None:
            asked = self._volumes[id(info.shape)] = VolumeState(info, self.cluster)
            asked.once = 0  # whether it is the pod's turn was asked where it was placed
        if node is None:
            node = self._empty[id(twin)] = NodeInfo(twin)
        reason = asked.check(node)
        return reason is None or reason.plugin not in ("VolumeBinding", "VolumeZone")

    def room(self, kind: InstanceType, twin: Node, name: str) -> int:
        """What such a node has for pods, daemons served: of a resource, or of the volumes of a driver."""
        if name.startswith(ATTACHED):
            return kind.attach_limits.get(name.removeprefix(ATTACHED), _LIMITLESS)
        taken = sum(info.held.get(name, 0) + (name == "pods") for info in self._served_on(twin))
        return kind.allocatable.get(name, 0) - taken

    def _listens(self, info: PodInfo, twin: Node) -> bool:
        return not info.shape.ports or all(
            clash(info.shape.ports, daemon.shape.ports) is None for daemon in self._served_on(twin)
        )

    def _served_on(self, twin: Node) -> list[PodInfo]:
        """The daemons that would run on such a node."""
        cached = self._served.get(id(twin))
        if cached is None:
            infos = [pod_info(pod) for _, pod in self.daemons]
            cached = self._served[id(twin)] = [
                info for info in infos if node_matches(info.shape, twin) and tolerates_node(info.shape, twin)
            ]
        return cached

    def needs(self, infos: Iterable[PodInfo]) -> Counter[str]:
        """What pods take of a node together: resources, pods, and volumes by driver."""
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

    def _add_daemons(self, name: str, served: set[str] | None = None) -> None:
        """The daemons that belong on a node; on one that stands (`served` run there), room is kept, not ports."""
        info = self.cluster.nodes[name]
        for uid, pod in self.daemons if served is None else self._unserved(served):
            prepared = pod_info(replace(pod, metadata=replace(pod.metadata, uid=f"{uid}/{name}")))
            if node_matches(prepared.shape, info.node) and tolerates_node(prepared.shape, info.node):
                self._place(prepared, name)

    def _place(self, info: PodInfo, name: str) -> None:
        """A pod that is on its node already."""
        keep = self._targets is None or name in self._targets or name not in self._states
        (self.cluster.place if keep else self.cluster.count)(info, name)

    def _unserved(self, served: set[str]) -> Iterator[tuple[str, Pod]]:
        for uid, pod in self.daemons:
            if uid not in served:
                silent = tuple(replace(container, ports=()) for container in pod.spec.containers)
                yield uid, replace(pod, spec=replace(pod.spec, containers=silent))

    def _add_phantoms(self) -> None:
        keys = set(mentioned(self.snapshot.pending))
        seen: set[object] = set()
        for pool in self.snapshot.pools:
            pool_offerings = self.pools_offerings[pool.name]
            for kind in pool.types:
                for offering in kind.offerings:
                    if not available(self.snapshot, kind, offering) or not pool_offerings.sells(kind, offering):
                        continue
                    labels = labels_of(pool, kind, offering, {}, "")
                    mark = (pool.name, *((label, labels.get(label)) for label in sorted(keys)))
                    if mark not in seen:
                        seen.add(mark)
                        name = f"{PHANTOM}{len(seen)}"
                        self.cluster.set_node(node(name, {**labels, HOSTNAME: name}, pool.taints, {}))


def available(snapshot: Snapshot, kind: InstanceType, offering: Offering) -> bool:
    if not offering.available or (kind.name, offering.zone, offering.capacity_type) in snapshot.unavailable:
        return False
    return not (offering.capacity_type == "reserved" and offering.reservation_capacity == 0)


def mentioned(pods: Iterable[Pod]) -> Iterator[str]:
    """Every label that decides where these pods may go or what they are spread over."""
    yield from (ZONE, CAPACITY_TYPE)
    for pod in pods:
        yield from pod.spec.node_selector
        yield from (topology_spread.topology_key for topology_spread in pod.spec.topology_spread_constraints)
        affinity = pod.spec.affinity
        if affinity is not None and affinity.node_affinity is not None and affinity.node_affinity.required is not None:
            for term in affinity.node_affinity.required.node_selector_terms:
                yield from (expression.key for expression in term.match_expressions)


def _daemon_pod(daemon: DaemonSet) -> tuple[str, Pod]:
    """The daemonset's pod, with nothing to say about other pods."""
    template = daemon.spec.template
    affinity = _node_part(template.spec.affinity)
    bare = replace(stored(template.spec), affinity=affinity, topology_spread_constraints=())
    name = f"daemon-{daemon.metadata.name}"
    return daemon.metadata.uid, Pod(
        metadata=replace(template.metadata, namespace=daemon.metadata.namespace, name=name), spec=bare
    )


def _node_part(affinity: Affinity | None) -> Affinity | None:
    return None if affinity is None else replace(affinity, pod_affinity=None, pod_anti_affinity=None)
