"""What an installation needs and does not make itself (`doctor --pre`)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dovetail.install.doctor.access import eks_cluster
from dovetail.install.doctor.aws_answers import is_cluster_autoscaler
from dovetail.install.doctor.collect import VERSION
from dovetail.install.doctor.controller import controllers, is_dovetail
from dovetail.install.doctor.daemon_sets import free_resources
from dovetail.install.doctor.facts import Facts, Fault, Json, condition, failure, name_of, shortened, warning
from dovetail.install.doctor.network import MIN_FREE_ADDRESSES
from dovetail.install.doctor.routes import CONTROLLER_SERVICES, NODE_SERVICES, closed_subnets
from dovetail.kube.resources import DEPLOYMENTS, NODES
from dovetail.language import message

#: What a replica of the controller requests by default.
REPLICA_CPU_MILLI, REPLICA_MEMORY_BYTES = 100, 128 * 2**20
OLDEST_KUBERNETES = 24


def check_cluster(facts: Facts) -> Iterator[Fault]:
    """P01: EKS knows the cluster, it is active, and its version is supported."""
    cluster = eks_cluster(facts)
    status = cluster.get("status", "ACTIVE")
    if status not in ("ACTIVE", "UPDATING"):
        yield failure(
            f"cluster/{facts.cluster}",
            message("its status is {status}: nothing can be installed before it is ACTIVE", status=status),
            f"aws eks wait cluster-active --name {facts.cluster} --region {facts.region}",
        )
    if (cluster.get("computeConfig") or {}).get("enabled"):
        yield warning(
            f"cluster/{facts.cluster}",
            message("EKS Auto Mode is on and launches nodes for the same pods"),
            f"aws eks update-cluster-config --name {facts.cluster} --compute-config enabled=false"
            " --kubernetes-network-config"
            f' \'{{"elasticLoadBalancing":{{"enabled":false}}}}\' --storage-config'
            f' \'{{"blockStorage":{{"enabled":false}}}}\' --region {facts.region}',
        )
    stated = facts.read(VERSION) or {}
    minor = re.match(r"\d+", str(stated.get("minor", "")))
    if minor and int(minor[0]) < OLDEST_KUBERNETES:
        yield failure(
            f"cluster/{facts.cluster}",
            message(
                "it runs Kubernetes 1.{minor}; 1.{oldest_kubernetes} or later is needed",
                minor=minor[0],
                oldest_kubernetes=OLDEST_KUBERNETES,
            ),
            f"aws eks update-cluster-version --name {facts.cluster} --kubernetes-version 1.{int(minor[0]) + 1}"
            f" --region {facts.region}",
        )


def check_room(facts: Facts) -> Iterator[Fault]:
    """P02: nodes that no NodePool manages have room for two replicas of the controller."""
    room = free_resources(facts)
    fitting = [
        node["metadata"]["name"]
        for node in facts.items(NODES.name)
        if _is_usable(node)
        and room[node["metadata"]["name"]].get("cpu", 0) >= REPLICA_CPU_MILLI
        and room[node["metadata"]["name"]].get("memory", 0) >= REPLICA_MEMORY_BYTES
        and room[node["metadata"]["name"]].get("pods", 1) >= 1
    ]
    remedy = (
        f"eksctl create nodegroup --cluster {facts.cluster or 'CLUSTER'} --region {facts.region or 'REGION'} "
        " --name system --node-type m5.large --nodes 2"
    )
    if not fitting:
        yield failure(
            "nodes",
            message(
                "none of the {count} nodes is ready, without a NodePool and without taints, and has room "
                "for {replica_cpu_milli}m CPU and {replica_memory_bytes} Mi: the controller cannot run",
                count=len(facts.items(NODES.name)),
                replica_cpu_milli=REPLICA_CPU_MILLI,
                replica_memory_bytes=REPLICA_MEMORY_BYTES // 2**20,
            ),
            remedy,
        )
    elif len(fitting) == 1:
        yield warning(
            f"node/{fitting[0]}",
            message(
                "it alone has room for the controller: its two replicas must be on different nodes, so "
                "one stays pending"
            ),
            remedy,
        )


def _is_usable(node: Json) -> bool:
    taints = [taint for taint in node["spec"].get("taints") or () if taint.get("effect") != "PreferNoSchedule"]
    if any(taint.get("key") != "CriticalAddonsOnly" for taint in taints) or node["spec"].get("unschedulable"):
        return False
    ready = condition(node, "Ready") or {}
    held = node["metadata"].get("labels") or {}
    return ready.get("status") == "True" and "karpenter.sh/nodepool" not in held


def check_subnets(facts: Facts) -> Iterator[Fault]:
    """P03: the cluster's subnets have free addresses, in two zones, and a way out."""
    eks_cluster(facts)
    subnets = facts.items("cluster subnets")
    if not subnets:
        yield failure(
            f"cluster/{facts.cluster}",
            message("resourcesVpcConfig.subnetIds names no subnet that exists"),
            f"aws eks describe-cluster --name {facts.cluster} --query cluster.resourcesVpcConfig"
            f" --region {facts.region}",
        )
        return
    full = [row["SubnetId"] for row in subnets if row.get("AvailableIpAddressCount", 256) < MIN_FREE_ADDRESSES]
    if full and (eks_cluster(facts).get("kubernetesNetworkConfig") or {}).get("ipFamily") != "ipv6":
        make = failure if len(full) == len(subnets) else warning
        yield make(
            f"cluster/{facts.cluster}",
            message(
                "{count} of its {count_2} subnets have fewer than {min_free_addresses} free addresses: "
                "{shortened}; nodes and pods there get none",
                count=len(full),
                count_2=len(subnets),
                min_free_addresses=MIN_FREE_ADDRESSES,
                shortened=shortened(full),
            ),
            f"aws ec2 describe-subnets --subnet-ids {' '.join(full)} --region {facts.region}",
        )
    if len({row.get("AvailabilityZone") for row in subnets}) < 2:
        yield warning(
            f"cluster/{facts.cluster}",
            message(
                "all its subnets are in {AvailabilityZone}: if this zone fails, so does the cluster",
                AvailabilityZone=subnets[0].get("AvailabilityZone"),
            ),
            "aws ec2 create-subnet --vpc-id VPC --availability-zone ZONE --cidr-block CIDR",
        )
    if len(closed_subnets(facts, subnets)) < len(subnets):
        return
    served = {str(row.get("ServiceName")).split(f".{facts.region}.", 1)[-1] for row in facts.items("VPC endpoints")}
    if not {*NODE_SERVICES, *CONTROLLER_SERVICES} <= served:
        yield warning(
            f"cluster/{facts.cluster}",
            message(
                "no subnet of it leads out of the VPC: nodes need VPC endpoints for ec2, ecr.api, "
                "ecr.dkr, s3 and sts, the controller also for eks, ssm and sqs (see D18)"
            ),
            "dovetail install --set settings.isolatedVPC=true",
        )


def check_other_controllers(facts: Facts) -> Iterator[Fault]:
    """P04: no other autoscaler of nodes acts here."""
    for deployment in facts.items(DEPLOYMENTS.name):
        if is_cluster_autoscaler(deployment) and deployment["spec"].get("replicas", 1):
            yield warning(
                f"deployment/{name_of(deployment)}",
                message("Cluster Autoscaler runs: both would add nodes for the same pending pods"),
                message(
                    "kubectl scale deployment {name} -n {namespace} --replicas=0  # once NodePools serve the pods",
                    name=deployment["metadata"]["name"],
                    namespace=deployment["metadata"]["namespace"],
                ),
            )
    for deployment in controllers(facts):
        if is_dovetail(deployment) or not deployment["spec"].get("replicas", 1):
            continue
        yield warning(
            f"deployment/{name_of(deployment)}",
            message("Karpenter runs: dovetail install can take its place without replacing a node"),
            "dovetail install --take-over --dry-run",
        )
