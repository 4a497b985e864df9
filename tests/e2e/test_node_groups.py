"""The walk-through of Cluster Autoscaler, typed as it stands, on the cluster of its ClusterConfig."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Outside
from tests.lab.test_cluster_config import WALK_THROUGH

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

POLICY = """{"Version": "2012-10-17", "Statement": [
  {"Effect": "Allow", "Resource": ["*"], "Action": [
    "autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeLaunchConfigurations", "autoscaling:DescribeScalingActivities", "autoscaling:DescribeTags",
    "ec2:DescribeImages", "ec2:DescribeInstanceTypes", "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements", "eks:DescribeNodegroup"]},
  {"Effect": "Allow", "Resource": ["*"], "Action": [
    "autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"]}]}"""
SERVICE_ACCOUNT = """
apiVersion: v1
kind: ServiceAccount
metadata:
  name: cluster-autoscaler
  namespace: kube-system
  labels: {app.kubernetes.io/managed-by: eksctl}
  annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::123456789012:role/cluster-autoscaler"}
"""
#: With the rights of the manifest that people download: nodes and ConfigMaps may be updated, and not patched.
TAGS = "k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/<YOUR CLUSTER NAME>"
MANIFEST = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: cluster-autoscaler}
rules:
- {apiGroups: [""], resources: [events, endpoints], verbs: [create, patch]}
- {apiGroups: [""], resources: [pods/eviction], verbs: [create]}
- {apiGroups: [""], resources: [nodes], verbs: [watch, list, get, update]}
- apiGroups: [""]
  resources: [namespaces, pods, services, replicationcontrollers, persistentvolumeclaims, persistentvolumes]
  verbs: [watch, list, get]
- {apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [watch, list]}
- {apiGroups: [apps], resources: [statefulsets, replicasets, daemonsets], verbs: [watch, list, get]}
- apiGroups: [storage.k8s.io]
  resources: [storageclasses, csinodes, csidrivers, csistoragecapacities, volumeattachments]
  verbs: [watch, list, get]
- {apiGroups: [batch], resources: [jobs], verbs: [get, list, watch, patch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
- {apiGroups: [coordination.k8s.io], resourceNames: [cluster-autoscaler], resources: [leases], verbs: [get, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: cluster-autoscaler, namespace: kube-system}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [create, list, watch]}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [cluster-autoscaler-status, cluster-autoscaler-priority-expander]
  verbs: [delete, get, update, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cluster-autoscaler}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-autoscaler}
subjects: [{kind: ServiceAccount, name: cluster-autoscaler, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: cluster-autoscaler, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: cluster-autoscaler}
subjects: [{kind: ServiceAccount, name: cluster-autoscaler, namespace: kube-system}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cluster-autoscaler, namespace: kube-system, labels: {app: cluster-autoscaler}}
spec:
  selector: {matchLabels: {app: cluster-autoscaler}}
  template:
    metadata: {labels: {app: cluster-autoscaler}}
    spec:
      priorityClassName: system-cluster-critical
      serviceAccountName: cluster-autoscaler
      containers:
      - name: cluster-autoscaler
        image: registry.k8s.io/autoscaling/cluster-autoscaler:v1.32.1
        resources: {limits: {cpu: 100m, memory: 600Mi}, requests: {cpu: 100m, memory: 600Mi}}
        command:
        - ./cluster-autoscaler
        - --v=4
        - --stderrthreshold=info
        - --cloud-provider=aws
        - --skip-nodes-with-local-storage=false
        - --expander=least-waste
        - --node-group-auto-discovery=asg:tag=TAGS
""".replace("TAGS", TAGS)
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: nginx-test}
spec:
  selector: {matchLabels: {run: nginx-test}}
  replicas: 10
  template:
    metadata: {labels: {run: nginx-test}}
    spec:
      containers:
      - name: nginx-test
        image: nginx:latest
        ports: [{containerPort: 80}]
        resources: {limits: {cpu: 500m, memory: 512Mi}, requests: {cpu: 500m, memory: 512Mi}}
"""
GROUPS = "AutoScalingGroups[].[AutoScalingGroupName,DesiredCapacity]"
SAFE_TO_EVICT = (
    '{"spec":{"template":{"metadata":{"annotations":{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}}}}'
)


class Walk(Outside):
    """The commands of the walk-through."""

    def install(self, manifest: str) -> None:
        (self.folder / "cluster-autoscaler-policy.json").write_text(POLICY)
        arn = self.run(
            "aws iam create-policy --policy-name AmazonEKSClusterAutoscalerPolicy"
            " --policy-document file://cluster-autoscaler-policy.json --query Policy.Arn --output text"
        ).strip()
        issuer = self.run(
            "aws eks describe-cluster --name eks-cluster --query cluster.identity.oidc.issuer --output text"
        ).strip()
        provider = issuer.removeprefix("https://")
        trust = (
            '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRoleWithWebIdentity",'
            f'"Principal":{{"Federated":"arn:aws:iam::123456789012:oidc-provider/{provider}"}},'
            f'"Condition":{{"StringEquals":{{"{provider}:aud":"sts.amazonaws.com"}}}}}}]}}'
        )
        self.run(f"aws iam create-role --role-name cluster-autoscaler --assume-role-policy-document '{trust}'")
        self.run(f"aws iam attach-role-policy --role-name cluster-autoscaler --policy-arn {arn}")
        self.apply(SERVICE_ACCOUNT)
        assert "cluster-autoscaler" in self.run("kubectl get sa -n kube-system | grep cluster-autoscaler")
        (self.folder / "cluster-autoscaler-autodiscover.yaml").write_text(manifest)
        self.run("sed -i 's/<YOUR CLUSTER NAME>/eks-cluster/g' cluster-autoscaler-autodiscover.yaml")
        self.run("kubectl apply -f cluster-autoscaler-autodiscover.yaml")
        self.run(f"kubectl patch deployment cluster-autoscaler -n kube-system -p '{SAFE_TO_EVICT}'")
        self.run(
            "kubectl set image deployment cluster-autoscaler -n kube-system"
            " cluster-autoscaler=k8s.gcr.io/autoscaling/cluster-autoscaler:v1.30.1"
        )
        self.run("kubectl -n kube-system rollout status deployment/cluster-autoscaler --timeout=120s")

    def sizes(self) -> dict[str, int]:
        text = self.run(f"aws autoscaling describe-auto-scaling-groups --query '{GROUPS}' --output text")
        return {name: int(size) for name, size in (line.split() for line in text.splitlines())}

    def running(self) -> int:
        pods = self.json("kubectl get pods -l run=nginx-test")["items"]
        return sum(pod["status"]["phase"] == "Running" for pod in pods)

    def events(self, reason: str) -> list[str]:
        rows = self.json(f"kubectl get events --field-selector reason={reason}")["items"]
        return [row["message"] for row in rows]

    def until(self, holds: Callable[[], Any]) -> Any:
        try:
            return super().until(holds)
        except AssertionError as late:
            log = "kubectl -n kube-system logs deployment.apps/cluster-autoscaler --tail 40"
            raise AssertionError(self.run(f"kubectl get nodes,pods -A; {log}", check=False)) from late

    def ready_nodes(self) -> int:
        return self.run("kubectl get nodes --no-headers").count(" Ready ")


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    outside = Walk(tmp_path, "eks-cluster", timeout_s=150)
    yield outside
    outside.stop()


def begin(walk: Walk, config: str, manifest: str) -> None:
    (walk.folder / "cluster.yaml").write_text(config)
    walk.start("--config cluster.yaml --speed 8")
    walk.until(lambda: walk.ready_nodes() == 2)
    assert not walk.run("kubectl get deployments -A | grep karpenter", check=False)
    walk.install(manifest)
    walk.apply(WORKLOAD)
    walk.until(lambda: walk.events("TriggeredScaleUp"))


def test_discovery_grows_the_spot_group_to_its_maximum_and_shrinks_it_again(walk: Walk) -> None:
    """With t2.small alone, eight of the ten pods run, and the others are reported why.

    A t2.small has room for one of them. The t2.medium has room for three beside one coredns and the autoscaler.
    """
    begin(walk, WALK_THROUGH.replace('["t2.small", "t3.small"]', '["t2.small"]'), MANIFEST)
    walk.until(lambda: walk.ready_nodes() == 6 and walk.running() == 8)
    assert walk.sizes() == {"eks-cluster-ng": 1, "spot-ng": 5}
    refused = walk.until(lambda: walk.events("NotTriggerScaleUp"))
    assert set(refused) == {"pod didn't trigger scale-up: 1 max node group size reached"}
    logs = walk.run("kubectl -n kube-system logs deployment.apps/cluster-autoscaler")
    assert "Final scale-up plan: [{spot-ng 1->5 (max: 5)}]" in logs
    status = walk.run("kubectl get configmap cluster-autoscaler-status -n kube-system -o yaml")
    assert "cloudProviderTarget: 5" in status
    walk.run("kubectl delete deployment nginx-test")
    walk.until(lambda: walk.sizes() == {"eks-cluster-ng": 1, "spot-ng": 1})
    walk.until(lambda: walk.ready_nodes() == 2)
    assert "403 Forbidden" not in walk.run("kubectl -n kube-system logs deployment.apps/cluster-autoscaler")


def test_with_both_groups_named_the_first_grows_as_well_and_all_pods_run(walk: Walk) -> None:
    discovery = next(line for line in MANIFEST.splitlines() if "auto-discovery" in line)
    named = "        - --nodes=1:10:eks-cluster-ng\n        - --nodes=1:3:spot-ng"
    begin(walk, WALK_THROUGH, MANIFEST.replace(discovery, named))
    walk.until(lambda: walk.running() == 10)
    sizes = walk.sizes()
    assert sizes["eks-cluster-ng"] > 1
    assert sizes["spot-ng"] <= 3
