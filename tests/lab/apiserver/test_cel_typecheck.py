"""Rules are checked against their schema before there is an object; a rule that can hold is never refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.lab.apiserver.crd.cel_typecheck import complaint_about
from dovetail.lab.apiserver.crd.rule import ValidationRule
from dovetail.lab.apiserver.crd.structural import Structural
from dovetail.model.kinds.crds import definitions

SCHEMA = Structural(
    {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "either": {"x-kubernetes-int-or-string": True},
            "maybe": {"type": "string", "nullable": True},
            "many": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        },
    }
)


@pytest.mark.parametrize(
    "text",
    [
        "self.free.any.thing > 5 || self.free.other == 'x'",
        "self.either == 5 || self.either == '5%'",
        "self.maybe == null || self.maybe.size() > 1",
        "self.many.map(m, m.name).all(n, n.startsWith('a'))",
        "self.many.all(m, self.many.exists_one(o, o == m))",
        "self.?count.orValue(3) > 2 && cel.bind(n, self.count, n > 1)",
        "self.count > 1.5 && double(self.count) / 2.0 > 1.0",
        "size(self.text) == self.text.size() && self.text in ['a', 'b']",
    ],
)
def test_a_rule_that_can_hold_is_taken(text: str) -> None:
    assert complaint_about(ValidationRule({"rule": text}), SCHEMA) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("self.text > 5", "found no matching overload for '_>_' applied to '(string, int)'"),
        ("self.count.nme == 1", "type 'int' does not support field selection"),
        ("self.many.all(m, m.nme == 'a')", "undefined field 'nme'"),
        ("self.count + 1", "must evaluate to a bool"),
    ],
)
def test_a_rule_that_never_can_says_why(text: str, words: str) -> None:
    assert words in complaint_about(ValidationRule({"rule": text}), SCHEMA)


def nodes(node: Structural) -> Iterator[Structural]:
    yield node
    for child in (*node.properties.values(), node.items, node.additional):
        if child is not None:
            yield from nodes(child)


def test_our_own_definitions_hold_no_rule_that_is_refused() -> None:
    checked = 0
    for definition in definitions():
        for version in definition["spec"]["versions"]:
            schema: Any = version["schema"]["openAPIV3Schema"]
            for node in nodes(Structural(schema, root=True)):
                for rule in node.rules:
                    assert complaint_about(rule, node) == "", rule.text
                    checked += 1
    assert checked > 100
