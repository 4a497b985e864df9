"""Gauges of the cluster's state, by Karpenter's names, computed when somebody asks and at no cost otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dovetail.clock import Clock
from dovetail.cluster import keys
from dovetail.cluster.holdings import Holdings
from dovetail.cluster.machines import paid, price
from dovetail.cluster.mirror import Mirror
from dovetail.controllers.ledger import Ledger
from dovetail.controllers.provisioning.pending import owned_by
from dovetail.model.instancetype import InstanceType
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.labels import ARCH, OS
from dovetail.model.nodes import Node
from dovetail.model.podrequests import limits, requests
from dovetail.model.pods import Pod
from dovetail.model.quantity import resources

_NODE = ("node_name", "nodepool", "instance_type", "zone", "capacity_type", "arch", "os", "phase")


class Gauges(Collector):
    """Registered once per run."""

    def __init__(self, mirror: Mirror, clock: Clock, ledger: Ledger) -> None:
        self._mirror = mirror
        self._holdings = Holdings(mirror)
        self._ledger = ledger
        self._clock = clock

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing is collected at registration: the mirror may be empty then."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from self._nodes()
        yield self._pods()
        yield from self._claims()
        yield from self._pools()
        yield self._cost()
        yield from self._decisions()

    def _nodes(self) -> Iterator[GaugeMetricFamily]:
        family = {
            name: _family(f"nodes_{name}", text, (*_NODE, "resource_type"))
            for name, text in (
                ("allocatable", "What pods may have of a node."),
                ("total_pod_requests", "Requests of the pods on a node, daemons aside."),
                ("total_pod_limits", "Limits of the pods on a node, daemons aside."),
                ("total_daemon_requests", "Requests of the daemons on a node."),
                ("total_daemon_limits", "Limits of the daemons on a node."),
                ("system_overhead", "Capacity of a node that pods may not have."),
            )
        }
        age = _family("nodes_current_lifetime_seconds", "Age of a node.", _NODE)
        held: dict[str, float] = {}
        used: dict[str, float] = {}
        for node in self._mirror.nodes.store.all():
            if keys.NODEPOOL not in node.metadata.labels:
                continue
            labels = _labels(node)
            amounts = self._amounts(node)
            for name, found in amounts.items():
                for kind, amount in found.items():
                    family[name].add_metric([*labels, kind], _plain(kind, amount))
            _add(held, amounts["allocatable"])
            _add(used, amounts["total_pod_requests"])
            _add(used, amounts["total_daemon_requests"])
            if node.metadata.creation_timestamp is not None:
                age.add_metric(labels, (self._clock.now() - node.metadata.creation_timestamp).total_seconds())
        yield from family.values()
        yield age
        share = _family("cluster_utilization_percent", "Requests as a share of what there is.", ("resource_type",))
        for kind in ("cpu", "memory", "pods"):
            if held.get(kind):
                share.add_metric([kind], 100.0 * used.get(kind, 0.0) / held[kind])
        yield share

    def _amounts(self, node: Node) -> dict[str, Mapping[str, int]]:
        pods = [pod for pod in self._mirror.pods_on(node.metadata.name) if not pod.finished]
        daemons = [pod for pod in pods if owned_by(pod, "DaemonSet")]
        others = [pod for pod in pods if not owned_by(pod, "DaemonSet")]
        allocatable, capacity = resources(node.status.allocatable), resources(node.status.capacity)
        return {
            "allocatable": allocatable,
            "total_pod_requests": _sum(map(requests, others), others),
            "total_pod_limits": _sum(map(limits, others), others),
            "total_daemon_requests": _sum(map(requests, daemons), daemons),
            "total_daemon_limits": _sum(map(limits, daemons), daemons),
            "system_overhead": {kind: amount - allocatable.get(kind, 0) for kind, amount in capacity.items()},
        }

    def _pods(self) -> GaugeMetricFamily:
        state = _family("pods_state", "Pods by what they are doing.", ("phase", "nodepool", "scheduled"))
        count: dict[tuple[str, str, str], int] = {}
        for pod in self._mirror.pods.store.all():
            node = self._mirror.nodes.store.get(pod.spec.node_name) if pod.spec.node_name else None
            pool = node.metadata.labels.get(keys.NODEPOOL, "") if node else ""
            key = (pod.status.phase or "Pending", pool, "true" if node else "false")
            count[key] = count.get(key, 0) + 1
        for labels, number in count.items():
            state.add_metric(list(labels), number)
        return state

    def _claims(self) -> Iterator[GaugeMetricFamily]:
        kinds = ("type", "status", "reason")
        claims = _family("operator_nodeclaim_status_condition_count", "NodeClaims by condition.", kinds, prefix="")
        of_pools = _family("operator_nodepool_status_condition_count", "NodePools by condition.", kinds, prefix="")
        for family, store in ((claims, self._mirror.claims.store), (of_pools, self._mirror.pools.store)):
            count: dict[tuple[str, str, str], int] = {}
            for each in store.all():
                for condition in each.status.conditions:
                    key = (condition.type, condition.status, condition.reason)
                    count[key] = count.get(key, 0) + 1
            for labels, number in count.items():
                family.add_metric(list(labels), number)
            yield family

    def _pools(self) -> Iterator[GaugeMetricFamily]:
        limit = _family("nodepools_limit", "Limits of a NodePool.", ("resource_type", "nodepool"))
        usage = _family("nodepools_usage", "Resources of a NodePool.", ("resource_type", "nodepool"))
        for pool in self._mirror.pools.store.all():
            for family, amounts in ((limit, resources(pool.spec.limits)), (usage, self._holdings.of(pool.name))):
                for kind, amount in amounts.items():
                    family.add_metric([kind, pool.name], _plain(kind, amount))
        yield limit
        yield usage

    def _cost(self) -> GaugeMetricFamily:
        cost = _family("nodepools_cost_total", "Price of a NodePool's machines an hour.", ("nodepool",))
        total: dict[str, float] = {}
        for claim in self._mirror.claims.store.all():
            if claim.node_pool:
                total[claim.node_pool] = total.get(claim.node_pool, 0.0) + self._price(claim)
        for pool, amount in total.items():
            cost.add_metric([pool], amount)
        return cost

    def _decisions(self) -> Iterator[GaugeMetricFamily]:
        count = _family("dovetail_decisions", "Decisions in the ledger, by kind.", ("kind",), prefix="")
        last = _family("dovetail_last_decision_info", "The latest decision of a kind.", ("kind", "decision"), prefix="")
        total: dict[str, int] = {}
        latest: dict[str, str] = {}
        for each in self._ledger.decisions():
            total[each.kind] = total.get(each.kind, 0) + 1
            latest[each.kind] = each.id
        for kind, number in total.items():
            count.add_metric([kind], number)
            last.add_metric([kind, latest[kind]], 1)
        yield count
        yield last

    def _price(self, claim: NodeClaim) -> float:
        """Today's price, or what it was planned at while nobody has asked for today's."""
        types: Mapping[str, InstanceType] = self._mirror.types
        today = price(claim.metadata.labels, types)
        return today if today is not None else paid(claim) or 0.0


def _family(name: str, text: str, labels: Iterable[str], prefix: str = "karpenter_") -> GaugeMetricFamily:
    return GaugeMetricFamily(prefix + name, text, labels=tuple(labels))


def _labels(node: Node) -> list[str]:
    found = node.metadata.labels
    wanted = (keys.NODEPOOL, keys.INSTANCE_TYPE, keys.ZONE, keys.CAPACITY_TYPE, ARCH, OS)
    phase = "Ready" if node.ready else "NotReady"
    return [node.metadata.name, *(found.get(key, "") for key in wanted), phase]


def _plain(kind: str, amount: int) -> float:
    return amount / 1000.0 if kind == "cpu" else float(amount)


def _sum(amounts: Iterable[Mapping[str, int]], pods: list[Pod]) -> dict[str, int]:
    total: dict[str, int] = {"pods": len(pods)}
    for each in amounts:
        for kind, amount in each.items():
            if kind != "pods":
                total[kind] = total.get(kind, 0) + amount
    return total


def _add(total: dict[str, float], amounts: Mapping[str, int]) -> None:
    for kind, amount in amounts.items():
        total[kind] = total.get(kind, 0.0) + amount
