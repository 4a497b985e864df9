"""CustomResourceDefinitions and their objects: schemas, pruning, defaults, CEL, versions, scale, tables."""

from __future__ import annotations

from typing import Any

from tests.conformance.steps import apply, cluster, core, delete, get, patch, post, put, table, watch

CRDS = cluster("apiextensions.k8s.io/v1", "customresourcedefinitions")
STRING = {"type": "string"}


def definition(
    plural: str, kind: str, schema: dict[str, Any], *, scope: str = "Namespaced", **version: Any
) -> dict[str, Any]:
    group = "conf.example.com"
    names = {
        "plural": plural,
        "singular": kind.lower(),
        "kind": kind,
        "listKind": f"{kind}List",
        "shortNames": [kind[:2].lower()],
        "categories": ["conf"],
    }
    shape = {
        "type": "object",
        "properties": {"spec": schema, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": shape}, **version}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [one]},
    }


WIDGET = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2},
        "tags": {"type": "array", "maxItems": 3, "items": STRING, "x-kubernetes-list-type": "set"},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port"],
            "items": {
                "type": "object",
                "required": ["port"],
                "properties": {"port": {"type": "integer"}, "proto": {"type": "string", "default": "TCP"}},
            },
        },
        "limits": {
            "type": "object",
            "additionalProperties": {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
            },
        },
        "nullable": {"type": "string", "nullable": True, "default": "d"},
        "ratio": {"type": "number"},
        "flag": {"type": "boolean"},
        "when": {"type": "string", "format": "date-time"},
        "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "nested": {"type": "object", "properties": {"a": STRING, "b": {"type": "integer", "default": 5}}},
        "replicas": {"type": "integer"},
        "min": {"type": "integer"},
        "max": {"type": "integer"},
        "fixed": {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}],
        },
        "list": {
            "type": "array",
            "items": STRING,
            "maxItems": 10,
            "x-kubernetes-validations": [
                {"rule": "self.all(x, x.startsWith('a'))", "message": "all must start with a"}
            ],
        },
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "message": "min must not exceed max"},
        {
            "rule": "!has(self.name) || self.name != 'bad'",
            "messageExpression": "'name may not be ' + self.name",
            "fieldPath": ".name",
            "reason": "FieldValueForbidden",
        },
    ],
}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "description": "which"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "Wide", "type": "string", "jsonPath": ".spec.name", "priority": 1},
]
W = "/apis/conf.example.com/v1/namespaces/{ns}/widgets"
G = "/apis/conf.example.com/v1/gadgets"


def widget(name: str, /, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "conf.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": 3, **spec},
    }


def gadget(name: str, version: str = "v1", /, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"conf.example.com/{version}", "kind": "Gadget", "metadata": {"name": name}, "spec": spec}


WIDGETS = definition(
    "widgets",
    "Widget",
    WIDGET,
    additionalPrinterColumns=COLUMNS,
    subresources={
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    },
)
GADGETS = definition(
    "gadgets",
    "Gadget",
    {"type": "object", "properties": {"a": STRING, "b": {"type": "string", "default": "one"}}},
    scope="Cluster",
)
GADGETS["spec"]["versions"].append(
    {
        "name": "v2",
        "served": True,
        "storage": False,
        "deprecated": True,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": {"type": "object", "properties": {"a": STRING, "c": {"type": "string", "default": "two"}}}
                },
            }
        },
    }
)

TOPICS = {
    "crds": [
        post(CRDS, GADGETS),
        watch(CRDS, 3, fieldSelector="metadata.name=none"),
        get(CRDS + "/gadgets.conf.example.com"),
        table(CRDS + "/gadgets.conf.example.com"),
        get(G),
        post(G, gadget("a", a="x")),
        get(G + "/a"),
        get("/apis/conf.example.com/v2/gadgets/a"),
        post("/apis/conf.example.com/v2/gadgets", gadget("b", "v2", c="y", b="lost")),
        get(G + "/b"),
        get("/apis/conf.example.com/v2/gadgets"),
        get("/apis/conf.example.com/v3/gadgets"),
        get("/apis/conf.example.com/v1/nothing"),
        get("/apis/conf.example.com"),
        get("/apis/conf.example.com/v1"),
        table(G),
        table("/apis/conf.example.com/v2/gadgets"),
        patch("/apis/conf.example.com/v2/gadgets/a", {"spec": {"c": "z"}}),
        get(G + "/a"),
        get(G + "/a/status"),
        get(G + "/a/scale"),
        post(CRDS, {**GADGETS, "metadata": {"name": "wrong.name"}}),
        post(CRDS, definition("things", "Thing", {"type": "object", "properties": {"x": {}}})),
        post(CRDS, definition("things", "Thing", {"type": "wild"})),
        post(CRDS, definition("things", "Thing", {"type": "array"})),
        post(
            CRDS,
            definition("things", "Thing", {"type": "object", "x-kubernetes-validations": [{"rule": "self.nope > 1"}]}),
        ),
        post(CRDS, definition("things", "Thing", {"type": "object", "x-kubernetes-validations": [{"rule": "1 +"}]})),
        post(CRDS, definition("Things", "thing", {"type": "object"}, scope="Wild")),
        post(
            CRDS,
            definition(
                "things",
                "Thing",
                {
                    "type": "object",
                    "properties": {"l": {"type": "array", "items": STRING, "x-kubernetes-list-type": "map"}},
                },
            ),
        ),
        post(
            CRDS,
            {
                "metadata": {"name": "things.conf.example.com"},
                "spec": {
                    "group": "conf.example.com",
                    "scope": "Cluster",
                    "names": {"plural": "things", "kind": "Thing"},
                    "versions": [],
                },
            },
        ),
        post(
            CRDS,
            {
                "metadata": {"name": "things.conf.example.com"},
                "spec": {
                    "group": "conf.example.com",
                    "scope": "Cluster",
                    "names": {"plural": "things", "kind": "Thing"},
                    "versions": [{"name": "v1", "served": True, "storage": False}],
                },
            },
        ),
        patch(CRDS + "/gadgets.conf.example.com", {"spec": {"scope": "Namespaced"}}),
        patch(CRDS + "/gadgets.conf.example.com", {"spec": {"names": {"shortNames": ["gd", "gg"]}}}),
        watch(CRDS, 3, fieldSelector="metadata.name=none"),
        delete(CRDS + "/gadgets.conf.example.com"),
        watch(CRDS, 3, fieldSelector="metadata.name=none"),
        get(CRDS + "/gadgets.conf.example.com"),
        get(G),
    ],
    "widgets": [
        post(CRDS, WIDGETS),
        watch(CRDS, 3, fieldSelector="metadata.name=none"),
        post(W, widget("a"), save="a"),
        post(W, {"metadata": {"name": "x"}, "spec": {"size": 1}}),
        post(W, {**widget("x"), "kind": "Other"}),
        post(W, {**widget("x"), "apiVersion": "v1"}),
        post(W, widget("x", size="3")),
        post(W, widget("x", size=3.5)),
        post(W, widget("x", size=0)),
        post(W, widget("x", size=11)),
        post(W, {**widget("x"), "spec": {}}),
        post(W, {**widget("x"), "spec": None}),
        post(W, {**widget("nospec"), "spec": "text"}),
        post(W, widget("x", color="blue")),
        post(W, widget("x", name="UP")),
        post(W, widget("x", name="abcdefg")),
        post(W, widget("x", name="a")),
        post(W, widget("x", tags=["a", "a"])),
        post(W, widget("x", tags=["a", "b", "c", "d"])),
        post(W, widget("x", tags="a")),
        post(W, widget("x", tags=[1])),
        post(W, widget("x", ports=[{"proto": "UDP"}])),
        post(W, widget("x", ports=[{"port": 1}, {"port": 1}])),
        post(W, widget("x", limits={"cpu": True})),
        post(W, widget("x", ratio="x")),
        post(W, widget("x", flag=1)),
        post(W, widget("x", when="yesterday")),
        post(W, widget("x", min=5, max=1)),
        post(W, widget("x", min=5, max=1, color="blue")),
        post(W, widget("x", min=5, max=1, name="UP")),
        post(W, widget("x", name="bad")),
        post(W, widget("x", list=["b"])),
        post(W, widget("x", list=["ab"] * 11)),
        post(W, widget("x", size=0, min=5, max=1)),
        post(W, widget("x", unknown=1, nested={"z": 1}), fieldValidation="Strict"),
        post(W, widget("pruned", unknown=1, nested={"z": 1}, extra={"any": {"thing": 1}})),
        post(
            W,
            widget(
                "full",
                tags=["a"],
                ports=[{"port": 1}],
                limits={"cpu": 1, "memory": "1Gi"},
                nullable=None,
                ratio=0.5,
                flag=True,
                when="2026-01-01T00:00:00Z",
                nested={},
                fixed="f",
                list=["ab"],
                replicas=2,
            ),
        ),
        get(W + "/full"),
        get(W),
        table(W),
        table(W + "/full"),
        patch(W + "/full", {"spec": {"fixed": "g"}}),
        patch(W + "/full", {"spec": {"fixed": None}}),
        patch(W + "/full", {"spec": {"size": 4}}),
        patch(W + "/full", {"spec": {"size": 4}}),
        patch(W + "/full", {"metadata": {"labels": {"a": "b"}}}),
        patch(W + "/full", {"status": {"replicas": 3}}),
        patch(
            W + "/full/status",
            {
                "status": {"replicas": 3, "selector": "a=b", "conditions": [{"type": "Ready", "status": "True"}]},
                "spec": {"size": 9},
                "metadata": {"labels": {"c": "d"}},
            },
        ),
        table(W + "/full"),
        get(W + "/full/scale"),
        patch(W + "/full/scale", {"spec": {"replicas": 7}}),
        put(
            W + "/full/scale",
            {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "full"}, "spec": {"replicas": -1}},
        ),
        get(W + "/a/scale"),
        patch(W + "/full", {"spec": {"size": 5}}, "strategic"),
        patch(W + "/full", [{"op": "replace", "path": "/spec/size", "value": 6}], "json"),
        patch(W + "/full", [{"op": "replace", "path": "/spec/size", "value": "x"}], "json"),
        put(W + "/full", widget("full")),
        put(W + "/full", {**widget("full"), "metadata": {"name": "full", "resourceVersion": "1"}}),
        apply(W + "/full", widget("full", size=7), "one"),
        apply(W + "/full", widget("full", size=7), "one", force="true"),
        apply(W + "/full", widget("full", size=8), "two"),
        apply(W + "/applied", widget("applied", ports=[{"port": 1}], tags=["a"]), "one"),
        apply(W + "/applied", widget("applied", ports=[{"port": 2}], tags=["b"]), "two"),
        apply(W + "/applied", widget("applied", ports=[{"port": 1, "proto": "UDP"}]), "two"),
        apply(W + "/applied", widget("applied", unknown=1), "three"),
        apply(W + "/applied", widget("applied", size="x"), "three"),
        get(W + "/applied"),
        get(W, fieldSelector="metadata.name=a"),
        get(W, fieldSelector="spec.size=3"),
        get(W, labelSelector="a=b"),
        get(W, limit="1"),
        watch(W, resourceVersion="{a.metadata.resourceVersion}", fieldSelector="metadata.name=full"),
        patch(W + "/a", {"metadata": {"finalizers": ["x.y/z"]}}),
        delete(W + "/a"),
        get(W + "/a"),
        patch(W + "/a", {"spec": {"size": 9}}),
        patch(W + "/a", {"metadata": {"finalizers": None}}),
        delete(W + "/full"),
        delete(W + "/none"),
        get(W + "/none"),
        delete(W, labelSelector="none=x"),
        post(
            W,
            "apiVersion: conf.example.com/v1\nkind: Widget\nmetadata: {name: y}\nspec: {size: 2}\n",
            content="application/yaml",
        ),
        post(W, widget("Bad")),
        post(W, {**widget("x"), "metadata": {"generateName": "w-"}}),
        post(W, widget("dry"), dryRun="All"),
        get("/apis/conf.example.com/v1/widgets"),
    ],
    "ratcheting": [
        post(
            CRDS,
            {
                **definition(
                    "loose",
                    "Loose",
                    {
                        "type": "object",
                        "properties": {"a": STRING, "b": STRING, "l": {"type": "array", "items": STRING}},
                    },
                ),
                "metadata": {"name": "loose.conf.example.com"},
            },
        ),
        watch(CRDS, 3, fieldSelector="metadata.name=none"),
        post(
            "/apis/conf.example.com/v1/namespaces/{ns}/loose",
            {
                "apiVersion": "conf.example.com/v1",
                "kind": "Loose",
                "metadata": {"name": "l"},
                "spec": {"a": "long", "b": "x", "l": ["long", "y"]},
            },
        ),
        patch(
            CRDS + "/loose.conf.example.com",
            [
                {
                    "op": "replace",
                    "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec",
                    "value": {
                        "type": "object",
                        "properties": {
                            "a": {
                                "type": "string",
                                "maxLength": 2,
                                "x-kubernetes-validations": [{"rule": "self.size() < 3", "message": "too big"}],
                            },
                            "b": {"type": "string", "maxLength": 2},
                            "l": {"type": "array", "items": {"type": "string", "maxLength": 2}},
                        },
                    },
                }
            ],
            "json",
        ),
        watch(CRDS, 3, fieldSelector="metadata.name=none"),
        patch("/apis/conf.example.com/v1/namespaces/{ns}/loose/l", {"spec": {"b": "y"}}),
        patch("/apis/conf.example.com/v1/namespaces/{ns}/loose/l", {"spec": {"b": "long"}}),
        patch("/apis/conf.example.com/v1/namespaces/{ns}/loose/l", {"spec": {"a": "longer"}}),
        patch("/apis/conf.example.com/v1/namespaces/{ns}/loose/l", {"spec": {"l": ["long", "z"]}}),
        patch("/apis/conf.example.com/v1/namespaces/{ns}/loose/l", {"spec": {"a": "ok"}}),
        get("/apis/conf.example.com/v1/namespaces/{ns}/loose/l"),
        get(core("configmaps", "none")),
    ],
}
