"""Nodes, namespaces, priorities, storage, leases, events, quotas, roles and reviews."""

from __future__ import annotations

from typing import Any

from tests.conformance.corpus.basics import cm
from tests.conformance.corpus.pods import pod
from tests.conformance.steps import cluster, core, delete, get, named, patch, post, put, table

N = "/api/v1/nodes"
NS = "/api/v1/namespaces"
PC = cluster("scheduling.k8s.io/v1", "priorityclasses")
SC = cluster("storage.k8s.io/v1", "storageclasses")
PV = "/api/v1/persistentvolumes"
PVC = core("persistentvolumeclaims")
L = named("coordination.k8s.io/v1", "leases")
EV = core("events")
CN = cluster("storage.k8s.io/v1", "csinodes")
VA = cluster("storage.k8s.io/v1", "volumeattachments")


def node(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"t": "n"}}, "spec": spec}


def claim(name: str, **spec: Any) -> dict[str, Any]:
    made = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"metadata": {"name": name}, "spec": {key: value for key, value in made.items() if value is not None}}


def volume(name: str, **spec: Any) -> dict[str, Any]:
    made = {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}, **spec}
    return {"metadata": {"name": name}, "spec": {key: value for key, value in made.items() if value is not None}}


TOPICS = {
    "nodes": [
        post(N, node("n-a")),
        get(N + "/n-a"),
        table(N, labelSelector="t=n"),
        post(
            N,
            node(
                "n-b", providerID="aws:///z/i-1", taints=[{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]
            ),
        ),
        patch(N + "/n-b", {"spec": {"providerID": "aws:///z/i-2"}}),
        patch(N + "/n-b", {"spec": {"unschedulable": True}}),
        patch(N + "/n-b", {"spec": {"unschedulable": None}}),
        patch(N + "/n-a", {"spec": {"providerID": "x"}}),
        post(N, node("n-x", taints=[{"key": "a", "effect": "Bad"}])),
        post(N, node("n-x", taints=[{"key": "a b", "effect": "NoSchedule"}])),
        post(
            N,
            node(
                "n-x", taints=[{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule", "value": "v"}]
            ),
        ),
        post(N, node("n-x", podCIDR="nonsense")),
        post(N, node("n-x", taints=[{"effect": "NoSchedule"}])),
        patch(
            N + "/n-a",
            {"spec": {"taints": [{"key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]}},
            "strategic",
        ),
        patch(N + "/n-a", {"spec": {"taints": None}}),
        patch(N + "/n-a", {"metadata": {"labels": {"node.kubernetes.io/instance-type": "m5.large"}}}),
        patch(
            N + "/n-a/status",
            {
                "status": {
                    "capacity": {"cpu": "2", "memory": "8Gi", "pods": "110"},
                    "allocatable": {"cpu": "1900m", "memory": "7.5Gi"},
                    "conditions": [
                        {
                            "type": "Ready",
                            "status": "True",
                            "reason": "KubeletReady",
                            "message": "ok",
                            "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                            "lastTransitionTime": "2026-01-01T00:00:00Z",
                        }
                    ],
                    "nodeInfo": {
                        "kubeletVersion": "v1.36.0",
                        "osImage": "Amazon Linux 2023",
                        "kernelVersion": "6.1",
                        "containerRuntimeVersion": "containerd://1.7",
                        "architecture": "amd64",
                        "operatingSystem": "linux",
                        "machineID": "",
                        "systemUUID": "",
                        "bootID": "",
                        "kubeProxyVersion": "",
                    },
                    "addresses": [
                        {"type": "InternalIP", "address": "10.0.0.1"},
                        {"type": "Hostname", "address": "n-a"},
                    ],
                }
            },
        ),
        patch(N + "/n-a/status", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "strategic"),
        patch(
            N + "/n-a/status", {"status": {"addresses": [{"type": "ExternalIP", "address": "1.2.3.4"}]}}, "strategic"
        ),
        patch(N + "/n-a/status", {"spec": {"unschedulable": True}, "metadata": {"labels": {"x": "y"}}}),
        patch(N + "/n-a/status", {"status": {"capacity": {"cpu": "-1"}}}),
        table(N + "/n-a"),
        table(N, labelSelector="t=n"),
        get(N, labelSelector="t=n", fieldSelector="spec.unschedulable=true"),
        patch(
            N + "/n-a",
            {
                "metadata": {
                    "labels": {
                        "kubernetes.io/role": "x",
                        "node-role.kubernetes.io/worker": "",
                        "node-role.kubernetes.io/spot": "",
                    }
                }
            },
        ),
        table(N + "/n-a"),
        post(
            N,
            {
                "metadata": {
                    "name": "n-l",
                    "labels": {"beta.kubernetes.io/os": "linux", "failure-domain.beta.kubernetes.io/zone": "z"},
                }
            },
        ),
        patch(N + "/n-a", {"metadata": {"finalizers": ["karpenter.sh/termination"]}}),
        delete(N + "/n-a"),
        get(N + "/n-a"),
        table(N + "/n-a"),
        patch(N + "/n-a", {"metadata": {"finalizers": None}}),
        delete(N + "/n-b"),
        delete(N + "/n-none"),
    ],
    "namespaces": [
        post(NS, {"metadata": {"name": "team"}}),
        get(NS + "/team"),
        table(NS + "/team"),
        post(NS, {"metadata": {"name": "team"}}),
        patch(NS + "/team", {"metadata": {"labels": {"kubernetes.io/metadata.name": "other", "x": "y"}}}),
        patch(NS + "/team", {"metadata": {"labels": {"kubernetes.io/metadata.name": None}}}),
        patch(NS + "/team", {"spec": {"finalizers": []}}),
        post(NS, {"metadata": {"generateName": "gen-"}}),
        patch(NS + "/team/status", {"status": {"phase": "Terminating"}}),
        delete(NS + "/team"),
        get(NS + "/team"),
        delete(NS + "/team"),
        post(NS + "/team/configmaps", cm("x")),
        get(NS + "/team/configmaps"),
        post(NS + "/team/pods", pod("p")),
        put(NS + "/team/finalize", {"metadata": {"name": "team"}, "spec": {"finalizers": []}}),
        get(NS + "/team"),
        delete(NS + "/kube-system"),
        delete(NS + "/default"),
        delete(NS + "/none"),
        get(NS, fieldSelector="metadata.name=kube-system"),
        delete(NS),
        post(NS, {"metadata": {"name": "fin"}, "spec": {"finalizers": ["a.b/c"]}}),
    ],
    "priorities": [
        post(PC, {"metadata": {"name": "high"}, "value": 1000, "description": "d"}),
        table(PC),
        post(PC, {"metadata": {"name": "low"}, "value": -5, "preemptionPolicy": "Never"}),
        post(PC, {"metadata": {"name": "big"}, "value": 2000000000}),
        post(PC, {"metadata": {"name": "system-x"}, "value": 5}),
        post(PC, {"metadata": {"name": "bad"}, "value": 5, "preemptionPolicy": "X"}),
        post(PC, {"metadata": {"name": "def"}, "value": 7, "globalDefault": True}),
        post(PC, {"metadata": {"name": "def2"}, "value": 8, "globalDefault": True}),
        post(core("pods"), pod("p-high", priorityClassName="high")),
        post(core("pods"), pod("p-low", priorityClassName="low")),
        post(core("pods"), pod("p-def")),
        post(core("pods"), pod("p-same", priorityClassName="high", priority=1000)),
        post(core("pods"), pod("p-diff", priorityClassName="high", priority=1)),
        patch(PC + "/high", {"value": 5}),
        patch(PC + "/high", {"description": "e"}),
        patch(PC + "/high", {"preemptionPolicy": "Never"}),
        delete(PC + "/high"),
        delete(PC + "/def"),
        delete(PC + "/system-node-critical"),
    ],
    "storage": [
        post(
            SC,
            {
                "metadata": {"name": "gp3"},
                "provisioner": "ebs.csi.aws.com",
                "volumeBindingMode": "WaitForFirstConsumer",
                "parameters": {"type": "gp3"},
            },
        ),
        post(SC, {"metadata": {"name": "imm"}, "provisioner": "x"}),
        table(SC),
        post(SC, {"metadata": {"name": "bad"}}),
        post(
            SC,
            {"metadata": {"name": "bad"}, "provisioner": "a b", "reclaimPolicy": "Burn", "volumeBindingMode": "Later"},
        ),
        patch(SC + "/gp3", {"provisioner": "y"}),
        patch(SC + "/gp3", {"allowVolumeExpansion": True}),
        patch(SC + "/gp3", {"reclaimPolicy": "Retain"}),
        post(PVC, claim("c")),
        post(PVC, claim("d", storageClassName="gp3")),
        table(PVC),
        patch(SC + "/gp3", {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
        table(SC),
        post(PVC, claim("def")),
        post(PVC, claim("none", storageClassName="")),
        post(PVC, claim("x", accessModes=None)),
        post(PVC, claim("x", accessModes=["Wild"])),
        post(PVC, claim("x", resources=None)),
        post(PVC, claim("x", resources={"requests": {"storage": "-1"}})),
        post(PVC, claim("x", volumeMode="Wild")),
        patch(PVC + "/d", {"spec": {"volumeName": "v"}}),
        patch(PVC + "/d", {"spec": {"storageClassName": "imm"}}),
        patch(PVC + "/d", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
        patch(PVC + "/d", {"spec": {"resources": {"requests": {"storage": "1Mi"}}}}),
        patch(
            PVC + "/d/status",
            {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}},
        ),
        table(PVC + "/d"),
        patch(PVC + "/d", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
        post(PV, volume("pv-a")),
        post(
            PV,
            volume(
                "pv-b",
                hostPath=None,
                csi={"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
                nodeAffinity={
                    "required": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]}
                                ]
                            }
                        ]
                    }
                },
            ),
        ),
        post(PV, volume("pv-x", capacity=None)),
        post(PV, volume("pv-x", hostPath=None)),
        post(PV, volume("pv-x", accessModes=[])),
        patch(PV + "/pv-a", {"spec": {"hostPath": {"path": "/y"}}}),
        patch(PV + "/pv-a/status", {"status": {"phase": "Available"}}),
        table(PV),
        patch(
            PV + "/pv-a",
            {
                "spec": {
                    "claimRef": {"namespace": "{ns}", "name": "c", "kind": "PersistentVolumeClaim", "apiVersion": "v1"}
                }
            },
        ),
        table(PV + "/pv-a"),
        delete(PV + "/pv-a"),
        get(PV + "/pv-a"),
        delete(PVC + "/c"),
        get(PVC + "/c"),
        delete(SC + "/gp3"),
        delete(SC + "/imm"),
        post(
            CN,
            {
                "metadata": {"name": "csi-n"},
                "spec": {
                    "drivers": [
                        {
                            "name": "ebs.csi.aws.com",
                            "nodeID": "i-1",
                            "topologyKeys": ["zone"],
                            "allocatable": {"count": 25},
                        }
                    ]
                },
            },
        ),
        patch(
            CN + "/csi-n",
            {
                "spec": {
                    "drivers": [
                        {
                            "name": "ebs.csi.aws.com",
                            "nodeID": "i-1",
                            "topologyKeys": ["zone"],
                            "allocatable": {"count": 30},
                        }
                    ]
                }
            },
            "strategic",
        ),
        post(CN, {"metadata": {"name": "csi-x"}, "spec": {"drivers": [{"name": "", "nodeID": ""}]}}),
        table(CN + "/csi-n"),
        post(
            VA,
            {
                "metadata": {"name": "va"},
                "spec": {"attacher": "ebs.csi.aws.com", "nodeName": "n", "source": {"persistentVolumeName": "pv-b"}},
            },
        ),
        post(VA, {"metadata": {"name": "va-x"}, "spec": {"attacher": "", "nodeName": "", "source": {}}}),
        table(VA + "/va"),
        patch(VA + "/va/status", {"status": {"attached": True}}),
        delete(VA + "/va"),
        post(
            cluster("storage.k8s.io/v1", "csidrivers"),
            {"metadata": {"name": "ebs.csi.aws.com"}, "spec": {"attachRequired": True}},
        ),
        table(cluster("storage.k8s.io/v1", "csidrivers")),
    ],
    "leases": [
        post(
            L,
            {
                "metadata": {"name": "l"},
                "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"},
            },
            save="l",
        ),
        put(L + "/l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "b"}}),
        put(L + "/l", {"metadata": {"name": "l", "resourceVersion": "0"}, "spec": {"holderIdentity": "b"}}),
        put(
            L + "/l",
            {
                "metadata": {"name": "l", "resourceVersion": "{l.metadata.resourceVersion}"},
                "spec": {"holderIdentity": "b", "leaseTransitions": 1},
            },
        ),
        put(
            L + "/l",
            {
                "metadata": {"name": "l", "resourceVersion": "{l.metadata.resourceVersion}"},
                "spec": {"holderIdentity": "c"},
            },
        ),
        put(L + "/fresh", {"metadata": {"name": "fresh"}, "spec": {"holderIdentity": "b"}}),
        post(L, {"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}),
        post(L, {"metadata": {"name": "x"}, "spec": {"renewTime": "2026-01-01T00:00:00Z"}}),
        post(L, {"metadata": {"name": "x"}, "spec": {"renewTime": "now"}}),
        patch(L + "/l", {"spec": {"renewTime": "2026-01-01T00:00:01.500000Z"}}),
        table(L),
        get(L + "/l"),
        delete(L + "/l"),
    ],
    "events": [
        post(
            EV,
            {
                "metadata": {"name": "e"},
                "involvedObject": {"kind": "Pod", "name": "p", "namespace": "{ns}"},
                "reason": "Started",
                "message": "m",
                "type": "Normal",
                "source": {"component": "kubelet"},
                "firstTimestamp": "2020-01-01T00:00:00Z",
                "lastTimestamp": "2020-01-01T00:00:00Z",
                "count": 1,
            },
        ),
        patch(EV + "/e", {"count": 2, "lastTimestamp": "2020-01-01T00:01:00Z"}),
        get(EV + "/e"),
        get(named("events.k8s.io/v1", "events", "e")),
        post(EV, {"metadata": {"name": "x"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "other"}}),
        post(
            EV,
            {
                "metadata": {"name": "n"},
                "involvedObject": {"kind": "Node", "name": "n1"},
                "reason": "R",
                "message": "x",
                "type": "Warning",
            },
        ),
        post(
            "/api/v1/namespaces/default/events",
            {
                "metadata": {"name": "conf-n"},
                "involvedObject": {"kind": "Node", "name": "n1"},
                "reason": "R",
                "message": "x",
                "type": "Warning",
            },
        ),
        post(
            named("events.k8s.io/v1", "events"),
            {
                "metadata": {"name": "v1"},
                "eventTime": "2020-01-01T00:00:00.000000Z",
                "reportingController": "c.io/x",
                "reportingInstance": "i",
                "action": "A",
                "reason": "R",
                "type": "Normal",
                "regarding": {"kind": "Pod", "name": "p", "namespace": "{ns}"},
                "note": "hello",
            },
        ),
        post(
            named("events.k8s.io/v1", "events"),
            {"metadata": {"name": "bad"}, "regarding": {"kind": "Pod", "name": "p", "namespace": "{ns}"}},
        ),
        get(EV + "/v1"),
        get(EV, fieldSelector="involvedObject.name=p,type=Normal"),
        table(EV),
        table(named("events.k8s.io/v1", "events")),
        delete(EV + "/e"),
    ],
    "quotas": [
        post(
            core("limitranges"),
            {
                "metadata": {"name": "lr"},
                "spec": {
                    "limits": [
                        {
                            "type": "Container",
                            "default": {"cpu": "500m"},
                            "defaultRequest": {"cpu": "100m", "memory": "64Mi"},
                            "max": {"cpu": "2"},
                            "min": {"cpu": "50m"},
                        }
                    ]
                },
            },
        ),
        post(core("pods"), pod("lr-def")),
        post(
            core("pods"),
            pod(
                "lr-big", [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}}]
            ),
        ),
        post(core("pods"), pod("lr-small", [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1m"}}}])),
        delete(core("limitranges", "lr")),
        post(
            core("limitranges"),
            {
                "metadata": {"name": "bad"},
                "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]},
            },
        ),
        post(
            core("resourcequotas"), {"metadata": {"name": "rq"}, "spec": {"hard": {"pods": "1", "requests.cpu": "1"}}}
        ),
        table(core("resourcequotas")),
        post(core("resourcequotas"), {"metadata": {"name": "bad"}, "spec": {"hard": {"nonsense": "1"}}}),
        get(core("resourcequotas", "rq")),
    ],
    "rbac": [
        post(
            named("rbac.authorization.k8s.io/v1", "roles"),
            {
                "metadata": {"name": "r"},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}],
            },
        ),
        post(
            named("rbac.authorization.k8s.io/v1", "roles"),
            {"metadata": {"name": "x"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]},
        ),
        post(
            named("rbac.authorization.k8s.io/v1", "roles"),
            {"metadata": {"name": "x"}, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
        ),
        post(
            named("rbac.authorization.k8s.io/v1", "rolebindings"),
            {
                "metadata": {"name": "b"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
                "subjects": [
                    {"kind": "ServiceAccount", "name": "sa", "namespace": "{ns}"},
                    {"kind": "User", "name": "u"},
                ],
            },
        ),
        patch(named("rbac.authorization.k8s.io/v1", "rolebindings", "b"), {"roleRef": {"name": "other"}}),
        post(
            named("rbac.authorization.k8s.io/v1", "rolebindings"),
            {
                "metadata": {"name": "x"},
                "roleRef": {"kind": "Wild", "name": ""},
                "subjects": [{"kind": "Dog", "name": ""}],
            },
        ),
        table(named("rbac.authorization.k8s.io/v1", "roles")),
        table(named("rbac.authorization.k8s.io/v1", "rolebindings")),
        post(
            cluster("rbac.authorization.k8s.io/v1", "clusterroles"),
            {"metadata": {"name": "cr"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
        ),
        post(
            cluster("rbac.authorization.k8s.io/v1", "clusterrolebindings"),
            {
                "metadata": {"name": "crb"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cr"},
                "subjects": [{"kind": "Group", "name": "g", "apiGroup": "rbac.authorization.k8s.io"}],
            },
        ),
        table(cluster("rbac.authorization.k8s.io/v1", "clusterrolebindings", "crb")),
        table(cluster("rbac.authorization.k8s.io/v1", "clusterroles", "cr")),
        delete(cluster("rbac.authorization.k8s.io/v1", "clusterroles", "cr")),
    ],
    "reviews": [
        post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}},
        ),
        post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}},
        ),
        post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {}}),
        post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {"spec": {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/"}}},
        ),
        post(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {"spec": {"user": "nobody", "resourceAttributes": {"verb": "get", "resource": "pods"}}},
        ),
        post(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}},
        ),
        post(
            named("authorization.k8s.io/v1", "localsubjectaccessreviews"),
            {"spec": {"user": "x", "resourceAttributes": {"namespace": "{ns}", "verb": "get", "resource": "pods"}}},
        ),
        post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "wrong"}}),
        post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {}}),
        post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}),
    ],
}
