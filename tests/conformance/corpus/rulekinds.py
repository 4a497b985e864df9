"""Rules that their schema contradicts: the kinds of values a definition's expressions are made of."""

from __future__ import annotations

from typing import Any

from tests.conformance.steps import Step, cluster, post

INTEGER: dict[str, Any] = {"type": "integer"}


def text(most: int, **more: str) -> dict[str, Any]:
    return {"type": "string", **more, "maxLength": most}


def some(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "maxItems": 5, "items": items}


FIELDS: dict[str, Any] = {
    "s": text(30),
    "i": INTEGER,
    "b": {"type": "boolean"},
    "n": {"type": "number"},
    "l": some(text(5)),
    "li": some(INTEGER),
    "m": {"type": "object", "maxProperties": 5, "additionalProperties": INTEGER},
    "o": {"type": "object", "properties": {"x": INTEGER, "y": text(9)}},
    "lo": some({"type": "object", "properties": {"x": INTEGER}}),
    "ios": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], "maxLength": 20},
    "d": text(9, format="duration"),
    "t": text(30, format="date-time"),
}
NAMES = {"plural": "rbads", "singular": "rbad", "kind": "Rbad", "listKind": "RbadList"}
STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
RULES = [
    "self.s > 5",
    "foo == 1",
    "self.s == 5",
    "size(self.s) > 'a'",
    "self.s.startsWith(5)",
    "self.s.nosuch()",
    "nosuch(self.s)",
    "self.s && true",
    "!self.s",
    "self.s + 1 > 0",
    "self.s in 'abc'",
    "self.i == self.s",
    "self.s.matches('(')",
    "self.l.all(x, x > 0)",
    "self.li.all(x, x > 'a')",
    "self.lo.exists(e, e.x == 'a')",
    "has(self)",
    "has(self.s) ? 1 : 2",
    "self.b ? self.i > 0 : 'x'",
    "self.i / 2 == 1.5",
    "self.n > 1",
    "self.n > 1.0 && self.i > 1.0",
    "self.m['a'] == 'x'",
    "self.m.x == 'x'",
    "self.o.x.y == 1",
    "self.l[0] > 0",
    "self.l['a'] == 'x'",
    "self.ios > 5",
    "self.d > 5",
    "self.d > duration('1h') && self.t < '2020'",
    "-self.s == 1",
    "self.s.size().size() > 0",
    "self.l + self.li == []",
    "[1,'a'].size() > 0",
    "self.l.map(x, x.size()).exists(y, y == 'a')",
    "self.i % 2 == 0.0",
    "self.s == null",
    "self.o == null",
    "self.l == ['a', 1]",
    "self.s.contains('a', 'b')",
    "self.i.startsWith('a')",
    "oldSelf.i == self.s",
    "quantity(self.s) > 5",
    "quantity(self.i).isGreaterThan(quantity('1'))",
    "self.l.join(',') == 5",
    "self.s.split(',')[0] == 5",
    "self.i > 1 || self.s",
    "self.s ? true : false",
    "1",
    "'a'",
    "self",
    "self.l.isSorted() == 'a'",
    "url(self.s).getHost() == 5",
    "int(self.s) > 'a'",
    "string(self.i) == 5",
    "type(self.s) == string",
    "dyn(self.s) > 5",
    "self.s.find('[0-9]+') == 5",
    "self.s.lowerAscii() == 1",
    "timestamp(self.s) > duration('1h')",
    "self.m.all(k, k == 1)",
    "self.m.exists(k, self.m[k] == 'a')",
    "optional.none().hasValue() == 1",
    "self.?s.orValue('x') == 1",
    "{'a':1}['b'] == 'x'",
    "self.s == self.b",
    "self.b == 'true'",
    "self.b > false",
    "self.li.sum() == 'a'",
    "self.li.max() > 'a'",
    "self.l.indexOf(5) == 0",
    "ip(self.s) == 5",
    "self.s.replace('a', 1) == 'x'",
]


def define(rule: str) -> Step:
    """A definition with one rule, not kept."""
    spec = {"type": "object", "properties": FIELDS, "x-kubernetes-validations": [{"rule": rule}]}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": STATUS}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "rbads.n5.example.com"},
        "spec": {"group": "n5.example.com", "scope": "Namespaced", "names": NAMES, "versions": [version]},
    }
    return post(cluster("apiextensions.k8s.io/v1", "customresourcedefinitions"), body, dryRun="All")


TOPICS = {"rulekinds": [define(rule) for rule in RULES]}
