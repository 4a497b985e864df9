"""Nodes of a NodePool that was changed since (V05), and the cluster's DNS (V04)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network
from typing import Any

from dovetail.install.doctor.access import eks_cluster
from dovetail.install.doctor.controller import controllers, dns_deployments, karpenter_version
from dovetail.install.doctor.facts import (
    Facts,
    Fault,
    Json,
    condition,
    environment,
    failure,
    moment,
    name_of,
    warning,
)
from dovetail.install.doctor.system_pods import pods_of, selector_remedy, stuck_pods, unschedulable_message
from dovetail.kube.resources import EC2NODECLASSES, NODECLAIMS, NODEPOOLS, NODES, SERVICES
from dovetail.language import message
from dovetail.model import cron, duration, quantity

HASH, HASH_VERSION = "karpenter.sh/nodepool-hash", "karpenter.sh/nodepool-hash-version"
#: Karpenter's first version that replaces the nodes of a changed pool by itself.
FIRST_DRIFT = (0, 32, 0)
#: A drifted node that stays for longer is held by something.
DRIFT_LIMIT = timedelta(hours=1)
WEEK_HOURS = 7 * 24
#: CoreDNS with its cache, beside the agents of a node.
SMALLEST_DNS_NODE_BYTES = 2**30


# V05: changed NodePools


def check_rollout(facts: Facts) -> Iterator[Fault]:
    running = controllers(facts)
    version = karpenter_version(running[0]) if running else None
    if version is not None and version < FIRST_DRIFT:
        yield warning(
            f"deployment/{name_of(running[0])}",
            message(
                "its image is Karpenter {map}: a changed Provisioner does not replace the nodes that it "
                "launched before",
                map=".".join(map(str, version)),
            ),
            message("kubectl delete node -l karpenter.sh/provisioner-name=NAME  # one after the other"),
        )
    pools = {pool["metadata"]["name"]: pool for pool in facts.items(NODEPOOLS.name)}
    changed: dict[str, list[Json]] = defaultdict(list)
    for claim in facts.items(NODECLAIMS.name):
        pool = pools.get(str((claim["metadata"].get("labels") or {}).get("karpenter.sh/nodepool")))
        if pool is not None and not claim["metadata"].get("deletionTimestamp") and _differs(pool, claim):
            changed[pool["metadata"]["name"]].append(claim)
    gates = environment(running[0]).get("FEATURE_GATES", "") if running else ""
    drift_is_off = "Drift=false" in (gate.strip() for gate in gates.split(","))
    for name, claims in sorted(changed.items()):
        yield from _held_faults(facts, pools[name], claims, drift_is_off)


def _differs(pool: Json, claim: Json) -> bool:
    ours, theirs = (obj["metadata"].get("annotations") or {} for obj in (pool, claim))
    same_version = ours.get(HASH_VERSION) == theirs.get(HASH_VERSION)
    return bool(same_version and ours.get(HASH) and theirs.get(HASH) and ours[HASH] != theirs[HASH])


def _held_faults(facts: Facts, pool: Json, claims: list[Json], drift_is_off: bool) -> Iterator[Fault]:
    name = pool["metadata"]["name"]
    text = message("it was changed, and {count} of its nodes are of the former spec: ", count=len(claims))
    if drift_is_off:
        yield warning(
            f"nodepool/{name}",
            message("{text}the feature gate Drift is off, so they are not replaced", text=text),
            f"kubectl delete nodeclaim {claims[0]['metadata']['name']}",
        )
        return
    for budget in (pool["spec"].get("disruption") or {}).get("budgets") or ():
        reasons = budget.get("reasons")
        if str(budget.get("nodes")) in ("0", "0%") and _is_permanent(budget, facts.time) and (
            not reasons or "Drifted" in reasons
        ):  # fmt: skip
            yield warning(
                f"nodepool/{name}",
                message(
                    "{text}spec.disruption.budgets has nodes {nodes}, so none is ever replaced",
                    text=text,
                    nodes=budget["nodes"],
                ),
                f"kubectl patch nodepool {name} --type=merge -p"
                ' \'{"spec":{"disruption":{"budgets":[{"nodes":"10%"}]}}}\'',
            )
            return
    for claim in claims:
        drifted = condition(claim, "Drifted") or {}
        since = moment(drifted.get("lastTransitionTime"))
        kept = (claim["metadata"].get("annotations") or {}).get("karpenter.sh/do-not-disrupt") == "true"
        if kept or (drifted.get("status") == "True" and since is not None and facts.time - since > DRIFT_LIMIT):
            cause = (
                message("has the annotation karpenter.sh/do-not-disrupt")
                if kept
                else message("is drifted since {since:%H:%M}", since=since)
            )
            yield warning(
                f"nodeclaim/{claim['metadata']['name']}",
                message(
                    "NodePool {name} was changed, and this node of the former spec {cause} and is not replaced",
                    name=name,
                    cause=cause,
                ),
                f"dovetail explain nodeclaim/{claim['metadata']['name']} -v",
            )
            return


def _is_permanent(budget: Json, now: datetime) -> bool:
    """Whether it applies in every hour of the week to come."""
    if not budget.get("schedule"):
        return True
    try:
        schedule, length = cron.parse(budget["schedule"]), duration.parse(str(budget.get("duration")))
    except ValueError:
        return False
    return all(schedule.active(now + timedelta(hours=hours), length) for hours in range(WEEK_HOURS))


# V04: the cluster's DNS


def check_dns(facts: Facts) -> Iterator[Fault]:
    """Only where CoreDNS is a Deployment of the cluster."""
    for deployment in dns_deployments(facts):
        yield from _dns_faults(facts, deployment)
    yield from _resolver_faults(facts)


def _resolver_faults(facts: Facts) -> Iterator[Fault]:
    """Addresses of Services that new nodes give to their pods; resolvers outside of the cluster are not judged."""
    services = {
        str(address)
        for service in facts.items(SERVICES.name)
        for address in (service.get("spec") or {}).get("clusterIPs") or [(service.get("spec") or {}).get("clusterIP")]
    }
    for node_class in facts.items(EC2NODECLASSES.name):
        stated = ((node_class.get("spec") or {}).get("kubelet") or {}).get("clusterDNS") or ()
        others = [str(address) for address in stated if str(address) not in services and not _is_local(str(address))]
        absent = [address for address in others if _is_of_a_service(facts, address)]
        if absent:
            name = node_class["metadata"]["name"]
            left = [address for address in map(str, stated) if address not in absent]
            patch: dict[str, Any] = {"op": "replace" if left else "remove", "path": "/spec/kubelet/clusterDNS"}
            patch |= {"value": left} if left else {}
            yield failure(
                f"ec2nodeclass/{name}",
                message(
                    "spec.kubelet.clusterDNS has {absent} of the cluster's Service range, and no Service has this "
                    "address: pods on its nodes resolve no name by it",
                    absent=", ".join(absent),
                ),
                f"kubectl patch ec2nodeclass {name} --type=json -p '[{json.dumps(patch, separators=(',', ':'))}]'",
            )


def _is_of_a_service(facts: Facts, address: str) -> bool:
    """Whether only a Service can have it: it lies in the range that EKS states."""
    network = eks_cluster(facts).get("kubernetesNetworkConfig") or {}
    ranges = [network[key] for key in ("serviceIpv4Cidr", "serviceIpv6Cidr") if network.get(key)]
    try:
        return any(ip_address(address) in ip_network(text) for text in ranges)
    except ValueError:
        return False


def _is_local(address: str) -> bool:
    """As that of a cache on the node itself: no range of Services has it."""
    try:
        return ip_address(address).is_link_local
    except ValueError:
        return False


def _dns_faults(facts: Facts, deployment: Json) -> Iterator[Fault]:
    name = deployment["metadata"]["name"]
    subject = f"deployment/kube-system/{name}"
    pods = pods_of(facts, deployment)
    nodes = {node["metadata"]["name"]: node for node in facts.items(NODES.name)}
    waiting = [pod for pod in pods if unschedulable_message(pod)]
    without_selector = selector_remedy(facts, deployment)
    for pod in waiting:
        yield failure(
            f"pod/{name_of(pod)}",
            message(
                "a replica of the cluster's DNS cannot be scheduled: {unschedulable_message}",
                unschedulable_message=unschedulable_message(pod),
            ),
            without_selector
            or message(
                "kubectl describe nodes  # then use a larger instance type for the nodes that run the "
                "controller and DNS"
            ),
        )
    yield from stuck_pods(facts, deployment)
    killed = [pod for pod in pods if _was_killed(facts, pod)]
    for pod in killed:
        node = pod["spec"].get("nodeName")
        yield failure(
            f"pod/{name_of(pod)}",
            message(
                "it was ended for want of memory (OOMKilled) on node {node}: names are not resolved meanwhile",
                node=node,
            ),
            f"kubectl set resources deployment {name} -n kube-system --limits=memory=512Mi",
        )
    if not (deployment.get("status") or {}).get("readyReplicas") and not waiting and not killed:
        if deployment["spec"].get("replicas", 1) == 0:
            yield failure(
                subject,
                message("spec.replicas is 0: no name is resolved in the cluster"),
                f"kubectl scale deployment {name} -n kube-system --replicas=2",
            )
        elif nodes:
            yield failure(
                subject,
                message(
                    "status.readyReplicas is 0: no name is resolved in the cluster, and a controller with "
                    "dnsPolicy ClusterFirst reaches neither STS nor EC2"
                ),
                f"kubectl describe deployment {name} -n kube-system",
            )
    yield from _dns_service_faults(facts, deployment, subject)
    yield from _dns_node_faults(nodes, pods)


def _dns_node_faults(nodes: Mapping[str, Json], pods: Sequence[Json]) -> Iterator[Fault]:
    """Nodes that are too small for the DNS that runs on them."""
    for host in sorted({str(pod["spec"].get("nodeName")) for pod in pods}):
        memory = quantity.resources((nodes.get(host, {}).get("status") or {}).get("allocatable") or {}).get("memory")
        if memory is not None and memory < SMALLEST_DNS_NODE_BYTES:
            kind = (nodes[host]["metadata"].get("labels") or {}).get("node.kubernetes.io/instance-type", "")
            yield warning(
                f"node/{host}",
                message(
                    "it runs the cluster's DNS and has {memory} Mi for pods ({kind}): under load DNS is the "
                    "first to fail",
                    memory=memory // 2**20,
                    kind=kind,
                ),
                message("kubectl drain {host} --ignore-daemonsets  # after larger nodes have joined", host=host),
            )


def _dns_service_faults(facts: Facts, deployment: Json, subject: str) -> Iterator[Fault]:
    """Pods ask the address of a Service; replicas behind none are not asked."""
    labels = (deployment["spec"]["template"].get("metadata") or {}).get("labels") or {}
    selectors = [
        (service.get("spec") or {}).get("selector") or {}
        for service in facts.items(SERVICES.name)
        if service["metadata"].get("namespace") == "kube-system"
    ]
    if labels and not any(selector and selector.items() <= labels.items() for selector in selectors):
        yield failure(
            subject,
            message("no Service of kube-system selects its pods: no name is resolved in the cluster"),
            _dns_service(facts, labels),
        )


def _dns_service(facts: Facts, labels: Json) -> str:
    """The Service with the address that kubelets give to pods: the tenth of the range whose first the API has."""
    selector = {"k8s-app": labels["k8s-app"]} if "k8s-app" in labels else dict(labels)
    if facts.named(SERVICES.name, "kube-dns", "kube-system") is not None:
        patch = json.dumps([{"op": "replace", "path": "/spec/selector", "value": selector}], separators=(",", ":"))
        return f"kubectl patch service kube-dns -n kube-system --type=json -p '{patch}'"
    api = facts.named(SERVICES.name, "kubernetes", "default") or {}
    try:
        address = str(ip_address(str((api.get("spec") or {}).get("clusterIP"))) + 9)
    except ValueError:
        return (
            f"aws eks create-addon --cluster-name {facts.cluster} --addon-name coredns --resolve-conflicts OVERWRITE"
            f" --region {facts.region}"
        )
    ports = [{"name": f"dns{suffix}", "port": 53, "protocol": name} for suffix, name in (("", "UDP"), ("-tcp", "TCP"))]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": selector},
        "spec": {"clusterIP": address, "selector": selector, "ports": ports},
    }
    return f"echo '{json.dumps(service, separators=(',', ':'))}' | kubectl apply -f -"


def _was_killed(facts: Facts, pod: Json) -> bool:
    for row in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (row.get("lastState") or {}).get("terminated") or {}
        finished = moment(ended.get("finishedAt"))
        if ended.get("reason") == "OOMKilled" and finished and facts.time - finished < DRIFT_LIMIT:
            return True
    return False
