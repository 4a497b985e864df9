"""A node group of Cluster Autoscaler: its size, and why it does not grow or shrink. From the status ConfigMap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import yaml

from dovetail.controllers.explain.answer import Answer, Event, Unknown, dollars, event_lines, shortened
from dovetail.controllers.history.store import NAMESPACE
from dovetail.controllers.provisioning.node_group_scale_ups import NOT_TRIGGERED, TRIGGERED, GroupScaleUp
from dovetail.language import message, source
from dovetail.model import yaml_document
from dovetail.model.formats import yaml_problem
from dovetail.model.labels import NODE_GROUPS

Json = Mapping[str, Any]

#: Where both Cluster Autoscalers write their status.
STATUS_CONFIG_MAP = "cluster-autoscaler-status"


def group_answer(
    written: Mapping[str, str], name: str, labels: Mapping[str, Mapping[str, str]], events: Sequence[Event] = ()
) -> Answer:
    """The answer about a node group under any of its names.

    `written` is the data of the status ConfigMap, `labels` those of the cluster's nodes. Raises Unknown.
    """
    more = explanations_of(written)
    return nodegroup(_status(written), scaling_group(name, more, labels), events, more)


def explanations_of(written: Mapping[str, str]) -> Json:
    """Only Dovetail's Cluster Autoscaler writes them."""
    try:
        texts = msgspec.json.decode(written.get("explanations") or "{}")
    except msgspec.DecodeError:
        return {}
    return texts if isinstance(texts, dict) else {}


def _status(written: Mapping[str, str]) -> Json:
    """Without it nothing is known of any group: that is not the same as a group that is missing in it."""
    try:
        status = yaml_document.load(written.get("status") or "") or {}
    except yaml.YAMLError as problem:
        raise Unknown(
            message(
                "status of the ConfigMap {namespace}/{status_config_map} is not YAML: {problem}",
                namespace=NAMESPACE,
                status_config_map=STATUS_CONFIG_MAP,
                problem=yaml_problem(problem),
            )
        ) from problem
    groups = status.get("nodeGroups") or [] if isinstance(status, dict) else None
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise Unknown(
            message(
                "status of the ConfigMap {namespace}/{status_config_map} has no list of node groups",
                namespace=NAMESPACE,
                status_config_map=STATUS_CONFIG_MAP,
            )
        )
    return dict(status)


def scaling_group(name: str, explanations: Json, labels: Mapping[str, Mapping[str, str]]) -> str:
    """The Auto Scaling group of a node group that is named as EKS, eksctl or kOps name it, by its nodes' `labels`."""
    for node, group in (explanations.get("members") or {}).items():
        if name in (labels.get(node, {}).get(label) for label in NODE_GROUPS):
            return str(group)
    return name


def nodegroup(status: Json, name: str, events: Sequence[Event] = (), explanations: Json | None = None) -> Answer:
    """`status` is the ConfigMap's YAML, read; `explanations` is what Dovetail's program writes beside it."""
    groups = status.get("nodeGroups") or ()
    own = next((group for group in groups if group.get("name") == name), None)
    if own is None:
        names = ", ".join(shortened([str(group.get("name")) for group in groups], 10))
        raise Unknown(
            message(
                "nodegroup/{name} is not in {status_config_map}; there are: {names}. Cluster Autoscaler scales the "
                "groups that --nodes names or that have the tags of --node-group-auto-discovery",
                name=name,
                status_config_map=STATUS_CONFIG_MAP,
                names=names or "none",
            )
        )
    members = [node for node, group in ((explanations or {}).get("members") or {}).items() if group == name]
    health, up, down = (own.get(part) or {} for part in ("health", "scaleUp", "scaleDown"))
    target, least, most = health.get("cloudProviderTarget"), health.get("minSize"), health.get("maxSize")
    counts = ((health.get("nodeCounts") or {}).get("registered")) or {}
    size = message(
        "{total} node(s), target {target} (min {least}, max {most})",
        total=counts.get("total", 0),
        target=target,
        least=least,
        most=most,
    )
    more: Json = ((explanations or {}).get("groups") or {}).get(name) or {}
    refused: Json = more.get("refused") or {}
    code = str(refused.get("code", ""))
    line, remedy = _state(own, size)
    reported = [event for event in events if event.reason in _EVENTS]
    pods = [event for event in reported if event.reason == "NotTriggerScaleUp"]
    return Answer(
        subject=f"nodegroup/{name}",
        line=line + (f"; {remedy}" if remedy else "") + (f" ({code})" if code and remedy else ""),
        code=code if remedy else "",
        object=f"nodegroup/{name}" if remedy else "",
        remedy=remedy,
        details=(
            size,
            *_bill(more),
            *_staying(explanations or {}, members),
            *_transitions(health, up, down),
            *shortened([message("pod {name}: {text}", name=event.key, text=event.message) for event in pods[-20:]], 10),
        ),
        deep=tuple(event_lines(reported)),
        facts={"health": dict(health), "scaleUp": dict(up), "scaleDown": dict(down), "bill": dict(more)},
    )


def _transitions(health: Json, up: Json, down: Json) -> Iterator[str]:
    yield message(
        "health {status} since {lastTransitionTime}",
        status=health.get("status"),
        lastTransitionTime=health.get("lastTransitionTime"),
    )
    yield message(
        "scale-up {status} since {lastTransitionTime}",
        status=up.get("status"),
        lastTransitionTime=up.get("lastTransitionTime"),
    )
    yield message(
        "scale-down {status} since {lastTransitionTime}",
        status=down.get("status"),
        lastTransitionTime=down.get("lastTransitionTime"),
    )


def _state(group: Json, size: str) -> tuple[str, str]:
    """Whether a group grows, shrinks or cannot, in words that follow its name, and the remedy; `size` is in words."""
    health, up, down = (group.get(part) or {} for part in ("health", "scaleUp", "scaleDown"))
    target, least, most = health.get("cloudProviderTarget"), health.get("minSize"), health.get("maxSize")
    counts = ((health.get("nodeCounts") or {}).get("registered")) or {}
    remedy = ""
    if up.get("status") == "Backoff":
        info = up.get("backoffInfo") or {}
        error_message = info.get("errorMessage") or info.get("errorCode") or message("its last scale-up failed")
        line = message("does not grow for a while: {said}", said=error_message)
        remedy = message("see the activity of its Auto Scaling group; it is tried again by itself")
        if "AccessDenied" in error_message:
            remedy = message("tag the group as the policy of the role asks for, or allow the action in the policy")
    elif health.get("status") == "Unhealthy":
        line = message(
            "is unhealthy and not scaled: {ready} of {total} node(s) are ready",
            ready=counts.get("ready", 0),
            total=counts.get("total", 0),
        )
        remedy = message("see its nodes that are not ready")
    elif up.get("status") == "InProgress":
        line = message("is growing: {size}", size=size)
    elif target is not None and most is not None and target >= most:
        line = message("is at its largest: {size}", size=size)
        remedy = message("raise its maximum size")
    elif down.get("status") == "CandidatesPresent":
        line = message(
            "has {candidates} node(s) to remove once they have been unneeded for long enough: {size}",
            candidates=down.get("candidates", 0),
            size=size,
        )
    else:
        line = message("is as large as needed: {size}", size=size)
        line += message(", and cannot shrink further") if target is not None and target == least else ""
    return line, remedy


def _bill(more: Json) -> list[str]:
    """What the group's nodes cost, as far as their prices are known."""
    if not more.get("nodes"):
        return []
    unpriced = more.get("unpriced", 0)
    rest = message(", without {unpriced} node(s) of unknown price", unpriced=unpriced) if unpriced else ""
    return [
        message(
            "costs {dollars} for {nodes} node(s){rest}",
            dollars=dollars(float(more.get("perHour", 0.0))),
            nodes=more["nodes"],
            rest=rest,
        )
    ]


def _staying(explanations: Json, members: Sequence[str]) -> list[str]:
    """Why its nodes stay."""
    nodes: Json = explanations.get("nodes") or {}
    return shortened(
        [message("node {name}: {text}", name=name, text=_verdict(nodes[name])) for name in members if name in nodes], 20
    )


def _verdict(verdict: Json) -> str:
    text = "; ".join(str(part) for part in (verdict.get("message"), verdict.get("remedy")) if part)
    return f"{text} ({verdict.get('code', '')})"


def group_node(explanations: Json, name: str) -> Answer | None:
    """A node of a group, as Cluster Autoscaler sees it; None if it says nothing of the node."""
    verdict: Json | None = (explanations.get("nodes") or {}).get(name)
    if verdict is None:
        return None
    code, remedy = str(verdict.get("code", "")), str(verdict.get("remedy", ""))
    will = message("will be removed") if code == "Unneeded" else "stays"
    pod = str(verdict.get("pod", ""))
    return Answer(
        subject=f"node/{name}",
        line=f"{will}: cluster-autoscaler: {_verdict(verdict)}",
        code=code,
        object=f"pod/{pod}" if pod else f"node/{name}",
        remedy=remedy,
        details=(message("as of {time}", time=explanations.get("time", "")),),
        facts=dict(verdict),
    )


def scale_up(events: Sequence[Event]) -> GroupScaleUp | None:
    """What Cluster Autoscaler last reported of the pod that the events are about."""
    mine = [event for event in events if event.reason in (TRIGGERED, NOT_TRIGGERED)]
    if not mine:
        return None
    last = mine[-1]
    try:
        time = datetime.fromisoformat(last.time)
    except ValueError:
        return None
    return GroupScaleUp(last.reason, last.message, time)


def waits_for_group(key: str, scale_up: GroupScaleUp, events: Sequence[Event]) -> Answer:
    """A pod that a node group grows for."""
    groups = ", ".join(scale_up.groups) or message("a group")
    return Answer(
        subject=f"pod/{key}",
        line=message(
            "waits for node group {groups}, which Cluster Autoscaler grows: {message}",
            groups=groups,
            message=scale_up.message,
        ),
        deep=tuple(event_lines(events)),
        facts={"nodeGroups": list(scale_up.groups), "since": scale_up.time.isoformat()},
    )


def refused_by_groups(key: str, scale_up: GroupScaleUp, events: Sequence[Event]) -> Answer:
    """A pod that no node group can grow for."""
    reasons = scale_up.message.partition("scale-up: ")[2].split(", ") if "scale-up: " in scale_up.message else []
    remedies = [remedy for text, remedy in _REMEDIES.items() if text in scale_up.message]
    if not remedies and reasons:
        remedies = [message("change the pod's requests, selectors or tolerations, or offer a group that meets them")]
    return Answer(
        subject=f"pod/{key}",
        line=message("pending: cluster-autoscaler: {message}", message=scale_up.message)
        + (f"; {remedies[0]}" if remedies else ""),
        remedy=remedies[0] if remedies else "",
        object=f"pod/{key}",
        details=tuple(message("remedy: {remedy}", remedy=remedy) for remedy in remedies),
        deep=tuple(event_lines(events)),
        facts={"reasons": reasons},
    )


_REMEDIES = {
    "max node group size reached": source("raise the maximum size of a group that fits"),
    "in backoff after failed scale-up": source("see the scaling activities of the group; it is tried again by itself"),
    "not ready for scale-up": source("see the nodes of the group that are not ready, and its launch template"),
    "max total nodes in cluster reached": source("raise --max-nodes-total"),
    "exceeded quota": source("raise --cores-total, --memory-total or --gpu-total"),
}


_EVENTS = frozenset(
    {"NotTriggerScaleUp", "TriggeredScaleUp", "ScaledUpGroup", "FailedToScaleUpGroup", "ScaleDown", "ScaleDownFailed"}
)
