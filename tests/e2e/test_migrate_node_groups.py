"""`dovetail migrate node-groups` typed in a lab: a managed node group and an Auto Scaling group move, stop, go back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Outside

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  replicas: 4
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {team: web}
      containers: [{name: c, image: nginx, resources: {requests: {cpu: 600m, memory: 512Mi}}}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
"""
SIZES = "AutoScalingGroups[].[MinSize,MaxSize,DesiredCapacity]"


class Account(Outside):
    def create_group(self) -> None:
        system = self.json_of("aws eks describe-nodegroup --cluster-name migrated --nodegroup-name system")["nodegroup"]
        self.run(
            "aws eks create-nodegroup --cluster-name migrated --nodegroup-name workers --labels team=web"
            f" --subnets {' '.join(system['subnets'])} --node-role {system['nodeRole']}"
            " --scaling-config minSize=1,maxSize=5,desiredSize=2 --instance-types m5.large"
        )

    def json_of(self, command: str) -> Any:
        return json.loads(self.run(command))

    def sizes(self) -> list[list[int]]:
        found: list[list[int]] = self.json_of(
            f"aws autoscaling describe-auto-scaling-groups --query '{SIZES}' --output json"
        )
        return sorted(found)

    def ready_nodes(self) -> int:
        return self.run("kubectl get nodes --no-headers").count(" Ready ")

    def running(self) -> int:
        pods = self.json("kubectl get pods -l app=web")["items"]
        return sum(pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"] for pod in pods)


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    outside = Account(tmp_path, "migrated", timeout_s=180)
    outside.start("--speed 8")
    yield outside
    outside.stop()


def test_a_managed_node_group_moves_and_comes_back(account: Account) -> None:
    account.until(lambda: account.ready_nodes() == 3)
    account.create_group()
    account.until(lambda: account.ready_nodes() == 5)
    account.apply(WORKLOAD)
    account.until(lambda: account.running() == 4)
    before = account.sizes()
    plan = account.json_of("dovetail migrate node-groups -o json </dev/null")
    assert [group["managedNodeGroup"] for group in plan["groups"]] == ["workers"]
    assert plan["kept"] == ["system"]
    assert plan["refusals"] == []
    assert 0 < plan["pricePerMonth"]["lowerBound"] <= plan["pricePerMonth"]["after"] < plan["pricePerMonth"]["before"]
    assert account.sizes() == before
    done = account.run("dovetail migrate node-groups --yes -v </dev/null")
    assert "aws eks update-nodegroup-config --cluster-name migrated --nodegroup-name workers" in done
    assert "aws autoscaling terminate-instance-in-auto-scaling-group --instance-id i-" in done
    assert "done: the groups are empty" in done
    assert [0, 1, 0] in account.sizes()
    assert account.running() == 4
    nodes = account.json("kubectl get nodes -l karpenter.sh/nodepool=workers")["items"]
    assert nodes and all(node["metadata"]["labels"]["team"] == "web" for node in nodes)
    again = account.run("dovetail migrate node-groups --yes </dev/null")
    assert "no group has anything to move" in again
    account.run("dovetail migrate node-groups --back --yes </dev/null")
    assert account.sizes() == before
    account.until(lambda: account.ready_nodes() == 5 and account.running() == 4)
    assert not account.json("kubectl get nodepools,ec2nodeclasses,nodeclaims")["items"]
    assert "migrat" not in account.run("kubectl get configmaps -n kube-system")
    assert "unschedulable" not in account.run("kubectl get nodes -o yaml")


def test_a_self_managed_group_that_cannot_move_is_refused_with_code_and_remedy(account: Account) -> None:
    account.until(lambda: account.ready_nodes() == 3)
    refused = account.run("dovetail migrate node-groups system </dev/null; echo status $?", check=False)
    assert "ProvisionerOnGroup" in refused and "--keep GROUP" in refused
    assert "status 1" in refused
    unknown = account.run("dovetail migrate node-groups nope </dev/null; echo status $?", check=False)
    assert "no node group 'nope'; there are: system" in unknown and "status 2" in unknown
    permissions = account.run("dovetail migrate node-groups --permissions")
    assert "eks:UpdateNodegroupConfig" in permissions and "pods/eviction" in permissions
