"""DaemonSets (D12): their pods fit the nodes that exist, and requests say what they need.

A node that exists is not replaced for a DaemonSet that came later: its pod waits for room on that very node.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

from dovetail.install.doctor.collect import LIMITRANGES
from dovetail.install.doctor.facts import Facts, Fault, Json, condition, failure, moment, name_of, warning
from dovetail.install.doctor.system_pods import pods_of, waiting_reason
from dovetail.kube.resources import DAEMONSETS, NODEPOOLS, NODES, PODS
from dovetail.language import message
from dovetail.model import quantity
from dovetail.model.labels import COMPUTE_TYPE, FARGATE

#: A pod that waits for longer waits for something that does not arrive by itself.
PENDING_LIMIT = timedelta(minutes=5)
#: Without these pods a node is never ready; of a NodePool's own startup taints they remove none.
NODE_AGENTS = frozenset(("aws-node", "kube-proxy", "ebs-csi-node", "eks-pod-identity-agent"))
PROXY = "kube-proxy"
OTHER_NETWORKS = ("antrea", "calico", "canal", "cilium", "kindnet", "ovn", "flannel", "kube-router", "weave")


def check_daemon_sets(facts: Facts) -> Iterator[Fault]:
    yield from _pending_faults(facts)
    yield from _toleration_faults(facts)
    if not uses_other_network(facts):
        yield from agent_faults(facts, PROXY, message("pods on its nodes reach no Service"))
    yield from _request_faults(facts)


# Agents that run nowhere


def agent_faults(facts: Facts, name: str, effect: str) -> Iterator[Fault]:
    """An agent of EKS that leaves out every node, or whose pods do not start."""
    agent = facts.named(DAEMONSETS.name, name, "kube-system")
    fargate = _fargate_nodes(facts)
    nodes = [node for node in facts.items(NODES.name) if node["metadata"]["name"] not in fargate]
    if agent is None or not nodes or "desiredNumberScheduled" not in (agent.get("status") or {}):
        return
    subject, status = f"daemonset/kube-system/{name}", agent["status"]
    spec = agent["spec"]["template"]["spec"]
    selecting = [field for field in ("nodeSelector", "affinity") if spec.get(field)]
    if status["desiredNumberScheduled"] == 0 and selecting:
        patch = json.dumps([{"op": "remove", "path": f"/spec/template/spec/{field}"} for field in selecting])
        yield failure(
            subject,
            message(
                "its {fields} selects none of the {count} nodes: {effect}",
                fields=", ".join(f"spec.template.spec.{field}" for field in selecting),
                count=len(nodes),
                effect=effect,
            ),
            f"kubectl patch daemonset {name} -n kube-system --type=json -p '{patch}'",
        )
        return
    states = [state for pod in pods_of(facts, agent) if (state := waiting_reason(pod))]
    failing = [state for state in states if not state.startswith(("ContainerCreating", "PodInitializing"))]
    if failing:
        yield failure(
            subject,
            message(
                "{count} of its pods do not start ({state}): {effect}",
                count=len(failing),
                state=failing[0],
                effect=effect,
            ),
            f"kubectl rollout undo daemonset/{name} -n kube-system",
        )


def uses_other_network(facts: Facts) -> bool:
    """Whether another network is to be seen, or EKS runs the nodes itself; without either it is EKS's default."""
    described = facts.answers.get("eks:DescribeCluster")
    if described is None or not described.data or (described.data.get("computeConfig") or {}).get("enabled"):
        return True
    names = [row["metadata"]["name"] for row in facts.items(DAEMONSETS.name)]
    return any(mark in name for name in names for mark in OTHER_NETWORKS)


# Pods that fit no existing node


def _pending_faults(facts: Facts) -> Iterator[Fault]:
    pending: dict[str, list[Json]] = defaultdict(list)
    for pod in facts.items(PODS.name):
        owner: Json = next(iter(pod["metadata"].get("ownerReferences") or ()), {})
        scheduled = condition(pod, "PodScheduled") or {}
        if owner.get("kind") != "DaemonSet" or scheduled.get("status") != "False":
            continue
        if not pod["metadata"].get("deletionTimestamp"):
            pending[f"{pod['metadata']['namespace']}/{owner['name']}"].append(pod)
    if not pending:
        return
    room, fargate = free_resources(facts), _fargate_nodes(facts)
    for name, pods in sorted(pending.items()):
        on_fargate = [pod for pod in pods if _node_of(pod) in fargate]
        if on_fargate:
            yield _fargate_fault(name, on_fargate)
        pods = [pod for pod in pods if _node_of(pod) not in fargate]
        stuck = [pod for pod in pods if _missing_resources(pod, room) or _is_old(facts, pod)]
        if not stuck:
            continue
        cause = (condition(stuck[0], "PodScheduled") or {}).get("message") or message("no reason given")
        lacking = _missing_resources(stuck[0], room)
        if lacking:
            cause = message(
                "node {node_of} has no room for its request of {lacking}", node_of=_node_of(stuck[0]), lacking=lacking
            )
        namespace, _, short = name.partition("/")
        yield failure(
            f"daemonset/{name}",
            message(
                "{count} of its pods wait for room on nodes that exist, first {name}: {cause}; no new node helps",
                count=len(stuck),
                name=stuck[0]["metadata"]["name"],
                cause=cause,
            ),
            _way_out(facts, stuck[0], short, namespace),
        )


def _way_out(facts: Facts, pod: Json, name: str, namespace: str) -> str:
    """A higher priority, where the node would hold the pod without others; else smaller requests."""
    node = facts.named(NODES.name, _node_of(pod))
    allocatable = quantity.resources(((node or {}).get("status") or {}).get("allocatable") or {})
    over = {
        key: allocatable.get(key, 0) for key, amount in pod_requests(pod).items() if amount > allocatable.get(key, 0)
    }
    if node is None or not over:
        return (
            f"kubectl patch daemonset {name} -n {namespace} --type=merge -p"
            ' \'{"spec":{"template":{"spec":{"priorityClassName":"system-node-critical"}}}}\''
        )
    smaller = quantity.format_resources({key: max(1, amount // 10) for key, amount in over.items()})
    requests = ",".join(f"{key}={amount}" for key, amount in smaller.items())
    return message(
        "kubectl set resources daemonset {name} -n {namespace} --requests={requests}  # the whole node has {whole}",
        name=name,
        namespace=namespace,
        requests=requests,
        whole=", ".join(f"{key} {amount}" for key, amount in quantity.format_resources(over).items()),
    )


def _fargate_nodes(facts: Facts) -> frozenset[str]:
    return frozenset(
        node["metadata"]["name"]
        for node in facts.items(NODES.name)
        if (node["metadata"].get("labels") or {}).get(COMPUTE_TYPE) == FARGATE
    )


def _fargate_fault(name: str, pods: Sequence[Json]) -> Fault:
    """Fargate runs a single pod on a node: the DaemonSet has to leave its nodes out."""
    namespace, _, short = name.partition("/")
    expression = f'{{"key":"{COMPUTE_TYPE}","operator":"NotIn","values":["{FARGATE}"]}}'
    terms = f'{{"nodeSelectorTerms":[{{"matchExpressions":[{expression}]}}]}}'
    affinity = f'{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{terms}}}}}'
    return failure(
        f"daemonset/{name}",
        message(
            "{count} of its pods wait for Fargate nodes, first {name} for {node}; Fargate runs no pod of a DaemonSet",
            count=len(pods),
            name=pods[0]["metadata"]["name"],
            node=_node_of(pods[0]),
        ),
        f"kubectl patch daemonset {short} -n {namespace} --type=merge -p"
        f' \'{{"spec":{{"template":{{"spec":{{"affinity":{affinity}}}}}}}}}\'',
    )


def _is_old(facts: Facts, pod: Json) -> bool:
    since = moment((condition(pod, "PodScheduled") or {}).get("lastTransitionTime"))
    return since is not None and facts.time - since > PENDING_LIMIT


def _node_of(pod: Json) -> str:
    """The node that a DaemonSet's pod is made for."""
    required = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return ""


def pod_requests(pod: Json) -> Mapping[str, int]:
    total: dict[str, int] = defaultdict(int, pods=1)
    for box in pod["spec"].get("containers") or ():
        resources = box.get("resources") or {}
        for name, amount in quantity.resources(resources.get("requests") or resources.get("limits") or {}).items():
            total[name] += amount
    return total


def free_resources(facts: Facts) -> Mapping[str, Mapping[str, int]]:
    """What each node has left; the pods that are bound to it are counted."""
    left: dict[str, dict[str, int]] = {
        node["metadata"]["name"]: dict(quantity.resources((node.get("status") or {}).get("allocatable") or {}))
        for node in facts.items(NODES.name)
    }
    for pod in facts.items(PODS.name):
        node = left.get(pod["spec"].get("nodeName") or "")
        if node is None or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        for name, amount in pod_requests(pod).items():
            if name in node:
                node[name] -= amount
    return left


def _missing_resources(pod: Json, room: Mapping[str, Mapping[str, int]]) -> str:
    """What the pod requests and its node does not have; empty where it fits."""
    node = room.get(_node_of(pod))
    if node is None:
        return ""
    lacking = {name: amount for name, amount in pod_requests(pod).items() if name in node and amount > node[name]}
    return ", ".join(f"{name} {amount}" for name, amount in quantity.format_resources(lacking).items())


# Agents that a NodePool's taints keep away


def _toleration_faults(facts: Facts) -> Iterator[Fault]:
    for daemon_set in facts.items(DAEMONSETS.name):
        if daemon_set["metadata"]["name"] not in NODE_AGENTS:
            continue
        tolerations = daemon_set["spec"]["template"]["spec"].get("tolerations") or ()
        for pool in facts.items(NODEPOOLS.name):
            for taint in pool["spec"]["template"]["spec"].get("taints") or ():
                if taint.get("effect") != "PreferNoSchedule" and not tolerated(taint, tolerations):
                    namespace, short = daemon_set["metadata"]["namespace"], daemon_set["metadata"]["name"]
                    yield failure(
                        f"daemonset/{namespace}/{short}",
                        message(
                            "it does not tolerate {shown} of NodePool {name}: nodes of it never get its pod, and are "
                            "not ready or not usable",
                            shown=_shown(taint),
                            name=pool["metadata"]["name"],
                        ),
                        f"kubectl patch daemonset {short} -n {namespace} --type=merge -p"
                        ' \'{"spec":{"template":{"spec":{"tolerations":[{"operator":"Exists"}]}}}}\'',
                    )


def _shown(taint: Json) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return message("the taint {key}{value}:{effect}", key=taint.get("key"), value=value, effect=taint.get("effect"))


def tolerated(taint: Json, tolerations: Iterable[Json]) -> bool:
    for row in tolerations:
        if row.get("effect") not in (None, "", taint.get("effect")):
            continue
        if row.get("key") not in (None, "", taint.get("key")):
            continue
        if row.get("operator", "Equal") == "Exists" or (row.get("value") or "") == (taint.get("value") or ""):
            return bool(row.get("key")) or row.get("operator") == "Exists"
    return False


# Requests that only the pods have


def _request_faults(facts: Facts) -> Iterator[Fault]:
    if not facts.items(NODEPOOLS.name):
        return
    defaults = {
        row["metadata"].get("namespace")
        for row in facts.items(LIMITRANGES.name)
        for limit in (row.get("spec") or {}).get("limits") or ()
        if limit.get("type") == "Container" and (limit.get("defaultRequest") or limit.get("default"))
    }
    for daemon_set in facts.items(DAEMONSETS.name):
        namespace, short = daemon_set["metadata"]["namespace"], daemon_set["metadata"]["name"]
        for box in daemon_set["spec"]["template"]["spec"].get("containers") or ():
            resources = box.get("resources") or {}
            if resources.get("requests"):
                continue
            source = message("limits and no requests") if resources.get("limits") else ""
            if not source and namespace in defaults:
                source = message(
                    "no requests, and a LimitRange of namespace {namespace} adds them", namespace=namespace
                )
            if source:
                yield warning(
                    f"daemonset/{name_of(daemon_set)}",
                    message(
                        "container {name} has {source}: its pods request more than the template says, so new "
                        "nodes may be planned too small for them",
                        name=box.get("name"),
                        source=source,
                    ),
                    f"kubectl set resources daemonset {short} -n {namespace} -c {box.get('name')}"
                    " --requests=cpu=100m,memory=128Mi",
                )
                break
