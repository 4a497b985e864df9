"""What an installation takes: the values of the charts, IAM statements and RBAC rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from dovetail.install import iam, rbac
from scripts.reference.words import Words, code, page, table

ROOT = Path(__file__).parents[2]
CHARTS = ("dovetail", "dovetail-crd")
Json = dict[str, Any]
#: Names in place of those of an installation.
SITE = iam.Site(cluster="CLUSTER", region="REGION", account="ACCOUNT", queue="CLUSTER", issuer="ISSUER", reboots=True)
_KEY = re.compile(r"^(?P<indent> *)(?P<key>[\w.-]+):")


def values(say: Words) -> str:
    parts = [
        say.either("# Chart values", "# 차트 값"),
        say.either(
            "The values of both charts with their defaults, from `values.yaml` and its schema. A wrong type is refused. "
            "Karpenter's values of every version are accepted besides ([Install](../install.md#helm)).",
            "두 차트의 값과 기본값을 `values.yaml`과 스키마에서 생성했습니다. 타입이 틀린 값은 거부됩니다. "
            "이 밖에 모든 버전의 Karpenter 값을 받습니다([설치](../install.md#helm)).",
        ),
    ]
    for chart in CHARTS:
        folder = ROOT / "charts" / chart
        schema = json.loads((folder / "values.schema.json").read_text())
        text = (folder / "values.yaml").read_text()
        rows = _rows(say, yaml.safe_load(text) or {}, _comments(text), schema, schema)
        parts += [
            f"## {say.either('Chart', '차트')} {chart}",
            table(
                (
                    say.either("value", "값"),
                    say.either("type", "타입"),
                    say.either("default", "기본값"),
                    say.either("meaning", "의미"),
                ),
                rows,
            ),
        ]
    return page(*parts)


def _comments(text: str) -> dict[str, str]:
    """The comment (`# --`) above each key, by the key's path."""
    comments: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# --"):
            comment = [stripped.removeprefix("# --").strip()]
        elif stripped.startswith("#"):
            comment += [stripped.lstrip("# ")] if comment else []
        elif match := _KEY.match(line):
            indent = len(match["indent"])
            path = [*((depth, key) for depth, key in path if depth < indent), (indent, match["key"])]
            if comment:
                comments[".".join(key for _, key in path)] = " ".join(comment)
            comment = []
        elif not stripped:
            comment = []
    return comments


def _rows(
    say: Words, given: Json, comments: dict[str, str], schema: Json, root: Json, path: str = ""
) -> Iterator[tuple[str, str, str, str]]:
    for key, default in given.items():
        place = f"{path}.{key}" if path else key
        part = _resolved((schema.get("properties") or {}).get(key, {}), root)
        text = say(comments[place]) if place in comments else ""
        if isinstance(default, dict) and default and part.get("properties"):
            if text:
                yield code(place), "object", "", text
            yield from _rows(say, default, comments, part, root, place)
        else:
            yield code(place), _type(part, default), code(json.dumps(default, ensure_ascii=False)), text


def _resolved(part: Json, root: Json) -> Json:
    if "$ref" in part:
        return dict(root["definitions"][part["$ref"].rpartition("/")[2]])
    return part


def _type(part: Json, default: object) -> str:
    if "enum" in part:
        return " | ".join(f'"{value}"' for value in part["enum"] if value)
    kind = part.get(
        "type", {str: "string", bool: "boolean", int: "integer", list: "array"}.get(type(default), "object")
    )
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def permissions(say: Words) -> str:
    return page(
        say.either("# IAM and RBAC", "# IAM과 RBAC"),
        say.either(
            "What the controller may do at AWS and in the cluster, from `src/dovetail/install`. A test records what the "
            "controllers ask for and compares: nothing is missing, nothing more is granted. `dovetail iam` prints the "
            "policies for a cluster.",
            "컨트롤러가 AWS와 클러스터에서 할 수 있는 일을 `src/dovetail/install`에서 생성했습니다. 테스트가 컨트롤러의 요청을 기록해 비교하므로 "
            "빠진 것도, 더 허용된 것도 없습니다. `dovetail iam`이 클러스터의 정책을 출력합니다.",
        ),
        say.either("## IAM policies of the controller", "## 컨트롤러의 IAM 정책"),
        *(part for name, policy in iam.controller_policies(SITE).items() for part in _policy(say, name, policy)),
        say.either("## IAM policy of Cluster Autoscaler", "## Cluster Autoscaler의 IAM 정책"),
        _statements(say, iam.cluster_autoscaler_policy(SITE)),
        say.either("## Managed policies of the node role", "## 노드 역할의 관리형 정책"),
        "\n".join(f"- `{arn}`" for arn in iam.node_policy_arns(SITE)),
        say.either("## RBAC rules of the controller", "## 컨트롤러의 RBAC 규칙"),
        table(
            (
                say.either("API group", "API 그룹"),
                say.either("resources", "리소스"),
                say.either("verbs", "동사"),
                say.either("where", "범위"),
                say.either("only if", "조건"),
                say.either("why", "까닭"),
            ),
            (
                (
                    code(rule.group or "core"),
                    code(", ".join(rule.resources)) + (f" ({', '.join(rule.names)})" if rule.names else ""),
                    code(", ".join(rule.verbs)),
                    rule.scope.value,
                    "" if rule.when is rbac.RuleCondition.ALWAYS else code(rule.when.name),
                    say(rule.why),
                )
                for rule in rbac.RULES
            ),
        ),
    )


def _policy(say: Words, name: str, policy: Json) -> Iterator[str]:
    yield f"### {name}"
    yield _statements(say, policy)


def _statements(say: Words, policy: Json) -> str:
    return table(
        (
            say.either("statement", "문(statement)"),
            say.either("actions", "작업"),
            say.either("resources", "리소스"),
            say.either("conditions", "조건"),
        ),
        (
            (
                code(statement["Sid"]),
                ", ".join(code(action) for action in statement["Action"]),
                "<br>".join(code(resource) for resource in _list(statement["Resource"])),
                "<br>".join(
                    code(f"{test} {key} = {', '.join(_list(value))}")
                    for test, keys in statement.get("Condition", {}).items()
                    for key, value in keys.items()
                ),
            )
            for statement in policy["Statement"]
        ),
    )


def _list(value: Any) -> list[str]:
    return [str(inner) for inner in value] if isinstance(value, list) else [str(value)]
