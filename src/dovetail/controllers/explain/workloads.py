"""A Deployment, StatefulSet, Job or other owner of pods: all its pods at once, grouped by cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dovetail.cluster.state import ClusterState
from dovetail.controllers.explain.answer import Answer, Event, about_object, event_lines, shortened
from dovetail.controllers.explain.pods import container_trouble
from dovetail.language import message, source
from dovetail.model.meta import OwnerReference
from dovetail.model.pods import Pod

#: So many names of pods are shown for a cause.
MAX_NAMES = 3
#: What the API server says of pods that it does not let be made, and what to do about it.
_CREATION_REMEDIES = (
    ("exceeded quota", source("raise the quota or lower the requests: kubectl describe resourcequota -n {namespace}")),
    ("no PriorityClass", source("create the PriorityClass, or correct spec.template.spec.priorityClassName")),
    ("error looking up service account", source("create the ServiceAccount, or correct its serviceAccountName")),
    (
        "violates PodSecurity",
        source("correct the securityContext, or the labels pod-security.kubernetes.io/* of {namespace}"),
    ),
    ("failed calling webhook", source("dovetail doctor --only D19 says what is wrong with the webhook")),
    ("denied the request", source("change what the admission webhook objects to")),
    ("usage per", source("ask for what the LimitRange allows: kubectl describe limitrange -n {namespace}")),
)


def pods_of(
    cluster_state: ClusterState, kind: str, namespace: str, name: str, replicasets: Sequence[Mapping[str, Any]] = ()
) -> list[Pod]:
    """The pods of an owner; those of a Deployment through its ReplicaSets."""
    owners = {(kind, name)}
    if kind == "Deployment":
        owners = {
            ("ReplicaSet", str(replicaset["metadata"]["name"]))
            for replicaset in replicasets
            if any(
                owner.get("kind") == kind and owner.get("name") == name
                for owner in replicaset["metadata"].get("ownerReferences") or ()
            )
        }
    return [
        pod
        for pod in cluster_state.pods.store.all()
        if pod.metadata.namespace == namespace and _owner(pod.metadata.controller) in owners
    ]


def _owner(owner: OwnerReference | None) -> tuple[str, str]:
    return (owner.kind, owner.name) if owner is not None else ("", "")


def workload(
    kind: str,
    key: str,
    desired: int | None,
    pods: Sequence[Pod],
    explain: Callable[[Pod], Answer],
    conditions: Sequence[Mapping[str, Any]] = (),
    events: Sequence[Event] = (),
) -> Answer:
    """`explain` answers for one pod. Pods that wait for the same are one group, the largest first."""
    subject = f"{kind.lower()}/{key}"
    running = [pod for pod in pods if pod.spec.node_name and not pod.finished]
    waiting = [pod for pod in pods if not pod.spec.node_name and not pod.finished]
    ordered = _by_cause(waiting, explain)
    troubled = [(pod, trouble) for pod in running if (trouble := container_trouble(pod))]
    failed = _failures(conditions)
    total = desired if desired is not None else len(running) + len(waiting)
    line = message("{count} of {total} pod(s) have a node", count=len(running), total=total)
    missing = total - len(running) - len(waiting)
    if ordered:
        line += _causes(ordered)
    elif missing > 0:
        line += message("; {missing} not created yet", missing=missing) + (f": {failed[0]}" if failed else "")
    if troubled:
        line += message("; {count} of them do not run: {trouble}", count=len(troubled), trouble=troubled[0][1])
    remedy = _creation_remedy(failed, key.partition("/")[0]) if not ordered and missing > 0 else ""
    line += f"; {remedy}" if remedy else ""
    best = ordered[0][0][1] if ordered else None
    owner_to_change = best is not None and best.object.startswith("pod/")
    return Answer(
        subject=subject,
        line=line,
        code=best.code if best is not None else "",
        object=subject if owner_to_change or remedy else best.object if best is not None else "",
        remedy=best.remedy if best is not None else remedy,
        source=best.source if best is not None else "objects",
        details=(*failed, *_details(running, troubled, ordered)),
        deep=(
            *(f"{group[0][0].metadata.key}: {text}" for group in ordered for text in group[0][1].details),
            *event_lines(about_object(events, kind, key)),
        ),
        facts={
            "wanted": total,
            "running": len(running),
            "causes": [_cause(group) for group in ordered],
        },
    )


def _failures(conditions: Sequence[Mapping[str, Any]]) -> list[str]:
    """The conditions of a workload that say that it does not get on."""
    return [
        f"{item.get('type')}={item.get('status')} {item.get('reason') or ''}: {item.get('message') or ''}".rstrip(": ")
        for item in conditions
        if (item.get("type"), item.get("status"))
        in (("ReplicaFailure", "True"), ("Progressing", "False"), ("Failed", "True"))
    ]


def _details(
    running: Sequence[Pod], troubled: Sequence[tuple[Pod, str]], groups: Sequence[Sequence[tuple[Pod, Answer]]]
) -> list[str]:
    """Pods that do not run, groups of pods that wait, and the nodes of the others."""
    details = [f"{pod.metadata.key}: {trouble}" for pod, trouble in troubled[:MAX_NAMES]]
    details += [
        message(
            "{count} pod(s): {common} [{names}]",
            count=len(group),
            common=_common(group[0][1], group[0][0]),
            names=_names(group),
        )
        for group in groups
    ]
    nodes = sorted({pod.spec.node_name for pod in running})
    if nodes:
        details.append(
            message("on {count} node(s): {shortened}", count=len(nodes), shortened=", ".join(shortened(nodes, 5)))
        )
    return details


def _creation_remedy(failed: Sequence[str], namespace: str) -> str:
    """What makes the API server accept pods that it refuses; empty where its words are not known."""
    text = " ".join(failed)
    templates = (template for words, template in _CREATION_REMEDIES if words in text)
    template = next(templates, None)
    return message(template, namespace=namespace) if template is not None else ""


def _causes(groups: Sequence[Sequence[tuple[Pod, Answer]]]) -> str:
    """What the largest group waits for, and how many pods wait for other things."""
    first, others = groups[0], groups[1:]
    text = f"; {len(first)} {_common(first[0][1], first[0][0])}"
    if others:
        count = sum(map(len, others))
        text += message("; and {count} for {count_2} other cause(s)", count=count, count_2=len(others))
    return text


def _by_cause(waiting: Iterable[Pod], explain: Callable[[Pod], Answer]) -> list[list[tuple[Pod, Answer]]]:
    """Pods that wait for the same, each with its answer; the largest group first."""
    groups: dict[tuple[str, str], list[tuple[Pod, Answer]]] = {}
    for pod in waiting:
        answer = explain(pod)
        # pods of a DaemonSet wait for a node each, so their words differ by its name
        words = "" if answer.code == "DAEMON_NO_ROOM" else _common(answer, pod)
        groups.setdefault((answer.code, words), []).append((pod, answer))
    return sorted(groups.values(), key=len, reverse=True)


def _cause(group: Sequence[tuple[Pod, Answer]]) -> dict[str, Any]:
    pod, answer = group[0]
    return {
        "code": answer.code,
        "object": answer.object,
        "message": _common(answer, pod),
        "count": len(group),
        "pods": [pod.metadata.key for pod, _ in group[:50]],
    }


def _common(answer: Answer, pod: Pod) -> str:
    """An answer without the name of its pod."""
    return answer.line.replace(f"pod {pod.metadata.key}", "pod")


def _names(group: Sequence[tuple[Pod, Answer]]) -> str:
    return ", ".join(shortened([pod.metadata.name for pod, _ in group], MAX_NAMES))
