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

from dovetail.offline.recording.public_words import (
    AMOUNTS,
    DROPPED_FIELDS,
    HARMLESS,
    KUBELET,
    LONG_NUMBER,
    MAPS,
    OWNER_FIELDS,
    PLAIN_DOMAINS,
    PLAIN_DRIVERS,
    PLAIN_FIELDS,
    PLAIN_GROUPS,
    PLAIN_KEYS,
    PLAIN_LABELS,
    PLAIN_NAMES,
    PLAIN_RESOURCES,
    PLAIN_ROLES,
    PLAIN_SYSTEM,
    PLAIN_TYPES,
    ROLE_DOMAINS,
    VERSION,
)

Json = dict[str, Any]

#: Bits of a hash: 50, so that the parts of a large cluster's names do not collide.
_CHARACTERS = 10
#: The longest name or label value that Kubernetes takes everywhere.
_MAX_NAME = 63

_PROVIDER_ID = re.compile(r"([a-z]+:///[a-z0-9-]+/)(i-[0-9a-f]+)")
#: What AWS calls its own objects: the prefix says what it is, and definitions check it.
_AWS_ID = re.compile(r"(i|ami|subnet|sg|vpc|lt|cr|vol|snap|eni|eni-attach|rtb)-[0-9a-f]{8,17}")
_SEPARATORS = re.compile(r"([-.:/@_]+)")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


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
        if text in PLAIN_NAMES:
            return text
        if "," in text:
            return ",".join(map(self.name, text.split(",")))
        if _UID.fullmatch(text):
            return str(UUID(bytes=hashlib.blake2b(text.encode(), key=self._salt, digest_size=16).digest()))
        provider = _PROVIDER_ID.fullmatch(text)
        if provider:
            return f"{provider[1]}i-{hashlib.blake2b(provider[2].encode(), key=self._salt, digest_size=8).hexdigest()}"
        if aws := _AWS_ID.fullmatch(text):
            return f"{aws[1]}-0{hashlib.blake2b(text.encode(), key=self._salt, digest_size=8).hexdigest()}"
        parts = _SEPARATORS.split(text)
        last = len(parts) - 1
        hashed = "".join(
            part
            if index % 2 or not part or (index == last > 0 and part.isdecimal() and len(part) <= 4)
            else self._part(part)
            for index, part in enumerate(parts)
        )
        if len(hashed) <= _MAX_NAME:
            return hashed
        domain, slash, name = text.rpartition("/")
        return f"{self._part(domain)}{slash}{self._part(name)}" if slash and domain else self._part(text)

    def _hash(self, text: str) -> str:
        if text in PLAIN_NAMES:
            return text
        digest = hashlib.blake2b(text.encode(), key=self._salt, digest_size=8).digest()
        return "n" + base64.b32encode(digest).decode().lower()[: _CHARACTERS - 1]

    def _value(self, value: Any, field: str) -> Any:
        if isinstance(value, str):
            return self._word(value, field)
        if isinstance(value, dict):
            if field in AMOUNTS:
                return {
                    (key if PLAIN_RESOURCES.fullmatch(key) else self.name(key)): amount for key, amount in value.items()
                }
            return self._labels(value) if field in MAPS and _is_map(value) else self._mapping(value)
        if isinstance(value, list):
            return [self._value(item, field) for item in value]
        return value

    def _word(self, value: str, field: str) -> str:
        """The value of a field."""
        if field in OWNER_FIELDS:
            return value if value in ("self", "amazon", "aws-marketplace") else self.name(value)
        if field in ("type", "conditionType"):
            return value if value in PLAIN_TYPES else self.name(value)
        if field == "osImage":
            return value if PLAIN_SYSTEM.fullmatch(value) else self.name(value)
        if field == "kubeletVersion":
            version = KUBELET.match(value)
            return value if KUBELET.fullmatch(value) else version[1] if version else self.name(value)
        return value if field in PLAIN_FIELDS or HARMLESS.fullmatch(value) else self._text(value)

    def _text(self, value: str) -> str:
        """A key of a label in its usual form and the driver of a volume stay; anything else is a name."""
        return value if PLAIN_DRIVERS.fullmatch(value) else self._key(value)

    def _key(self, key: str) -> str:
        """The key of a label, taint or annotation."""
        if _is_plain_key(key):
            return key
        domain, _, name = key.rpartition("/")
        return f"{domain}/{self.name(name)}" if domain in ROLE_DOMAINS else self.name(key)

    def _mapping(self, source: Json) -> Json:
        mapping = {field: self._value(value, field) for field, value in source.items() if field not in DROPPED_FIELDS}
        label = source.get("key") or source.get("topologyKey")
        if isinstance(label, str) and _is_plain_value(label) and "values" in source:
            mapping["values"] = source["values"]  # a requirement on a zone or an instance type
        if "containerPort" in source and isinstance(source.get("name"), str):
            mapping["name"] = self._part(source["name"])  # the name of a port has 15 characters at most
        if mapping.get("type") != source.get("type") and "reason" in mapping:
            mapping["reason"] = self.name(str(source["reason"]))  # of a condition that is hidden
        return mapping | self._kind(source)

    def _kind(self, source: Json) -> Json:
        """What an object refers to by kind: that of a group that not every cluster has is hidden as well."""
        kind = source.get("kind")
        if not isinstance(kind, str):
            return {}
        version = source.get("apiVersion")
        field = next((name for name in ("group", "apiGroup") if isinstance(source.get(name), str)), "")
        group = version.rpartition("/")[0] if isinstance(version, str) else str(source.get(field) or "")
        if group in PLAIN_GROUPS or group.endswith(".k8s.io"):
            return {name: source[name] for name in ("kind", "apiVersion", field) if name in source}
        hidden: Json = {"kind": self.name(kind)}
        if field:
            hidden[field] = self.name(group)
        if isinstance(version, str):
            number = version.rpartition("/")[2]
            hidden["apiVersion"] = f"{self.name(group)}/{number if VERSION.fullmatch(number) else self.name(number)}"
        return hidden

    def _labels(self, source: Json) -> Json:
        return {
            self._key(key): (value if _is_plain_value(key) or not isinstance(value, str) else self._label_value(value))
            for key, value in source.items()
        }

    def _label_value(self, value: str) -> str:
        return value if HARMLESS.fullmatch(value) and not LONG_NUMBER.fullmatch(value) else self.name(value)


def _is_map(value: Json) -> bool:
    """Whether a `selector` is a map of labels, and no LabelSelector."""
    return all(isinstance(item, str) for item in value.values())


def _is_plain_key(key: str) -> bool:
    domain, _, name = key.rpartition("/")
    if key in PLAIN_KEYS or key in PLAIN_LABELS:
        return True
    return bool(name) and (domain in PLAIN_DOMAINS or (domain in ROLE_DOMAINS and name in PLAIN_ROLES))


def _is_plain_value(key: str) -> bool:
    return key in PLAIN_LABELS or key.startswith("karpenter.k8s.aws/instance-")
