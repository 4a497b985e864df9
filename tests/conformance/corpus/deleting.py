"""Deletion: finalizers, grace, preconditions, propagation, collections, and what a watch sees of it."""

from __future__ import annotations

from tests.conformance.corpus.basics import CM, cm
from tests.conformance.corpus.pods import pod
from tests.conformance.steps import core, delete, get, named, patch, post, put, watch

A = core("configmaps", "a")
P = core("pods", "p")
OPTIONS = {"kind": "DeleteOptions", "apiVersion": "v1"}


TOPICS = {
    "finalizers": [
        post(CM, cm("a", finalizers=["a.b/c"]), save="a"),
        delete(A),
        get(A),
        delete(A),
        post(CM, cm("a")),
        patch(A, {"metadata": {"finalizers": ["a.b/c", "d.e/f"]}}),
        patch(A, {"metadata": {"labels": {"x": "y"}}}),
        patch(A, {"metadata": {"deletionTimestamp": None}}),
        put(A, cm("a", {"put": "1"}, finalizers=["a.b/c"])),
        patch(A, {"metadata": {"finalizers": None}}),
        get(A),
        watch(CM, resourceVersion="{a.metadata.resourceVersion}"),
        post(CM, cm("a")),
        delete(A, {**OPTIONS, "propagationPolicy": "Foreground"}),
        get(A),
        delete(A, {**OPTIONS, "propagationPolicy": "Background"}),
        post(CM, cm("a")),
        delete(A, {**OPTIONS, "propagationPolicy": "Orphan"}),
        delete(A, {**OPTIONS, "propagationPolicy": "Foreground"}),
        delete(A, {**OPTIONS, "propagationPolicy": "Background"}),
        get(A),
        post(CM, cm("b", finalizers=["foregroundDeletion"])),
        delete(core("configmaps", "b")),
        get(core("configmaps", "b")),
        post(CM, cm("c", finalizers=["orphan"])),
        delete(core("configmaps", "c"), {**OPTIONS, "orphanDependents": False}),
        post(CM, cm("e", deletionTimestamp="2020-01-01T00:00:00Z", deletionGracePeriodSeconds=5)),
    ],
    "preconditions": [
        post(CM, cm("a"), save="a"),
        delete(A, {**OPTIONS, "preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}),
        delete(A, {**OPTIONS, "preconditions": {"resourceVersion": "1"}}),
        delete(A, {**OPTIONS, "preconditions": {"uid": "{a.metadata.uid}", "resourceVersion": "1"}}),
        delete(A, {**OPTIONS, "preconditions": {"uid": "{a.metadata.uid}"}}),
        post(CM, cm("a"), save="b"),
        delete(A, {**OPTIONS, "preconditions": {"resourceVersion": "{b.metadata.resourceVersion}"}}),
        post(core("pods"), pod("p"), save="p"),
        delete(P, {**OPTIONS, "preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}),
        delete(P, {**OPTIONS, "preconditions": {"uid": "{p.metadata.uid}"}}),
        delete(A, {"apiVersion": "v1", "kind": "Other"}),
        delete(A, "{"),
        delete(A, {**OPTIONS, "unknown": 1}),
    ],
    "grace": [
        post(core("pods"), pod("p", nodeName="n1"), save="p"),
        delete(P),
        get(P),
        delete(P, gracePeriodSeconds="60"),
        delete(P, gracePeriodSeconds="10"),
        delete(P, {**OPTIONS, "gracePeriodSeconds": 5}, gracePeriodSeconds="1"),
        delete(P, {**OPTIONS, "gracePeriodSeconds": -1}),
        delete(P, {**OPTIONS, "gracePeriodSeconds": 0}),
        get(P),
        post(core("pods"), pod("p")),
        delete(P),
        get(P),
        post(core("pods"), pod("p", nodeName="n1")),
        patch(core("pods", "p", "status"), {"status": {"phase": "Succeeded"}}),
        delete(P),
        get(P),
        post(core("pods"), {**pod("p", nodeName="n1"), "metadata": {"name": "p", "finalizers": ["a.b/c"]}}),
        delete(P, gracePeriodSeconds="0"),
        get(P),
        patch(P, {"metadata": {"finalizers": None}}),
        get(P),
        post(core("pods"), pod("p", nodeName="n1", terminationGracePeriodSeconds=0)),
        delete(P),
        post(core("pods"), pod("p", nodeName="n1", terminationGracePeriodSeconds=-5)),
        delete(P, dryRun="All"),
        delete(P),
        watch(core("pods"), resourceVersion="{p.metadata.resourceVersion}", fieldSelector="metadata.name=p"),
    ],
    "collections": [
        *[post(CM, cm(f"c{n}", labels={"n": str(n % 2)})) for n in range(4)],
        delete(CM, labelSelector="n=1"),
        get(CM, fieldSelector="metadata.name!=kube-root-ca.crt"),
        delete(CM, fieldSelector="metadata.name=c0", dryRun="All"),
        delete(CM, fieldSelector="metadata.name=c0"),
        delete(CM, {**OPTIONS, "preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}, labelSelector="n=0"),
        post(CM, cm("f", finalizers=["a.b/c"], labels={"f": "1"})),
        delete(CM, labelSelector="f=1"),
        delete(CM, labelSelector="none=none"),
        post(core("pods"), pod("p1", nodeName="n1")),
        post(core("pods"), pod("p2")),
        delete(core("pods")),
        get(core("pods")),
        post(core("services"), {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
        delete(core("services")),
        delete(core("services", "s")),
        post(core("serviceaccounts"), {"metadata": {"name": "sa"}}),
        delete(core("serviceaccounts", "sa")),
        post(core("secrets"), {"metadata": {"name": "se"}}),
        delete(core("secrets", "se")),
        post(core("resourcequotas"), {"metadata": {"name": "rq"}, "spec": {"hard": {"pods": "10"}}}),
        delete(core("resourcequotas", "rq")),
        post(
            core("limitranges"),
            {"metadata": {"name": "lr"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}},
        ),
        delete(core("limitranges", "lr")),
        post("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "del-sc"}, "provisioner": "x"}),
        delete("/apis/storage.k8s.io/v1/storageclasses/del-sc"),
        post(named("coordination.k8s.io/v1", "leases"), {"metadata": {"name": "l"}}),
        delete(named("coordination.k8s.io/v1", "leases", "l")),
    ],
    "owners": [
        post(CM, cm("owner"), save="o"),
        post(
            CM,
            cm(
                "kid",
                ownerReferences=[
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "name": "owner",
                        "uid": "{o.metadata.uid}",
                        "blockOwnerDeletion": True,
                    }
                ],
            ),
        ),
        patch(
            core("configmaps", "kid"),
            {
                "metadata": {
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{o.metadata.uid}"},
                        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{o.metadata.uid}"},
                    ]
                }
            },
        ),
        patch(
            core("configmaps", "kid"),
            {
                "metadata": {
                    "ownerReferences": [
                        {
                            "apiVersion": "v1",
                            "kind": "ConfigMap",
                            "name": "owner",
                            "uid": "{o.metadata.uid}",
                            "controller": True,
                        }
                    ]
                }
            },
            "strategic",
        ),
        patch(
            core("configmaps", "kid"),
            {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "{o.metadata.uid}"}]}},
            "strategic",
        ),
        get(core("configmaps", "kid")),
    ],
}
