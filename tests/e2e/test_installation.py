"""The installations of the walk-throughs on a fresh cluster, typed with the real kubectl, aws and helm.

They need Helm, which `make test-kubernetes` builds; it runs one of them, each takes about a minute.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.e2e import installation_steps as steps
from tests.e2e.conftest import Outside

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
LOG = "kubectl logs -n karpenter -l app.kubernetes.io/instance=karpenter --tail=-1"


def helm(version: str) -> str:
    built = subprocess.run([ROOT / "kubernetes" / "helm", version], capture_output=True, text=True, check=True)
    return built.stdout.strip()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Outside]:
    outside = Outside(tmp_path, "test-cluster", timeout_s=120)
    try:
        outside.start("--fresh --boot 3")
        yield outside
    finally:
        outside.stop()


def install(fresh: Outside, walk: Mapping[str, str], version: str = "v3.22.0", without: str = "") -> str:
    fresh.environment["HELM"] = helm(version)
    typed = fresh.run(steps.script(walk, without), check=False)
    fresh.run("kubectl apply -f -", input=steps.INFLATE)
    return typed


@pytest.mark.parametrize(
    ("walk", "version"),
    [
        pytest.param(walk, version, marks=() if (walk, version) == ("VALUES_FILE", "v3.22.0") else pytest.mark.slow)
        for walk in ("EXISTING_CLUSTER", "TERRAFORM", "WORKSHOP", "VALUES_FILE")
        for version in ("v3.22.0", "v4.3.1")
    ],
)
def test_a_walk_through_ends_in_a_node(fresh: Outside, walk: str, version: str) -> None:
    typed = install(fresh, getattr(steps, walk), version)
    fresh.until(lambda: "5/5" in fresh.run("kubectl get deployment inflate", check=False))
    assert "Could not connect" not in typed
    fresh.until(lambda: "True" in fresh.run("kubectl get nodeclaims --no-headers"))
    if walk in ("WORKSHOP", "VALUES_FILE"):
        assert "SQS has no queue" not in fresh.run(LOG)
    if walk in ("WORKSHOP", "VALUES_FILE"):
        assert fresh.types() == ["m5.large"]
    # without pods its node goes again: the role of the walk-through may end what it launched
    fresh.run("kubectl delete deployment inflate")
    fresh.until(lambda: "No resources" in fresh.run("kubectl get nodeclaims", check=False))
    if walk != "EXISTING_CLUSTER":
        fresh.run('"$HELM" uninstall karpenter -n karpenter')
        fresh.until(lambda: "No resources" in fresh.run("kubectl get pods -n karpenter", check=False))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("walk", "without", "command", "said"),
    [
        ("EXISTING_CLUSTER", "node role", "kubectl get events", "KarpenterNodeInstanceProfile-test-cluster"),
        ("EXISTING_CLUSTER", "instance profile", "kubectl get events", "KarpenterNodeInstanceProfile-test-cluster"),
        ("EXISTING_CLUSTER", "controller role", LOG, "eks.amazonaws.com/role-arn exists"),
        ("EXISTING_CLUSTER", "controller policy", LOG, "allow the action in the controller's IAM policy"),
        ("EXISTING_CLUSTER", "subnet tags", "kubectl get events", "karpenter.sh/discovery"),
        ("EXISTING_CLUSTER", "security group tags", "kubectl get events", "karpenter.sh/discovery"),
        ("EXISTING_CLUSTER", "aws-auth", "kubectl get events", "aws-auth"),
        ("EXISTING_CLUSTER", "provisioner definition", LOG, "install the definitions"),
        ("EXISTING_CLUSTER", "template definition", "kubectl get events", "EC2NodeClass default does not exist"),
        ("EXISTING_CLUSTER", "provisioner", "kubectl get events", "create a NodePool"),
        ("WORKSHOP", "pod identity", LOG, "allow the action in the controller's IAM policy"),
        ("WORKSHOP", "pod identity agent", LOG, "eks-pod-identity-agent"),
        ("WORKSHOP", "queue", LOG, "SQS has no queue 'test-cluster'"),
    ],
)
def test_a_step_that_was_left_out_is_named(fresh: Outside, walk: str, without: str, command: str, said: str) -> None:
    install(fresh, getattr(steps, walk), without=without)
    fresh.until(lambda: said in fresh.run(command, check=False))
    if without != "queue":  # interruptions alone need it
        assert "5/5" not in fresh.run("kubectl get deployment inflate")
