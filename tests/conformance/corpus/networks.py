"""Services, endpoints, ingresses, policies; autoscalers and budgets."""

from __future__ import annotations

from typing import Any

from tests.conformance.steps import core, delete, get, named, patch, post, put, table

S = core("services")
H2 = named("autoscaling/v2", "horizontalpodautoscalers")
H1 = named("autoscaling/v1", "horizontalpodautoscalers")
B = named("policy/v1", "poddisruptionbudgets")


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}], **spec},
    }


def hpa(name: str, **spec: Any) -> dict[str, Any]:
    made = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 5, **spec}
    return {"metadata": {"name": name}, "spec": made}


def cpu(**target: Any) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def budget(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"a": "b"}}, **spec}}


TOPICS = {
    "services": [
        post(S, service("a", selector={"app": "x"})),
        get(S + "/a"),
        table(S),
        post(S, service("h", clusterIP="None")),
        post(S, service("lb", type="LoadBalancer")),
        post(
            S,
            service(
                "np", type="NodePort", ports=[{"port": 80, "name": "a"}, {"port": 81, "name": "b", "targetPort": "web"}]
            ),
        ),
        post(S, {"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "example.com"}}),
        post(S, {"metadata": {"name": "x"}, "spec": {"type": "ExternalName"}}),
        post(S, service("x", ports=[])),
        post(S, service("x", ports=[{"port": 0}])),
        post(S, service("x", ports=[{"port": 1}, {"port": 2}])),
        post(S, service("x", ports=[{"port": 1, "name": "a"}, {"port": 1, "name": "b"}])),
        post(S, service("x", type="Wild")),
        post(S, service("x", clusterIP="1.2.3")),
        post(S, service("x", sessionAffinity="Wild", selector={"a b": "c"})),
        post(S, service("aff", sessionAffinity="ClientIP")),
        patch(S + "/a", {"spec": {"ports": [{"port": 81, "name": "n"}]}}, "strategic"),
        patch(S + "/a", {"spec": {"ports": [{"port": 80, "name": "m"}]}}, "strategic"),
        patch(S + "/a", {"spec": {"clusterIP": "10.96.1.1"}}),
        patch(S + "/a", {"spec": {"type": "NodePort"}}),
        patch(S + "/a", {"spec": {"selector": {"q": "r"}}}),
        patch(S + "/lb/status", {"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}}),
        table(S),
        put(S + "/h", service("h", clusterIP="None", selector={"x": "y"})),
        post(S, service("dry"), dryRun="All"),
        delete(S + "/a"),
        delete(S + "/h"),
        post(
            core("endpoints"),
            {"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]},
        ),
        table(core("endpoints")),
        post(
            named("discovery.k8s.io/v1", "endpointslices"),
            {
                "metadata": {"name": "es"},
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.0.1"]}],
                "ports": [{"port": 80}],
            },
        ),
        post(
            named("discovery.k8s.io/v1", "endpointslices"),
            {"metadata": {"name": "x"}, "addressType": "Wild", "endpoints": [{"addresses": []}]},
        ),
        table(named("discovery.k8s.io/v1", "endpointslices")),
    ],
    "ingresses": [
        post(
            named("networking.k8s.io/v1", "ingresses"),
            {
                "metadata": {"name": "i"},
                "spec": {
                    "rules": [
                        {
                            "host": "a.example.com",
                            "http": {
                                "paths": [
                                    {
                                        "path": "/",
                                        "pathType": "Prefix",
                                        "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                    }
                                ]
                            },
                        }
                    ]
                },
            },
        ),
        table(named("networking.k8s.io/v1", "ingresses")),
        patch(named("networking.k8s.io/v1", "ingresses", "i"), {"spec": {"ingressClassName": "alb"}}),
        post(
            "/apis/networking.k8s.io/v1/ingressclasses",
            {"metadata": {"name": "alb"}, "spec": {"controller": "ingress.k8s.aws/alb"}},
        ),
        table("/apis/networking.k8s.io/v1/ingressclasses"),
        post(
            named("networking.k8s.io/v1", "networkpolicies"),
            {"metadata": {"name": "np"}, "spec": {"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]}},
        ),
        table(named("networking.k8s.io/v1", "networkpolicies")),
        delete(named("networking.k8s.io/v1", "ingresses", "i")),
    ],
    "hpa": [
        post(H2, hpa("a")),
        post(H2, hpa("b", minReplicas=2, metrics=[cpu(type="Utilization", averageUtilization=50)])),
        get(H1 + "/b"),
        get(H2 + "/b"),
        table(H2),
        table(H1),
        post(
            H1,
            {
                "metadata": {"name": "one"},
                "spec": {
                    "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
                    "maxReplicas": 10,
                    "targetCPUUtilizationPercentage": 60,
                },
            },
        ),
        get(H2 + "/one"),
        post(
            H1,
            {
                "metadata": {"name": "def"},
                "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3},
            },
        ),
        get(H2 + "/def"),
        post(H2, hpa("x", minReplicas=0)),
        post(H2, hpa("x", minReplicas=9)),
        post(H2, hpa("x", maxReplicas=0)),
        post(H2, {"metadata": {"name": "x"}, "spec": {}}),
        post(H2, hpa("x", metrics=[cpu()])),
        post(H2, hpa("x", metrics=[cpu(type="Utilization", averageUtilization=0)])),
        post(H2, hpa("x", metrics=[{"type": "Wild"}])),
        post(H2, hpa("x", metrics=[cpu(type="Utilization", averageUtilization=5, averageValue="1")])),
        post(H2, hpa("x", metrics=[{"type": "Resource"}])),
        post(
            H2,
            hpa(
                "m",
                metrics=[
                    cpu(type="AverageValue", averageValue="500m"),
                    {
                        "type": "Pods",
                        "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}},
                    },
                    {
                        "type": "External",
                        "external": {
                            "metric": {"name": "q", "selector": {"matchLabels": {"a": "b"}}},
                            "target": {"type": "Value", "value": "30"},
                        },
                    },
                    {
                        "type": "Object",
                        "object": {
                            "metric": {"name": "r"},
                            "describedObject": {"kind": "Service", "name": "s"},
                            "target": {"type": "Value", "value": "5k"},
                        },
                    },
                    {
                        "type": "ContainerResource",
                        "containerResource": {
                            "name": "memory",
                            "container": "c",
                            "target": {"type": "Utilization", "averageUtilization": 70},
                        },
                    },
                ],
            ),
        ),
        get(H1 + "/m"),
        table(H2 + "/m"),
        post(
            H2,
            hpa(
                "beh",
                behavior={
                    "scaleDown": {
                        "stabilizationWindowSeconds": 60,
                        "policies": [{"type": "Percent", "value": 10, "periodSeconds": 60}],
                    }
                },
            ),
        ),
        get(H1 + "/beh"),
        post(H2, hpa("beh2", behavior={"scaleUp": {"selectPolicy": "Disabled"}})),
        post(
            H2,
            hpa(
                "x",
                behavior={
                    "scaleDown": {
                        "stabilizationWindowSeconds": 4000,
                        "selectPolicy": "Wild",
                        "policies": [{"type": "Wild", "value": 0, "periodSeconds": 0}],
                    }
                },
            ),
        ),
        post(H2, hpa("x", behavior={"scaleUp": {"policies": []}})),
        post(H2, hpa("tol", behavior={"scaleUp": {"tolerance": "0.05"}})),
        patch(H2 + "/a", {"spec": {"maxReplicas": 9}}),
        patch(
            H2 + "/a/status",
            {
                "status": {
                    "currentReplicas": 3,
                    "desiredReplicas": 4,
                    "currentMetrics": [
                        {
                            "type": "Resource",
                            "resource": {"name": "cpu", "current": {"averageUtilization": 55, "averageValue": "100m"}},
                        }
                    ],
                    "conditions": [
                        {
                            "type": "AbleToScale",
                            "status": "True",
                            "reason": "R",
                            "message": "m",
                            "lastTransitionTime": "2026-01-01T00:00:00Z",
                        }
                    ],
                }
            },
        ),
        table(H2 + "/a"),
        get(H1 + "/a"),
        patch(H1 + "/one", {"spec": {"targetCPUUtilizationPercentage": 70}}),
        get(H2 + "/one"),
        put(H2 + "/b", hpa("b")),
        delete(H2 + "/a"),
    ],
    "budgets": [
        post(B, budget("a", minAvailable=1)),
        post(B, budget("p", maxUnavailable="30%")),
        table(B),
        get(B + "/a"),
        post(B, budget("x", minAvailable=1, maxUnavailable=1)),
        post(B, budget("none")),
        post(B, budget("x", minAvailable=-1)),
        post(B, budget("x", minAvailable="x")),
        post(B, budget("x", maxUnavailable="150%")),
        post(B, {"metadata": {"name": "nosel"}, "spec": {"minAvailable": 1}}),
        post(B, budget("x", minAvailable=1, selector={"matchLabels": {"a b": "c"}})),
        post(B, budget("pol", minAvailable=1, unhealthyPodEvictionPolicy="AlwaysAllow")),
        post(B, budget("x", minAvailable=1, unhealthyPodEvictionPolicy="Wild")),
        patch(B + "/a", {"spec": {"minAvailable": 2}}),
        patch(B + "/a", {"spec": {"minAvailable": None, "maxUnavailable": 1}}),
        patch(B + "/a", {"spec": {"selector": {"matchLabels": {"c": "d"}}}}),
        patch(
            B + "/a/status",
            {
                "status": {
                    "observedGeneration": 2,
                    "disruptionsAllowed": 1,
                    "currentHealthy": 3,
                    "desiredHealthy": 2,
                    "expectedPods": 3,
                }
            },
        ),
        patch(B + "/a/status", {"status": {"disruptionsAllowed": -1}}),
        table(B + "/a"),
        delete(B + "/a"),
    ],
}
