"""The instances of the nodes that a lab starts with: EC2 knows them by the ids that their Nodes have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from dovetail.lab.aws.account import AwsAccount, client
from dovetail.lab.aws.endpoint import Endpoint
from dovetail.lab.instances import SimulatedInstance


def register(endpoint: Endpoint, made: AwsAccount, instances: Sequence[SimulatedInstance]) -> dict[str, str]:
    """Run them in EC2, as the cluster's first node group; returns the node of each instance id."""
    ec2, backend = client(endpoint, "ec2"), endpoint.backend("ec2")
    by_place: defaultdict[tuple[str, str, str], list[SimulatedInstance]] = defaultdict(list)
    for simulated in instances:
        by_place[simulated.zone, simulated.instance_type, simulated.arch].append(simulated)
    tags = {
        "Name": f"{made.cluster}-{made.node_group}-Node",
        "eks:cluster-name": made.cluster,
        "eks:nodegroup-name": made.node_group,
        f"kubernetes.io/cluster/{made.cluster}": "owned",
    }
    nodes: dict[str, str] = {}
    for (zone, instance_type, arch), group in by_place.items():
        image = next(
            ami_id
            for ami_id, ami in backend.amis.items()
            if ami.architecture == ("arm64" if arch == "arm64" else "x86_64") and ami.owner_id == "602401143452"
        )
        reservation = ec2.run_instances(
            ImageId=image,
            InstanceType=instance_type,
            SubnetId=made.subnets[zone],
            SecurityGroupIds=[made.security_group],
            MinCount=len(group),
            MaxCount=len(group),
        )["ReservationId"]
        for instance, simulated in zip(backend.reservations[reservation].instances, group, strict=True):
            instance.id = simulated.provider_id.rpartition("/")[2]
            instance.add_tags(tags)
            nodes[instance.id] = simulated.name
    return nodes
