"""Warnings about pod specs that are accepted but odd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.lab.apiserver.fielderror import quoted
from dovetail.lab.apiserver.kinds.pod.resources import amount

Spec = Mapping[str, Any]
_OLD_LABELS = {
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
_SINCE = {"beta.kubernetes.io/arch": "v1.14", "beta.kubernetes.io/os": "v1.14"}
_OLD_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}


def label_text(key: str) -> str | None:
    """What is said of a node label that has a successor."""
    if key not in _OLD_LABELS:
        return None
    return f'deprecated since {_SINCE.get(key, "v1.17")}; use "{_OLD_LABELS[key]}" instead'


def warnings(spec: Spec, meta: Spec, path: str = "") -> list[str]:
    """`path` leads to the template, "" for a pod."""
    at = f"{path}." if path else ""
    found = [*_selection(spec, at), *_volumes(spec, at), *_names(spec, at)]
    for place, container in _containers(spec, at):
        found += _container(place, container)
    return found + _ports(spec, at)


def _containers(spec: Spec, at: str) -> Iterator[tuple[str, Spec]]:
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            yield f"{at}spec.{group}[{index}]", container


def _selection(spec: Spec, at: str) -> Iterator[str]:
    for key in sorted(spec.get("nodeSelector") or {}):
        text = label_text(key)
        if text:
            yield f"{at}spec.nodeSelector[{key}]: {text}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate((affinity.get(name) or {}).get("nodeSelectorTerms") or ()):
        yield from _term(term, f"{at}spec.affinity.nodeAffinity.{name}.nodeSelectorTerms[{index}]")
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    for index, weighted in enumerate(affinity.get(name) or ()):
        term = weighted.get("preference") or {}
        yield from _term(term, f"{at}spec.affinity.nodeAffinity.{name}[{index}].preference")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        place = f"{at}spec.topologySpreadConstraints[{index}]"
        key = constraint.get("topologyKey", "")
        text = label_text(key)
        if text:
            yield f"{place}.topologyKey: {key} is {text}"
        if "labelSelector" not in constraint:
            yield f"{place}.labelSelector: a null labelSelector results in matching no pod"


def _term(term: Spec, path: str) -> Iterator[str]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        text = label_text(expression.get("key", ""))
        if text:
            yield f"{path}.matchExpressions[{index}].key: {expression['key']} is {text}"


def _volumes(spec: Spec, at: str) -> Iterator[str]:
    for index, volume in enumerate(spec.get("volumes") or ()):
        for kind, text in _OLD_VOLUMES.items():
            if kind in volume:
                shown = "storageOS" if kind == "storageos" else kind
                yield f"{at}spec.volumes[{index}].{shown}: {text}"


def _names(spec: Spec, at: str) -> Iterator[str]:
    for field, key in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        seen: set[str] = set()
        for index, item in enumerate(spec.get(field) or ()):
            name = item.get(key, "")
            if name in seen:
                yield f"{at}spec.{field}[{index}].{key}: duplicate {key} {quoted(name)}"
            seen.add(name)
    for index, item in enumerate(spec.get("imagePullSecrets") or ()):
        if not item.get("name"):
            yield f'{at}spec.imagePullSecrets[{index}].name: invalid empty name ""'


def _container(place: str, container: Spec) -> Iterator[str]:
    resources = container.get("resources") or {}
    for name in ("memory", "ephemeral-storage"):
        for part in ("limits", "requests"):
            text = (resources.get(part) or {}).get(name)
            if text is not None and text.endswith("m") and amount(text).milli % 1000:
                shown = f"fractional byte value {quoted(text)} is invalid, must be an integer"
                yield f"{place}.resources.{part}[{name}]: {shown}"
    seen: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name, value = variable.get("name", ""), variable.get("value", "")
        reference = f"$({name})"
        if name in seen:
            if "valueFrom" in variable or value == reference or reference not in value:
                text = f"hides previous definition of {quoted(name)}, which may be dropped when using apply"
                yield f"{place}.env[{index}]: {text}"
        else:
            seen.add(name)


def _ports(spec: Spec, at: str) -> list[str]:
    found: list[str] = []
    seen: dict[tuple[Any, Any], list[tuple[str, Spec]]] = {}
    for place, container in _containers(spec, at):
        for index, port in enumerate(container.get("ports") or ()):
            where = f"{place}.ports[{index}]"
            key = (port.get("containerPort"), port.get("protocol"))
            for other_place, other in seen.get(key, ()):
                text = _overlap(port, other)
                if text:
                    found.append(f"{where}: {text} with {other_place}")
            seen.setdefault(key, []).append((where, port))
    return found


def _overlap(port: Spec, other: Spec) -> str | None:
    ip, host = port.get("hostIP", ""), port.get("hostPort", 0)
    other_ip, other_host = other.get("hostIP", ""), other.get("hostPort", 0)
    if (ip, host) == (other_ip, other_host):
        return "duplicate port definition"
    if not host or not other_host:
        return "overlapping port definition"
    if host == other_host and bool(ip) != bool(other_ip):
        return "dangerously ambiguous port definition"
    return None
