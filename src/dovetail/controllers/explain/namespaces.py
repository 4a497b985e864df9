"""The bill of a namespace: its nodes, its share of what they cost by requests, and how much of that is idle.

A pod's share of a node is the larger of its shares of requested cpu and memory. What no pod requests is idle; it is
shared out by the same shares, and shown apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from dovetail.cluster.state import ClusterState
from dovetail.controllers.explain.answer import Answer, Unknown, dollars, shortened
from dovetail.language import message
from dovetail.model.nodes import Node
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod
from dovetail.model.quantity import resources

HOURS_PER_MONTH = 730


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What pods cost on a node: by their requests, and their part of what is idle."""

    node: str
    pods: int
    price: float | None
    requested: float
    idle: float


Price = Callable[[Node], float | None]


def namespace(cluster_state: ClusterState, name: str, price: Price) -> Answer:
    """`price` is what a node costs an hour; None where that is unknown."""
    if cluster_state.namespaces.store.get(name) is None:
        names = sorted(namespace.metadata.name for namespace in cluster_state.namespaces.store.all())
        raise Unknown(
            message(
                "namespace/{name} is not in the cluster; there are: {shortened}",
                name=name,
                shortened=", ".join(shortened(names, 10)),
            )
        )
    pods = [pod for pod in cluster_state.pods.store.all() if pod.metadata.namespace == name and not pod.finished]
    bound = [pod for pod in pods if pod.spec.node_name]
    shares = sorted(shares_of(cluster_state, bound, price).values(), key=lambda share: -(share.requested + share.idle))
    requested, idle = sum(share.requested for share in shares), sum(share.idle for share in shares)
    unpriced = [share.node for share in shares if share.price is None]
    total = sum(price(node) or 0.0 for node in cluster_state.nodes.store.all())
    waiting = len(pods) - len(bound)
    cost = dollars(requested + idle) if len(unpriced) < len(shares) or not shares else message("an unknown amount")
    line = message("{count} pod(s) on {count_2} node(s) cost {cost}", count=len(bound), count_2=len(shares), cost=cost)
    if bound and not requested and len(unpriced) < len(shares):
        line = message(
            "{count} pod(s) on {count_2} node(s) request nothing, and so have no share of the cost",
            count=len(bound),
            count_2=len(shares),
        )
    line += (
        message(
            " ({requested:.0%} of the cluster's {dollars})",
            requested=(requested + idle) / total,
            dollars=dollars(total),
        )
        if total and requested
        else ""
    )
    line += message("; {dollars} of it is idle", dollars=dollars(idle)) if idle else ""
    line += message("; {count} node(s) without a known price are not in it", count=len(unpriced)) if unpriced else ""
    line += message("; {waiting} pod(s) wait", waiting=waiting) if waiting else ""
    return Answer(
        subject=f"namespace/{name}",
        line=line,
        details=(
            message("about ${requested:.2f} a month", requested=(requested + idle) * HOURS_PER_MONTH),
            *shortened([share_text(share) for share in shares]),
        ),
        deep=tuple(shortened(list(map(_pod_text, bound)), 100)),
        facts={
            "pods": len(bound),
            "waiting": waiting,
            "requested": requested,
            "idle": idle,
            "clusterTotal": total,
            "nodes": msgspec.to_builtins(shares),
        },
    )


def _pod_text(pod: Pod) -> str:
    return message("pod {pod} on {node_name}", pod=pod.metadata.name, node_name=pod.spec.node_name)


def share_text(share: Share) -> str:
    """A share in words, with its node."""
    if share.price is None:
        return message("{node}: {pods} pod(s), price unknown", node=share.node, pods=share.pods)
    part = message(
        "{dollars} by requests and {dollars_2} idle", dollars=dollars(share.requested), dollars_2=dollars(share.idle)
    )
    return message(
        "{node}: {pods} pod(s), {part} of {dollars}",
        node=share.node,
        pods=share.pods,
        part=part,
        dollars=dollars(share.price),
    )


def shares_of(cluster_state: ClusterState, pods: list[Pod], price_of: Price) -> dict[str, Share]:
    """What some pods cost, by node."""
    mine: dict[str, list[Pod]] = {}
    for pod in pods:
        mine.setdefault(pod.spec.node_name, []).append(pod)
    shares = {}
    for name, group in mine.items():
        node = cluster_state.nodes.store.get(name)
        if node is None:
            continue
        allocatable = resources(node.status.allocatable)
        everything = sum(_weight(requests(pod), allocatable) for pod in cluster_state.pods_on(name) if not pod.finished)
        own = sum(_weight(requests(pod), allocatable) for pod in group)
        price = price_of(node)
        full = max(1.0, everything)  # the larger of two shares may add up to more than the node
        used = (price or 0.0) * own / full
        spare = (price or 0.0) * max(0.0, 1.0 - everything / full)
        shares[name] = Share(
            node=name,
            pods=len(group),
            price=price,
            requested=used,
            idle=spare * own / everything if everything else 0.0,
        )
    return shares


def _weight(pod_requests: Mapping[str, int], allocatable: Mapping[str, int]) -> float:
    return max(
        (pod_requests.get(name, 0) / allocatable[name] for name in ("cpu", "memory") if allocatable.get(name)),
        default=0.0,
    )
