"""Pods of a Deployment that the cluster needs, the controller or DNS: those it has, and why they do not run."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.install.doctor.facts import Facts, Fault, Json, name_of, warning
from dovetail.kube.resources import NODES, PODS
from dovetail.language import message


def pods_of(facts: Facts, deployment: Json) -> list[Json]:
    """The pods that a Deployment selects, without those that are being deleted."""
    labels = (deployment["spec"].get("selector") or {}).get("matchLabels") or {}
    return [
        pod
        for pod in facts.items(PODS.name)
        if pod["metadata"].get("namespace") == deployment["metadata"]["namespace"]
        and not pod["metadata"].get("deletionTimestamp")
        and labels
        and labels.items() <= (pod["metadata"].get("labels") or {}).items()
    ]


def waiting_reason(pod: Json) -> str:
    """Why a container of it does not start; empty if none waits."""
    for row in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (row.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def unschedulable_message(pod: Json) -> str:
    """What the scheduler says of a pod that fits nowhere; empty for others."""
    for row in (pod.get("status") or {}).get("conditions") or ():
        if row.get("type") == "PodScheduled" and row.get("status") == "False" and row.get("reason") == "Unschedulable":
            return str(row.get("message") or message("no node fits"))
    return ""


def stuck_pods(facts: Facts, deployment: Json) -> Iterator[Fault]:
    """Replicas that do not start beside others that run: a rollout has stopped half-way."""
    if not (deployment.get("status") or {}).get("readyReplicas"):
        return
    for pod in pods_of(facts, deployment):
        state = waiting_reason(pod)
        if state and not state.startswith(("ContainerCreating", "PodInitializing")):
            name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
            yield warning(
                f"pod/{name_of(pod)}",
                message("it does not start ({state}); others of Deployment {name} run", state=state, name=name),
                f"kubectl rollout undo deployment/{name} -n {namespace}",
            )
            return


def selector_remedy(facts: Facts, deployment: Json) -> str:
    """The command without the node selector, where no node has its labels; empty where one has."""
    selector = deployment["spec"]["template"]["spec"].get("nodeSelector") or {}
    nodes = facts.items(NODES.name)
    if not selector or any(selector.items() <= (node["metadata"].get("labels") or {}).items() for node in nodes):
        return ""
    name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
    return (
        f"kubectl patch deployment {name} -n {namespace} --type=json -p"
        ' \'[{"op":"remove","path":"/spec/template/spec/nodeSelector"}]\''
    )
