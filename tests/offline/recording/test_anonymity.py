"""Anonymised objects: nothing that people chose can be read, and an API server still accepts them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import yaml

from dovetail.clock import run_virtual
from dovetail.kube.resources import CRDS
from dovetail.lab.cluster import Lab
from dovetail.lab.scenario.manifests import Kinds, apply
from dovetail.model.kinds import crds
from dovetail.offline.recording import kept
from dovetail.offline.recording.anonymity import Anonymiser

#: `zebra` and 123456789012 stand for what people chose.
OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {name: zebra, labels: {zebra.example.com/x: "123456789012", zebra.k8s.io/team: zebra}}
spec: {finalizers: [kubernetes]}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: zebra-web
  namespace: zebra
  annotations: {zebra.kubernetes.io/note: zebra, deployment.kubernetes.io/revision: "3"}
  finalizers: [zebra.example.com/a-very-long-name-of-a-finalizer-that-is-cut-when-hashed-zebra]
spec:
  replicas: 2
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 1}}
  selector: {matchLabels: {zebra-app: zebra}}
  template:
    metadata: {labels: {zebra-app: zebra, account: "123456789012"}}
    spec:
      nodeSelector: {node-role.kubernetes.io/zebra: "", topology.kubernetes.io/zone: ap-northeast-2a}
      readinessGates: [{conditionType: zebra.example.com/ready}]
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [zebra]}]}]
      tolerations: [{key: zebra.k8s.io/dedicated, operator: Equal, value: zebra, effect: NoSchedule}]
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule,
         labelSelector: {matchLabels: {zebra-app: zebra}}}
      containers:
      - name: zebra
        image: 123456789012.dkr.ecr.ap-northeast-2.amazonaws.com/zebra:zebra
        env: [{name: ZEBRA, value: zebra}]
        ports: [{name: zebra-metrics, containerPort: 8080}]
        resources: {requests: {cpu: 100m, zebra.example.com/licence: 1}, limits: {zebra.example.com/licence: 1}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: zebra, namespace: zebra}
spec:
  completionMode: Indexed
  completions: 2
  parallelism: 2
  podReplacementPolicy: Failed
  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [3]}}]}
  template: {spec: {restartPolicy: Never, containers: [{name: zebra, image: zebra}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: zebra, namespace: zebra}
spec:
  serviceName: zebra
  podManagementPolicy: Parallel
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Retain}
  selector: {matchLabels: {app: zebra}}
  template:
    metadata: {labels: {app: zebra}}
    spec: {containers: [{name: zebra, image: zebra}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: zebra, namespace: zebra}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: zebra-web}
  minReplicas: 1
  maxReplicas: 5
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
  - {type: External, external: {metric: {name: zebra}, target: {type: AverageValue, averageValue: "3"}}}
  behavior: {scaleUp: {selectPolicy: Max, policies: [{type: Percent, value: 100, periodSeconds: 15}]}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: zebra, namespace: zebra}
spec: {maxUnavailable: 10%, unhealthyPodEvictionPolicy: AlwaysAllow, selector: {matchLabels: {zebra-app: zebra}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: zebra}
provisioner: zebra.example.com
volumeBindingMode: WaitForFirstConsumer
parameters: {zebra: zebra}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: ebs}
provisioner: ebs.csi.aws.com
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: zebra}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  persistentVolumeReclaimPolicy: Delete
  storageClassName: zebra
  csi: {driver: ebs.csi.aws.com, volumeHandle: vol-0123456789abcdef0, volumeAttributes: {zebra: zebra}}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: zebra}
spec:
  limits: {cpu: 100, zebra.example.com/licence: 5}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 30s, budgets: [{nodes: 10%, reasons: [Drifted]}]}
  template:
    metadata: {labels: {team: zebra}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: zebra}
      taints: [{key: zebra.k8s.io/dedicated, value: zebra, effect: NoSchedule}]
      requirements:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
      - {key: zebra.example.com/kind, operator: In, values: [zebra]}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: zebra}
spec:
  role: zebra
  amiFamily: AL2023
  amiSelectorTerms: [{id: ami-0123456789abcdef0}, {name: zebra-*, owner: "123456789012"}]
  subnetSelectorTerms: [{id: subnet-0123456789abcdef0}, {tags: {zebra: zebra}}]
  securityGroupSelectorTerms: [{id: sg-0123456789abcdef0}]
  tags: {zebra: zebra}
  instanceStorePolicy: RAID0
  metadataOptions: {httpTokens: required, httpEndpoint: enabled, httpProtocolIPv6: disabled}
  blockDeviceMappings:
  - {deviceName: /dev/xvda, ebs: {volumeType: gp3, volumeSize: 30Gi, snapshotID: snap-0123456789abcdef0}}
"""
#: What a server writes; it cannot be applied.
STATUS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "zebra-0",
        "namespace": "zebra",
        "ownerReferences": [
            {"apiVersion": "zebra.example.com/v1", "kind": "ZebraSet", "name": "zebra", "uid": "1", "controller": True}
        ],
    },
    "spec": {"nodeName": "zebra", "readinessGates": [{"conditionType": "ZebraReady"}]},
    "status": {
        "phase": "Running",
        "conditions": [
            {"type": "ZebraReady", "status": "True", "reason": "ZebraIsReady", "message": "zebra"},
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
        ],
    },
}
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "zebra", "labels": {"node-role.kubernetes.io/zebra": ""}},
    "spec": {"providerID": "aws:///ap-northeast-2a/i-0123456789abcdef0"},
    "status": {
        "capacity": {"cpu": "2", "zebra.example.com/licence": "5", "nvidia.com/gpu": "1"},
        "nodeInfo": {"osImage": "Zebra Linux 3", "kubeletVersion": "v1.36.1-zebra", "architecture": "amd64"},
        "addresses": [{"type": "Hostname", "address": "zebra.example.com"}],
    },
}


def anonymised() -> list[dict[str, Any]]:
    anonymiser = Anonymiser(b"salt")
    return [anonymiser.object(kept(source)) for source in [*yaml.safe_load_all(OBJECTS), STATUS, NODE]]


def test_what_people_chose_cannot_be_read() -> None:
    for source in anonymised():
        text = msgspec.json.encode(source).decode().lower()
        for secret in ("zebra", "123456789012", "0123456789abcdef"):
            assert secret not in text, f"{secret} in {text}"


def test_an_api_server_accepts_anonymised_objects() -> None:
    """Words of the API, ids of AWS and finalizers keep their form: the recording can be played."""

    async def main() -> list[str]:
        async with Lab.embedded(1) as lab:
            for definition in crds.definitions():
                await lab.kube.create(CRDS, definition)
            await asyncio.sleep(2)
            kinds = Kinds(lab.kube)
            return [await apply(lab.kube, kinds, source) for source in anonymised()[:-2]]

    assert len(run_virtual(main())) == len(list(yaml.safe_load_all(OBJECTS)))


def test_what_refers_to_one_another_still_does() -> None:
    pod, node = anonymised()[-2:]
    gate, condition = pod["spec"]["readinessGates"][0], pod["status"]["conditions"][0]
    assert gate["conditionType"] == condition["type"]
    assert pod["status"]["conditions"][1]["type"] == "DisruptionTarget"
    deployment = next(source for source in anonymised() if source["kind"] == "Deployment")
    (resource,) = {name for name in node["status"]["capacity"] if name not in ("cpu", "nvidia.com/gpu")}
    template = deployment["spec"]["template"]["spec"]
    assert resource in template["containers"][0]["resources"]["requests"]
    assert set(node["metadata"]["labels"]) < set(template["nodeSelector"])
    pool = next(source for source in anonymised() if source["kind"] == "NodePool")
    taint, toleration = pool["spec"]["template"]["spec"]["taints"][0], template["tolerations"][0]
    assert (taint["key"], taint["value"]) == (toleration["key"], toleration["value"])
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.1"
