"""Names, labels and addresses hashed with a salt; what scheduling and prices depend on stays as it is.

A name is hashed part by part between `-` and `.`, so that a pod still begins with the name of its ReplicaSet and equal
names stay equal. Every text is hashed unless it is an amount, a time, or the value of a field or label that is known
to be harmless: what is unknown is hidden.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from typing import Any
from uuid import UUID

Json = dict[str, Any]

#: Bits of a hash: 50, so that the parts of a large cluster's names do not collide.
_CHARACTERS = 10
#: The longest name or label value that Kubernetes takes everywhere.
_MAX_NAME = 63

#: Fields whose values are words of the API, the same in every cluster.
_PLAIN_FIELDS = frozenset(
    [
        "apiVersion",
        "kind",
        "phase",
        "status",
        "type",
        "reason",
        "operator",
        "effect",
        "protocol",
        "restartPolicy",
        "qosClass",
        "whenUnsatisfiable",
        "preemptionPolicy",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "medium",
        "architecture",
        "operatingSystem",
        "osImage",
        "kubeletVersion",
        "policy",
        "completionMode",
        "concurrencyPolicy",
        "schedule",
        "timeZone",
        "podManagementPolicy",
        "updateMode",
        "controlledValues",
        "mode",
        "volumeBindingMode",
        "reclaimPolicy",
        "volumeMode",
        "provisioner",
        "driver",
        "accessModes",
        "consolidationPolicy",
        "consolidateAfter",
        "expireAfter",
        "terminationGracePeriod",
        "nodes",
        "budgets",
        "reasons",
        "duration",
        "group",
        "resizePolicy",
        "resourceName",
        "unhealthyPodEvictionPolicy",
        "averageUtilization",
        "containerPolicies",
        "resize",
        "amiFamily",
        "alias",
        "component",
        "reportingComponent",
        "currency",
    ]
)
#: Fields that say something to people: they name objects, so they are left out.
_DROPPED_FIELDS = frozenset({"message", "note", "description"})
#: Fields whose keys are names as well.
_MAPS = frozenset({"labels", "annotations", "nodeSelector", "matchLabels", "selector", "tags", "parameters"})
#: Fields whose keys are resources: cpu, nvidia.com/gpu.
_AMOUNTS = frozenset(
    {"capacity", "allocatable", "requests", "limits", "overhead", "allocatedResources", "hard", "used"}
)
_PLAIN_NAMES = frozenset(
    [
        "default",
        "kube-system",
        "kube-public",
        "kube-node-lease",
        "karpenter",
        "system-node-critical",
        "system-cluster-critical",
        "default-scheduler",
    ]
)
#: Labels whose keys and values say what a node is.
_PLAIN_LABELS = frozenset(
    [
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "node.kubernetes.io/windows-build",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "topology.k8s.aws/zone-id",
        "topology.ebs.csi.aws.com/zone",
        "karpenter.sh/capacity-type",
        "karpenter.sh/initialized",
        "karpenter.sh/registered",
        "eks.amazonaws.com/capacityType",
        "eks.amazonaws.com/compute-type",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "dovetail.sh/price",
        "karpenter.sh/do-not-disrupt",
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "controller.kubernetes.io/pod-deletion-cost",
    ]
)
#: Domains whose label keys are the same in every cluster; values of `karpenter.k8s.aws/instance-*` as well.
_PLAIN_DOMAINS = (
    "kubernetes.io",
    "k8s.io",
    "karpenter.sh",
    "karpenter.k8s.aws",
    "k8s.aws",
    "eks.amazonaws.com",
    "dovetail.sh",
)
_HARMLESS = re.compile(
    r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|%|s|h)?"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)"
    r"|([0-9]+(\.[0-9]+)?(h|m|s|ms))+|true|false|True|False|Never|\*|"
)
_PROVIDER_ID = re.compile(r"([a-z]+:///[a-z0-9-]+/)(i-[0-9a-f]+)")
_SEPARATORS = re.compile(r"([-.:/@_]+)")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Keys of labels without a domain that Kubernetes itself sets.
_PLAIN_KEYS = frozenset({"pod-template-hash", "controller-revision-hash", "job-name", "pod-template-generation"})


class Anonymiser:
    """Hashes with one salt: the same name is the same hash everywhere in a recording, and in no other."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self.name = lru_cache(maxsize=1 << 18)(self._name)
        self._part = lru_cache(maxsize=1 << 18)(self._hash)

    def object(self, source: Json) -> Json:
        """The object with its names hashed."""
        anonymised: Json = self._mapping(source)
        return anonymised

    def _name(self, text: str) -> str:
        """A name, part by part; the number of a StatefulSet's pod stays."""
        if text in _PLAIN_NAMES or text.startswith("system:"):
            return text
        if "," in text:
            return ",".join(map(self.name, text.split(",")))
        if _UID.fullmatch(text):
            return str(UUID(bytes=hashlib.blake2b(text.encode(), key=self._salt, digest_size=16).digest()))
        provider = _PROVIDER_ID.fullmatch(text)
        if provider:
            return f"{provider[1]}i-{hashlib.blake2b(provider[2].encode(), key=self._salt, digest_size=8).hexdigest()}"
        parts = _SEPARATORS.split(text)
        last = len(parts) - 1
        hashed = "".join(
            part
            if index % 2 or not part or (index == last > 0 and part.isdecimal() and len(part) <= 4)
            else self._part(part)
            for index, part in enumerate(parts)
        )
        return hashed if len(hashed) <= _MAX_NAME else self._part(text)

    def _hash(self, text: str) -> str:
        if text in _PLAIN_NAMES:
            return text
        digest = hashlib.blake2b(text.encode(), key=self._salt, digest_size=8).digest()
        return "n" + base64.b32encode(digest).decode().lower()[: _CHARACTERS - 1]

    def _value(self, value: Any, field: str) -> Any:
        if isinstance(value, str):
            return value if field in _PLAIN_FIELDS or _HARMLESS.fullmatch(value) else self._text(value)
        if isinstance(value, dict):
            if field in _AMOUNTS:
                return value
            return self._labels(value) if field in _MAPS and _is_map(value) else self._mapping(value)
        if isinstance(value, list):
            return [self._value(item, field) for item in value]
        return value

    def _text(self, value: str) -> str:
        """A key of a label in its usual form stays; anything else is a name."""
        return value if _is_plain_key(value) else self.name(value)

    def _mapping(self, source: Json) -> Json:
        mapping = {field: self._value(value, field) for field, value in source.items() if field not in _DROPPED_FIELDS}
        label = source.get("key") or source.get("topologyKey")
        if isinstance(label, str) and _is_plain_value(label) and "values" in source:
            mapping["values"] = source["values"]  # a requirement on a zone or an instance type
        return mapping

    def _labels(self, source: Json) -> Json:
        return {
            (key if _is_plain_key(key) else self.name(key)): (
                value if _is_plain_value(key) or not isinstance(value, str) else self._label_value(value)
            )
            for key, value in source.items()
        }

    def _label_value(self, value: str) -> str:
        return value if _HARMLESS.fullmatch(value) else self.name(value)


def _is_map(value: Json) -> bool:
    """Whether a `selector` is a map of labels, and no LabelSelector."""
    return all(isinstance(item, str) for item in value.values())


def _is_plain_key(key: str) -> bool:
    domain, _, name = key.rpartition("/")
    if key in _PLAIN_KEYS or key in _PLAIN_LABELS:
        return True
    return bool(name) and any(domain == plain or domain.endswith(f".{plain}") for plain in _PLAIN_DOMAINS)


def _is_plain_value(key: str) -> bool:
    return key in _PLAIN_LABELS or key.startswith("karpenter.k8s.aws/instance-")
