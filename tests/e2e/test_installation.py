"""The installations of the walk-throughs on a fresh cluster, typed with the real kubectl, aws and helm.

They need Helm, which `make test-kubernetes` builds; it runs one of them, each takes about a minute.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.e2e import aws_process
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
    outside = Outside(tmp_path, "test-cluster", timeout_s=300)
    try:
        outside.start("--fresh --boot 3")
        with aws_process.started(outside.environment):
            yield outside
    finally:
        outside.stop()


def install(fresh: Outside, walk: Mapping[str, str], version: str = "v3.22.0", without: str = "") -> str:
    fresh.environment["HELM"] = helm(version)
    typed = fresh.run(aws_process.FUNCTION + steps.script(walk, without), check=False)
    fresh.run("kubectl apply -f -", input=steps.INFLATE)
    return typed


@pytest.mark.parametrize(
    ("walk", "version"),
    [
        pytest.param(walk, version, marks=() if (walk, version) == ("VALUES_FILE", "v3.22.0") else pytest.mark.slow)
        for walk in ("EXISTING_CLUSTER", "TERRAFORM", "WORKSHOP", "VALUES_FILE", "MENDED_SECTION")
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


#: Where a left-out step is reported: at the terminal, in the log, in events, by doctor; or it was not needed.
TERMINAL, EVENTS, DOCTOR, NOT_NEEDED = "", "kubectl get events", "dovetail doctor", "not needed"
CLASS = "AWSNodeTemplate default does not exist"
NO_FILE = "Unable to load paramfile file://"
LEFT_OUT = [
    ("EXISTING_CLUSTER", "CLUSTER_NAME=$(aws", LOG, "settings.clusterName"),
    ("EXISTING_CLUSTER", "AWS_PARTITION=", TERMINAL, 'Partition "" is not valid for resource'),
    ("EXISTING_CLUSTER", "AWS_REGION=", NOT_NEEDED, "the environment has it"),
    ("EXISTING_CLUSTER", "OIDC_ENDPOINT=", TERMINAL, "Invalid principal in policy"),
    ("EXISTING_CLUSTER", "AWS_ACCOUNT_ID=$(aws", TERMINAL, "Invalid principal in policy"),
    ("EXISTING_CLUSTER", '"Service": "ec2.amazonaws.com"', TERMINAL, f"{NO_FILE}node-trust-policy.json"),
    ("EXISTING_CLUSTER", "file://node-trust-policy.json", TERMINAL, "Role KarpenterNodeRole-test-cluster not found"),
    ("EXISTING_CLUSTER", "AmazonEKSWorkerNodePolicy", DOCTOR, "AmazonEKSWorkerNodePolicy: its nodes join by what"),
    ("EXISTING_CLUSTER", "AmazonEKS_CNI_Policy", EVENTS, "AmazonEKS_CNI_Policy"),
    ("EXISTING_CLUSTER", "AmazonEC2ContainerRegistryReadOnly", EVENTS, "AmazonEC2ContainerRegistryReadOnly"),
    ("EXISTING_CLUSTER", "AmazonSSMManagedInstanceCore", NOT_NEEDED, "sessions at the nodes alone need it"),
    ("EXISTING_CLUSTER", "create-instance-profile", TERMINAL, "KarpenterNodeInstanceProfile-test-cluster not found"),
    ("EXISTING_CLUSTER", "add-role-to-instance-profile", EVENTS, "KarpenterNodeInstanceProfile-test-cluster"),
    ("EXISTING_CLUSTER", "EOF > controller-trust-policy.json", TERMINAL, f"{NO_FILE}controller-trust-policy.json"),
    ("EXISTING_CLUSTER", "file://controller-trust-policy.json", LOG, "eks.amazonaws.com/role-arn exists"),
    ("EXISTING_CLUSTER", "EOF > controller-policy.json", TERMINAL, f"{NO_FILE}controller-policy.json"),
    ("EXISTING_CLUSTER", "file://controller-policy.json", LOG, "allow the action in the controller's IAM policy"),
    ("EXISTING_CLUSTER", "for NODEGROUP", EVENTS, "karpenter.sh/discovery"),
    ("EXISTING_CLUSTER", "'nodegroups[0]'", NOT_NEEDED, "the loop over the node groups has set it"),
    ("EXISTING_CLUSTER", "LAUNCH_TEMPLATE=$(", TERMINAL, "--launch-template-id: expected one argument"),
    ("EXISTING_CLUSTER", "SECURITY_GROUPS=$(", TERMINAL, "must contain the parameter resourceIdSet"),
    ("EXISTING_CLUSTER", "    --resources ${SECURITY_GROUPS}", EVENTS, "karpenter.sh/discovery"),
    ("EXISTING_CLUSTER", "add_role\n", EVENTS, "aws-auth"),
    ("EXISTING_CLUSTER", "KARPENTER_VERSION=v0.30.0", TERMINAL, "unexpected arguments: karpenter"),
    ("EXISTING_CLUSTER", "--set settings.aws.defaultInstanceProfile", NOT_NEEDED, "the name follows the cluster's"),
    ("EXISTING_CLUSTER", "--set settings.aws.clusterName", LOG, "settings.clusterName"),
    ("EXISTING_CLUSTER", "> karpenter.yaml", TERMINAL, 'the path "karpenter.yaml" does not exist'),
    ("EXISTING_CLUSTER", "create namespace", TERMINAL, 'namespaces "karpenter" not found'),
    ("EXISTING_CLUSTER", "karpenter.sh_provisioners.yaml", TERMINAL, 'no matches for kind "Provisioner"'),
    ("EXISTING_CLUSTER", "karpenter.k8s.aws_awsnodetemplates.yaml", TERMINAL, 'no matches for kind "AWSNodeTemplate"'),
    ("EXISTING_CLUSTER", "apply -f karpenter.yaml", DOCTOR, "no controller is installed"),
    ("EXISTING_CLUSTER", "kind: Provisioner", EVENTS, "create a NodePool"),
    ("EXISTING_CLUSTER", "kind: AWSNodeTemplate", EVENTS, CLASS),
    ("TERRAFORM", '"$HELM" upgrade --install', DOCTOR, "no controller is installed"),
    ("TERRAFORM", " --create-namespace", TERMINAL, 'namespaces "karpenter" not found'),
    ("TERRAFORM", "--set clusterName", LOG, "settings.clusterName"),
    ("TERRAFORM", "--set clusterEndpoint", NOT_NEEDED, "EKS is asked for it"),
    ("TERRAFORM", "--set aws.defaultInstanceProfile", NOT_NEEDED, "the name follows the cluster's"),
    ("WORKSHOP", "--cluster ${CLUSTER_NAME} --part", TERMINAL, f"{NO_FILE}pod-identity-trust.json"),
    ("WORKSHOP", "iam --cluster ${CLUSTER_NAME} >", TERMINAL, f"{NO_FILE}controller-policy.json"),
    ("WORKSHOP", "file://pod-identity-trust.json", TERMINAL, "Role KarpenterControllerRole-test-cluster not found"),
    ("WORKSHOP", "file://controller-policy.json", LOG, "allow the action in the controller's IAM policy"),
    ("WORKSHOP", "create-pod-identity-association", LOG, "allow the action in the controller's IAM policy"),
    ("WORKSHOP", "eks-pod-identity-agent", LOG, "eks-pod-identity-agent"),
    ("WORKSHOP", "aws sqs create-queue", LOG, "SQS has no queue 'test-cluster'"),
    ("WORKSHOP", "EKS_CLUSTER_NAME=${CLUSTER_NAME} KARPENTER", LOG, "settings.clusterName"),
    ("WORKSHOP", '"$HELM" upgrade --install', DOCTOR, "no controller is installed"),
    ("WORKSHOP", "kubectl get deployment -n karpenter", NOT_NEEDED, "it only looks"),
    ("WORKSHOP", '--set "settings.clusterName', LOG, "settings.clusterName"),
    ("WORKSHOP", '--set "settings.interruptionQueue', NOT_NEEDED, "interruptions alone need it"),
    ("WORKSHOP", "kind: NodePool", EVENTS, "create a NodePool"),
    ("WORKSHOP", "kind: EC2NodeClass", EVENTS, "EC2NodeClass default does not exist"),
    ("VALUES_FILE", "EOF > values.yaml", TERMINAL, "open values.yaml: no such file or directory"),
    ("VALUES_FILE", "karpenter-crd oci", TERMINAL, 'namespaces "karpenter" not found'),  # it creates the namespace
    ("VALUES_FILE", "karpenter oci://$DOVETAIL_CHARTS/karpenter/karpenter ", DOCTOR, "no controller is installed"),
    ("MENDED_SECTION", 'create-role --role-name "KarpenterNodeRole', EVENTS, "IAM has no role 'KarpenterNodeRole-"),
    ("MENDED_SECTION", 'create-role --role-name "KarpenterController', LOG, "eks.amazonaws.com/role-arn exists"),
    ("MENDED_SECTION", "put-role-policy", LOG, "allow the action in the controller's IAM policy"),
    ("MENDED_SECTION", "export CLUSTER_NAME", NOT_NEEDED, "it is set already"),
    ("MENDED_SECTION", "eksctl get nodegroup", NOT_NEEDED, "the loop over the node groups has set it"),
    ("MENDED_SECTION", '    --resources "${SECURITY_GROUPS}"', EVENTS, "karpenter.sh/discovery"),
    ("MENDED_SECTION", '"$HELM" upgrade --install', DOCTOR, "no controller is installed"),
]
#: Steps that need no node: the walk-through works without them, but for what they are for.
UNHINDERED = {"aws sqs create-queue", "AmazonEKSWorkerNodePolicy"}


def test_every_command_of_a_walk_through_is_left_out_once() -> None:
    """The section on Karpenter repeats commands of the first walk-through; its own differ."""
    covered: set[str] = set()
    for walk, without, _, _ in LEFT_OUT:
        typed = steps.commands(steps.ENVIRONMENT + "".join(getattr(steps, walk).values()))
        covered |= {command for command in typed if without in command}
    for walk in ("EXISTING_CLUSTER", "TERRAFORM", "WORKSHOP", "VALUES_FILE"):
        typed = steps.commands(steps.ENVIRONMENT + "".join(getattr(steps, walk).values()))
        assert len(typed) > 20
        # the function only stands for an editor
        assert {command for command in typed if not command.startswith("add_role()")} <= covered, walk


@pytest.mark.slow
@pytest.mark.parametrize(("walk", "without", "where", "reported"), LEFT_OUT)
def test_a_step_that_was_left_out_is_named(fresh: Outside, walk: str, without: str, where: str, reported: str) -> None:
    typed = install(fresh, getattr(steps, walk), without=without)
    if where == TERMINAL:
        assert reported in typed
        return
    if where == NOT_NEEDED:
        fresh.until(lambda: "5/5" in fresh.run("kubectl get deployment inflate", check=False))
        return
    fresh.until(lambda: reported in fresh.run(where, check=False))
    if without not in UNHINDERED:
        assert "5/5" not in fresh.run("kubectl get deployment inflate")


@pytest.mark.slow
def test_the_section_on_karpenter_as_it_stands_names_its_slips(fresh: Outside) -> None:
    """The file that it names does not exist, and the node role has not the name that the controller's policy passes."""
    typed = install(fresh, steps.SECTION)
    assert f"{NO_FILE}KarpenterNodePolicy.json" in typed
    fresh.until(lambda: "IAM has no role 'KarpenterNodeRole-test-cluster'" in fresh.run(EVENTS))
    assert "create-role --role-name KarpenterNodeRole-test-cluster" in fresh.run(DOCTOR, check=False)


@pytest.mark.slow
def test_the_commands_that_a_dry_run_shows_are_the_installation(fresh: Outside) -> None:
    """Pasted into a shell, one after the other, they leave nothing for the installer to do."""
    shown = fresh.run("dovetail install --dry-run -v")
    fresh.run("set -e\n" + pasted(shown))
    fresh.until(lambda: "2/2" in fresh.run("kubectl get deployment karpenter -n karpenter"))
    assert "nothing to do: everything is as it should be" in fresh.run("dovetail install")


def pasted(shown: str) -> str:
    """The commands among the lines of a plan; a manifest goes to the line that ends it."""
    kept, in_manifest = [], False
    for line in shown.splitlines():
        if in_manifest or "<<'EOF'" in line or line.startswith(" " * 12):
            kept.append(line if in_manifest else line.strip())
            in_manifest = "<<'EOF'" in line or (in_manifest and line != "EOF")
    return "\n".join(kept)
