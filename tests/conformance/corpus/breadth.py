"""Every other kind once: made, shown as a table, labelled and deleted; and versions of the past and the future."""

from __future__ import annotations

from typing import Any

from tests.conformance.corpus.basics import CM, cm
from tests.conformance.corpus.workloads import template
from tests.conformance.steps import Step, cluster, core, delete, get, named, patch, post, put, table, watch


def once(collection: str, name: str, **body: Any) -> list[Step]:
    at = f"{collection}/{name}"
    return [
        post(collection, {"metadata": {"name": name}, **body}),
        table(at),
        patch(at, {"metadata": {"labels": {"a": "b"}}}),
        patch(at, {"metadata": {"labels": {"a": "b"}}}),
        put(at, {"metadata": {"name": name}, **body}),
        delete(at),
        get(at),
    ]


HOOK = {
    "name": "h.example.com",
    "clientConfig": {"url": "https://127.0.0.1:1/x"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "rules": [
        {"apiGroups": ["none.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothings"]}
    ],
}

APISERVICES = cluster("apiregistration.k8s.io/v1", "apiservices")

TOPICS = {
    "breadthcore": [
        *once(core("podtemplates"), "pt", template=template()),
        *once(core("replicationcontrollers"), "rc", spec={"selector": {"a": "b"}, "template": template()}),
        *once(core("serviceaccounts"), "sa"),
        *once(core("secrets"), "se", data={"a": "aGk="}),
        *once(core("limitranges"), "lr", spec={"limits": [{"type": "Container", "max": {"cpu": "1"}}]}),
        *once(core("resourcequotas"), "rq", spec={"hard": {"pods": "5"}}),
        *once(
            core("endpoints"), "ep", subsets=[{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80, "name": "x"}]}]
        ),
        *once(
            core("persistentvolumeclaims"),
            "pvc",
            spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        ),
        *once(
            "/api/v1/persistentvolumes",
            "breadth-pv",
            spec={"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}},
        ),
    ],
    "breadthgroups": [
        *once(
            named("apps/v1", "replicasets"),
            "rs",
            spec={"selector": {"matchLabels": {"a": "b"}}, "template": template()},
        ),
        *once(
            named("apps/v1", "daemonsets"), "ds", spec={"selector": {"matchLabels": {"a": "b"}}, "template": template()}
        ),
        *once(
            named("apps/v1", "statefulsets"),
            "ss",
            spec={"selector": {"matchLabels": {"a": "b"}}, "template": template(), "serviceName": "s"},
        ),
        *once(
            named("policy/v1", "poddisruptionbudgets"),
            "pdb",
            spec={"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}},
        ),
        *once(
            named("autoscaling/v2", "horizontalpodautoscalers"),
            "hpa",
            spec={"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "maxReplicas": 3},
        ),
        *once(
            named("networking.k8s.io/v1", "networkpolicies"), "np", spec={"podSelector": {"matchLabels": {"a": "b"}}}
        ),
        *once(cluster("networking.k8s.io/v1", "ingressclasses"), "breadth-ic", spec={"controller": "x.io/y"}),
        *once(
            named("discovery.k8s.io/v1", "endpointslices"),
            "es",
            addressType="IPv4",
            endpoints=[{"addresses": ["10.1.1.1"]}],
        ),
        *once(cluster("scheduling.k8s.io/v1", "priorityclasses"), "breadth-pc", value=5),
        *once(cluster("node.k8s.io/v1", "runtimeclasses"), "breadth-rc", handler="runc"),
        *once(cluster("storage.k8s.io/v1", "storageclasses"), "breadth-sc", provisioner="x.io/y"),
        *once(cluster("storage.k8s.io/v1", "csidrivers"), "breadth-cd", spec={"attachRequired": False}),
        *once(cluster("storage.k8s.io/v1", "csinodes"), "breadth-cn", spec={"drivers": []}),
        *once(named("storage.k8s.io/v1", "csistoragecapacities"), "csc", storageClassName="x"),
        *once(
            named("rbac.authorization.k8s.io/v1", "roles"),
            "ro",
            rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        ),
        *once(cluster("rbac.authorization.k8s.io/v1", "clusterroles"), "breadth-cr", rules=[]),
        *once(
            cluster("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"), "breadth-mw", webhooks=[HOOK]
        ),
        *once(
            cluster("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"), "breadth-vw", webhooks=[HOOK]
        ),
        *once(
            cluster("certificates.k8s.io/v1", "certificatesigningrequests"),
            "breadth-csr",
            spec={"request": "", "signerName": "x.io/y", "usages": ["client auth"]},
        ),
        *once(
            cluster("flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations"),
            "breadth-pl",
            spec={"type": "Limited", "limited": {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}},
        ),
        # Made and deleted only: a controller of the server's own writes its status whenever it gets to it.
        post(
            APISERVICES,
            {
                "metadata": {"name": "v1.none.example.com"},
                "spec": {
                    "group": "none.example.com",
                    "version": "v1",
                    "groupPriorityMinimum": 10,
                    "versionPriority": 10,
                    "service": {"name": "x", "namespace": "default"},
                    "insecureSkipTLSVerify": True,
                },
            },
        ),
        delete(f"{APISERVICES}/v1.none.example.com"),
        get(f"{APISERVICES}/v1.none.example.com"),
    ],
    "versions": [
        post(CM, cm("a"), save="a"),
        get(CM, resourceVersion="999999999"),
        get(core("configmaps", "a"), resourceVersion="999999999"),
        watch(CM, resourceVersion="999999999"),
        get(CM, resourceVersion="999999999", resourceVersionMatch="Exact"),
        get(CM, resourceVersion="999999999", limit="5"),
        patch(core("configmaps", "a"), {"data": {"x": "1"}}),
        patch(core("configmaps", "a"), {"data": {"x": "2"}}),
        delete(core("configmaps", "a")),
        get(
            CM,
            resourceVersion="{a.metadata.resourceVersion}",
            resourceVersionMatch="Exact",
            fieldSelector="metadata.name=a",
        ),
        watch(CM, resourceVersion="{a.metadata.resourceVersion}", fieldSelector="metadata.name=a"),
        watch(CM, resourceVersion="1", fieldSelector="metadata.name=a"),
        get(CM, resourceVersion="", resourceVersionMatch="NotOlderThan"),
        get(CM, resourceVersion="0", resourceVersionMatch="NotOlderThan", fieldSelector="metadata.name=a"),
    ],
}
