"""A snapshot to try things on: nodes with their pods, changed and put back.

Pods of one shape ask the same of every node, so what a shape asks is worked out once and kept up to date while pods
are moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from dovetail.model.fit import ClusterNodes, Fit, NodeInfo, PodInfo, pod_info
from dovetail.model.fit.podinfo import Shape
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod, Volume

Undo = Callable[[], object]
AnyNode = Callable[[NodeInfo], bool]


class ClusterSnapshot:
    """The cluster as one loop sees it. `fork` and `revert` nest."""

    def __init__(self, cluster: ClusterNodes) -> None:
        self.cluster = cluster
        self._undo: list[list[Undo]] = []
        self._fits: dict[int, tuple[Shape, Fit]] = {}
        self._cursor: dict[int, int] = {}
        self._infos: dict[str, PodInfo] = {}

    @property
    def nodes(self) -> Mapping[str, NodeInfo]:
        return self.cluster.nodes

    def info(self, pod: Pod) -> PodInfo:
        """The pod as scheduling sees it, of no node."""
        key = pod.metadata.uid or pod.metadata.key
        cached = self._infos.get(key)
        if cached is None:
            cached = self._infos[key] = unbound_info(pod)
        return cached

    def fit(self, info: PodInfo) -> Fit:
        """What the pod asks of every node. Shared by all pods of its shape: copy it before moving pods on it."""
        key = id(info.shape)
        cached = self._fits.get(key)
        if cached is None:
            cached = self._fits[key] = (info.shape, Fit(info, self.cluster))
        return cached[1]

    # Changing

    def fork(self) -> None:
        self._undo.append([])

    def revert(self) -> None:
        """Back to where the last fork was made."""
        for undo in reversed(self._undo.pop()):
            undo()
        self._forget()

    def commit(self) -> None:
        """Keep what was done since the last fork; an outer fork can still take it back."""
        done = self._undo.pop()
        if self._undo:
            self._undo[-1].extend(done)

    def place(self, info: PodInfo, node: NodeInfo) -> None:
        self.cluster.place(info, node.name)
        self._moved(info, node, 1)
        self._undo_with(lambda: self.cluster.remove(info.key))

    def remove_pod(self, key: str, node: NodeInfo) -> None:
        info = self.cluster.remove(key)
        if info is None:
            return
        self._moved(info, node, -1)
        name = node.name
        self._undo_with(lambda: self.cluster.place(info, name))

    def add_node(self, info: NodeInfo) -> None:
        """Add a node that came with its pods."""
        name = info.name
        self.cluster.nodes[name] = info
        self._forget()
        self._undo_with(lambda: self.cluster.nodes.pop(name, None))

    def set_node(self, node: Node) -> None:
        """Change a node that is there; its pods stay."""
        name = node.metadata.name
        before = self.cluster.nodes[name].node
        self.cluster.set_node(node)
        self._forget()
        self._undo_with(lambda: self.cluster.set_node(before))

    def remove_node(self, name: str) -> None:
        info = self.cluster.nodes.pop(name)
        self._forget()

        def put_back() -> None:
            self.cluster.nodes[name] = info

        self._undo_with(put_back)

    def _undo_with(self, undo: Undo) -> None:
        if self._undo:
            self._undo[-1].append(undo)

    def _moved(self, info: PodInfo, node: NodeInfo, change: int) -> None:
        if info.shape.anti_affinity:
            self._forget()  # pods that minded nothing may mind this one
            return
        for _, fit in self._fits.values():
            if not fit.plain:
                fit.move(info, node, change)

    def _forget(self) -> None:
        self._fits.clear()

    # Scheduling

    def schedule(
        self,
        pods: Iterable[Pod],
        acceptable: AnyNode | None = None,
        hints: Mapping[str, str] | None = None,
        *,
        stop_at_failure: bool = False,
    ) -> dict[str, str]:
        """Place the pods one after another where they fit; node names by pod key. The others are left out."""
        placed: dict[str, str] = {}
        hopeless: set[int] = set()
        for pod in pods:
            info = self.info(pod)
            key = id(info.shape)
            node = None if key in hopeless else self._find(info, acceptable, (hints or {}).get(info.key))
            if node is None:
                if self.fit(info).plain:
                    hopeless.add(key)  # nodes only fill up, so its likes fit nowhere either
                if stop_at_failure:
                    return placed
                continue
            self.place(info, node)
            placed[info.key] = node.name
        return placed

    def _find(self, info: PodInfo, acceptable: AnyNode | None, hint: str | None) -> NodeInfo | None:
        fit = self.fit(info)
        if fit.rejection is not None:
            return None
        hinted = self.cluster.nodes.get(hint) if hint else None
        if hinted is not None and (acceptable is None or acceptable(hinted)) and fit.check(hinted) is None:
            return hinted
        nodes = self._ordered()
        start = self._cursor.get(id(info.shape), 0) % len(nodes) if nodes else 0
        for offset in range(len(nodes)):
            index = (start + offset) % len(nodes)
            node = nodes[index]
            if (acceptable is None or acceptable(node)) and fit.check(node) is None:
                self._cursor[id(info.shape)] = index
                return node
        return None

    def _ordered(self) -> Sequence[NodeInfo]:
        return list(self.cluster.nodes.values())


def unbound_info(pod: Pod) -> PodInfo:
    """The pod as scheduling sees it, on no node and without volumes that no node minds."""
    spec = pod.spec
    volumes = tuple(filter(_matters, spec.volumes))
    if len(volumes) != len(spec.volumes) or spec.node_name:
        bare = msgspec.structs.replace(pod, spec=msgspec.structs.replace(spec, node_name="", volumes=volumes))
        return msgspec.structs.replace(pod_info(bare), pod=bare)
    return pod_info(pod)


def placed_info(pod: Pod) -> PodInfo:
    """The pod as it counts on its node; the pod itself is kept whole, for the drain rules."""
    volumes = tuple(filter(_matters, pod.spec.volumes))
    if len(volumes) == len(pod.spec.volumes):
        return pod_info(pod)
    bare = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, volumes=volumes))
    return msgspec.structs.replace(pod_info(bare), pod=pod)


def _matters(volume: Volume) -> bool:
    return bool(
        volume.persistent_volume_claim
        or volume.ephemeral
        or volume.csi
        or volume.aws_elastic_block_store
        or volume.gce_persistent_disk
        or volume.iscsi
        or volume.rbd
    )
