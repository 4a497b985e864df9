"""DaemonSets, the deciding half: on which nodes a pod belongs, which pods to make and take away, the status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dovetail.lab.controllers.deployment.rollout import share
from dovetail.lab.controllers.history import HASH_LABEL
from dovetail.lab.controllers.pods import available_in, finished, ready, terminating
from dovetail.lab.controllers.tainteviction import tolerates
from dovetail.lab.controllers.views import Json, NodeView, PodView, Toleration
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
    wanted = [*_ALWAYS, *([_HOST_NETWORK] if spec.get("hostNetwork") else [])]
    given = list(spec.get("tolerations", []))
    for key, effect in wanted:
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


def belongs(workload: Json, node: NodeView) -> tuple[bool, bool]:
    """(a pod should run there, a pod that is there may stay)."""
    spec = workload["spec"]["template"]["spec"]
    if spec.get("nodeName") not in (None, "", node.metadata.name) or not selects(spec, node):
        return False, False
    mine = [msgspec.convert(item, Toleration) for item in tolerations(workload["spec"]["template"])]
    open_taints = [taint for taint in node.spec.taints if not any(tolerates(each, taint) for each in mine)]
    effects = {taint.effect for taint in open_taints}
    return not effects & {"NoSchedule", "NoExecute"}, "NoExecute" not in effects


def selects(spec: Json, node: NodeView) -> bool:
    """Whether nodeSelector and the required node affinity mean this node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_term(term, node) for term in required.get("nodeSelectorTerms", []))


def _term(term: Json, node: NodeView) -> bool:
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return _all(expressions, node.metadata.labels) and _all(fields, {"metadata.name": node.metadata.name})


def _all(requirements: Iterable[Any], values: Mapping[str, str]) -> bool:
    return all(msgspec.convert(each, LabelSelectorRequirement).matches(values) for each in requirements)


class Plan(msgspec.Struct, frozen=True):
    """Nodes that lack a pod, and pods to delete. `failed` and `succeeded` are told about."""

    create: list[str]
    delete: list[PodView]
    failed: list[PodView] = []
    succeeded: list[PodView] = []


Belongs = Callable[[NodeView], tuple[bool, bool]]


def manage(nodes: Iterable[NodeView], by_node: Mapping[str, Sequence[PodView]], rule: Belongs, surge: int = 0) -> Plan:
    """One pod a node that wants one, none elsewhere."""
    create: list[str] = []
    delete: list[PodView] = []
    failed: list[PodView] = []
    succeeded: list[PodView] = []
    known = set()
    for node in nodes:
        known.add(node.metadata.name)
        pods = by_node.get(node.metadata.name, ())
        should, may = rule(node)
        if should and not pods:
            create.append(node.metadata.name)
        elif not may:
            delete += [pod for pod in pods if not terminating(pod)]
        else:
            living = []
            for pod in pods:
                if terminating(pod):
                    continue
                if pod.status.phase == "Failed":
                    failed.append(pod)
                elif pod.status.phase == "Succeeded":
                    succeeded.append(pod)
                else:
                    living.append(pod)
            if surge == 0 and len(living) > 1:
                delete += sorted(living, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))[1:]
    return Plan(create, [*delete, *failed, *succeeded], failed, succeeded)


def roll(
    workload: Json, nodes: Sequence[NodeView], by_node: Mapping[str, Sequence[PodView]], revision: str, now: datetime
) -> list[PodView]:
    """Old pods to take away next, within maxUnavailable."""
    strategy = workload["spec"].get("updateStrategy", {})
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return []
    wanted = [node.metadata.name for node in nodes if belongs(workload, node)[0]]
    rolling = strategy.get("rollingUpdate") or {}
    allowed = share(rolling.get("maxUnavailable", 1), len(wanted), up=True)
    surge = share(rolling.get("maxSurge", 0), len(wanted), up=True)
    if surge == 0:
        allowed = max(1, allowed)
    min_ready = int(workload["spec"].get("minReadySeconds", 0))
    gone, sick, fine = 0, [], []
    for name in wanted:
        pods = [pod for pod in by_node.get(name, ()) if not finished(pod)]
        old = [p for p in pods if p.metadata.labels.get(HASH_LABEL) != revision and not terminating(p)]
        new = [p for p in pods if p.metadata.labels.get(HASH_LABEL) == revision and not terminating(p)]
        if not old:
            gone += not any(available_in(pod, min_ready, now) <= 0 for pod in new)
        elif available_in(old[0], min_ready, now) <= 0:
            fine.append(old[0])
        else:
            sick.append(old[0])
            gone += 1
    room = max(0, allowed - gone)
    return [*sick, *fine[:room]]


def status_of(
    workload: Json, nodes: Iterable[NodeView], by_node: Mapping[str, Sequence[PodView]], revision: str, now: datetime
) -> Json:
    desired = scheduled = astray = healthy = updated = available = 0
    min_ready = int(workload["spec"].get("minReadySeconds", 0))
    for node in nodes:
        should, _ = belongs(workload, node)
        pods = sorted(by_node.get(node.metadata.name, ()), key=lambda pod: pod.metadata.creation_timestamp or "")
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
