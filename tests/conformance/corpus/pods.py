"""Pods: defaults, validation, what may change, status, binding and eviction."""

from __future__ import annotations

from typing import Any

from tests.conformance.steps import core, get, named, patch, post, put, table

P = core("pods")


def pod(name: str, containers: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers or [{"name": "c", "image": "nginx"}], **spec},
    }


def box(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "c", "image": "nginx", **more}]


def bind(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def evict(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **more}


FULL = pod(
    "full",
    [
        {
            "name": "app",
            "image": "registry.example.com/app:v1",
            "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "UDP"}],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "R", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ],
            "resources": {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"memory": "1.5Gi", "cpu": "1e0"}},
            "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
            "livenessProbe": {"tcpSocket": {"port": 80}, "initialDelaySeconds": 5},
            "startupProbe": {"exec": {"command": ["true"]}, "failureThreshold": 30},
            "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
            "volumeMounts": [{"name": "e", "mountPath": "/e"}, {"name": "c", "mountPath": "/c"}],
            "securityContext": {"runAsNonRoot": True},
        },
        {"name": "log", "image": "busybox:latest", "resources": {"limits": {"cpu": "100m"}}},
    ],
    initContainers=[
        {"name": "init", "image": "busybox:1", "command": ["true"]},
        {"name": "side", "image": "side", "restartPolicy": "Always"},
    ],
    volumes=[
        {"name": "e", "emptyDir": {}},
        {"name": "c", "configMap": {"name": "cm"}},
        {"name": "s", "secret": {"secretName": "x"}},
        {
            "name": "p",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"path": "t"}},
                    {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                ]
            },
        },
        {"name": "h", "hostPath": {"path": "/tmp"}},
        {"name": "pvc", "persistentVolumeClaim": {"claimName": "x"}},
        {
            "name": "eph",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                }
            },
        },
    ],
    topologySpreadConstraints=[
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"a": "b"}},
        }
    ],
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]}
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
            ],
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
            ]
        },
    },
    tolerations=[{"key": "x", "operator": "Exists", "effect": "NoExecute"}, {"key": "y", "value": "z"}],
    nodeSelector={"kubernetes.io/arch": "arm64"},
)

TOPICS = {
    "poddefaults": [
        post(P, pod("plain")),
        post(P, FULL),
        post(
            P,
            pod(
                "tagged",
                [
                    {"name": "a", "image": "x:latest"},
                    {"name": "b", "image": "x:1"},
                    {"name": "d", "image": "x@sha256:" + "0" * 64},
                ],
            ),
        ),
        post(P, pod("hostnet", box(ports=[{"containerPort": 80}]), hostNetwork=True)),
        post(P, pod("best")),
        post(P, pod("burst", box(resources={"requests": {"cpu": "1"}}))),
        post(P, pod("guar", box(resources={"limits": {"cpu": "1", "memory": "1Gi"}}))),
        post(
            P,
            pod(
                "quant",
                box(
                    resources={
                        "requests": {"cpu": "0.1", "memory": "1e9", "ephemeral-storage": "1.5Gi"},
                        "limits": {"cpu": "2000m", "memory": "2000Mi", "nvidia.com/gpu": 1},
                    }
                ),
            ),
        ),
        post(P, pod("small", box(resources={"requests": {"cpu": "0.0001", "memory": "0.5"}}))),
        post(P, pod("tol", tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}])),
        post(P, pod("tolall", tolerations=[{"operator": "Exists"}])),
        post(
            P,
            pod(
                "tolsec",
                tolerations=[
                    {
                        "key": "node.kubernetes.io/unreachable",
                        "operator": "Exists",
                        "effect": "NoExecute",
                        "tolerationSeconds": 6,
                    }
                ],
            ),
        ),
        post(P, pod("gated", schedulingGates=[{"name": "a.b/c"}])),
        post(P, pod("restart", restartPolicy="Never", activeDeadlineSeconds=5)),
        post(P, pod("neg", terminationGracePeriodSeconds=-3)),
        post(P, pod("sa", serviceAccount="robot")),
        post(P, pod("dns", dnsPolicy="None", dnsConfig={"nameservers": ["1.1.1.1"]})),
        post(P, {**pod("st"), "status": {"phase": "Running", "podIP": "1.2.3.4"}}),
        post(P, pod("prio", priorityClassName="system-node-critical")),
        post(P, pod("noprio", priorityClassName="none")),
        post(P, pod("intprio", priority=5)),
        post(P, pod("over", overhead={"cpu": "1"})),
        post(P, pod("rtc", runtimeClassName="none")),
        post(P, pod("podres", resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}})),
        post(P, pod("envfrom", box(envFrom=[{"configMapRef": {"name": "x"}}], command=["a"], args=["b"]))),
        post(P, pod("grpc", box(livenessProbe={"grpc": {"port": 5}}))),
        post(P, pod("httphdr", box(livenessProbe={"httpGet": {"port": 5}, "timeoutSeconds": 0}))),
        get(core("pods", "plain")),
        table(P),
        table(core("pods", "plain")),
    ],
    "podvalidation": [
        post(P, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}),
        post(P, pod("x", [{}])),
        post(P, pod("x", [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}])),
        post(P, pod("x", [{"name": "A_b", "image": " i"}])),
        post(P, pod("x", box(imagePullPolicy="Sometimes"))),
        post(P, pod("x", restartPolicy="Maybe")),
        post(P, pod("x", dnsPolicy="Maybe")),
        post(P, pod("x", box(ports=[{"containerPort": 0}, {"containerPort": 70000, "protocol": "ICMP"}]))),
        post(P, pod("x", box(ports=[{"containerPort": 80, "name": "Bad_Name"}, {"containerPort": 80}]))),
        post(P, pod("x", box(ports=[{"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 80}]))),
        post(P, pod("x", box(ports=[{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}]))),
        post(P, pod("x", box(env=[{"name": ""}, {"name": "1=2"}, {"name": "A", "value": "x", "valueFrom": {}}]))),
        post(P, pod("x", box(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nothing"}}}]))),
        post(P, pod("x", box(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}))),
        post(P, pod("x", box(resources={"requests": {"cpu": "-1"}}))),
        post(P, pod("x", box(resources={"requests": {"bad": "1"}}))),
        post(P, pod("x", box(resources={"requests": {"example.com/gpu": "1"}}))),
        post(P, pod("x", box(resources={"limits": {"example.com/gpu": "1500m"}}))),
        post(P, pod("x", box(resources={"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}}))),
        post(P, pod("x", box(volumeMounts=[{"name": "none", "mountPath": "/a"}]))),
        post(
            P,
            pod(
                "x",
                box(volumeMounts=[{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]),
                volumes=[{"name": "v", "emptyDir": {}}],
            ),
        ),
        post(P, pod("x", volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}])),
        post(P, pod("x", volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}, {"name": "V."}])),
        post(P, pod("x", volumes=[{"name": "v", "persistentVolumeClaim": {}}, {"name": "w", "secret": {}}])),
        post(P, pod("x", nodeSelector={"a b": "c d"})),
        post(P, pod("x", tolerations=[{"operator": "Equal", "value": "x"}])),
        post(P, pod("x", tolerations=[{"key": "a", "operator": "Exists", "value": "v"}])),
        post(P, pod("x", tolerations=[{"key": "a", "operator": "Sometimes"}, {"key": "b", "effect": "Never"}])),
        post(P, pod("x", tolerations=[{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}])),
        post(P, pod("x", topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Maybe"}])),
        post(
            P,
            pod(
                "x",
                topologySpreadConstraints=[
                    {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 0},
                    {"maxSkew": 2, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"},
                    {"maxSkew": 2, "topologyKey": "y", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2},
                ],
            ),
        ),
        post(
            P,
            pod(
                "x",
                topologySpreadConstraints=[
                    {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["a"]},
                    {"maxSkew": 1, "topologyKey": "w", "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "X"},
                ],
            ),
        ),
        post(
            P,
            pod(
                "x",
                affinity={
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
                },
            ),
        ),
        post(
            P,
            pod(
                "x",
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "a", "operator": "In"},
                                        {"key": "b", "operator": "Exists", "values": ["x"]},
                                        {"key": "c", "operator": "Gt", "values": ["x"]},
                                        {"key": "d", "operator": "Near"},
                                    ]
                                }
                            ]
                        }
                    }
                },
            ),
        ),
        post(
            P,
            pod(
                "x",
                affinity={
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 0, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
                        ]
                    }
                },
            ),
        ),
        post(
            P,
            pod(
                "x",
                affinity={
                    "podAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}
                        ]
                    }
                },
            ),
        ),
        post(
            P,
            pod(
                "x",
                affinity={
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 101, "podAffinityTerm": {"topologyKey": "x", "labelSelector": {}}}
                        ]
                    }
                },
            ),
        ),
        post(P, pod("x", schedulingGates=[{"name": "a"}, {"name": "a"}], nodeName="n")),
        post(P, pod("x", activeDeadlineSeconds=0)),
        post(P, pod("x", hostAliases=[{"ip": "x", "hostnames": ["a_b"]}])),
        post(P, pod("x", box(livenessProbe={"periodSeconds": -1}))),
        post(P, pod("x", box(livenessProbe={"httpGet": {"port": 0}, "tcpSocket": {"port": 1}}))),
        post(P, pod("x", box(livenessProbe={"httpGet": {"port": 80}, "successThreshold": 2}))),
        post(
            P,
            pod(
                "x",
                initContainers=[
                    {"name": "c", "image": "x"},
                    {"name": "d", "image": "x", "readinessProbe": {"httpGet": {"port": 1}}},
                ],
            ),
        ),
        post(P, pod("x", nodeName="Bad Name")),
        post(P, pod("x", priorityClassName="Bad Name")),
        post(P, pod("x", hostname="a.b", subdomain="C")),
        post(P, pod("x", serviceAccountName="A b")),
        post(P, pod("x", box(securityContext={"privileged": True, "allowPrivilegeEscalation": False}))),
        post(P, pod("x", securityContext={"runAsUser": -1, "sysctls": [{"name": "a b"}]})),
        post(P, pod("x", ephemeralContainers=[{"name": "e", "image": "x"}])),
        post(P, pod("x", box(terminationMessagePolicy="None"))),
        post(P, pod("x", preemptionPolicy="Sometimes")),
    ],
    "podupdates": [
        post(P, pod("u", tolerations=[{"key": "a", "operator": "Exists"}])),
        patch(core("pods", "u"), {"spec": {"containers": [{"name": "c", "image": "other"}]}}, "strategic"),
        patch(core("pods", "u"), {"spec": {"nodeName": "n"}}),
        patch(core("pods", "u"), {"spec": {"nodeSelector": {"a": "b"}}}),
        patch(core("pods", "u"), {"spec": {"terminationGracePeriodSeconds": 5}}),
        patch(core("pods", "u"), {"spec": {"activeDeadlineSeconds": 50}}),
        patch(core("pods", "u"), {"spec": {"activeDeadlineSeconds": 60}}),
        patch(core("pods", "u"), {"spec": {"activeDeadlineSeconds": None}}),
        patch(core("pods", "u"), {"spec": {"tolerations": [{"key": "b", "operator": "Exists"}]}}),
        patch(
            core("pods", "u"),
            [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "b", "operator": "Exists"}}],
            "json",
        ),
        patch(
            core("pods", "u"),
            {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
            "strategic",
        ),
        patch(core("pods", "u"), {"spec": {"containers": [{"name": "new", "image": "x"}]}}, "strategic"),
        patch(core("pods", "u"), {"spec": {"priority": 5}}),
        patch(core("pods", "u"), {"spec": {"restartPolicy": "Never"}}),
        patch(core("pods", "u"), {"status": {"phase": "Running"}}),
        patch(
            core("pods", "u", "status"),
            {"status": {"phase": "Running", "podIP": "10.0.0.5", "startTime": "2026-01-01T00:00:00Z"}},
        ),
        patch(core("pods", "u", "status"), {"status": {"phase": "Strange"}}),
        patch(core("pods", "u", "status"), {"status": {"podIPs": [{"ip": "10.0.0.6"}]}}),
        patch(
            core("pods", "u", "status"),
            {"spec": {"nodeName": "x"}, "metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}}},
        ),
        patch(
            core("pods", "u", "status"), {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "strategic"
        ),
        patch(
            core("pods", "u", "status"),
            {
                "status": {
                    "conditions": [
                        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
                    ]
                }
            },
            "strategic",
        ),
        patch(
            core("pods", "u", "status"), {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "strategic"
        ),
        patch(
            core("pods", "u", "status"),
            {
                "status": {
                    "containerStatuses": [
                        {
                            "name": "c",
                            "ready": True,
                            "restartCount": 0,
                            "image": "nginx",
                            "imageID": "",
                            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                        }
                    ]
                }
            },
        ),
        patch(core("pods", "u", "status"), {"status": {"qosClass": "Guaranteed"}}),
        patch(core("pods", "u", "status"), {"status": {"nominatedNodeName": "n9"}}),
        patch(
            core("pods", "u", "resize"),
            {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
            "strategic",
        ),
        patch(
            core("pods", "u", "ephemeralcontainers"),
            {"spec": {"ephemeralContainers": [{"name": "dbg", "image": "x"}]}},
            "strategic",
        ),
        get(core("pods", "u")),
        table(core("pods", "u")),
        get(core("pods", "u", "status")),
        put(core("pods", "u"), pod("u")),
        post(P, pod("g", schedulingGates=[{"name": "a"}, {"name": "b"}])),
        patch(core("pods", "g"), {"spec": {"schedulingGates": [{"name": "b"}]}}),
        patch(core("pods", "g"), {"spec": {"schedulingGates": [{"name": "b"}, {"name": "d"}]}}),
        patch(core("pods", "g"), {"spec": {"nodeSelector": {"a": "b"}}}),
        patch(core("pods", "g"), {"spec": {"nodeSelector": {"a": "c"}}}),
        patch(core("pods", "g"), {"spec": {"schedulingGates": None}}),
        get(core("pods", "g")),
    ],
    "binding": [
        post(
            "/api/v1/nodes",
            {
                "metadata": {
                    "name": "bind-node",
                    "labels": {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"},
                }
            },
        ),
        post(P, pod("a"), save="a"),
        post(P, pod("b")),
        post(P, pod("g", schedulingGates=[{"name": "a"}])),
        post(core("pods", "a", "binding"), bind("a", "")),
        post(
            core("pods", "a", "binding"),
            {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {}},
        ),
        post(core("pods", "a", "binding"), {"metadata": {"name": "a"}, "target": {"kind": "Pod", "name": "x"}}),
        post(core("pods", "a", "binding"), bind("b", "bind-node")),
        post(core("pods", "a", "binding"), bind("a", "bind-node", uid="00000000-0000-0000-0000-000000000000")),
        post(core("pods", "a", "binding"), bind("a", "bind-node", annotations={"x": "y"}, labels={"l": "m"})),
        get(core("pods", "a")),
        post(core("pods", "a", "binding"), bind("a", "bind-node")),
        post(core("pods", "a", "binding"), bind("a", "other")),
        post(core("pods", "g", "binding"), bind("g", "bind-node")),
        post(core("pods", "none", "binding"), bind("none", "bind-node")),
        post(core("bindings"), bind("b", "nowhere"), dryRun="All"),
        post(core("bindings"), bind("b", "nowhere")),
        get(core("pods", "b")),
        post(
            P,
            {
                **pod("direct", nodeName="bind-node"),
                "metadata": {"name": "direct", "labels": {"topology.kubernetes.io/zone": "mine"}},
            },
        ),
        get(P, fieldSelector="spec.nodeName=bind-node"),
        get(P, fieldSelector="spec.nodeName=,status.phase!=Running"),
        get(P, fieldSelector="spec.x=y"),
        get(core("pods", "a", "log")),
        get(core("pods", "b", "log"), container="nope"),
    ],
    "eviction": [
        *[
            post(P, {**pod(f"p{n}", nodeName="n1"), "metadata": {"name": f"p{n}", "labels": {"app": "e"}}})
            for n in range(3)
        ],
        *[
            patch(
                core("pods", f"p{n}", "status"),
                {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
            )
            for n in range(3)
        ],
        post(core("pods", "p0", "eviction"), evict("p0", deleteOptions={"dryRun": ["All"]})),
        post(core("pods", "p0", "eviction"), evict("p0"), dryRun="All"),
        post(core("pods", "p0", "eviction"), evict("other")),
        post(
            core("pods", "p0", "eviction"),
            evict("p0", deleteOptions={"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}),
        ),
        post(core("pods", "p0", "eviction"), evict("p0")),
        get(core("pods", "p0")),
        post(core("pods", "p0", "eviction"), evict("p0")),
        post(
            named("policy/v1", "poddisruptionbudgets"),
            {"metadata": {"name": "b"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "e"}}}},
        ),
        post(core("pods", "p1", "eviction"), evict("p1")),
        patch(
            named("policy/v1", "poddisruptionbudgets", "b", "status"),
            {
                "status": {
                    "observedGeneration": 1,
                    "disruptionsAllowed": 1,
                    "currentHealthy": 3,
                    "desiredHealthy": 2,
                    "expectedPods": 3,
                }
            },
        ),
        post(core("pods", "p1", "eviction"), evict("p1")),
        get(named("policy/v1", "poddisruptionbudgets", "b")),
        post(core("pods", "p2", "eviction"), evict("p2")),
        patch(named("policy/v1", "poddisruptionbudgets", "b", "status"), {"status": {"currentHealthy": 2}}),
        post(core("pods", "p2", "eviction"), evict("p2")),
        post(
            named("policy/v1", "poddisruptionbudgets"),
            {"metadata": {"name": "b2"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "e"}}}},
        ),
        post(core("pods", "p2", "eviction"), evict("p2")),
        post(core("pods", "none", "eviction"), evict("none")),
        post(P, {**pod("pend"), "metadata": {"name": "pend", "labels": {"app": "e"}}}),
        post(core("pods", "pend", "eviction"), {**evict("pend"), "apiVersion": "policy/v1beta1"}),
        post(core("pods", "pend", "eviction"), evict("pend")),
        get(core("pods", "pend")),
        table(named("policy/v1", "poddisruptionbudgets")),
    ],
}
