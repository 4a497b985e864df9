"""The autoscaler on AWS as a program: the provider that its settings describe, and its upkeep while it runs."""

from __future__ import annotations

import asyncio

from dovetail.cloud.aws.provider import Aws, AwsSettings
from dovetail.controllers.manager import Autoscaler
from dovetail.controllers.settings import Settings
from dovetail.controllers.worker import every, reconcile_ids

#: Between two looks at what of the cloud is due for upkeep.
UPKEEP_INTERVAL_S = 60.0


def aws_settings(settings: Settings, region: str, endpoint: str | None) -> AwsSettings:
    """Settings of the provider; `endpoint` replaces AWS's own addresses."""
    return AwsSettings(
        cluster_name=settings.cluster_name,
        region=region,
        cluster_endpoint=settings.cluster_endpoint,
        cluster_ca_bundle=settings.cluster_ca_bundle,
        interruption_queue=settings.interruption_queue,
        vm_memory_overhead_percent=settings.vm_memory_overhead_percent,
        reserved_enis=settings.reserved_enis,
        isolated_vpc=settings.isolated_vpc,
        ami_refresh_interval=settings.ami_refresh_interval,
        subnet_refresh_interval=settings.subnet_refresh_interval,
        disable_dry_run=settings.disable_dry_run,
        read_only=settings.dry_run,
        reserved_capacity=settings.gate("ReservedCapacity"),
        eks_control_plane=settings.eks_control_plane,
        tags=settings.aws_tags,
        ec2_share=settings.ec2_share,
        assume_role_arn=settings.assume_role_arn,
        assume_role_duration=settings.assume_role_duration,
        aws_endpoint=endpoint,
    )


async def upkeep(aws: Aws, autoscaler: Autoscaler) -> None:
    """Until cancelled. Only the leader looks after templates and names: a standby does not know which are in use."""

    async def look() -> None:
        leading = autoscaler.election is None or autoscaler.election.leading
        acting = leading and not autoscaler.settings.dry_run
        await (aws.refresh() if acting else aws.refresh_prices())

    ids = reconcile_ids(autoscaler.context.chance, "providers.upkeep")
    await asyncio.sleep(UPKEEP_INTERVAL_S)  # prices are asked for at start, before the election
    await every(UPKEEP_INTERVAL_S, look, "providers.upkeep", autoscaler.log, ids)
