"""Patches of every kind, and the ways they fail."""

from __future__ import annotations

from typing import Any

from tests.conformance.corpus.basics import CM, cm
from tests.conformance.steps import call, core, get, named, patch, post

A = core("configmaps", "a")
D = named("apps/v1", "deployments", "d")
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d", "labels": {"app": "d"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "d"}},
        "template": {
            "metadata": {"labels": {"app": "d"}},
            "spec": {
                "containers": [
                    {
                        "name": "one",
                        "image": "nginx:1",
                        "ports": [{"containerPort": 80}],
                        "env": [{"name": "A", "value": "1"}],
                    },
                    {"name": "two", "image": "busybox"},
                ],
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
        },
    },
}
C = {"spec": {"template": {"spec": {"containers": [{"name": "three", "image": "x"}]}}}}


def pods(**spec: object) -> dict[str, object]:
    return {"spec": {"template": {"spec": spec}}}


TOPICS = {
    "mergepatch": [
        post(CM, cm("a", {"x": "1", "y": "2"})),
        patch(A, {"data": {"x": None, "z": "3"}}),
        patch(A, {"data": {"z": "3"}}),
        patch(A, {}),
        patch(A, {"data": None}),
        patch(A, {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}),
        patch(A, {"metadata": {"labels": None}}),
        patch(A, {"metadata": {"resourceVersion": "1"}, "data": {"q": "1"}}),
        patch(A, {"metadata": {"resourceVersion": "1"}}),
        patch(A, {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}),
        patch(A, {"metadata": {"name": "b"}}),
        patch(A, {"metadata": {"namespace": "b"}}),
        patch(A, {"kind": "Secret"}),
        patch(A, {"apiVersion": "v2"}),
        patch(A, {"data": {"n": 5}}),
        patch(A, {"data": "text"}),
        patch(A, {"metadata": {"creationTimestamp": None, "generation": 7}}),
        patch(A, "[]"),
        patch(A, "{"),
        patch(A, "null"),
        patch(A, ""),
        patch(core("configmaps", "none"), {"data": {"a": "b"}}),
        patch(A, {"metadata": {"finalizers": ["a.b/c"]}}),
        patch(A, {"metadata": {"finalizers": None}}),
        patch(A, {"metadata": {"managedFields": []}}),
        call("PATCH", A, {"data": {}}, content="application/json"),
        call("PATCH", A, {"data": {}}, content="text/plain"),
    ],
    "jsonpatch": [
        post(CM, cm("a", {"x": "1"})),
        patch(A, [{"op": "add", "path": "/data/y", "value": "2"}], "json"),
        patch(
            A,
            [{"op": "test", "path": "/data/y", "value": "2"}, {"op": "replace", "path": "/data/y", "value": "3"}],
            "json",
        ),
        patch(A, [{"op": "test", "path": "/data/y", "value": "9"}], "json"),
        patch(A, [{"op": "replace", "path": "/data/new", "value": "3"}], "json"),
        patch(A, [{"op": "remove", "path": "/data/none"}], "json"),
        patch(A, [{"op": "remove", "path": "/data/x"}], "json"),
        patch(A, [{"op": "copy", "from": "/data/y", "path": "/data/z"}], "json"),
        patch(A, [{"op": "move", "from": "/data/z", "path": "/data/w"}], "json"),
        patch(A, [{"op": "add", "path": "/metadata/labels/a", "value": "b"}], "json"),
        patch(A, [{"op": "add", "path": "/metadata/labels", "value": {"a~b": "c", "d.e/f": "g"}}], "json"),
        patch(A, [{"op": "add", "path": "/metadata/labels", "value": {"d.e/f": "g"}}], "json"),
        patch(A, [{"op": "replace", "path": "/metadata/labels/d.e~1f", "value": "h"}], "json"),
        patch(A, [{"op": "add", "path": "/metadata/finalizers", "value": ["x.y/z"]}], "json"),
        patch(A, [{"op": "add", "path": "/metadata/finalizers/-", "value": "x.y/w"}], "json"),
        patch(A, [{"op": "add", "path": "/metadata/finalizers/9", "value": "x.y/v"}], "json"),
        patch(A, [{"op": "remove", "path": "/metadata/finalizers/0"}], "json"),
        patch(A, [{"op": "remove", "path": "/metadata/finalizers"}], "json"),
        patch(A, [{"op": "frobnicate", "path": "/data"}], "json"),
        patch(A, [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}], "json"),
        patch(A, [{"op": "add", "path": "/data/q", "value": 5}], "json"),
        patch(A, [{"op": "add", "path": "data/q", "value": "5"}], "json"),
        patch(A, [{"op": "replace", "path": "", "value": {}}], "json"),
        patch(A, [], "json"),
        patch(A, {}, "json"),
        patch(A, "nonsense", "json"),
        patch(A, [{"op": "replace", "path": "/metadata/name", "value": "b"}], "json"),
        get(A),
    ],
    "strategic": [
        post(named("apps/v1", "deployments"), DEPLOYMENT),
        patch(D, C, "strategic"),
        patch(D, pods(containers=[{"name": "one", "image": "nginx:2"}]), "strategic"),
        patch(D, pods(containers=[{"name": "one", "env": [{"name": "B", "value": "2"}]}]), "strategic"),
        patch(D, pods(containers=[{"name": "one", "env": [{"name": "A", "$patch": "delete"}]}]), "strategic"),
        patch(D, pods(containers=[{"name": "one", "ports": [{"containerPort": 81, "name": "p"}]}]), "strategic"),
        patch(D, pods(containers=[{"name": "two", "$patch": "delete"}]), "strategic"),
        patch(D, pods(tolerations=[{"key": "other", "operator": "Exists"}]), "strategic"),
        patch(D, pods(volumes=[{"name": "w", "emptyDir": {}}]), "strategic"),
        patch(D, pods(volumes=[{"name": "v", "hostPath": {"path": "/x"}}]), "strategic"),
        patch(
            D,
            pods(volumes=[{"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/x"}}]),
            "strategic",
        ),
        patch(D, pods(containers=[{"image": "nokey"}]), "strategic"),
        patch(D, pods(containers=[{"name": "one", "$patch": "explode"}]), "strategic"),
        patch(
            D,
            {
                "spec": {
                    "template": {
                        "spec": {
                            "$setElementOrder/containers": [{"name": "three"}, {"name": "one"}],
                            "containers": [{"name": "three", "image": "y"}],
                        }
                    }
                }
            },
            "strategic",
        ),
        patch(D, {"spec": {"selector": {"$patch": "replace", "matchLabels": {"app": "e"}}}}, "strategic"),
        patch(D, {"spec": {"template": {"metadata": {"annotations": {"$patch": "replace", "a": "b"}}}}}, "strategic"),
        patch(D, {"metadata": {"labels": {"app": None, "new": "x"}}}, "strategic"),
        patch(D, {"metadata": {"finalizers": ["a.b/c"]}}, "strategic"),
        patch(D, {"metadata": {"finalizers": ["d.e/f"]}}, "strategic"),
        patch(D, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c"]}}, "strategic"),
        patch(D, {"spec": {"replicas": 5}}, "strategic"),
        patch(D, {"spec": {"replicas": 5}}, "strategic"),
        patch(D, {"spec": {"replicas": "five"}}, "strategic"),
        patch(D, {"spec": {"replicas": None}}, "strategic"),
        patch(D, {"spec": {"strategy": {"type": "Recreate"}}}, "strategic"),
        patch(D, {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}, "strategic"),
        patch(D, {"spec": {"strategy": {"type": "Blue"}}}, "strategic"),
        patch(D, "{", "strategic"),
        patch(D, "[]", "strategic"),
        get(D),
    ],
}
