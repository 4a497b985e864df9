"""eksctl's ClusterConfig: what the lab takes from it, what it lists, and what it refuses."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from dovetail.autoscalers.node_groups import program
from dovetail.autoscalers.node_groups.flags import parse as flags
from dovetail.autoscalers.node_groups.options import discovery, group_options
from dovetail.clock import run_virtual
from dovetail.cloud.aws.auto_scaling_groups import AutoScalingGroups
from dovetail.cloud.aws.client import Calls
from dovetail.kube.resources import CORE_EVENTS, DEPLOYMENTS, NODES, PODS
from dovetail.lab.aws import account, eks_images
from dovetail.lab.aws.ec2 import Ec2, Timing
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.node_groups import NodeGroups, create_configured
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.lab.aws.service_account_roles import create_roles
from dovetail.lab.cluster import Lab
from dovetail.lab.cluster_config import ClusterConfig, parse
from dovetail.lab.eksctl_fields import ConfigRefused

#: The cluster of the walk-through: one fixed group, one of spot and on-demand that an autoscaler may resize.
WALK_THROUGH = """
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata:
  name: eks-cluster
  region: ap-northeast-2
iam:
  withOIDC: true
vpc:
  cidr: "172.31.0.0/16"
nodeGroups:
  - name: eks-cluster-ng
    instanceType: t2.medium
    desiredCapacity: 1
    volumeSize: 20
    iam:
      withAddonPolicies:
        ImageBuilder: true
        albIngress: true
    ssh:
      allow: true
      publicKeyName: myKeyPair
  - name: spot-ng
    minSize: 1
    maxSize: 5
    tags:
      k8s.io/cluster-autoscaler/eks-cluster: "true"
      k8s.io/cluster-autoscaler/enabled: "true"
    instancesDistribution:
      maxPrice: 0.2
      instanceTypes: ["t2.small", "t3.small"]
      onDemandBaseCapacity: 0
      onDemandPercentageAboveBaseCapacity: 50
    ssh:
      allow: true
      publicKeyName: myKeyPair
"""


def test_the_walk_throughs_file_gives_its_cluster() -> None:
    config = parse(WALK_THROUGH)
    assert (config.name, config.region, config.cidr, config.with_oidc) == (
        "eks-cluster", "ap-northeast-2", "172.31.0.0/16", True,
    )  # fmt: skip
    first, second = config.groups
    assert (first.min_size, first.max_size, first.desired, first.volume_gib) == (1, 1, 1, 20)
    assert first.instance_types == ("t2.medium",)
    assert (second.min_size, second.max_size, second.desired) == (1, 5, 1)
    assert second.distribution is not None
    assert (second.distribution.max_price, second.distribution.on_demand_percentage) == (0.2, 50)
    assert second.tags["k8s.io/cluster-autoscaler/enabled"] == "true"
    assert [line.split(": ", 1)[1] for line in config.ignored] == [
        "nodeGroups[0].iam.withAddonPolicies.ImageBuilder means nothing in the lab",
        "nodeGroups[0].iam.withAddonPolicies.albIngress means nothing in the lab",
        "nodeGroups[0].ssh means nothing in the lab",
        "nodeGroups[1].ssh means nothing in the lab",
    ]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("instanceType: t2.medium", "instanceTyp: t2.medium", r"cluster.yaml:13: .*did you mean instanceType"),
        ("desiredCapacity: 1", "desiredCapacity: one", r"cluster.yaml:14: .*whole number"),
        ("withOIDC: true", "withOIDC: maybe", r"cluster.yaml:8: .*true or false"),
        ("maxSize: 5", "maxSize: 0", r"cluster.yaml:\d+: .*must lie between"),
        ('cidr: "172.31.0.0/16"', 'cidr: "172.31.0.0"', r"cluster.yaml:10: vpc.cidr"),
        ("instanceType: t2.medium", "instanceType: t2.mediun", r"cluster.yaml:13: .*did you mean t2.medium"),
        ('["t2.small", "t3.small"]', '["t2.small", "t3.smal"]', r"cluster.yaml:\d+: .*did you mean t3.small"),
        ("region: ap-northeast-2", "region: ap-norteast-2", r"cluster.yaml:6: .*did you mean ap-northeast-2"),
        ("BaseCapacity: 50", "BaseCapacity: 150", r"cluster.yaml:\d+: .*150 is above 100"),
        ('cidr: "172.31.0.0/16"', 'cidr: "172.31.0.0/24"', "must be a /16"),
        ("  name: eks-cluster\n", "", r"metadata.name: is missing"),
        ("name: eks-cluster\n", "name: a\n  version: 1.31.2\n", r"cluster.yaml:6: .*'1.31.2' is none of 1.24, 1.25"),
        ("name: eks-cluster\n", "name: a\n  version: auto\n", r"cluster.yaml:6: metadata.version: 'auto' is none of"),
        ("kind: ClusterConfig", "kind: Cluster", "kind: ClusterConfig"),
        ("- name: spot-ng", "- name: eks-cluster-ng", r"cluster.yaml:\d+: two node groups are named"),
        ("nodeGroups:", "nodeGroups: {", "not YAML"),
    ],
)
def test_wrong_files_are_refused_with_line_and_hint(before: str, after: str, message: str) -> None:
    with pytest.raises(ConfigRefused, match=message):
        parse(WALK_THROUGH.replace(before, after, 1))


def test_managed_groups_and_taints() -> None:
    config = parse(
        "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nmetadata: {name: a, region: us-west-2, version: '1.30'}\n"
        "managedNodeGroups:\n- name: m\n  instanceTypes: [m5.large, c5.large]\n  spot: true\n  desiredCapacity: 2\n"
        "  taints:\n  - {key: k, value: v, effect: NoSchedule}\n  labels: {team: web}\n"
    )
    [group] = config.groups
    assert group.managed and group.spot and group.taints == (("k", "v", "NoSchedule"),)
    assert config.version == "1.30"


ACCOUNT_FIELDS = """  serviceAccounts:
  - metadata: {name: cluster-autoscaler, namespace: kube-system, labels: {team: infra}}
    wellKnownPolicies: {autoScaler: true}
  - metadata: {name: reader, namespace: apps}
    attachPolicyARNs: ["arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"]
    attachPolicy: {Version: "2012-10-17", Statement: [{Effect: Allow, Action: ["sqs:*"], Resource: "*"}]}
    roleName: reader-role
  - metadata: {name: existing}
    attachRoleARN: arn:aws:iam::123456789012:role/old
  - metadata: {name: only-a-role}
    wellKnownPolicies: {ebsCSIController: true}
    roleOnly: true
"""
WITH_ACCOUNTS = WALK_THROUGH.replace("  withOIDC: true\n", "  withOIDC: true\n" + ACCOUNT_FIELDS)


def test_service_accounts_get_a_role_that_only_they_can_take() -> None:
    config = parse(WITH_ACCOUNTS)
    endpoint = AwsEndpoint(LabOfferings(config.region, families=frozenset({"t3"})))
    try:
        account.build(
            endpoint, config.name, version="1.34", api_url="https://127.0.0.1:6443", ca=b"c", cidr=config.cidr,
            node_group=False, fresh=True, oidc_provider=True,
        )  # fmt: skip
        autoscaler, reader, existing = (body["metadata"] for body in create_roles(endpoint, config))
        iam = account.client(endpoint, "iam")
        assert (autoscaler["name"], autoscaler["namespace"]) == ("cluster-autoscaler", "kube-system")
        assert autoscaler["labels"] == {"app.kubernetes.io/managed-by": "eksctl", "team": "infra"}
        name = autoscaler["annotations"]["eks.amazonaws.com/role-arn"].rpartition("/")[2]
        assert name.startswith("eksctl-eks-cluster-addon-iamserviceaccount-kube-system")
        role = iam.get_role(RoleName=name)["Role"]
        [statement] = role["AssumeRolePolicyDocument"]["Statement"]
        assert "system:serviceaccount:kube-system:cluster-autoscaler" in statement["Condition"]["StringEquals"].values()
        assert iam.list_role_policies(RoleName=name)["PolicyNames"] == ["PolicyAutoScaling"]
        assert reader["annotations"]["eks.amazonaws.com/role-arn"].endswith("role/reader-role")
        [attached] = iam.list_attached_role_policies(RoleName="reader-role")["AttachedPolicies"]
        assert attached["PolicyName"] == "AmazonS3ReadOnlyAccess"
        assert existing["annotations"]["eks.amazonaws.com/role-arn"] == "arn:aws:iam::123456789012:role/old"
        assert "only-a-role" in str(iam.list_roles()["Roles"])
        missing = WITH_ACCOUNTS.replace("AmazonS3ReadOnlyAccess", "NoSuchPolicy").replace("reader-role", "other")
        with pytest.raises(ConfigRefused, match=r"cluster.yaml:\d+: iam.serviceAccounts: .*attachPolicy"):
            create_roles(
                endpoint, msgspec.structs.replace(config, service_accounts=parse(missing).service_accounts[1:])
            )
    finally:
        endpoint.close()
        endpoint.forget()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("withOIDC: true", "withOIDC: false", "iam.serviceAccounts: needs iam.withOIDC: true"),
        ("name: cluster-autoscaler, ", "", r"cluster.yaml:10: iam.serviceAccounts: metadata.name is missing"),
        ("autoScaler: true", "autoscaler: true", "did you mean autoScaler"),
        ("    wellKnownPolicies: {autoScaler: true}\n", "", "cluster-autoscaler gets no policy"),
        ("    attachRoleARN", "    attachPolicyARNs: [a]\n    attachRoleARN", "exclude each other"),
        ("attachPolicy: {Version", "attachPolicy: {Versions: 1, Statement: []} #", "an IAM policy document"),
    ],
)
def test_wrong_service_accounts_are_refused(before: str, after: str, message: str) -> None:
    with pytest.raises(ConfigRefused, match=message):
        parse(WITH_ACCOUNTS.replace(before, after, 1))


def test_the_karpenter_block_installs_and_needs_oidc() -> None:
    assert parse(WALK_THROUGH).karpenter is None
    block = WALK_THROUGH + "karpenter: {version: v0.20.0, withSpotInterruptionQueue: true}\n"
    config = parse(block)
    assert config.karpenter is not None and config.karpenter.interruption_queue
    assert "karpenter.version is not the version that is installed" in config.ignored[-1]
    with pytest.raises(ConfigRefused, match=r"karpenter: needs iam\.withOIDC: true"):
        parse(block.replace("withOIDC: true", "withOIDC: false"))


def walk(config: ClusterConfig, words: list[str]) -> tuple[int, dict[str, int], set[str]]:
    """Ten pods of 500m/512Mi on the file's cluster: how many run, the groups' sizes, the events of pending pods."""
    endpoint = AwsEndpoint(LabOfferings(config.region, families=frozenset({"t2", "t3"})))
    made = account.build(
        endpoint, config.name, version="1.34", api_url="https://127.0.0.1:6443", ca=b"c", cidr=config.cidr,
        node_group=False,
    )  # fmt: skip
    create_configured(endpoint, made, config)

    async def main() -> tuple[int, dict[str, int], set[str]]:
        async with Lab.embedded(1) as lab:
            endpoint.scaling.now = lab.clock.now
            kubelet = lab.client("kubelet")
            instances = Ec2(endpoint, made, lab.fleet, kubelet, lab.chance, Timing(20.0, 5.0, 5.0))
            calls = Calls(lab.clock, region=config.region, endpoint=endpoint.url, session=endpoint.session())
            settings = flags(["--leader-elect=false", *words])
            cloud = AutoScalingGroups(calls, lab.clock, discovery(settings), group_options(settings))
            kube = lab.client("cluster-autoscaler")
            tasks = [
                asyncio.create_task(work)
                for work in (
                    instances.run(),
                    NodeGroups(endpoint, made, kubelet).run(),
                    program.run(settings, kube, cloud, lab.clock, lab.chance, write=len),
                )
            ]
            try:
                await asyncio.sleep(150)
                nodes = (await lab.kube.list(NODES)).items
                assert len(nodes) == 2
                assert all(node["metadata"]["name"].startswith("ip-172-31-") for node in nodes)
                container = {"name": "nginx", "image": "nginx",
                             "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}}  # fmt: skip
                template = {"metadata": {"labels": {"app": "nginx-test"}}, "spec": {"containers": [container]}}
                spec = {"replicas": 10, "selector": {"matchLabels": {"app": "nginx-test"}}, "template": template}
                await lab.kube.create(DEPLOYMENTS, {"metadata": {"name": "nginx-test"}, "spec": spec}, "default")
                await asyncio.sleep(400)
                pods = (await lab.kube.list(PODS, "default")).items
                running = sum(pod["status"]["phase"] == "Running" for pod in pods)
                events = (await lab.kube.list(CORE_EVENTS)).items
                messages = {each["message"] for each in events if each["reason"] == "NotTriggerScaleUp"}
                return running, {group.id: group.target_size for group in cloud.groups()}, messages
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await cloud.close()

    try:
        return run_virtual(main())
    finally:
        endpoint.close()
        endpoint.forget()


TAGS = "k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/eks-cluster"
DISCOVERY = f"--node-group-auto-discovery=asg:tag={TAGS}"


def test_the_walk_through_with_discovery_grows_the_spot_group_alone() -> None:
    """Half of its nodes are t3.small of two cores: with five of them all ten pods run."""
    running, sizes, _ = walk(parse(WALK_THROUGH), [DISCOVERY])
    assert sizes == {"spot-ng": 5}
    assert running == 10


def test_with_small_instances_alone_the_group_reaches_its_maximum_and_pods_learn_why() -> None:
    config = parse(WALK_THROUGH.replace('["t2.small", "t3.small"]', '["t2.small"]'))
    running, sizes, messages = walk(config, [DISCOVERY])
    assert sizes == {"spot-ng": 5}
    assert running == 8
    assert messages == {"pod didn't trigger scale-up: 1 max node group size reached"}


def test_the_walk_through_with_both_groups_named_runs_all_pods() -> None:
    words = ["--nodes=1:10:eks-cluster-ng", "--nodes=1:3:spot-ng"]
    running, sizes, _ = walk(parse(WALK_THROUGH), words)
    assert running == 10
    assert sizes["eks-cluster-ng"] > 1
    assert sizes["spot-ng"] <= 3


FARGATE = """
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: demo, region: ap-northeast-2}
fargateProfiles:
  - name: fp-web
    selectors:
      - namespace: web
        labels: {tier: front}
      - namespace: jobs-*
"""


def test_fargate_profiles_are_created_with_the_role_that_eksctl_makes() -> None:
    config = parse(FARGATE)
    assert config.ignored == ()
    endpoint = AwsEndpoint(LabOfferings("ap-northeast-2", frozenset({"m5"})))
    try:
        made = account.build(endpoint, "demo", version="1.34", api_url="https://127.0.0.1:1", ca=b"", node_group=False)
        create_configured(endpoint, made, config)
        (profile,) = endpoint.fargate.profiles("demo")
        assert profile.matches("web", {"tier": "front"}) and profile.matches("jobs-nightly", {})
        assert not profile.matches("web", {})
        assert set(profile.subnets) == set(made.subnets.values())
        assert profile.role_arn.endswith("eksctl-demo-fargate-FargatePodExecutionRole")
    finally:
        endpoint.close()
        endpoint.forget()


@pytest.mark.parametrize("entry", ["{selectors: [{namespace: web}]}", "{name: fp}", "{name: fp, selectors: [{}]}"])
def test_a_fargate_profile_without_a_name_or_a_namespace_is_refused(entry: str) -> None:
    with pytest.raises(ConfigRefused, match="fargateProfiles: "):
        parse(FARGATE.split("fargateProfiles")[0] + f"fargateProfiles:\n  - {entry}\n")


GROUP_FIELDS = """
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: demo, region: ap-northeast-2}
nodeGroups:
  - name: one-zone
    instanceType: m5.large
    desiredCapacity: 0
    maxSize: 3
    availabilityZones: [ap-northeast-2a]
    labels: {team: web}
    taints: [{key: dedicated, value: web, effect: NoSchedule}]
    propagateASGTags: true
    asgSuspendProcesses: [AZRebalance]
    iam:
      withAddonPolicies: {autoScaler: true, imageBuilder: true}
managedNodeGroups:
  - name: managed
    availabilityZones: [ap-northeast-2c]
    iam: {attachPolicyARNs: ["arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"]}
"""


def test_zones_processes_tags_and_policies_of_a_group_are_honoured() -> None:
    config = parse(GROUP_FIELDS)
    assert [line.split(": ", 1)[1] for line in config.ignored] == [
        "nodeGroups[0].iam.withAddonPolicies.imageBuilder means nothing in the lab"
    ]
    endpoint = AwsEndpoint(LabOfferings("ap-northeast-2", frozenset({"m5"})))
    try:
        made = account.build(endpoint, "demo", version="1.34", api_url="https://127.0.0.1:1", ca=b"", node_group=False)
        create_configured(endpoint, made, config)
        [group] = account.client(endpoint, "autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        assert group["AvailabilityZones"] == ["ap-northeast-2a"]
        assert [each["ProcessName"] for each in group["SuspendedProcesses"]] == ["AZRebalance"]
        tags = {tag["Key"]: tag["Value"] for tag in group["Tags"]}
        prefix = "k8s.io/cluster-autoscaler/node-template"
        assert tags[f"{prefix}/label/team"] == "web"
        assert tags[f"{prefix}/taint/dedicated"] == "web:NoSchedule"
        iam = account.client(endpoint, "iam")
        own = "eksctl-demo-nodegroup-one-zone-NodeInstanceRole"
        assert iam.list_role_policies(RoleName=own)["PolicyNames"] == ["PolicyAutoScaling"]
        assert len(iam.list_attached_role_policies(RoleName=own)["AttachedPolicies"]) == len(account.NODE_POLICIES)
        managed = account.client(endpoint, "eks").describe_nodegroup(clusterName="demo", nodegroupName="managed")
        assert managed["nodegroup"]["subnets"] == [made.subnets["ap-northeast-2c"]]
        role = managed["nodegroup"]["nodeRole"].rpartition("/")[2]
        [only] = iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
        assert only["PolicyName"] == "AmazonEKSWorkerNodePolicy"
        missing = parse(
            GROUP_FIELDS.replace("AmazonEKSWorkerNodePolicy", "Missing").replace("name: managed", "name: x")
        )
        with pytest.raises(ConfigRefused, match=r"cluster.yaml:20: node group x: .*attachPolicy"):
            create_configured(endpoint, made, msgspec.structs.replace(missing, groups=missing.groups[1:]))
    finally:
        endpoint.close()
        endpoint.forget()


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("[ap-northeast-2a]", "[us-west-2a]", r"cluster.yaml:10: .*has no zone us-west-2a; choose of ap-northeast-2a"),
        ("[AZRebalance]", "[Rebalance]", r"cluster.yaml:14: .*'Rebalance' is none of Launch"),
        ("taints: [{key: dedicated,", "taints: [{", r"cluster.yaml:12: .*needs a key"),
        ("taints: [{", "taints: [x, {", r"cluster.yaml:12: .*needs a key"),
        ("instanceType: m5.large", "instanceType: mixed", "names them in instancesDistribution.instanceTypes"),
        (
            "instanceType: m5.large",
            "instancesDistribution: {onDemandBaseCapacity: 1}",
            "names them in instancesDistribution.instanceTypes",
        ),
        (
            "instanceType: m5.large",
            "instancesDistribution: {instanceTypes: [m5.large], maxPrice: -1}",
            r"cluster.yaml:7: .*-1 is below 0",
        ),
        (
            "instanceType: m5.large",
            "instancesDistribution: {instanceTypes: [m5.large], spotAllocationStrategy: cheapest}",
            r"cluster.yaml:7: .*'cheapest' is none of lowest-price",
        ),
        ("- name: managed", "- {name: x, instanceType: m5.large, instanceTypes: [m5.large]}\n  - name: managed",
         "instanceType and instanceTypes exclude each other"),
    ],
)  # fmt: skip
def test_wrong_fields_of_a_group_are_refused(before: str, after: str, problem: str) -> None:
    with pytest.raises(ConfigRefused, match=problem):
        parse(GROUP_FIELDS.replace(before, after, 1))


FAMILIES = """
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: demo, region: ap-northeast-2, version: "1.32"}
nodeGroups:
  - {name: own, instanceType: m5.large, amiFamily: AmazonLinux2, desiredCapacity: 0, maxSize: 1}
managedNodeGroups:
  - {name: rocket, instanceType: m6g.large, amiFamily: Bottlerocket}
  - {name: ubuntu, instanceType: m5.large, amiFamily: Ubuntu2204}
  - {name: plain, instanceType: m5.large}
"""


def test_the_family_of_images_of_a_group_is_honoured() -> None:
    config = parse(FAMILIES)
    assert config.ignored == (
        "cluster.yaml:9: managedNodeGroups[1].amiFamily: the lab has no images of Ubuntu2204; Amazon Linux 2023 runs "
        "instead",
    )
    endpoint = AwsEndpoint(LabOfferings("ap-northeast-2", frozenset({"m5", "m6g"})))
    try:
        made = account.build(endpoint, "demo", version="1.32", api_url="https://127.0.0.1:1", ca=b"", node_group=False)
        create_configured(endpoint, made, config)
        eks = account.client(endpoint, "eks")
        described = {
            name: eks.describe_nodegroup(clusterName="demo", nodegroupName=name)["nodegroup"]["amiType"]
            for name in ("rocket", "ubuntu", "plain")
        }
        assert described == {
            "rocket": "BOTTLEROCKET_ARM_64", "ubuntu": "AL2023_x86_64_STANDARD", "plain": "AL2023_x86_64_STANDARD",
        }  # fmt: skip
        ec2 = account.client(endpoint, "ec2")
        [version] = ec2.describe_launch_template_versions(LaunchTemplateName="eksctl-demo-nodegroup-own")[
            "LaunchTemplateVersions"
        ]
        [image] = ec2.describe_images(ImageIds=[version["LaunchTemplateData"]["ImageId"]])["Images"]
        assert eks_images.system_of(image["Name"]).os_image == "Amazon Linux 2"
    finally:
        endpoint.close()
        endpoint.forget()


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ('"1.32"', '"1.33"', r"cluster.yaml:6: node group own: Amazon Linux 2 has no images from Kubernetes 1\.33 on"),
        (', version: "1.32"', "", r"cluster.yaml:6: node group own: Amazon Linux 2 has no images"),
        ("Bottlerocket", "Bottlerockt", r"cluster.yaml:8: .*no family of images 'Bottlerockt'; did you mean Bottler"),
    ],
)
def test_families_of_images_that_cannot_be_are_refused(before: str, after: str, problem: str) -> None:
    with pytest.raises(ConfigRefused, match=problem):
        parse(FAMILIES.replace(before, after, 1))
