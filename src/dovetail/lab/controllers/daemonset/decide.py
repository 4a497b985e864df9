"""DaemonSets, the deciding half: on which nodes a pod belongs, which pods to make and take away, the status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dovetail.lab.controllers.controller_revisions import HASH_LABEL
from dovetail.lab.controllers.pods import available_in, finished, ready, terminating
from dovetail.lab.controllers.tainteviction import tolerates
from dovetail.lab.controllers.views import Json, NodeFields, PodFields, Toleration
from dovetail.model.selector import LabelSelectorRequirement

#: What every daemon pod tolerates: (key, effect).
_ALWAYS = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_HOST_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")


def tolerations(template: Json) -> list[Json]:
    """The template's tolerations and those of every daemon."""
    spec = template["spec"]
    tolerated = [*_ALWAYS, *([_HOST_NETWORK] if spec.get("hostNetwork") else [])]
    given = list(spec.get("tolerations", []))
    for key, effect in tolerated:
        toleration = {"key": key, "operator": "Exists", "effect": effect}
        if toleration not in given:
            given.append(toleration)
    return given


def pinned(spec: Json, node: str) -> Json:
    """The pod's affinity with its node written in, so that the scheduler has no choice."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = dict(spec.get("affinity") or {})
    required = dict((affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    terms = [{**term, "matchFields": [field]} for term in required.get("nodeSelectorTerms", [])]
    required["nodeSelectorTerms"] = terms or [{"matchFields": [field]}]
    node_affinity = {**(affinity.get("nodeAffinity") or {}), "requiredDuringSchedulingIgnoredDuringExecution": required}
    return {**affinity, "nodeAffinity": node_affinity}


def belongs(workload: Json, node: NodeFields) -> tuple[bool, bool]:
    """(a pod should run there, a pod that is there may stay)."""
    spec = workload["spec"]["template"]["spec"]
    if spec.get("nodeName") not in (None, "", node.metadata.name) or not selects(spec, node):
        return False, False
    mine = [msgspec.convert(item, Toleration) for item in tolerations(workload["spec"]["template"])]
    open_taints = [taint for taint in node.spec.taints if not any(tolerates(toleration, taint) for toleration in mine)]
    effects = {taint.effect for taint in open_taints}
    return not effects & {"NoSchedule", "NoExecute"}, "NoExecute" not in effects


def selects(spec: Json, node: NodeFields) -> bool:
    """Whether nodeSelector and the required node affinity mean this node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_term(term, node) for term in required.get("nodeSelectorTerms", []))


def _term(term: Json, node: NodeFields) -> bool:
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return _all(expressions, node.metadata.labels) and _all(fields, {"metadata.name": node.metadata.name})


def _all(requirements: Iterable[Any], values: Mapping[str, str]) -> bool:
    return all(msgspec.convert(requirement, LabelSelectorRequirement).matches(values) for requirement in requirements)


class DaemonSetPlan(msgspec.Struct, frozen=True):
    """Nodes that lack a pod, and pods to delete. `failed` and `succeeded` get an event."""

    create: list[str]
    delete: list[PodFields]
    failed: list[PodFields] = msgspec.field(default_factory=list)
    succeeded: list[PodFields] = msgspec.field(default_factory=list)


Belongs = Callable[[NodeFields], tuple[bool, bool]]
#: Of the pods on one node, those that are too many.
Surplus = Callable[[Sequence[PodFields]], list[PodFields]]


def manage(
    nodes: Iterable[NodeFields],
    by_node: Mapping[str, Sequence[PodFields]],
    rule: Belongs,
    surplus: Surplus,
    surging: bool = False,
) -> DaemonSetPlan:
    """One pod a node that wants one, none elsewhere; while a new one replaces an old one, both.

    Who was made for a node that is no more, and never got there, goes.
    """
    plan = DaemonSetPlan([], [])
    there = {node.metadata.name: node for node in nodes}
    for node in there.values():
        pods = by_node.get(node.metadata.name, ())
        should, may = rule(node)
        living = [pod for pod in pods if not terminating(pod)]
        if should and not pods:
            plan.create.append(node.metadata.name)
        elif not may:
            plan.delete.extend(living)
        else:
            plan.failed.extend(pod for pod in living if pod.status.phase == "Failed")
            plan.succeeded.extend(pod for pod in living if pod.status.phase == "Succeeded")
            running = sorted((pod for pod in living if not finished(pod)), key=_age)
            plan.delete.extend(surplus(running))
            if surging and should and not running:
                plan.create.append(node.metadata.name)  # another may come before the last has gone
    lost = (pod for name, pods in by_node.items() if name and name not in there for pod in pods)
    plan.delete.extend(pod for pod in lost if not pod.spec.node_name and not terminating(pod))
    return DaemonSetPlan(plan.create, [*plan.delete, *plan.failed, *plan.succeeded], plan.failed, plan.succeeded)


def _age(pod: PodFields) -> tuple[bool, str, str]:
    """The oldest first, of those on a node before any other."""
    return not pod.spec.node_name, pod.metadata.creation_timestamp or "", pod.metadata.name


def status_of(
    workload: Json,
    nodes: Iterable[NodeFields],
    by_node: Mapping[str, Sequence[PodFields]],
    revision: str,
    now: datetime,
) -> Json:
    desired = scheduled = astray = healthy = updated = available = 0
    min_ready = int(workload["spec"].get("minReadySeconds", 0))
    for node in nodes:
        should, _ = belongs(workload, node)
        pods = sorted(by_node.get(node.metadata.name, ()), key=_age)
        if not should:
            astray += bool(pods)
            continue
        desired += 1
        if not pods:
            continue
        scheduled += 1
        pod = pods[0]
        healthy += ready(pod)
        available += ready(pod) and available_in(pod, min_ready, now) <= 0
        updated += pod.metadata.labels.get(HASH_LABEL) == revision
    status: Json = {
        "currentNumberScheduled": scheduled,
        "numberMisscheduled": astray,
        "desiredNumberScheduled": desired,
        "numberReady": healthy,
        "observedGeneration": workload["metadata"].get("generation", 0),
    }
    counts = {
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
    }
    return status | {field: count for field, count in counts.items() if count}
