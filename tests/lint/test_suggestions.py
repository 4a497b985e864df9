"""Whatever the API server or the controllers refuse, lint says what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from dovetail.model.kinds.admission import SchemaNode, tree
from dovetail.model.kinds.crds import KINDS
from dovetail.model.lint.findings import LintFinding
from dovetail.model.lint.linter import lint
from dovetail.model.lint.source import SourceFile
from dovetail.model.lint.suggestions import FORMS, suggestion

NOW = datetime(2026, 3, 4, tzinfo=UTC)
POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: []
"""
CLASS = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
"""


def places(node: SchemaNode) -> Iterator[SchemaNode]:
    yield node
    for name, child in node.fields.items():
        if name != "status":
            yield from places(child)
    if node.each is not None:
        yield from places(node.each)


ALL = [node for kind in KINDS for version in kind.versions for node in places(tree(version.struct))]


def test_every_rule_of_every_kind_has_a_way_out() -> None:
    assert [rule.message for node in ALL for rule in node.field.rules if not suggestion(rule.message)] == []


def test_every_pattern_is_said_in_words() -> None:
    assert [node.field.pattern for node in ALL if node.field.pattern and node.field.pattern not in FORMS] == []


def errors(text: str) -> list[LintFinding]:
    return [each for each in lint([SourceFile("f.yaml", text)], NOW) if each.severity == "error"]


@pytest.mark.parametrize(
    ("text", "path", "message", "hint"),
    [
        (
            POOL.replace("requirements: []", "requirements: [spot]"),
            "spec.template.spec.requirements[0]",
            'must be a map, and is "spot"',
            "fields here are key, minValues, operator, values",
        ),
        (
            POOL.replace("requirements: []", "requirements: [{key: a b, operator: Exists}]"),
            "spec.template.spec.requirements[0].key",
            '"a b" is no label key',
            "such as team or example.com/team",
        ),
        (
            POOL + "  weight: 0\n",
            "spec.weight",
            "0 is too small",
            "at least 1",
        ),
        (
            POOL + "  limits: {cpu: lots}\n",
            "spec.limits.cpu",
            '"lots" is no quantity',
            "such as 500m, 4, 8Gi or 100G",
        ),
        (
            POOL + "  disruption: {budgets: [{nodes: '0', schedule: '@daily'}]}\n",
            "spec.disruption.budgets",
            "'schedule' must be set with 'duration'",
            "add the other, such as  schedule: 0 9 * * 1-5  and  duration: 8h",
        ),
        (
            CLASS.replace("role: nodes", "detailedMonitoring: maybe\n  role: nodes"),
            "spec.detailedMonitoring",
            "maybe is neither true nor false",
            "write true or false",
        ),
        (
            CLASS.replace("  role: nodes\n", ""),
            "spec",
            "must specify exactly one of ['role', 'instanceProfile']",
            "write role: NAME, or instanceProfile: NAME, and not both",
        ),
        (
            CLASS.replace("subnetSelectorTerms: [{tags: {a: b}}]", "subnetSelectorTerms: [{id: my-subnet}]"),
            "spec.subnetSelectorTerms[0].id",
            '"my-subnet" is no subnet id',
            "such as subnet-09fa4a0a8f233a921; a name is a tag: tags: {Name: NAME}",
        ),
        (
            CLASS + "  blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 100}}]\n",
            "spec.blockDeviceMappings[0].ebs.volumeSize",
            "100 is no volume size",
            "such as 20Gi or 1T",
        ),
        (
            CLASS + "  blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 100GB}}]\n",
            "spec.blockDeviceMappings[0].ebs.volumeSize",
            '"100GB" is no volume size',
            "such as 20Gi or 1T",
        ),
    ],
)
def test_a_refusal_names_the_field_the_value_and_what_to_write(text: str, path: str, message: str, hint: str) -> None:
    [found] = errors(text)
    assert (found.path, found.message, found.hint) == (path, message, hint)


def test_what_the_controller_alone_refuses_has_a_way_out_too() -> None:
    taints = "taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]"
    [found] = errors(POOL.replace("requirements: []", f"requirements: []\n      {taints}"))
    assert (found.code, found.message) == ("DV107", "duplicate taint Key/Effect pair a=NoSchedule")
    assert found.hint == "keep one of them"
