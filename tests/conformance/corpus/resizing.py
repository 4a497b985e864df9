"""Resizing pods in place: what the subresource takes, what it refuses in which words, and what plugins say of it."""

from __future__ import annotations

from typing import Any

from tests.conformance.corpus.pods import P, box, pod
from tests.conformance.steps import Step, apply, core, get, patch, post, put

Json = dict[str, Any]
NODES = "/api/v1/nodes"


def resources(cpu: str = "", memory: str = "", **more: str) -> dict[str, str]:
    return {name: text for name, text in {"cpu": cpu, "memory": memory, **more}.items() if text}


def sized(name: str, requests: Json | None = None, limits: Json | None = None, **spec: Any) -> Json:
    """A pod of one container; fields of the container go into `container`."""
    container = dict(spec.pop("container", {}))
    held = {key: value for key, value in (("requests", requests), ("limits", limits)) if value is not None}
    return pod(name, box(resources=held, **container), **spec)


def resized(name: str, requests: Json | None = None, limits: Json | None = None, **container: Any) -> Step:
    held = {key: value for key, value in (("requests", requests), ("limits", limits)) if value is not None}
    body = {"spec": {"containers": [{"name": "c", "resources": held, **container}]}}
    return patch(core("pods", name, "resize"), body, "strategic")


def changed(name: str, *operations: tuple[str, str, Any]) -> Step:
    body = [
        {"op": op, "path": path} if op == "remove" else {"op": op, "path": path, "value": value}
        for op, path, value in operations
    ]
    return patch(core("pods", name, "resize"), body, "json")


def status(name: str, **fields: Any) -> Step:
    return patch(core("pods", name, "status"), {"status": fields}, "merge")


def running(with_resources: bool = True, **fields: Any) -> Json:
    state = {
        "name": "c",
        "image": "nginx",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": "2024-01-01T00:00:00Z"}},
    }
    if with_resources:
        state["resources"] = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    return {"phase": "Running", "containerStatuses": [state], **fields}


def node(name: str, system: str = "linux", **allocatable: str) -> list[Step]:
    held = {"cpu": "2", "memory": "4Gi", "pods": "110", **allocatable}
    labels = {"kubernetes.io/os": system} if system else {}
    return [
        post(NODES, {"metadata": {"name": f"{{ns}}-{name}", "labels": labels}}),
        patch(f"{NODES}/{{ns}}-{name}/status", {"status": {"allocatable": held, "capacity": held}}),
    ]


BURSTABLE = resources("100m", "64Mi")
LIMITS = resources("200m", "128Mi")
RESTART = [
    {"resourceName": "cpu", "restartPolicy": "NotRequired"},
    {"resourceName": "memory", "restartPolicy": "RestartContainer"},
]
TOPICS: dict[str, list[Step]] = {
    "resizes": [
        post(P, sized("a", BURSTABLE, LIMITS)),
        get(core("pods", "a", "resize")),
        resized("a", resources("150m")),
        resized("a", resources("150m")),
        resized("a", resources("0.15")),
        resized("a", resources("150m", "96Mi"), resources("300m", "256Mi")),
        resized("a", resources("400m")),
        resized("a", resources("-1")),
        resized("a", resources("1.5m")),
        resized("a", resources(memory="1.5")),
        resized("a", resources("x")),
        resized("a", {"ephemeral-storage": "1Gi"}),
        resized("a", {"example.com/gpu": "1"}, {"example.com/gpu": "1"}),
        resized("a", {"hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi"}),
        changed("a", ("remove", "/spec/containers/0/resources/requests/cpu", None)),
        changed("a", ("remove", "/spec/containers/0/resources/limits/cpu", None)),
        changed("a", ("remove", "/spec/containers/0/resources/limits", None)),
        changed("a", ("remove", "/spec/containers/0/resources/requests", None)),
        changed("a", ("remove", "/spec/containers/0/resources", None)),
        changed("a", ("replace", "/spec/containers/0/image", "other")),
        changed("a", ("add", "/spec/containers/0/env", [{"name": "A", "value": "b"}])),
        changed("a", ("add", "/spec/containers/0/resizePolicy", RESTART)),
        changed("a", ("add", "/spec/activeDeadlineSeconds", 5)),
        changed("a", ("replace", "/spec/restartPolicy", "Never")),
        changed("a", ("add", "/metadata/labels", {"a": "b"})),
        changed("a", ("add", "/metadata/annotations", {"a": "b"})),
        changed("a", ("add", "/status/phase", "Running")),
        changed("a", ("replace", "/metadata/name", "b")),
        changed("a", ("add", "/spec/containers/-", {"name": "d", "image": "nginx"})),
        changed("a", ("replace", "/spec/containers/0/name", "d")),
        changed("a", ("add", "/spec/containers/0/resources/claims", [{"name": "x"}])),
        changed("a", ("replace", "/spec/containers/0/resources/requests/cpu", "175m")),
        patch(
            core("pods", "a", "resize"),
            {"spec": {"containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "180m"}}}]}},
            "merge",
        ),
        patch(core("pods", "a", "resize"), {"metadata": {"resourceVersion": "1"}}, "merge"),
        patch(core("pods", "a", "resize"), {}, "merge", dryRun="All"),
        patch(core("pods", "none", "resize"), {}, "merge"),
        put(core("pods", "a", "resize"), sized("a", resources("190m", "96Mi"), resources("300m", "256Mi"))),
        put(core("pods", "a", "resize"), sized("b", resources("190m", "96Mi"), resources("300m", "256Mi"))),
        post(core("pods", "a", "resize"), {}),
        apply(core("pods", "a", "resize"), sized("a", resources("200m", "96Mi"), resources("300m", "256Mi"))),
        resized("a", resources("210m"), unknown="x"),
        patch(
            core("pods", "a"),
            {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1m"}}}]}},
            "strategic",
        ),
        get(core("pods", "a")),
    ],
    "resizeclasses": [
        post(P, pod("best")),
        resized("best", resources("100m")),
        resized("best", {}, resources("100m")),
        post(P, sized("guaranteed", resources("100m", "64Mi"), resources("100m", "64Mi"))),
        resized("guaranteed", resources("50m")),
        resized("guaranteed", resources("200m"), resources("200m")),
        resized("guaranteed", None, resources("300m")),
        changed("guaranteed", ("remove", "/spec/containers/0/resources", None)),
        post(P, sized("burstable", BURSTABLE)),
        resized("burstable", None, resources("100m", "64Mi")),
        resized("burstable", None, resources("200m")),
        resized("burstable", None, resources(memory="64Mi")),
        changed("burstable", ("remove", "/spec/containers/0/resources/limits/cpu", None)),
        changed("burstable", ("remove", "/spec/containers/0/resources/limits", None)),
        changed("burstable", ("remove", "/spec/containers/0/resources/requests/memory", None)),
        post(P, sized("limited", None, LIMITS)),
        resized("limited", None, resources("300m")),
        resized("limited", resources("300m"), resources("300m")),
        post(
            P,
            pod(
                "two",
                [
                    {"name": "c", "image": "nginx", "resources": {"requests": BURSTABLE}},
                    {"name": "d", "image": "nginx"},
                ],
            ),
        ),
        changed("two", ("add", "/spec/containers/1/resources/requests", BURSTABLE)),
        changed(
            "two",
            ("replace", "/spec/containers/0/resources/requests/cpu", "1"),
            ("replace", "/spec/containers/1/resources/requests/cpu", "2"),
        ),
        changed("two", ("remove", "/spec/containers/1", None)),
        patch(
            core("pods", "two", "resize"),
            [{"op": "move", "from": "/spec/containers/1", "path": "/spec/containers/0"}],
            "json",
        ),
        get(P),
    ],
    "resizepolicies": [
        post(P, sized("mem", BURSTABLE, LIMITS, container={"resizePolicy": RESTART})),
        post(P, sized("never", BURSTABLE, LIMITS, container={"resizePolicy": RESTART}, restartPolicy="Never")),
        post(P, sized("plainnever", BURSTABLE, LIMITS, restartPolicy="Never")),
        resized("plainnever", resources("120m")),
        resized("mem", None, resources(memory="96Mi")),
        resized("mem", None, resources(memory="256Mi")),
        post(P, sized("shrink", BURSTABLE, LIMITS)),
        resized("shrink", None, resources(memory="96Mi")),
        resized("shrink", resources(memory="32Mi"), resources(memory="32Mi")),
        post(
            P,
            sized(
                "init",
                BURSTABLE,
                initContainers=[
                    {"name": "i", "image": "nginx", "resources": {"requests": BURSTABLE}},
                    {"name": "side", "image": "nginx", "restartPolicy": "Always", "resources": {"requests": BURSTABLE}},
                ],
            ),
        ),
        changed("init", ("replace", "/spec/initContainers/0/resources/requests/cpu", "150m")),
        changed("init", ("replace", "/spec/initContainers/1/resources/requests/cpu", "150m")),
        changed("init", ("add", "/spec/initContainers/1/resources/limits", resources("300m"))),
        changed("init", ("remove", "/spec/initContainers/1/resources/requests/cpu", None)),
        changed("init", ("remove", "/spec/initContainers", None)),
        post(P, sized("eph", BURSTABLE)),
        patch(
            core("pods", "eph", "ephemeralcontainers"),
            {"spec": {"ephemeralContainers": [{"name": "e", "image": "x"}]}},
            "strategic",
        ),
        changed("eph", ("add", "/spec/ephemeralContainers/0/resources/requests", BURSTABLE)),
        post(
            P, sized("whole", BURSTABLE, resources={"requests": resources("1", "1Gi"), "limits": resources("2", "2Gi")})
        ),
        changed("whole", ("replace", "/spec/resources/requests/cpu", "1500m")),
        changed("whole", ("replace", "/spec/resources/requests/cpu", "50m")),
        changed("whole", ("replace", "/spec/containers/0/resources/requests/cpu", "200m")),
        changed("whole", ("replace", "/spec/containers/0/resources/requests/cpu", "20")),
        changed("whole", ("remove", "/spec/resources/limits", None)),
        changed("whole", ("remove", "/spec/resources", None)),
        post(P, sized("windows", BURSTABLE, os={"name": "windows"})),
        resized("windows", resources("120m")),
        post(P, sized("bad", BURSTABLE, container={"resizePolicy": [RESTART[0], RESTART[0]]})),
        post(P, sized("gated", BURSTABLE, schedulingGates=[{"name": "example.com/g"}])),
        resized("gated", resources("120m")),
    ],
    "resizenodes": [
        *node("n"),
        *node("w", "windows"),
        *node("o", ""),
        post(P, sized("a", BURSTABLE, nodeName="{ns}-n")),
        resized("a", resources("1")),
        resized("a", resources("2")),
        resized("a", resources("2001m")),
        resized("a", resources(memory="5Gi")),
        resized("a", resources("3", "5Gi")),
        post(P, sized("w", BURSTABLE, nodeName="{ns}-w")),
        resized("w", resources("1")),
        post(P, sized("o", BURSTABLE, nodeName="{ns}-o")),
        resized("o", resources("1")),
        post(P, sized("gone", BURSTABLE, nodeName="{ns}-none")),
        resized("gone", resources("1")),
        resized("gone", resources("100m")),
        status("a", **running()),
        resized("a", resources("300m")),
        get(core("pods", "a")),
        status("a", observedGeneration=3),
        status("a", observedGeneration=1),
        status("a", phase="Running"),
        status(
            "a",
            conditions=[
                {
                    "type": "PodResizePending",
                    "status": "True",
                    "reason": "Deferred",
                    "message": "no room",
                    "observedGeneration": 4,
                },
                {"type": "PodResizeInProgress", "status": "True", "observedGeneration": 4},
            ],
        ),
        status("a", **running(resize="Proposed")),
        status("a", **running(allocatedResources=resources("1", "1Gi"))),
        post(P, sized("old", BURSTABLE, nodeName="{ns}-n")),
        status("old", **running(with_resources=False)),
        resized("old", resources("300m")),
        post(P, sized("done", BURSTABLE, nodeName="{ns}-n")),
        status("done", phase="Succeeded"),
        resized("done", resources("300m")),
        post(
            P,
            sized(
                "side",
                BURSTABLE,
                nodeName="{ns}-n",
                initContainers=[
                    {"name": "side", "image": "nginx", "restartPolicy": "Always", "resources": {"requests": BURSTABLE}},
                    {"name": "i", "image": "nginx", "resources": {"requests": resources("1900m")}},
                ],
            ),
        ),
        resized("side", resources("1950m")),
        resized("side", resources("1850m")),
        get(P),
    ],
    "resizelimits": [
        post(
            core("limitranges"),
            {
                "metadata": {"name": "l"},
                "spec": {
                    "limits": [
                        {
                            "type": "Container",
                            "max": resources("1"),
                            "min": resources("50m"),
                            "maxLimitRequestRatio": resources("4"),
                        },
                        {"type": "Pod", "max": resources("2", "1Gi")},
                    ]
                },
            },
        ),
        post(
            core("resourcequotas"),
            {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "500m", "limits.memory": "1Gi"}}},
            pause=2.0,
        ),
        patch(
            core("resourcequotas", "q", "status"),
            {
                "status": {
                    "hard": {"requests.cpu": "500m", "limits.memory": "1Gi"},
                    "used": {"requests.cpu": "0", "limits.memory": "0"},
                }
            },
            pause=1.0,
        ),
        post(P, sized("a", BURSTABLE, resources("200m", "128Mi"))),
        resized("a", resources("20m")),
        resized("a", resources("40m")),
        resized("a", resources("100m"), resources("2")),
        resized("a", resources("400m"), resources("400m")),
        get(core("resourcequotas", "q")),
        resized("a", resources("600m"), resources("600m")),
        resized("a", None, resources(memory="2Gi")),
        get(core("pods", "a")),
    ],
}
