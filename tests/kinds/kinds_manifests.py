"""Manifests to test with, and Hypothesis strategies for objects of every generation."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

SEED_PROVISIONER: Json = {
    "apiVersion": "karpenter.sh/v1alpha5",
    "kind": "Provisioner",
    "metadata": {"name": "default"},
    "spec": {
        "requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c5n.4xlarge"]},
        ],
        "limits": {"resources": {"cpu": 1000}},
        "providerRef": {"name": "default"},
        "consolidation": {"enabled": True},
    },
}
SEED_TEMPLATE: Json = {
    "apiVersion": "karpenter.k8s.aws/v1alpha1",
    "kind": "AWSNodeTemplate",
    "metadata": {"name": "default"},
    "spec": {
        "subnetSelector": {"karpenter.sh/discovery/test-cluster": "*"},
        "securityGroupSelector": {"aws:eks:cluster-name": "test-cluster"},
        "instanceProfile": "KarpenterNodeInstanceProfile-test-cluster",
        "blockDeviceMappings": [
            {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi", "volumeType": "gp3", "iops": 3000}}
        ],
        "tags": {"service": "network"},
    },
}
SEED_POOL: Json = {
    "apiVersion": "karpenter.sh/v1beta1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "metadata": {"labels": {"type": "karpenter"}},
            "spec": {
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c5.large", "m5.large"]},
                ],
                "nodeClassRef": {"name": "default"},
            },
        },
        "limits": {"cpu": "1000", "memory": "1000Gi"},
        "disruption": {"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h"},
    },
}
SEED_CLASS: Json = {
    "apiVersion": "karpenter.k8s.aws/v1beta1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "default"},
    "spec": {
        "amiFamily": "AL2023",
        "role": "KarpenterNodeRole",
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "eks-workshop"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "eks-workshop"}}],
    },
}

names = st.sampled_from(["default", "spot", "gpu", "a"])
texts = st.text(st.characters(codec="ascii", categories=("L", "N")), max_size=5).map(lambda text: f"x{text}")
keys = st.sampled_from(
    [
        "karpenter.sh/capacity-type",
        "node.kubernetes.io/instance-type",
        "karpenter.k8s.aws/instance-category",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "team",
    ]
)
durations = st.sampled_from(["0s", "30s", "10m", "720h", "1h30m", "Never"])


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=fields)


terms = st.fixed_dictionaries(
    {"key": keys, "operator": st.sampled_from(["In", "NotIn", "Gt", "Exists"])},
    optional={"values": st.lists(texts, max_size=3), "minValues": st.integers(1, 3)},
)
taints = st.lists(maybe(key=texts, value=texts, effect=st.sampled_from(["NoSchedule", "NoExecute"])), max_size=2)
string_map = st.dictionaries(texts, texts, max_size=3)
kubelets = maybe(maxPods=st.integers(0, 200), systemReserved=string_map, clusterDNS=st.lists(texts, max_size=2))
metadata = st.fixed_dictionaries(
    {"name": names}, optional={"labels": string_map, "annotations": string_map, "generation": st.integers(0, 9)}
)
budgets = st.lists(
    maybe(nodes=st.sampled_from(["10%", "0", "5"]), schedule=st.just("@daily"), duration=st.just("8h")), max_size=2
)


def obj(api_version: str, kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    head = {"apiVersion": st.just(api_version), "kind": st.just(kind), "metadata": metadata}
    return st.fixed_dictionaries(head, optional=fields)


_node = {
    "requirements": st.lists(terms, max_size=4),
    "taints": taints,
    "startupTaints": taints,
}
beta_pools = obj(
    "karpenter.sh/v1beta1",
    "NodePool",
    spec=maybe(
        template=maybe(
            metadata=maybe(labels=string_map, annotations=string_map),
            spec=maybe(
                **_node, kubelet=kubelets, nodeClassRef=maybe(name=names, kind=texts, apiVersion=st.just("x.io/v1"))
            ),
        ),
        disruption=maybe(
            consolidationPolicy=st.sampled_from(["WhenEmpty", "WhenUnderutilized"]),
            consolidateAfter=durations,
            expireAfter=durations,
            budgets=budgets,
        ),
        limits=string_map,
        weight=st.integers(1, 100),
    ),
    status=maybe(resources=string_map),
)
pools = obj(
    "karpenter.sh/v1",
    "NodePool",
    spec=maybe(
        template=maybe(
            metadata=maybe(labels=string_map, annotations=string_map),
            spec=maybe(
                **_node,
                nodeClassRef=maybe(name=names, kind=texts, group=texts),
                expireAfter=durations,
                terminationGracePeriod=durations,
            ),
        ),
        disruption=maybe(
            consolidationPolicy=st.sampled_from(["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"]),
            consolidateAfter=durations,
            budgets=st.lists(maybe(nodes=texts, reasons=st.lists(texts, max_size=2)), max_size=2),
        ),
        limits=string_map,
        replicas=st.integers(0, 4),
    ),
    status=maybe(resources=string_map, nodes=st.integers(0, 5)),
)
_images = st.lists(maybe(id=texts, name=texts, owner=texts, tags=string_map), max_size=2)
_class = {
    "subnetSelectorTerms": st.lists(maybe(id=texts, tags=string_map), max_size=3),
    "securityGroupSelectorTerms": st.lists(maybe(id=texts, name=texts, tags=string_map), max_size=3),
    "blockDeviceMappings": st.lists(maybe(deviceName=texts, ebs=string_map), max_size=2),
    "metadataOptions": maybe(httpTokens=texts, httpPutResponseHopLimit=st.integers(1, 3)),
    "tags": string_map,
    "role": texts,
    "userData": st.text(max_size=8),
}
beta_classes = obj(
    "karpenter.k8s.aws/v1beta1",
    "EC2NodeClass",
    spec=maybe(**_class, amiFamily=st.sampled_from(["AL2", "Ubuntu", "Custom", "AL2023"]), amiSelectorTerms=_images),
)
classes = obj(
    "karpenter.k8s.aws/v1",
    "EC2NodeClass",
    spec=maybe(
        **_class,
        amiFamily=st.sampled_from(["AL2", "Custom", "Windows2025"]),
        amiSelectorTerms=st.lists(maybe(alias=st.sampled_from(["al2023@latest", "al2@v1", "x"]), id=texts), max_size=2),
        kubelet=kubelets,
    ),
)
provisioners = obj(
    "karpenter.sh/v1alpha5",
    "Provisioner",
    spec=maybe(
        **_node,
        labels=string_map,
        annotations=string_map,
        kubeletConfiguration=maybe(maxPods=st.integers(0, 9), containerRuntime=st.just("containerd")),
        providerRef=maybe(name=names, kind=texts),
        provider=string_map,
        ttlSecondsAfterEmpty=st.integers(0, 900),
        ttlSecondsUntilExpired=st.integers(0, 10**7),
        limits=maybe(resources=string_map),
        consolidation=maybe(enabled=st.booleans()),
        weight=st.integers(1, 100),
    ),
    status=maybe(resources=string_map, lastScaleTime=texts),
)
selector_maps = st.dictionaries(
    st.sampled_from(["aws-ids", "aws::ids", "aws::name", "aws::owners", "team", "Name"]),
    st.sampled_from(["*", "a,b", "a, b,c", "", "subnet-1"]),
    max_size=3,
)
templates = obj(
    "karpenter.k8s.aws/v1alpha1",
    "AWSNodeTemplate",
    spec=maybe(
        subnetSelector=selector_maps,
        securityGroupSelector=selector_maps,
        amiSelector=selector_maps,
        amiFamily=st.sampled_from(["AL2", "Ubuntu", "Bottlerocket", "Custom"]),
        instanceProfile=texts,
        launchTemplate=texts,
        metadataOptions=maybe(httpTokens=texts),
        tags=string_map,
        userData=st.text(max_size=5),
    ),
)
machines = obj(
    "karpenter.sh/v1alpha5",
    "Machine",
    spec=maybe(**_node, kubelet=kubelets, machineTemplateRef=maybe(name=names)),
    status=maybe(
        conditions=st.lists(
            maybe(type=st.sampled_from(["MachineLaunched", "Ready", "MachineDrifted"]), severity=texts), max_size=3
        )
    ),
)
beta_claims = obj(
    "karpenter.sh/v1beta1",
    "NodeClaim",
    spec=maybe(**_node, kubelet=kubelets, nodeClassRef=maybe(name=names)),
    status=maybe(nodeName=texts),
)
claims = obj(
    "karpenter.sh/v1",
    "NodeClaim",
    spec=maybe(**_node, nodeClassRef=maybe(name=names, group=texts, kind=texts), expireAfter=durations),
    status=maybe(nodeName=texts, lastPodEventTime=texts),
)
older = st.one_of(beta_pools, beta_classes, beta_claims, provisioners, templates, machines)
newest = st.one_of(pools, classes, claims)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
