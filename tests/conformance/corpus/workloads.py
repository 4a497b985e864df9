"""Deployments and their kin: defaults, validation, scale, status, tables."""

from __future__ import annotations

from typing import Any

from tests.conformance.corpus.patching import DEPLOYMENT
from tests.conformance.steps import core, delete, get, named, patch, post, put, table

D = named("apps/v1", "deployments")
R = named("apps/v1", "replicasets")
S = named("apps/v1", "statefulsets")
E = named("apps/v1", "daemonsets")
J = named("batch/v1", "jobs")
C = named("batch/v1", "cronjobs")


def template(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels or {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}}


def work(name: str, kind: str = "Deployment", group: str = "apps/v1", **spec: Any) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template(), **spec}
    return {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {k: v for k, v in spec.items() if v is not None},
    }


def job(name: str, **spec: Any) -> dict[str, Any]:
    made = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": made}


TOPICS = {
    "deployments": [
        post(D, work("d")),
        post(D, work("d2", replicas=0)),
        get(D + "/d"),
        table(D),
        post(D, work("x", selector=None)),
        post(D, work("x", selector={"matchLabels": {"a": "c"}})),
        post(D, work("x", selector={})),
        post(D, work("x", replicas=-1)),
        post(D, work("x", strategy={"type": "Blue"})),
        post(D, work("x", strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}})),
        post(D, work("x", strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}})),
        post(D, work("x", strategy={"rollingUpdate": {"maxSurge": "x%", "maxUnavailable": "200%"}})),
        post(D, work("x", template={"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}})),
        post(
            D,
            work(
                "x",
                template={
                    **template(),
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
                },
            ),
        ),
        post(D, work("x", minReadySeconds=5, progressDeadlineSeconds=4)),
        post(D, work("x", revisionHistoryLimit=-1, paused=True)),
        post(
            D,
            work("x", selector={"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "b", "operator": "Foo"}]}),
        ),
        patch(D + "/d", {"spec": {"selector": {"matchLabels": {"z": "y"}}}}),
        patch(D + "/d", {"spec": {"replicas": 3}}),
        patch(D + "/d", {"metadata": {"annotations": {"x": "y"}}}),
        patch(D + "/d", {"metadata": {"labels": {"x": "y"}}}),
        patch(
            D + "/d",
            {
                "spec": {
                    "template": {
                        "metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}
                    }
                }
            },
        ),
        patch(D + "/d", {"status": {"replicas": 1}}),
        patch(
            D + "/d/status",
            {
                "status": {
                    "replicas": 3,
                    "readyReplicas": 1,
                    "availableReplicas": 1,
                    "updatedReplicas": 3,
                    "unavailableReplicas": 2,
                    "observedGeneration": 2,
                },
                "spec": {"replicas": 7},
            },
        ),
        patch(D + "/d/status", {"status": {"replicas": -1, "readyReplicas": 5}}),
        table(D + "/d"),
        put(D + "/d", work("d", replicas=2)),
        put(D + "/d", {**DEPLOYMENT, "metadata": {"name": "d"}}),
        get(D + "/d"),
        delete(D + "/d"),
        delete(D + "/d2", propagationPolicy="Foreground"),
        get(D + "/d2"),
        post(D, {"apiVersion": "extensions/v1beta1", "kind": "Deployment", "metadata": {"name": "old"}}),
    ],
    "scale": [
        post(D, work("d", replicas=2)),
        get(D + "/d/scale", save="s"),
        put(
            D + "/d/scale",
            {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 5}},
        ),
        put(
            D + "/d/scale",
            {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": "d", "resourceVersion": "1"},
                "spec": {"replicas": 5},
            },
        ),
        put(
            D + "/d/scale",
            {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": -5}},
        ),
        put(
            D + "/d/scale",
            {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "e"}, "spec": {"replicas": 5}},
        ),
        patch(D + "/d/scale", {"spec": {"replicas": 6}}),
        patch(D + "/d/scale", {"spec": {"replicas": 6}}),
        patch(D + "/d/scale", {"spec": {"replicas": 0}}),
        get(D + "/d/scale"),
        patch(D + "/d/scale", [{"op": "test", "path": "/spec/replicas", "value": 0}], "json"),
        patch(D + "/d/scale", [{"op": "replace", "path": "/spec/replicas", "value": 3}], "json"),
        patch(D + "/d/scale", {"spec": {"replicas": "x"}}),
        patch(D + "/d/scale", {"spec": {"replicas": 4}}, dryRun="All"),
        get(D + "/d/scale"),
        get(D + "/none/scale"),
        delete(D + "/d/scale"),
        get(D + "/d"),
        post(
            D,
            work(
                "sel",
                selector={
                    "matchLabels": {"a": "b"},
                    "matchExpressions": [{"key": "t", "operator": "NotIn", "values": ["x", "y"]}],
                },
            ),
        ),
        get(D + "/sel/scale"),
        post(R, work("r", "ReplicaSet")),
        get(R + "/r/scale"),
        post(S, work("s", "StatefulSet", serviceName="x")),
        get(S + "/s/scale"),
        post(
            core("replicationcontrollers"),
            {"metadata": {"name": "rc"}, "spec": {"selector": {"a": "b"}, "template": template()}},
        ),
        get(core("replicationcontrollers", "rc", "scale")),
        table(D + "/d/scale"),
    ],
    "replicasets": [
        post(R, work("r", "ReplicaSet")),
        table(R),
        post(R, work("x", "ReplicaSet", template=None)),
        post(R, work("x", "ReplicaSet", selector={"matchLabels": {"q": "r"}})),
        patch(R + "/r", {"spec": {"replicas": 4}}),
        patch(
            R + "/r/status",
            {
                "status": {
                    "replicas": 4,
                    "fullyLabeledReplicas": 4,
                    "readyReplicas": 2,
                    "availableReplicas": 1,
                    "observedGeneration": 2,
                }
            },
        ),
        patch(R + "/r/status", {"status": {"replicas": 1, "readyReplicas": 5}}),
        patch(R + "/r", {"spec": {"selector": {"matchLabels": {"x": "y"}}}}),
        table(R + "/r"),
        delete(R + "/r"),
        post(named("apps/v1", "controllerrevisions"), {"metadata": {"name": "cr"}, "revision": 1, "data": {"a": 1}}),
        patch(named("apps/v1", "controllerrevisions", "cr"), {"data": {"a": 2}}),
        table(named("apps/v1", "controllerrevisions")),
    ],
    "statefulsets": [
        post(
            S,
            work(
                "s",
                "StatefulSet",
                serviceName="svc",
                volumeClaimTemplates=[
                    {
                        "metadata": {"name": "v"},
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                    }
                ],
            ),
        ),
        post(S, work("s2", "StatefulSet")),
        table(S),
        post(S, work("x", "StatefulSet", podManagementPolicy="Wild")),
        post(S, work("x", "StatefulSet", updateStrategy={"type": "Wild"})),
        post(S, work("x", "StatefulSet", updateStrategy={"type": "OnDelete", "rollingUpdate": {"partition": 1}})),
        patch(S + "/s", {"spec": {"serviceName": "other"}}),
        patch(S + "/s", {"spec": {"replicas": 3}}),
        patch(S + "/s", {"spec": {"volumeClaimTemplates": []}}),
        patch(S + "/s", {"spec": {"minReadySeconds": 3}}),
        patch(S + "/s/status", {"status": {"replicas": 3, "readyReplicas": 1, "currentRevision": "a"}}),
        table(S + "/s"),
        delete(S + "/s"),
    ],
    "daemonsets": [
        post(E, work("e", "DaemonSet")),
        table(E),
        post(E, work("x", "DaemonSet", updateStrategy={"type": "Wild"})),
        post(E, work("x", "DaemonSet", updateStrategy={"rollingUpdate": {"maxUnavailable": 0}})),
        post(E, work("x", "DaemonSet", updateStrategy={"rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 1}})),
        patch(E + "/e", {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}),
        patch(
            E + "/e/status",
            {
                "status": {
                    "currentNumberScheduled": 1,
                    "desiredNumberScheduled": 2,
                    "numberReady": 1,
                    "numberMisscheduled": 0,
                }
            },
        ),
        table(E + "/e"),
        delete(E + "/e"),
    ],
    "jobs": [
        post(J, job("j")),
        table(J),
        post(J, job("j2", completions=5, parallelism=2, completionMode="Indexed", backoffLimit=1)),
        post(J, job("x", template={"spec": {"containers": [{"name": "c", "image": "x"}]}})),
        post(J, job("x", completions=-1, parallelism=-1)),
        post(J, job("x", completionMode="Indexed")),
        post(J, job("x", selector={"matchLabels": {"a": "b"}})),
        post(J, job("x", ttlSecondsAfterFinished=-1, activeDeadlineSeconds=-1)),
        post(
            J,
            job(
                "m",
                manualSelector=True,
                selector={"matchLabels": {"a": "b"}},
                template={
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "x"}]},
                },
            ),
        ),
        patch(J + "/j", {"spec": {"completions": 3}}),
        patch(J + "/j", {"spec": {"parallelism": 3}}),
        patch(J + "/j", {"spec": {"suspend": True}}),
        patch(J + "/j/status", {"status": {"active": 1, "startTime": "2026-01-01T00:00:00Z"}}),
        table(J + "/j"),
        delete(J + "/j"),
        get(J + "/j"),
        delete(J + "/j2", propagationPolicy="Background"),
        post(
            C,
            {"metadata": {"name": "c"}, "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": job("x")["spec"]}}},
        ),
        table(C),
        post(
            C, {"metadata": {"name": "x"}, "spec": {"schedule": "nonsense", "jobTemplate": {"spec": job("x")["spec"]}}}
        ),
        post(
            C,
            {
                "metadata": {"name": "x"},
                "spec": {"schedule": "TZ=UTC * * * * *", "jobTemplate": {"spec": job("x")["spec"]}},
            },
        ),
        post(C, {"metadata": {"name": "x"}, "spec": {"jobTemplate": {"spec": {}}}}),
        post(
            C,
            {
                "metadata": {"name": "x"},
                "spec": {
                    "schedule": "@daily",
                    "timeZone": "Mars/One",
                    "concurrencyPolicy": "Maybe",
                    "jobTemplate": {"spec": job("x")["spec"]},
                },
            },
        ),
        patch(C + "/c", {"spec": {"suspend": True, "timeZone": "Asia/Seoul"}}),
        table(C + "/c"),
        delete(C + "/c"),
    ],
}
