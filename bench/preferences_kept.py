"""What a placement keeps beside its price: preferences of pods, and zones. One obvious counter for all plans.

It reads plain objects and shares nothing with any planner, so that two answers are counted by the same measure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any

Object = dict[str, Any]

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
_HARD = "requiredDuringSchedulingIgnoredDuringExecution"


class Scene:
    """Nodes by name with labels and taints, and the pods on each, both those that ran before and those placed."""

    def __init__(self, nodes: Mapping[str, tuple[Mapping[str, str], list[Object]]], pods: Mapping[str, list[Object]]):
        self.labels = {name: {HOSTNAME: name, **labels} for name, (labels, _) in nodes.items()}
        self.taints = {name: taints for name, (_, taints) in nodes.items()}
        self.pods = pods

    def domain(self, node: str, key: str) -> str | None:
        return self.labels[node].get(key)

    def count(self, key: str, test: Any, nodes: Container[str] | None = None) -> Counter[str]:
        """Pods that pass a test, by domain; on some nodes, or on all."""
        found: Counter[str] = Counter()
        for node, held in self.pods.items():
            domain = self.domain(node, key)
            if domain is not None and (nodes is None or node in nodes):
                found[domain] += sum(1 for pod in held if test(pod))
        return found


def kept(scene: Scene, waiting: Container[str], zones: Iterable[str]) -> dict[str, int]:
    """How many preferences of each of the waiting pods hold where it is now."""
    among = list(zones)
    return {
        name: _of_pod(scene, pod, node, among)
        for node, held in scene.pods.items()
        for pod in held
        if (name := f"{pod['metadata']['namespace']}/{pod['metadata']['name']}") in waiting
    }


def _of_pod(scene: Scene, pod: Object, node: str, zones: list[str]) -> int:
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    found = sum(
        _node_matches(preference["preference"], scene.labels[node])
        for preference in (affinity.get("nodeAffinity") or {}).get(_SOFT, ())
    )
    for preference in (affinity.get("podAffinity") or {}).get(_SOFT, ()):
        found += _neighbours(scene, pod, node, preference["podAffinityTerm"]) > 0
    for preference in (affinity.get("podAntiAffinity") or {}).get(_SOFT, ()):
        found += _neighbours(scene, pod, node, preference["podAffinityTerm"]) == 0
    for rule in spec.get("topologySpreadConstraints", ()):
        if rule["whenUnsatisfiable"] == "ScheduleAnyway":
            found += _level(scene, pod, node, rule, zones)
    disliked = [each for each in scene.taints[node] if each["effect"] == "PreferNoSchedule"]
    return found + all(any(_tolerates(each, taint) for each in spec.get("tolerations", ())) for taint in disliked)


def _neighbours(scene: Scene, pod: Object, node: str, term: Object) -> int:
    domain = scene.domain(node, term["topologyKey"])
    places = _namespaces(term, pod)
    near = scene.count(term["topologyKey"], lambda other: other is not pod and _selected(term, pod, other, places))
    return near[domain] if domain is not None else 0


def _level(scene: Scene, pod: Object, node: str, rule: Object, zones: list[str]) -> bool:
    key, domain = rule["topologyKey"], scene.domain(node, rule["topologyKey"])
    seen = _looked_at(scene, pod, rule)
    counts = scene.count(key, lambda other: _selected(rule, pod, other, {pod["metadata"]["namespace"]}), seen)
    if key == HOSTNAME:
        least = 0
    else:
        among = [zone for zone in zones if _may_be_in(pod, rule, zone)] if key == ZONE else []
        least = min((counts[each] for each in {*counts, *among}), default=0)
    return domain is not None and counts[domain] - least <= rule["maxSkew"]


def _looked_at(scene: Scene, pod: Object, rule: Object) -> set[str]:
    """The nodes on which a spread counts pods: those that the pod's node affinity allows, unless it says otherwise."""
    if rule.get("nodeAffinityPolicy") == "Ignore":
        return set(scene.labels)
    terms = _required(pod)
    return {name for name, labels in scene.labels.items() if any(_node_matches(each, labels) for each in terms)}


def _may_be_in(pod: Object, rule: Object, zone: str) -> bool:
    if rule.get("nodeAffinityPolicy") == "Ignore":
        return True
    needs = [[need for need in term["matchExpressions"] if need["key"] == ZONE] for term in _required(pod)]
    return any(all(holds(need, zone) for need in each) for each in needs)


def _required(pod: Object) -> list[Object]:
    """What a pod asks of nodes: the terms of its affinity, each with its node selector."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(_HARD) or {}).get("nodeSelectorTerms") or [{}]
    chosen = [
        {"key": key, "operator": "In", "values": [value]} for key, value in pod["spec"].get("nodeSelector", {}).items()
    ]
    return [{"matchExpressions": [*term.get("matchExpressions", ()), *chosen]} for term in terms]


def _namespaces(term: Object, pod: Object) -> set[str] | None:
    """Where a term looks; None: everywhere. Selectors choose by name or take all."""
    named, chosen = set(term.get("namespaces", ())), term.get("namespaceSelector")
    if chosen is None:
        return named or {pod["metadata"]["namespace"]}
    return named | set(chosen["matchLabels"].values()) if chosen else None


def _selected(rule: Object, pod: Object, other: Object, namespaces: set[str] | None) -> bool:
    if namespaces is not None and other["metadata"]["namespace"] not in namespaces:
        return False
    selector, labels = rule.get("labelSelector") or {}, other["metadata"].get("labels", {})
    wanted = dict(selector.get("matchLabels", {}))
    wanted |= {key: pod["metadata"]["labels"][key] for key in rule.get("matchLabelKeys", ())}
    chosen = all(holds(each, labels.get(each["key"])) for each in selector.get("matchExpressions", ()))
    return chosen and bool(wanted.items() <= labels.items())


def _node_matches(term: Object, labels: Mapping[str, str]) -> bool:
    return all(holds(each, labels.get(each["key"])) for each in term.get("matchExpressions", ()))


def holds(need: Object, value: str | None) -> bool:
    """Whether a label with this value, or without one, is what a requirement asks for."""
    values = need.get("values", ())
    match need["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
        case "Gte":
            return value is not None and int(value) >= int(values[0])
        case "Lte":
            return value is not None and int(value) <= int(values[0])
    raise ValueError(need["operator"])


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
