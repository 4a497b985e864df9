"""What admission webhooks are sent: every kind of write, with its objects, its options and who asks."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.conformance.corpus.basics import CM, cm
from tests.conformance.corpus.pods import pod
from tests.conformance.corpus.webhooks import MUTATING, SETTLE, VALIDATING, hook, labelled, register
from tests.conformance.steps import Step, apply, calls, cluster, core, delete, get, named, patch, post, put

Json = dict[str, Any]
EVERYTHING = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "*"}
OURS = {"matchExpressions": [{"key": "ours", "operator": "In", "values": ["{ns}"]}]}


def rule(*resources: str, group: str = "", operations: str = "*", version: str = "*", scope: str = "*") -> Json:
    return {
        "operations": [operations],
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": list(resources),
        "scope": scope,
    }


def deployment(name: str, replicas: int = 1) -> Json:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


DEPLOYMENTS = named("apps/v1", "deployments")
HPA1, HPA2 = named("autoscaling/v1", "horizontalpodautoscalers"), named("autoscaling/v2", "horizontalpodautoscalers")
HPA = {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 5}}
REVIEW = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}, "user": "x"}}
WAIT = {"metadata": {"name": "w"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


TOPICS: dict[str, list[Step]] = {
    "hookreviews": [
        register(VALIDATING, "hookreviews", hook("allow", rules=[EVERYTHING])),
        post(CM, labelled("a", "x")),
        post(CM, {"metadata": {"generateName": "g-"}, "data": {"k": "v"}}),
        calls(),
        put(core("configmaps", "a"), cm("a", {"k": "w"})),
        patch(core("configmaps", "a"), {"data": {"k": "x"}}, fieldManager="me"),
        patch(core("configmaps", "a"), [{"op": "add", "path": "/data/j", "value": "1"}], "json"),
        apply(core("configmaps", "a"), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        apply(
            core("configmaps", "b"), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}, force="true"
        ),
        calls(),
        delete(core("configmaps", "a")),
        delete(core("configmaps", "b"), {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}),
        delete(core("configmaps", "missing")),
        calls(),
        delete(CM),
        calls(),
        delete(f"{VALIDATING}/hookreviews", pause=SETTLE),
    ],
    "hookmutatingreviews": [
        register(MUTATING, "hookmutatingreviews", hook("allow", rules=[EVERYTHING])),
        post(CM, labelled("a", "x")),
        post(CM, {"metadata": {"generateName": "g-"}, "data": {"k": "v"}}),
        patch(core("configmaps", "a"), {"data": {"k": "x"}}),
        delete(core("configmaps", "a")),
        calls(),
        post(core("pods"), pod("p")),
        calls(),
        delete(f"{MUTATING}/hookmutatingreviews", pause=SETTLE),
    ],
    "hooksubresources": [
        post(DEPLOYMENTS, deployment("d")),
        post(core("pods"), pod("p")),
        register(VALIDATING, "hooksubresources", hook("allow", rules=[EVERYTHING])),
        get(named("apps/v1", "deployments", "d", "scale")),
        put(named("apps/v1", "deployments", "d", "scale"), {"metadata": {"name": "d"}, "spec": {"replicas": 4}}),
        patch(named("apps/v1", "deployments", "d", "scale"), {"spec": {"replicas": 5}}),
        calls(),
        patch(named("apps/v1", "deployments", "d", "status"), {"status": {"observedGeneration": 3}}),
        patch(core("pods", "p", "status"), {"status": {"phase": "Running"}}),
        calls(),
        post(core("pods", "p", "binding"), {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}),
        post(
            core("pods", "p", "eviction"),
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}},
        ),
        calls(),
        post(core("serviceaccounts"), {"metadata": {"name": "s"}}),
        msgspec.structs.replace(
            post(core("serviceaccounts", "s", "token"), {"spec": {"audiences": ["a"], "expirationSeconds": 900}}),
            brief=True,
        ),
        calls(),
        delete(f"{VALIDATING}/hooksubresources", pause=SETTLE),
    ],
    "hookscaled": [
        post(DEPLOYMENTS, deployment("d")),
        register(
            MUTATING,
            "hookscaled",
            hook("scale-seven", rules=[rule("deployments/scale", group="apps")]),
            hook("default-replicas", "three", rules=[rule("deployments", group="apps")]),
            hook("sidecar", "side", rules=[rule("pods", operations="CREATE")]),
            hook("label-a", "equal", rules=[rule("horizontalpodautoscalers", group="autoscaling", version="v2")]),
            hook(
                "label-b",
                "exact",
                rules=[rule("horizontalpodautoscalers", group="autoscaling", version="v2")],
                matchPolicy="Exact",
            ),
        ),
        put(named("apps/v1", "deployments", "d", "scale"), {"metadata": {"name": "d"}, "spec": {"replicas": 4}}),
        get(named("apps/v1", "deployments", "d")),
        post(DEPLOYMENTS, {**deployment("three"), "metadata": {"name": "three", "labels": {"case": "three"}}}),
        post(core("pods"), {**WAIT, "metadata": {"name": "side", "labels": {"case": "side"}}}),
        post(HPA1, {**HPA, "metadata": {"name": "v1", "labels": {"case": "equal"}}}),
        post(HPA2, {**HPA, "metadata": {"name": "v2", "labels": {"case": "equal"}}}),
        post(HPA1, {**HPA, "metadata": {"name": "x1", "labels": {"case": "exact"}}}),
        post(HPA2, {**HPA, "metadata": {"name": "x2", "labels": {"case": "exact"}}}),
        calls(),
        delete(f"{MUTATING}/hookscaled", pause=SETTLE),
    ],
    "hookcluster": [
        register(
            VALIDATING,
            "hookcluster",
            hook("deny-message", "whole", rules=[rule("*", group="*", scope="Cluster")], namespaceSelector={}),
            hook("deny-message", "parts", rules=[rule("*", group="*", scope="Namespaced")], namespaceSelector={}),
            hook(
                "deny-reason", "spaced", rules=[rule("*", group="*")], namespaceSelector={"matchLabels": {"no": "such"}}
            ),
            hook("deny-code", "named", rules=[rule("namespaces")], namespaceSelector={"matchLabels": {"new": "label"}}),
            hook("allow", "asked", rules=[rule("namespaces/finalize", "namespaces")], namespaceSelector={}),
        ),
        post("/api/v1/namespaces", {"metadata": {"name": "{ns}-a", "labels": {"case": "whole"}}}),
        post("/api/v1/namespaces", {"metadata": {"name": "{ns}-b", "labels": {"case": "parts"}}}),
        post("/api/v1/namespaces", {"metadata": {"name": "{ns}-c", "labels": {"case": "spaced"}}}),
        post("/api/v1/namespaces", {"metadata": {"name": "{ns}-d", "labels": {"case": "named", "new": "label"}}}),
        post("/api/v1/namespaces", {"metadata": {"name": "{ns}-e", "labels": {"case": "named"}}}),
        patch("/api/v1/namespaces/{ns}-e", {"metadata": {"labels": {"new": "label"}}}),
        post("/api/v1/namespaces", {"metadata": {"name": "{ns}-f", "labels": {"case": "asked"}}}),
        post("/api/v1/nodes", {"metadata": {"name": "{ns}-a", "labels": {"case": "whole"}}}),
        post("/api/v1/nodes", {"metadata": {"name": "{ns}-b", "labels": {"case": "parts"}}}),
        post("/api/v1/nodes", {"metadata": {"name": "{ns}-c", "labels": {"case": "spaced"}}}),
        post(CM, labelled("whole", "whole")),
        post(CM, labelled("parts", "parts")),
        post(CM, labelled("spaced", "spaced")),
        calls(),
        delete("/api/v1/nodes/{ns}-b"),
        delete(f"{VALIDATING}/hookcluster", pause=SETTLE),
    ],
    "hookexempt": [
        register(
            VALIDATING,
            "hookexempt",
            hook("deny-message", rules=[EVERYTHING], namespaceSelector={}, objectSelector=OURS),
            hook(
                "allow",
                rules=[rule("*", group="authorization.k8s.io"), rule("*", group="authentication.k8s.io")],
                namespaceSelector={},
            ),
        ),
        post(
            VALIDATING,
            {"metadata": {"name": "hookexempt-2", "labels": {"ours": "{ns}"}}, "webhooks": []},
        ),
        patch(f"{VALIDATING}/hookexempt-2", {"metadata": {"labels": {"more": "x"}}}),
        delete(f"{VALIDATING}/hookexempt-2"),
        post(CM, {"metadata": {"name": "mine", "labels": {"ours": "{ns}"}}}),
        post(cluster("authorization.k8s.io/v1", "subjectaccessreviews"), REVIEW),
        calls(),
        post(cluster("authorization.k8s.io/v1", "selfsubjectaccessreviews"), {"spec": REVIEW["spec"] | {"user": None}}),
        post(cluster("authentication.k8s.io/v1", "tokenreviews"), {"spec": {"token": "nobody"}}),
        calls(),
        delete(f"{VALIDATING}/hookexempt", pause=SETTLE),
    ],
}
