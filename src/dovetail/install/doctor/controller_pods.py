"""The controller's pods (D09): they run, on nodes that the controller does not manage, with enough CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from dovetail.install.doctor.controller import NODEPOOL_LABEL, controller
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
from dovetail.install.doctor.own_state import safe_mode_event
from dovetail.install.doctor.system_pods import (
    pods_of,
    selector_remedy,
    stuck_pods,
    unschedulable_message,
    waiting_reason,
)
from dovetail.kube.resources import NODES
from dovetail.language import message
from dovetail.model import quantity

#: In the message of a pod that the API server refuses.
FORBIDDEN = "forbidden"
MAX_RESTARTS = 3
RESTART_WINDOW = timedelta(hours=1)
#: Above so many nodes less than one CPU throttles the leader.
MANY_NODES = 100
#: How long a controller may take to be ready.
STARTING = timedelta(minutes=2)


def check_controller_runs(facts: Facts) -> Iterator[Fault]:
    deployment = controller(facts)
    namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
    subject = f"deployment/{namespace}/{name}"
    if deployment["spec"].get("replicas", 1) == 0:
        yield failure(
            subject,
            message("spec.replicas is 0: no controller runs"),
            f"kubectl scale deployment {name} -n {namespace} --replicas=2",
        )
        return
    yield from _cluster_name_faults(facts, deployment, subject)
    yield from _cluster_endpoint_faults(facts, deployment, subject)
    yield from _region_faults(facts, deployment, subject)
    pods = pods_of(facts, deployment)
    pending = [pod for pod in pods if unschedulable_message(pod)]
    make = warning if _is_rolling(deployment) else failure
    if pending:
        pod = pending[0]
        yield make(
            f"pod/{name_of(pod)}",
            message(
                "{count} of {total} replicas of the controller cannot be scheduled: {unschedulable_message}",
                count=len(pending),
                total=len(pods),
                unschedulable_message=unschedulable_message(pod),
            ),
            _way_to_run(facts, deployment, len(pods) - len(pending)),
        )
    if not (deployment.get("status") or {}).get("readyReplicas") and not pending:
        states = [state for pod in pods if (state := waiting_reason(pod))] or _creation_failures(deployment)
        starting = not states and any(_is_new(facts, pod) for pod in pods)
        safe_mode = not states and pods and safe_mode_event(facts) is not None
        make = partial(failure, symptom=not any("Image" in state or FORBIDDEN in state for state in states))
        if states:
            cause = f" ({states[0]})"
        elif starting:
            make, cause = warning, message("; it was started less than two minutes ago")
        elif safe_mode:
            make, cause = warning, message("; it runs, and is in safe mode (see V07)")
        else:
            cause = ""
        yield make(
            subject,
            message("status.readyReplicas is 0: no replica of the controller is ready") + cause,
            _way_out_of_failure(deployment, states)
            if states
            else f"kubectl logs -n {namespace} deployment/{name} --tail=50",
        )
    yield from _own_node_faults(facts, pods)
    yield from stuck_pods(facts, deployment)
    for pod in pods:
        yield from _restart_faults(facts, pod)
    yield from _request_faults(facts, deployment, subject)


def _own_node_faults(facts: Facts, pods: Sequence[Json]) -> Iterator[Fault]:
    """Replicas on nodes that they may remove themselves."""
    managed = {
        node["metadata"]["name"]: node["metadata"]["labels"][NODEPOOL_LABEL]
        for node in facts.items(NODES.name)
        if NODEPOOL_LABEL in (node["metadata"].get("labels") or {})
    }
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node in managed:
            yield failure(
                f"pod/{name_of(pod)}",
                message(
                    "spec.nodeName {node} belongs to NodePool {managed}: the controller runs on a node that "
                    "it may remove itself",
                    node=node,
                    managed=managed[node],
                ),
                f"kubectl cordon {node} && kubectl delete pod {pod['metadata']['name']}"
                f" -n {pod['metadata']['namespace']}",
            )


def _cluster_name_faults(facts: Facts, deployment: Json, subject: str) -> Iterator[Fault]:
    """Where EKS knows the cluster under another name than the controller's setting."""
    stated = environment(deployment).get("CLUSTER_NAME", "")
    described = facts.answers.get("eks:DescribeCluster")
    if not stated or stated == facts.cluster or described is None or not described.data:
        return
    yield failure(
        subject,
        message(
            "CLUSTER_NAME is {stated!r}, and EKS calls this cluster {cluster!r}: the controller launches for another "
            "cluster, and its instances cannot join this one",
            stated=stated,
            cluster=facts.cluster,
        ),
        f"kubectl set env deployment/{deployment['metadata']['name']} -n {deployment['metadata']['namespace']}"
        f" CLUSTER_NAME={facts.cluster}",
    )


def _cluster_endpoint_faults(facts: Facts, deployment: Json, subject: str) -> Iterator[Fault]:
    """Where instances join by another API server than that of the cluster."""
    stated = environment(deployment).get("CLUSTER_ENDPOINT", "").rstrip("/")
    described = facts.answers.get("eks:DescribeCluster")
    endpoint = str(((described.data if described is not None else None) or {}).get("endpoint") or "").rstrip("/")
    if not stated or not endpoint or stated.lower() == endpoint.lower():
        return
    yield failure(
        subject,
        message(
            "CLUSTER_ENDPOINT is {stated}, and EKS states {endpoint} for this cluster: instances start with the wrong "
            "API server and cannot join",
            stated=stated,
            endpoint=endpoint,
        ),
        f"kubectl set env deployment/{deployment['metadata']['name']} -n {deployment['metadata']['namespace']}"
        f" CLUSTER_ENDPOINT={endpoint}",
    )


def _region_faults(facts: Facts, deployment: Json, subject: str) -> Iterator[Fault]:
    """Where the controller calls AWS in another region than that of the cluster."""
    stated = environment(deployment).get("AWS_REGION", "")
    described = facts.answers.get("eks:DescribeCluster")
    parts = str(((described.data if described is not None else None) or {}).get("arn") or "").split(":")
    if not stated or len(parts) < 4 or stated == parts[3]:
        return
    yield failure(
        subject,
        message(
            "AWS_REGION is {stated}, and the cluster is in {region}: the controller finds neither its subnets nor its "
            "instances",
            stated=stated,
            region=parts[3],
        ),
        f"kubectl set env deployment/{deployment['metadata']['name']} -n {deployment['metadata']['namespace']}"
        f" AWS_REGION={parts[3]}",
    )


def _creation_failures(deployment: Json) -> list[str]:
    """Why the API server refuses its pods: a quota, an admission rule, a priority class that does not exist."""
    row = condition(deployment, "ReplicaFailure") or {}
    return [f"{row.get('reason')}: {row.get('message')}"] if row.get("status") == "True" else []


def _way_out_of_failure(deployment: Json, states: list[str]) -> str:
    name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
    if any("exceeded quota" in state for state in states):
        return f"kubectl describe resourcequota -n {namespace}"
    if any(FORBIDDEN in state for state in states):  # no pod was made, so none has a log
        return f"kubectl rollout undo deployment/{name} -n {namespace}"
    return _former_template(deployment)


def _way_to_run(facts: Facts, deployment: Json, running: int) -> str:
    """Fewer replicas where some run; smaller requests where no node is large enough; else one more node."""
    name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
    if running:
        return f"kubectl scale deployment {name} -n {namespace} --replicas={running}"
    without_selector = selector_remedy(facts, deployment)
    if without_selector:
        return without_selector
    requests: dict[str, int] = {}
    for box in deployment["spec"]["template"]["spec"]["containers"]:
        for key, amount in quantity.resources((box.get("resources") or {}).get("requests") or {}).items():
            requests[key] = requests.get(key, 0) + amount
    nodes = [
        quantity.resources((node.get("status") or {}).get("allocatable") or {})
        for node in facts.items(NODES.name)
        if NODEPOOL_LABEL not in (node["metadata"].get("labels") or {})
    ]
    if nodes and not any(all(node.get(key, 0) >= amount for key, amount in requests.items()) for node in nodes):
        return f"kubectl set resources deployment {name} -n {namespace} --requests=cpu=100m,memory=256Mi"
    return (
        f"eksctl create nodegroup --cluster {facts.cluster or 'CLUSTER'} --region {facts.region or 'REGION'}"
        " --name system --node-type m5.large --nodes 2"
    )


def _former_template(deployment: Json) -> str:
    """Back to the template that ran before, where there is one; its log says what the present one lacks."""
    name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
    logs = f"kubectl logs -n {namespace} deployment/{name} --tail=50"
    revision = str((deployment["metadata"].get("annotations") or {}).get("deployment.kubernetes.io/revision") or "1")
    if revision == "1":
        return logs
    return message(
        "kubectl rollout undo deployment/{name} -n {namespace}  # {logs} says why it ends",
        name=name,
        namespace=namespace,
        logs=logs,
    )


def _is_rolling(deployment: Json) -> bool:
    """Whether pods of a former template are being replaced: one more than its replicas may wait meanwhile."""
    status = deployment.get("status") or {}
    replicas = int(deployment["spec"].get("replicas", 1))
    return bool(status.get("updatedReplicas", replicas) < replicas or status.get("replicas", 0) > replicas)


def _is_new(facts: Facts, pod: Json) -> bool:
    created = moment(pod["metadata"].get("creationTimestamp"))
    return created is not None and facts.time - created < STARTING


def _restart_faults(facts: Facts, pod: Json) -> Iterator[Fault]:
    for row in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (row.get("lastState") or {}).get("terminated") or {}
        finished = moment(ended.get("finishedAt"))
        recent = finished is not None and facts.time - finished < RESTART_WINDOW
        if row.get("restartCount", 0) > MAX_RESTARTS and recent:
            namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
            yield failure(
                f"pod/{namespace}/{name}",
                message(
                    "container {name} was restarted {restartCount} times, last with {reason} (exit code {exitCode})",
                    name=row["name"],
                    restartCount=row["restartCount"],
                    reason=ended.get("reason", "no reason"),
                    exitCode=ended.get("exitCode", "unknown"),
                ),
                f"kubectl logs -n {namespace} {name} -c {row['name']} --previous --tail=50",
                symptom=ended.get("reason") != "OOMKilled",
            )


def _request_faults(facts: Facts, deployment: Json, subject: str) -> Iterator[Fault]:
    count = len(facts.items(NODES.name))
    if count <= MANY_NODES:
        return
    box = deployment["spec"]["template"]["spec"]["containers"][0]
    resources: dict[str, Any] = box.get("resources") or {}
    cpu = (resources.get("requests") or resources.get("limits") or {}).get("cpu", "0")
    if quantity.milli(cpu) < 1000:
        yield warning(
            subject,
            message(
                "resources.requests.cpu of container {name} is {cpu} with {count} nodes: a throttled "
                "leader loses its lease",
                name=box["name"],
                cpu=cpu,
                count=count,
            ),
            f"kubectl set resources deployment {deployment['metadata']['name']}"
            f" -n {deployment['metadata']['namespace']} -c {box['name']} --requests=cpu=1,memory=1Gi",
        )
