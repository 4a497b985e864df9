"""Warnings about pod specs that are accepted but odd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.model import formats
from dovetail.model.validation.field_errors import quoted
from dovetail.model.validation.resources import amount

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
_SYSCTLS = 'non-functional in v1.11+; use the "sysctls" field instead'
_OLD_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": _SYSCTLS,
    "security.alpha.kubernetes.io/unsafe-sysctls": _SYSCTLS,
}
_FILES = (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName"), ("downwardAPI", "DownwardAPI", ""))


def label_text(key: str) -> str | None:
    """The warning for a node label that has a successor."""
    if key not in _OLD_LABELS:
        return None
    return f'deprecated since {_SINCE.get(key, "v1.17")}; use "{_OLD_LABELS[key]}" instead'


def warnings(spec: Spec, meta: Spec, path: str = "") -> list[str]:
    """`path` leads to the template, "" for a pod."""
    prefix = f"{path}." if path else ""
    selection = [
        *_selection(spec, prefix),
        *_annotations(meta, prefix),
        *_volumes(spec, prefix),
        *_paths(spec),
        *_names(spec, prefix),
    ]
    selection += _fractions(spec.get("overhead") or {}, f"{prefix}spec.overhead")
    selection += _seccomp(spec, meta, "seccomp.security.alpha.kubernetes.io/pod", prefix)
    for place, container in _containers(spec, prefix):
        key = f"container.seccomp.security.alpha.kubernetes.io/{container.get('name', '')}"
        selection += _seccomp(container, meta, key, prefix)
        selection += _container(place, container)
    return [
        *selection,
        *_ports(spec, prefix),
        *_port_names(spec, prefix),
        *_grace(spec, prefix),
        *_affinity(spec, prefix),
    ]


def name_warnings(name: str) -> list[str]:
    """The warning for a workload whose pods' names cannot be host names."""
    texts = formats.label(name)
    if not texts:
        return []
    return [
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
        f"a DNS label is recommended: [{' '.join(texts)}]"
    ]


def _annotations(meta: Spec, prefix: str) -> Iterator[str]:
    for key, text in _OLD_ANNOTATIONS.items():
        if key in (meta.get("annotations") or {}):
            yield f"{prefix}metadata.annotations[{key}]: {text}"


def _seccomp(holder: Spec, meta: Spec, key: str, prefix: str) -> Iterator[str]:
    if key in (meta.get("annotations") or {}) and "seccompProfile" not in (holder.get("securityContext") or {}):
        yield f'{prefix}metadata.annotations[{key}]: non-functional in v1.27+; use the "seccompProfile" field instead'


def _fractions(amounts: Spec, path: str) -> Iterator[str]:
    for name in ("memory", "ephemeral-storage"):
        yield from _fraction(amounts.get(name), f"{path}[{name}]")


def _fraction(text: str | None, path: str) -> Iterator[str]:
    if text is not None and text.endswith("m") and amount(text).milli % 1000:
        yield f"{path}: fractional byte value {quoted(text)} is invalid, must be an integer"


def claim_warnings(spec: Spec, path: str) -> Iterator[str]:
    """`path` leads to the claim's spec."""
    for part in ("requests", "limits"):
        text = ((spec.get("resources") or {}).get(part) or {}).get("storage")
        yield from _fraction(text, f"{path}.resources.{part}[storage]")


def _grace(spec: Spec, prefix: str) -> Iterator[str]:
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{prefix}spec.terminationGracePeriodSeconds: {text}"


def _affinity(spec: Spec, prefix: str) -> Iterator[str]:
    text = "a null labelSelector results in matching no pod"
    hard, soft = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(kind) or {}
        path = f"{prefix}spec.affinity.{kind}"
        for index, term in enumerate(affinity.get(hard) or ()):
            if "labelSelector" not in term:
                yield f"{path}.{hard}[{index}].labelSelector: {text}"
        for index, weighted in enumerate(affinity.get(soft) or ()):
            if "labelSelector" not in (weighted.get("podAffinityTerm") or {}):
                yield f"{path}.{soft}[{index}].podAffinityTerm.labelSelector: {text}"


def _port_names(spec: Spec, prefix: str) -> Iterator[str]:
    seen: dict[str, str] = {}
    for place, container in _containers(spec, prefix):
        for index, port in enumerate(container.get("ports") or ()):
            name, where = port.get("name"), f"{place}.ports[{index}]"
            if name and name in seen:
                other = seen[name]
                yield (
                    f"{where}: duplicate port name {quoted(name)} with {other}, "
                    f"services and probes that select ports by name will use {other}"
                )
            elif name:
                seen[name] = where


def _paths(spec: Spec) -> Iterator[str]:
    """Files that a volume would put in one another's way."""
    for volume in spec.get("volumes") or ():
        name = quoted(volume.get("name", ""))
        for kind, shown, key in _FILES:
            source = volume.get(kind)
            if source is not None:
                owner = f"{shown} {quoted(source.get(key, ''))}" if key else shown
                files = [(item.get("path", ""), "") for item in source.get("items") or ()]
                yield from _overlaps(files, f"volume {name} ({owner})")
        if "projected" in volume:
            files = []
            for source in volume["projected"].get("sources") or ():
                if not source:
                    yield f"volume {name} (Projected) has no sources provided"
                files += _projected(source)
            yield from _overlaps(files, f"volume {name} (Projected)")


def _projected(source: Spec) -> list[tuple[str, str]]:
    for kind, shown, key in _FILES:
        part = source.get(kind)
        if part is not None and part.get("items"):
            key = key and "name"
            owner = f"{shown} {quoted(part.get(key, ''))}" if key else shown
            return [(item.get("path", ""), owner) for item in part["items"]]
    if "serviceAccountToken" in source:
        return [(source["serviceAccountToken"].get("path", ""), "ServiceAccountToken")]
    if "clusterTrustBundle" in source:
        bundle = source["clusterTrustBundle"]
        owner = bundle.get("name", bundle.get("signerName", ""))
        return [(bundle.get("path", ""), f"ClusterTrustBundle {quoted(owner)}")]
    return []


def _overlaps(files: list[tuple[str, str]], what: str) -> Iterator[str]:
    seen: list[tuple[str, str]] = []
    for given, owner in files:
        path = given.rstrip("/")
        for other, its_owner in seen:
            if path and other and (f"{other}/".startswith(f"{path}/") or f"{path}/".startswith(f"{other}/")):
                yield f"{what}: overlapping paths: {_file(path, owner)} with {_file(other, its_owner)}"
        seen.append((path, owner))


def _file(path: str, owner: str) -> str:
    return f"{quoted(path)} ({owner})" if owner else quoted(path)


def _containers(spec: Spec, prefix: str) -> Iterator[tuple[str, Spec]]:
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            yield f"{prefix}spec.{group}[{index}]", container


def _selection(spec: Spec, prefix: str) -> Iterator[str]:
    for key in sorted(spec.get("nodeSelector") or {}):
        text = label_text(key)
        if text:
            yield f"{prefix}spec.nodeSelector[{key}]: {text}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate((affinity.get(name) or {}).get("nodeSelectorTerms") or ()):
        yield from _term(term, f"{prefix}spec.affinity.nodeAffinity.{name}.nodeSelectorTerms[{index}]")
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    for index, weighted in enumerate(affinity.get(name) or ()):
        term = weighted.get("preference") or {}
        yield from _term(term, f"{prefix}spec.affinity.nodeAffinity.{name}[{index}].preference", values=True)
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        place = f"{prefix}spec.topologySpreadConstraints[{index}]"
        key = constraint.get("topologyKey", "")
        text = label_text(key)
        if text:
            yield f"{place}.topologyKey: {key} is {text}"
        if "labelSelector" not in constraint:
            yield f"{place}.labelSelector: a null labelSelector results in matching no pod"


def _term(term: Spec, path: str, values: bool = False) -> Iterator[str]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        text = label_text(expression.get("key", ""))
        if text:
            yield f"{path}.matchExpressions[{index}].key: {expression['key']} is {text}"
        for number, value in enumerate(expression.get("values") or () if values else ()):
            for text in formats.label_value(value):
                yield f"{path}.matchExpressions[{index}].values[{number}]: {value} is invalid, {text}"


def _volumes(spec: Spec, prefix: str) -> Iterator[str]:
    for index, volume in enumerate(spec.get("volumes") or ()):
        for kind, text in _OLD_VOLUMES.items():
            if kind in volume:
                shown = "storageOS" if kind == "storageos" else kind
                yield f"{prefix}spec.volumes[{index}].{shown}: {text}"
        claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if claim:
            yield from claim_warnings(
                claim.get("spec") or {}, f"{prefix}spec.volumes[{index}].ephemeral.volumeClaimTemplate.spec"
            )


def _names(spec: Spec, prefix: str) -> Iterator[str]:
    for field, key in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        seen: set[str] = set()
        for index, item in enumerate(spec.get(field) or ()):
            name = item.get(key, "")
            if name in seen:
                yield f"{prefix}spec.{field}[{index}].{key}: duplicate {key} {quoted(name)}"
            seen.add(name)
    for index, item in enumerate(spec.get("imagePullSecrets") or ()):
        if not item.get("name"):
            yield f'{prefix}spec.imagePullSecrets[{index}].name: invalid empty name ""'


def _container(place: str, container: Spec) -> Iterator[str]:
    resources = container.get("resources") or {}
    for name in ("memory", "ephemeral-storage"):
        for part in ("limits", "requests"):
            yield from _fraction((resources.get(part) or {}).get(name), f"{place}.resources.{part}[{name}]")
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


def _ports(spec: Spec, prefix: str) -> list[str]:
    ports: list[str] = []
    seen: dict[tuple[Any, Any], list[tuple[str, Spec]]] = {}
    for place, container in _containers(spec, prefix):
        for index, port in enumerate(container.get("ports") or ()):
            where = f"{place}.ports[{index}]"
            if port.get("hostIP") and not port.get("hostPort"):
                ports.append(f"{where}: hostIP set without hostPort: {_go_port(port)}")
            key = (port.get("containerPort"), port.get("protocol"))
            for other_place, other in seen.get(key, ()):
                text = _overlap(port, other)
                if text:
                    ports.append(f"{where}: {text} with {other_place}")
            seen.setdefault(key, []).append((where, port))
    return ports


def _go_port(port: Spec) -> str:
    number = port.get("containerPort", 0)
    return (
        f"{{Name:{port.get('name', '')} HostPort:{port.get('hostPort', 0)} ContainerPort:{number} "
        f"Protocol:{port.get('protocol', '')} HostIP:{port['hostIP']}}}"
    )


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
