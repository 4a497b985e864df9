"""The walk-throughs our users come from, typed as they stand."""

from __future__ import annotations

import pytest

from tests.e2e import manifests
from tests.e2e.conftest import Outside

pytestmark = pytest.mark.timeout(400)

LOG = "kubectl logs -l app.kubernetes.io/instance=karpenter -n karpenter --tail=-1 | grep"


def test_inflate_gets_one_node_then_two_and_ends_on_the_cheapest(lab: Outside) -> None:
    """On a host so slow that the pods come in two batches, consolidation brings about the same a little later."""
    lab.apply(manifests.POOL)
    lab.apply(manifests.INFLATE)
    lab.run("kubectl scale deployment inflate --replicas 5")
    lab.run("kubectl rollout status deployment/inflate --timeout=180s")
    lab.until(lambda: lab.types() == ["m5.large"])
    if lab.logs:
        assert '"instance-type":"m5.large"' in lab.run(f"{LOG} 'launched nodeclaim'")
    running = (
        "aws ec2 describe-instances --filters Name=instance-state-name,Values=running"
        " Name=tag:karpenter.sh/nodepool,Values=default"
        " --query 'Reservations[].Instances[].InstanceType' --output text"
    )
    lab.until(lambda: lab.run(running).split() == ["m5.large"])

    lab.run("kubectl scale deployment inflate --replicas 12")
    lab.run("kubectl rollout status deployment/inflate --timeout=180s")
    lab.until(lambda: lab.types() == ["m5.large", "m5.large"])

    lab.run("kubectl scale deployment inflate --replicas 5")
    lab.until(lambda: lab.types() == ["m5.large"])
    lab.run("kubectl scale deployment inflate --replicas 1")
    lab.until(lambda: lab.types() == ["c5.large"])
    lab.run("kubectl rollout status deployment/inflate --timeout=180s")
    if lab.logs:
        assert "consolidation replace" in lab.run(f"{LOG} 'disrupting node(s)'")


def test_a_provisioner_of_the_first_generation_buys_for_the_tolerating_pod_alone(lab: Outside) -> None:
    lab.apply(manifests.NETWORK)
    assert "test-network" in lab.run("kubectl get provisioner")
    lab.run("kubectl create namespace nginx")
    lab.apply(manifests.NGINX)
    lab.run("kubectl rollout status -n nginx deployment/nginx --timeout=180s")
    (node,) = lab.json("kubectl get nodes -l nodeType=network-node")["items"]
    labels = node["metadata"]["labels"]
    assert (labels["node.kubernetes.io/instance-type"], labels["phase"]) == ("c5n.4xlarge", "test")
    taints = f"kubectl get node {node['metadata']['name']} -o jsonpath='{{.spec.taints[*].key}}'"
    lab.until(lambda: lab.run(taints) == "networkNode")
    assert "c5n.4xlarge" in lab.run("kubectl get machines")
    lab.run("kubectl delete deployment -n nginx nginx")
    lab.until(lambda: not lab.json("kubectl get nodes -l nodeType=network-node")["items"])


def test_a_pod_that_wants_a_branch_interface_gets_a_type_that_has_them(lab: Outside) -> None:
    lab.apply(manifests.POOL)
    lab.apply(manifests.ENI)
    lab.run("kubectl wait --for=condition=Ready pod/branch --timeout=180s")
    (claim,) = lab.json("kubectl get nodeclaims -l karpenter.sh/nodepool=eni")["items"]
    assert claim["metadata"]["labels"]["node.kubernetes.io/instance-type"].startswith("m5.")
    lab.run("kubectl delete pod branch --now && kubectl delete nodepool eni --timeout=180s")


def test_a_missing_role_mapping_is_named_as_the_cause_and_mapping_it_helps(lab: Outside) -> None:
    statement = '{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}'
    trust = f'{{"Version":"2012-10-17","Statement":[{statement}]}}'
    lab.run(f"aws iam create-role --role-name StrangerRole --assume-role-policy-document '{trust}'")
    for policy in ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"):
        lab.run(f"aws iam attach-role-policy --role-name StrangerRole --policy-arn arn:aws:iam::aws:policy/{policy}")
    lab.apply(manifests.UNMAPPED)
    said = lab.until(lambda: "StrangerRole" in (text := lab.run("kubectl get events")) and text)
    assert "aws-auth" in said and "access entry" in said
    lab.run(
        "aws eks create-access-entry --cluster-name test-cluster --type EC2_LINUX"
        " --principal-arn arn:aws:iam::123456789012:role/StrangerRole"
    )
    lab.run("kubectl wait --for=condition=Ready pod/stranded --timeout=180s")
    lab.run("kubectl delete pod stranded --now")


def test_a_kubeconfig_of_eks_lets_in_whom_an_access_entry_or_aws_auth_maps(lab: Outside) -> None:
    """With `aws eks get-token` as kubectl's credential plugin; an unmapped caller is unauthorized."""
    lab.run("aws iam create-user --user-name ann")
    key = lab.run(
        "aws iam create-access-key --user-name ann --query AccessKey.[AccessKeyId,SecretAccessKey] --output text"
    )
    access_key, secret_key = key.split()
    lab.run("aws eks update-kubeconfig --name test-cluster --kubeconfig ann.yaml")
    arn = "arn:aws:iam::123456789012:user/ann"

    def ann(command: str) -> str:
        keys = f"AWS_ACCESS_KEY_ID={access_key} AWS_SECRET_ACCESS_KEY={secret_key}"
        return lab.run(f"{keys} kubectl --kubeconfig ann.yaml {command}", check=False)

    assert "system" in lab.run("kubectl --kubeconfig ann.yaml get nodes --show-labels"), "the account's own credentials"
    refused = ann("get pods -A")
    assert "Unauthorized" in refused or "provide credentials" in refused
    lab.run(f"aws eks create-access-entry --cluster-name test-cluster --principal-arn {arn}")
    assert "cannot list resource" in ann("get pods -A")
    lab.run(
        f"aws eks associate-access-policy --cluster-name test-cluster --principal-arn {arn} --access-scope type=cluster"
        " --policy-arn arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"
    )
    assert "coredns" in ann("get pods -A")
    assert "no" in ann("auth can-i delete pods")
    lab.run(f"aws eks delete-access-entry --cluster-name test-cluster --principal-arn {arn}")
    assert "coredns" not in ann("get pods -A")
    users = f"- userarn: {arn}\\n  username: ann\\n  groups:\\n  - system:masters\\n"
    lab.run(f'kubectl patch configmap aws-auth -n kube-system -p \'{{"data":{{"mapUsers":"{users}"}}}}\'')
    assert "coredns" in ann("get pods -A")
    assert "yes" in ann("auth can-i delete pods")


def test_an_unschedulable_pod_gets_the_reason_and_the_remedy(lab: Outside) -> None:
    lab.apply(manifests.POOL)
    lab.apply(manifests.GIANT)
    description = lab.until(lambda: "NO_TYPE_FITS" in (text := lab.run("kubectl describe pod giant")) and text)
    assert "ask for less" in description
    lab.until(lambda: "NO_TYPE_FITS" in lab.run("dovetail explain pod/giant"))
    assert "left after" in lab.run("dovetail explain pod/giant -vv")
    lab.until(lambda: "refuse" in lab.run("dovetail history --about giant"))
    lab.run("kubectl delete pod giant --now")
    lab.until(lambda: "provision" in lab.run("dovetail history"))


def test_the_account_answers_the_questions_an_installer_asks(lab: Outside) -> None:
    assert "oidc.eks.ap-northeast-2" in lab.run(
        'aws eks describe-cluster --name test-cluster --query "cluster.identity.oidc.issuer" --output text'
    )
    assert lab.run("aws sts get-caller-identity --query Account --output text").strip() == "123456789012"
    path = "/aws/service/eks/optimized-ami/{}/amazon-linux-2-arm64/recommended/image_id"
    asked = f"aws ssm get-parameter --name {path} --query Parameter.Value --output text"
    assert lab.run(asked.format("1.30")).startswith("ami-")
    assert "ParameterNotFound" in lab.run(asked.format("1.33"), check=False)
    assert "system" in lab.run("aws eks list-nodegroups --cluster-name test-cluster --output text")
    assert (
        lab.run(
            "aws eks describe-nodegroup --cluster-name test-cluster --nodegroup-name system"
            " --query nodegroup.subnets --output text"
        ).count("subnet-")
        == 4
    )
