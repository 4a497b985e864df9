"""What a viewer may see, and the view with nothing else in it: what kubectl would show them, and no more."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dovetail.view.model import FleetView, NodePhase, NodeView, PendingPod
from dovetail.view.totals import RunningTotals


class ViewerRights(msgspec.Struct, frozen=True, kw_only=True):
    """Kinds that the viewer may list in the whole cluster; `namespaces` are those whose pods they may list."""

    nodes: bool = False
    nodeclaims: bool = False
    nodepools: bool = False
    pods: bool = False
    hpas: bool = False
    vpas: bool = False
    events: bool = False
    #: The ConfigMaps of the decision history.
    history: bool = False
    namespaces: frozenset[str] = frozenset()

    def sees_pods_of(self, namespace: str) -> bool:
        return self.pods or namespace in self.namespaces

    @property
    def everything(self) -> bool:
        return self == EVERYTHING


EVERYTHING = ViewerRights(
    nodes=True, nodeclaims=True, nodepools=True, pods=True, hpas=True, vpas=True, events=True, history=True
)


class Restriction:
    """Views for one set of rights. A node that did not change is restricted once."""

    def __init__(self, rights: ViewerRights) -> None:
        self._rights = rights
        self._nodes: dict[str, tuple[NodeView, NodeView]] = {}
        self._last: tuple[FleetView, FleetView] | None = None

    def view(self, whole: FleetView) -> FleetView:
        if self._rights.everything:
            return whole
        if self._last is None or self._last[0] is not whole:
            self._last = (whole, self._restricted(whole))
        return self._last[1]

    def _restricted(self, whole: FleetView) -> FleetView:
        rights = self._rights
        nodes = self._visible(whole.nodes)
        pending = {
            key: pod if rights.history else _without_decision(pod)
            for key, pod in whole.pending.items()
            if rights.sees_pods_of(pod.namespace)
        }
        sums = RunningTotals()
        for node in nodes.values():
            sums.add(node)
        totals = sums.totals(
            len(pending),
            whole.totals.bound if rights.history and rights.nodes and rights.pods else None,
            whole.totals.saved_per_hour if rights.history else None,
        )
        health = whole.health if rights.history else msgspec.structs.replace(whole.health, safe_mode=None)
        if not rights.nodes:
            health = msgspec.structs.replace(health, kubelets={}, last_api_error="")
        return FleetView(
            nodes=nodes,
            pending=pending,
            pools=whole.pools if rights.nodepools else {},
            totals=totals,
            health=health,
            recent=whole.recent if rights.history and rights.nodes and rights.pods else (),
        )

    def _visible(self, nodes: Mapping[str, NodeView]) -> dict[str, NodeView]:
        rights, visible = self._rights, {}
        for key, node in nodes.items():
            if not (rights.nodes if node.has_node else rights.nodeclaims):
                continue
            held = self._nodes.get(key)
            if held is None or held[0] is not node:
                held = self._nodes[key] = (node, self._node(node))
            visible[key] = held[1]
        for key in [key for key in self._nodes if key not in visible]:
            del self._nodes[key]
        return visible

    def _node(self, node: NodeView) -> NodeView:
        rights = self._rights
        if not rights.pods:
            pods = tuple(pod for pod in node.pods if pod.namespace in rights.namespaces)
            node = msgspec.structs.replace(node, pods=pods, requests=None if node.has_node else node.requests)
        if not rights.nodeclaims and node.has_node:
            ready = NodePhase.READY if node.state in (NodePhase.REPLACING, NodePhase.JOINING) else node.state
            node = msgspec.structs.replace(node, claim=None, state=ready, reason="", until=None, expires=None)
        return node


def _without_decision(pod: PendingPod) -> PendingPod:
    if not pod.decision:
        return pod
    return msgspec.structs.replace(pod, reason="unschedulable", code="", remedy="", decision="")
