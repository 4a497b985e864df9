"""Server-side apply: ownership, conflicts, force, lists by key, and migration from the old way."""

from __future__ import annotations

import json
from typing import Any

from tests.conformance.corpus.basics import CM, cm
from tests.conformance.corpus.patching import DEPLOYMENT
from tests.conformance.steps import apply, core, get, named, patch, post, put

A = core("configmaps", "a")
D = named("apps/v1", "deployments", "d")


def deployment(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


def containers(*items: dict[str, Any]) -> dict[str, Any]:
    return deployment(template={"spec": {"containers": list(items)}})


LAST = json.dumps({**cm("k", {"a": "1"}), "metadata": {"name": "k"}})

TOPICS = {
    "apply": [
        apply(A, cm("a", {"x": "1"}), "one"),
        apply(A, cm("a", {"x": "1"}), "one"),
        apply(A, cm("a", {"x": "1"}), "two"),
        apply(A, cm("a", {"x": "2"}), "two"),
        apply(A, cm("a", {"x": "2"}), "two", force="true"),
        apply(A, cm("a", {"x": "3"}), "one"),
        apply(A, cm("a", {"y": "1"}), "one"),
        get(A),
        apply(A, cm("a", {"y": "2", "z": "1"}), "three", force="false"),
        patch(A, {"data": {"u": "1"}}, fieldManager="upd"),
        apply(A, cm("a", {"u": "2"}), "one"),
        apply(A, cm("a", {"u": "2", "y": "1"}), "one"),
        apply(A, cm("a", {"u": "1", "y": "1"}), "one"),
        apply(A, cm("a", {}), "one"),
        apply(A, cm("a"), "two"),
        get(A),
        patch(A, cm("a", {"q": "1"}), "apply"),
        apply(A, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": "1"}}, "noname"),
        apply(core("configmaps", "fresh"), {"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": "1"}}, "noname"),
        apply(A, {"metadata": {"name": "a"}, "data": {"n": "1"}}, "nokind"),
        apply(A, cm("b", {"x": "1"}), "one"),
        apply(A, cm("a", {"x": "1"}, namespace="other"), "one"),
        apply(A, cm("a", {"x": "1"}, managedFields=[]), "one"),
        apply(A, cm("a", {"x": "1"}, resourceVersion="1"), "one"),
        apply(core("configmaps", "newrv"), cm("newrv", {"x": "1"}, resourceVersion="1"), "one"),
        apply(core("configmaps", "newuid"), cm("newuid", uid="00000000-0000-0000-0000-000000000000"), "one"),
        apply(A, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}, "one"),
        apply(A, {"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}}, "one"),
        apply(A, {**cm("a"), "dta": {"x": "1"}}, "one"),
        apply(A, {**cm("a"), "dta": {"x": "1"}}, "one", fieldValidation="Strict"),
        apply(A, {**cm("a"), "data": {"x": 1}}, "one"),
        apply(A, {**cm("a"), "data": ["x"]}, "one"),
        apply(A, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  y: text\n", "yaml"),
        apply(A, "apiVersion: v1\nkind: [", "yaml"),
        apply(A, "", "yaml"),
        apply(A, cm("a", {"dry": "1"}), "dry", dryRun="All"),
        apply(core("configmaps", "drynew"), cm("drynew", {"dry": "1"}), "dry", dryRun="All"),
        get(core("configmaps", "drynew")),
        apply(A, cm("a", {"f": "1"}), "forced", force="maybe"),
        get(A),
    ],
    "applylists": [
        apply(D, {**DEPLOYMENT}, "one"),
        apply(D, containers({"name": "one", "image": "nginx:1"}), "two"),
        apply(D, containers({"name": "one", "image": "nginx:9"}), "two"),
        apply(D, containers({"name": "three", "image": "x"}), "two"),
        apply(D, containers({"image": "x"}), "two"),
        apply(D, containers({"name": "three", "image": "x"}, {"name": "three", "image": "y"}), "two"),
        apply(D, containers({"name": "three", "image": "x", "img": "y"}), "two"),
        apply(
            D,
            containers(
                {
                    "name": "three",
                    "image": "x",
                    "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
                }
            ),
            "two",
        ),
        apply(D, containers({"name": "three", "image": "x", "ports": [{"containerPort": 80, "hostPort": 1}]}), "two"),
        apply(
            D,
            containers(
                {"name": "three", "image": "x", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
            ),
            "two",
        ),
        apply(D, containers({"name": "three", "image": "x", "args": ["a", "b"]}), "two"),
        apply(D, containers({"name": "three", "image": "x", "args": ["c"]}), "three", force="true"),
        apply(D, deployment(replicas=4), "hpa"),
        apply(D, deployment(replicas=4), "hpa", force="true"),
        apply(D, {**DEPLOYMENT, "spec": {k: v for k, v in DEPLOYMENT["spec"].items() if k != "replicas"}}, "one"),
        apply(D, deployment(replicas="x"), "hpa"),
        apply(D, deployment(template={"spec": {"tolerations": [{"key": "a"}]}}), "four", force="true"),
        apply(D, deployment(template={"spec": {"nodeSelector": {"a": "b"}}}), "five"),
        apply(
            D,
            deployment(
                template={
                    "spec": {
                        "topologySpreadConstraints": [
                            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                        ]
                    }
                }
            ),
            "five",
        ),
        apply(
            D,
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "d", "labels": {"l": "1"}, "finalizers": ["a.b/c"], "annotations": {"x": "y"}},
            },
            "meta",
        ),
        apply(
            D,
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "finalizers": ["d.e/f"]}},
            "meta2",
        ),
        apply(D, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}, "meta"),
        get(D),
    ],
    "migration": [
        post(
            CM,
            cm("k", {"a": "1", "b": "2"}, annotations={"kubectl.kubernetes.io/last-applied-configuration": LAST}),
            fieldManager="kubectl-client-side-apply",
        ),
        apply(core("configmaps", "k"), cm("k", {"a": "5"}), "kubectl"),
        get(core("configmaps", "k")),
        apply(core("configmaps", "k"), cm("k", {"b": "6"}), "other"),
        post(CM, cm("u", {"a": "1"}), fieldManager="m1"),
        patch(core("configmaps", "u"), {"metadata": {"managedFields": [{}]}}, fieldManager="m1"),
        patch(core("configmaps", "u"), {"data": {"b": "1"}}, fieldManager="m2"),
        get(core("configmaps", "u")),
        apply(core("configmaps", "u"), cm("u", {"a": "2"}), "m3"),
        apply(core("configmaps", "u"), cm("u", {"a": "2"}), "m3", force="true"),
        get(core("configmaps", "u")),
        post(CM, cm("many", {"k0": "v"}), fieldManager="m00"),
        *[patch(core("configmaps", "many"), {"data": {f"k{n}": "v"}}, fieldManager=f"m{n:02}") for n in range(1, 14)],
        get(core("configmaps", "many")),
        put(core("configmaps", "many"), cm("many", {"only": "1"}), fieldManager="putter"),
        get(core("configmaps", "many")),
        post(CM, cm("agent", {"a": "b"}), headers={"user-agent": "curl/8.0 (linux)"}),
        post(CM, cm("agent2", {"a": "b"}), headers={"user-agent": ""}),
    ],
    "applystatus": [
        apply(D, {**DEPLOYMENT}, "one"),
        apply(
            named("apps/v1", "deployments", "d", "status"),
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "d"},
                "status": {
                    "replicas": 2,
                    "conditions": [{"type": "Available", "status": "True", "reason": "R", "message": "m"}],
                },
            },
            "ctrl",
        ),
        apply(
            named("apps/v1", "deployments", "d", "status"),
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "d"},
                "spec": {"replicas": 9},
                "status": {"replicas": 3},
            },
            "ctrl",
        ),
        apply(
            named("apps/v1", "deployments", "d", "scale"),
            {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 7}},
            "scaler",
        ),
        apply(
            named("apps/v1", "deployments", "d", "scale"),
            {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 7}},
            "scaler",
            force="true",
        ),
        patch(named("apps/v1", "deployments", "d", "scale"), {"spec": {"replicas": 8}}, fieldManager="merger"),
        apply(D, {**DEPLOYMENT}, "one"),
        apply(D, deployment(replicas=3), "one"),
        patch(named("apps/v1", "deployments", "d", "status"), {"status": {"observedGeneration": 4}}, fieldManager="st"),
        get(D),
        apply(
            "/api/v1/nodes/apply-node",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "apply-node", "labels": {"a": "b"}},
                "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
            },
            "kubelet",
        ),
        apply(
            "/api/v1/nodes/apply-node",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "apply-node"},
                "spec": {"taints": [{"key": "other", "effect": "NoExecute", "value": "x"}]},
            },
            "karpenter",
        ),
        apply(
            "/api/v1/nodes/apply-node",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "apply-node"},
                "spec": {"taints": [{"key": "other", "effect": "NoExecute", "value": "x"}]},
            },
            "karpenter",
            force="true",
        ),
        get("/api/v1/nodes/apply-node"),
    ],
}
