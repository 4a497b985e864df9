"""Cluster Autoscaler as a pod: under the roles of its manifests it scales the group of a managed node group.

Like upstream's, these roles grant `update` of nodes and of the status ConfigMap, and no `patch`.
"""

from __future__ import annotations

import asyncio
import json

from dovetail.autoscalers.node_groups.manifests import manifests
from dovetail.install.iam import Site, cluster_autoscaler_policy
from dovetail.kube.resources import CONFIGMAPS, DEPLOYMENTS, LEASES, NODES
from dovetail.lab.aws import account
from dovetail.lab.aws.endpoint import ACCOUNT
from tests.lab.programs.test_installed_autoscaler import FreshCluster, play

WORKERS = {"eks.amazonaws.com/nodegroup": "workers"}


def test_the_pod_scales_the_group_of_pending_pods() -> None:
    async def body(world: FreshCluster) -> None:
        endpoint = world.eks.endpoint
        assert endpoint is not None
        subnets = [subnet.id for zone in endpoint.backend("ec2").subnets.values() for subnet in zone.values()]
        eks = account.client(endpoint, "eks")
        await asyncio.get_running_loop().run_in_executor(
            None,
            lambda: eks.create_nodegroup(
                clusterName="dovetail",
                nodegroupName="workers",
                subnets=subnets,
                nodeRole=f"arn:aws:iam::{ACCOUNT}:role/eks-dovetail-nodes",
                instanceTypes=["m5.large"],
                scalingConfig={"minSize": 1, "maxSize": 3, "desiredSize": 1},
            ),
        )

        site = Site(cluster="dovetail", region=endpoint.market.region, account=ACCOUNT)
        policy = json.dumps(cluster_autoscaler_policy(site))
        iam = account.client(endpoint, "iam")
        await asyncio.get_running_loop().run_in_executor(
            None,
            lambda: iam.put_role_policy(
                RoleName="eks-dovetail-nodes", PolicyName="ClusterAutoscaler", PolicyDocument=policy
            ),
        )

        async def workers() -> int:
            return len((await world.kube.list(NODES, labels="eks.amazonaws.com/nodegroup=workers")).items)

        async def joined() -> bool:
            return await workers() == 1

        await world.until(joined)
        await world.apply(
            manifests("dovetail", "registry.k8s.io/autoscaling/cluster-autoscaler", "v1.34.0", "kube-system")
        )
        (pod,) = await world.ready(1, "app=cluster-autoscaler")
        container = {"name": "c", "image": "registry.k8s.io/pause:3.7", "resources": {"requests": {"cpu": "1"}}}
        template = {
            "metadata": {"labels": {"app": "inflate"}},
            "spec": {"containers": [container], "nodeSelector": WORKERS},
        }
        spec = {"replicas": 3, "selector": {"matchLabels": {"app": "inflate"}}, "template": template}
        await world.kube.create(DEPLOYMENTS, {"metadata": {"name": "inflate"}, "spec": spec}, "default")

        async def placed() -> bool:
            return await world.running() == 3

        await world.until(placed, 300)
        assert await workers() == 3
        lease = await world.kube.get(LEASES, "cluster-autoscaler", "kube-system")
        assert lease["spec"]["holderIdentity"] == pod["metadata"]["name"]
        assert "scale" in (await world.log(pod["metadata"]["name"])).lower()
        await world.kube.delete(DEPLOYMENTS, "inflate", "default", propagation="Background")

        async def candidates() -> bool:
            nodes = (await world.kube.list(NODES, labels="eks.amazonaws.com/nodegroup=workers")).items
            taints = [taint["key"] for node in nodes for taint in node["spec"].get("taints") or ()]
            return "DeletionCandidateOfClusterAutoscaler" in taints

        await world.until(candidates, 900)  # not while it cools down after the scale-up
        status = await world.kube.get(CONFIGMAPS, "cluster-autoscaler-status", "kube-system")
        assert "autoscalerStatus: Running" in status["data"]["status"]

    play(body)
