"""Every pod's state, and how long pods that have not started have been waiting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dovetail.cluster.state import ClusterState
from dovetail.controllers.metrics.exposition import gauge, labelled
from dovetail.controllers.metrics.pod_latency import PodLatency, has, is_dynamic
from dovetail.model import wellknown
from dovetail.model.labels import ARCH
from dovetail.model.pods import Pod

_NODE = {
    "nodepool": wellknown.NODEPOOL,
    "zone": wellknown.ZONE,
    "arch": ARCH,
    "capacity_type": wellknown.CAPACITY_TYPE,
    "instance_type": wellknown.INSTANCE_TYPE,
}


def pods(cluster_state: ClusterState) -> Iterator[str]:
    pods_store = tuple(cluster_state.pods.store.all())
    places = {node.metadata.name: _place(node.metadata.labels) for node in cluster_state.nodes.store.all()}
    nowhere = _place({})
    rows = ((_state(pod, places.get(pod.spec.node_name, nowhere)), 1.0) for pod in pods_store)
    yield from gauge("karpenter_pods_state", "Pods by state.", rows)


def waiting(pod_latency: PodLatency) -> Iterator[str]:
    """Pods that have not started, pods without a node, and pods without a decision."""
    unstarted = [(_named(pod), pod_latency.since(pod), pod_latency.since_plan(pod)) for pod in pod_latency.unstarted()]
    unbound = [
        (f'{_named(pod)},dynamic_resources="{is_dynamic(pod)}"', pod_latency.since(pod), pod_latency.since_plan(pod))
        for pod in pod_latency.unstarted()
        if not has(pod, "PodScheduled")
    ]
    undecided = [
        (_named(pod), pod_latency.since_seen(pod)) for pod in pod_latency.unstarted() if not pod.spec.node_name
    ]
    for what, rows in (("unstarted", unstarted), ("unbound", unbound)):
        name, plain = f"karpenter_pods_{what}_time_seconds", "For how long a pod has not been "
        yield from gauge(name, f"{plain}{what[2:]}.", [(labels, age) for labels, age, _ in rows])
        planned = [(labels, age) for labels, _, age in rows if age is not None]
        name = f"karpenter_pods_provisioning_{what}_time_seconds"
        yield from gauge(name, f"{plain}{what[2:]} since it was planned for.", planned)
    name, text = "karpenter_pods_provisioning_scheduling_undecided_time_seconds", "For how long nothing was decided."
    yield from gauge(name, text, [(labels, age) for labels, age in undecided if age is not None])


def _place(labels: Mapping[str, str]) -> str:
    """The labels of a pod's node, after the pod's own."""
    place = {name: labels.get(key, "") for name, key in _NODE.items()}
    return "," + labelled({**place, "managed": "true" if place["nodepool"] else "false"})


def _state(pod: Pod, place: str) -> str:
    meta, owners = pod.metadata, pod.metadata.owner_references
    owner = owners[0] if owners else None
    link = f"/apis/{owner.api_version}/namespaces/{meta.namespace}/{owner.kind.lower()}s/{owner.name}" if owner else ""
    return (
        labelled(
            {
                "name": meta.name,
                "namespace": meta.namespace,
                "owner": link,
                "node": pod.spec.node_name,
                "scheduled": "true" if pod.spec.node_name else "false",
                "phase": pod.status.phase,
                "ready": "true" if has(pod, "Ready") else "false",
            }
        )
        + place
    )


def _named(pod: Pod) -> str:
    return labelled({"name": pod.metadata.name, "namespace": pod.metadata.namespace})
