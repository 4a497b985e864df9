"""A pending pod of a DaemonSet: it belongs to one node, and no other node helps."""

from __future__ import annotations

from dovetail.cluster.state import ClusterState
from dovetail.controllers.explain.answer import Answer, shortened
from dovetail.language import message
from dovetail.model.labels import COMPUTE_TYPE, FARGATE
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod
from dovetail.model.quantity import format_resources, resources
from dovetail.model.reasons import reason
from dovetail.model.taints import text as taint_text
from dovetail.model.taints import untolerated


def node_of(pod: Pod) -> str:
    """The node that the DaemonSet controller made the pod for."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        for match_field in term.match_fields:
            if match_field.key == "metadata.name" and match_field.operator == "In" and len(match_field.values) == 1:
                return match_field.values[0]
    return ""


def daemonset_pod(cluster_state: ClusterState, pod: Pod) -> Answer:
    name = node_of(pod)
    subject = f"pod/{pod.metadata.key}"
    owner = next((owner.name for owner in pod.metadata.owner_references if owner.kind == "DaemonSet"), "")
    facts = {"daemonSet": owner, "node": name}
    node = cluster_state.nodes.store.get(name)
    if node is None:
        where = message("its node {name} is gone", name=name) if name else message("it names no node")
        return Answer(
            subject=subject,
            line=message("pending: a pod of DaemonSet {owner}; {where}", owner=owner, where=where),
            facts=facts,
        )
    mine = f"daemonset/{pod.metadata.namespace}/{owner}"
    taints = untolerated(node.spec.taints, pod.spec.tolerations, ("NoSchedule", "NoExecute"))
    if taints:
        text = message(
            "its node {name} has the taint {taint_text}, which it does not tolerate",
            name=name,
            taint_text=taint_text(taints[0]),
        )
        remedy = message("add the toleration to the DaemonSet, or let its affinity leave such nodes out")
        return _pending(subject, text, "UNTOLERATED_TAINT", mine, remedy, facts)
    if node.metadata.labels.get(COMPUTE_TYPE) == FARGATE:
        text = message("its node {name} is one of Fargate, which runs a single pod and none of a DaemonSet", name=name)
        remedy = message(
            "let the DaemonSet's nodeAffinity leave out {label} {value}", label=COMPUTE_TYPE, value=FARGATE
        )
        return _pending(subject, text, "DAEMON_NO_ROOM", mine, remedy, facts)
    allocatable, pod_requests = resources(node.status.allocatable), requests(pod)
    others = [other for other in cluster_state.pods_on(name) if not other.finished]
    used = [requests(other) for other in others]
    free = {key: allocatable.get(key, 0) - sum(requests.get(key, 0) for requests in used) for key in pod_requests}
    free["pods"] = allocatable.get("pods", 0) - len(others)
    short = {key: amount for key, amount in {**pod_requests, "pods": 1}.items() if amount > free[key]}
    if not short:
        text = message("its node {name} has room for it; kube-scheduler has not bound it yet", name=name)
        return Answer(
            subject=subject,
            line=message("pending: a pod of DaemonSet {owner}: {text}", owner=owner, text=text),
            facts=facts,
        )
    first = next(iter(short))
    requested, left = (
        format_resources({first: short[first]})[first],
        format_resources({first: max(0, free[first])})[first],
    )
    text = message(
        "its node {name} has no room for it: it asks for {first} {wanted}, {left} is left",
        name=name,
        first=first,
        wanted=requested,
        left=left,
    )
    details = [
        message("{key}: asks for {format_resources}", key=key, format_resources=format_resources({key: amount})[key])
        for key, amount in short.items()
    ]
    details += shortened([message("on the node: {other}", other=other.metadata.key) for other in others])
    return _pending(subject, text, "DAEMON_NO_ROOM", mine, reason("DAEMON_NO_ROOM").remedy, facts, tuple(details))


def _pending(
    subject: str,
    text: str,
    code: str,
    mine: str,
    remedy: str,
    facts: dict[str, str],
    details: tuple[str, ...] = (),
) -> Answer:
    return Answer(
        subject=subject,
        line=message("pending: {text}; {remedy} ({code})", text=text, remedy=remedy, code=code),
        code=code,
        object=mine,
        remedy=remedy,
        details=(*details, message("remedy: {remedy}", remedy=remedy)),
        facts=dict(facts),
    )
