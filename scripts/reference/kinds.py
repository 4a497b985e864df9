"""Every kind and field in every API version, and what replaced it, from the definitions that `dovetail crds` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from dovetail.model.kinds.crds import definitions
from scripts.reference.words import Words, code, page, table

Json = dict[str, Any]
#: The kind and version that an older one became.
SUCCESSORS = {
    ("NodePool", "v1beta1"): ("NodePool", "v1"),
    ("NodeClaim", "v1beta1"): ("NodeClaim", "v1"),
    ("EC2NodeClass", "v1beta1"): ("EC2NodeClass", "v1"),
    ("Provisioner", "v1alpha5"): ("NodePool", "v1"),
    ("Machine", "v1alpha5"): ("NodeClaim", "v1"),
    ("AWSNodeTemplate", "v1alpha1"): ("EC2NodeClass", "v1"),
}
_KUBELET = "EC2NodeClass spec.kubelet"
#: Where a field of an older version is now; fields below it go with it. What is not listed is at the same place.
REPLACED: dict[tuple[str, str], dict[str, str]] = {
    ("NodePool", "v1beta1"): {
        "spec.disruption.expireAfter": "spec.template.spec.expireAfter",
        "spec.template.spec.kubelet": _KUBELET,
        "spec.template.spec.nodeClassRef.apiVersion": "spec.template.spec.nodeClassRef.group",
        "spec.template.spec.resources": "",
    },
    ("NodeClaim", "v1beta1"): {
        "spec.kubelet": _KUBELET,
        "spec.nodeClassRef.apiVersion": "spec.nodeClassRef.group",
    },
    ("EC2NodeClass", "v1beta1"): {},
    ("Provisioner", "v1alpha5"): {
        "spec.labels": "spec.template.metadata.labels",
        "spec.annotations": "spec.template.metadata.annotations",
        "spec.taints": "spec.template.spec.taints",
        "spec.startupTaints": "spec.template.spec.startupTaints",
        "spec.requirements": "spec.template.spec.requirements",
        "spec.consolidation": "spec.disruption.consolidationPolicy",
        "spec.ttlSecondsAfterEmpty": "spec.disruption.consolidateAfter",
        "spec.ttlSecondsUntilExpired": "spec.template.spec.expireAfter",
        "spec.limits.resources": "spec.limits",
        "spec.kubeletConfiguration": _KUBELET,
        "spec.providerRef": "spec.template.spec.nodeClassRef",
        "spec.provider": "EC2NodeClass",
        "status.lastScaleTime": "",
        "status.conditions[].severity": "",
    },
    ("Machine", "v1alpha5"): {
        "spec.machineTemplateRef": "spec.nodeClassRef",
        "status.conditions[].severity": "",
        "spec.kubelet": _KUBELET,
    },
    ("AWSNodeTemplate", "v1alpha1"): {
        "spec.subnetSelector": "spec.subnetSelectorTerms",
        "spec.securityGroupSelector": "spec.securityGroupSelectorTerms",
        "spec.amiSelector": "spec.amiSelectorTerms",
        "spec.launchTemplate": "",
        "spec.apiVersion": "",
        "spec.kind": "",
    },
}


class Field(NamedTuple):
    path: str
    type: str
    required: bool
    default: str
    description: str


def fields(schema: Json, path: str = "", required: tuple[str, ...] = ()) -> Iterator[Field]:
    """The fields of a schema with their paths; those of an item stand under `[]`, those of a map's value under `{}`."""
    for name, part in (schema.get("properties") or {}).items():
        place = f"{path}.{name}" if path else name
        yield Field(place, _type(part), name in required, _default(part), part.get("description", ""))
        yield from fields(part, place, tuple(part.get("required", ())))
        for suffix, key in (("[]", "items"), ("{}", "additionalProperties")):
            if isinstance(inner := part.get(key), dict):
                yield from fields(inner, f"{place}{suffix}", tuple(inner.get("required", ())))


def _type(part: Json) -> str:
    if part.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind = part.get("type", "object")
    if kind == "array":
        return f"[]{_type(part.get('items', {}))}"
    if isinstance(inner := part.get("additionalProperties"), dict):
        return f"map[string]{_type(inner)}"
    return " | ".join(f'"{value}"' for value in part["enum"]) if "enum" in part else str(kind)


def _default(part: Json) -> str:
    if "default" not in part:
        return ""
    value = part["default"]
    return value if isinstance(value, str) else json.dumps(value)


def schemas() -> dict[tuple[str, str], Json]:
    """The schema of every kind and version."""
    return {
        (definition["spec"]["names"]["kind"], version["name"]): version["schema"]["openAPIV3Schema"]
        for definition in definitions()
        for version in definition["spec"]["versions"]
    }


def listed(schema: Json) -> list[Field]:
    """The fields of a kind, without those that every object has."""
    return [field for field in fields(schema) if field.path not in ("apiVersion", "kind", "metadata", "spec", "status")]


def replacement(kind: str, version: str, path: str, present: set[str]) -> str | None:
    """Where a field is in the successor: the same path, another one, "" if it is gone; None if that is not known."""
    moved = REPLACED[kind, version]
    for prefix in sorted(moved, key=len, reverse=True):
        if path == prefix or path.startswith((f"{prefix}.", f"{prefix}[", f"{prefix}{{")):
            return moved[prefix]
    return path if path in present else None


def kinds(say: Words) -> str:
    everything = schemas()
    parts = [
        say.either("# Kinds and fields", "# 종류와 필드"),
        say.either(
            "Every kind, version and field, from the definitions that `dovetail crds` prints. `kubectl explain` shows the "
            "same texts. `[]` stands for an item of a list, `{}` for a value of a map. [API](../api.md) says which version "
            "to use and what conversion does.",
            "`dovetail crds`가 출력하는 정의에서 생성한 모든 종류, 버전, 필드입니다. `kubectl explain`은 같은 내용을 영어로 보여 줍니다. "
            "`[]`는 목록의 항목, `{}`는 맵의 값을 뜻합니다. 어느 버전을 쓸지와 변환이 하는 일은 [API](../api.md)에 있습니다.",
        ),
    ]
    for (kind, version), schema in everything.items():
        parts += _section(say, kind, version, schema, everything)
    return page(*parts)


def _section(
    say: Words, kind: str, version: str, schema: Json, everything: dict[tuple[str, str], Json]
) -> Iterator[str]:
    yield f"## {kind} {version}"
    if text := schema.get("description"):
        yield say(text)
    successor = SUCCESSORS.get((kind, version))
    present = {field.path for field in listed(everything[successor])} if successor else set()
    columns = [
        say.either("field", "필드"),
        say.either("type", "타입"),
        say.either("default", "기본값"),
        say.either("meaning", "의미"),
    ]
    if successor:
        columns.append(say.either(f"in {successor[0]} {successor[1]}", f"{successor[0]} {successor[1]}에서"))
        yield say.either(
            f"Replaced by {successor[0]} {successor[1]}.", f"{successor[0]} {successor[1]}로 대체되었습니다."
        )
    rows = []
    for field in listed(schema):
        required = say.either(" (required)", " (필수)") if field.required else ""
        row = [
            code(field.path) + required,
            field.type,
            code(field.default),
            say(field.description) if field.description else "",
        ]
        if successor:
            place = replacement(kind, version, field.path, present)
            assert place is not None, f"{kind} {version} {field.path}: say in REPLACED where it is now"
            row.append(
                say.either("the same", "같음") if place == field.path else code(place) or say.either("gone", "없어짐")
            )
        rows.append(row)
    yield table(columns, rows)
