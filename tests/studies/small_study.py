"""A workload that takes a second: twelve pods, then thirty, then six."""

from __future__ import annotations

from pathlib import Path

SCENARIO = """
name: small
duration: 20m
cluster: {pools: []}
autoscaler: {region: ap-northeast-2, families: [m5, c5]}
manifests:
  - apiVersion: karpenter.sh/v1
    kind: NodePool
    metadata: {name: default}
    spec:
      template:
        spec:
          nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
          requirements:
            - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
            - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: ["2", "4"]}
      disruption: {consolidateAfter: 30s, budgets: [{nodes: 100%}]}
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec:
      replicas: 12
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec:
          containers: [{name: web, image: nginx, resources: {requests: {cpu: 500m, memory: 1Gi}}}]
steps:
  - {at: 3m, scale: {name: web, replicas: 30}}
  - {at: 8m, scale: {name: web, replicas: 6}}
"""


def write(folder: Path) -> Path:
    """The scenario as a file."""
    path = folder / "small.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path
