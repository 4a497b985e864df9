"""What must hold before this process may lead: EC2 answers, and it is the EC2 that the cluster's nodes run in.

With credentials of another account, or in another region, EC2 knows none of the cluster's instances: every node would
look as if its instance were gone. That is refused before the lease is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import asked, code_of, explain, message_of
from dovetail.cloud.aws.instances import instance_id
from dovetail.cloud.provider import CloudError
from dovetail.language import message

PREFIX = "aws:///"
#: EC2 is asked for so many of the cluster's instances, and must know one of them if there are enough to judge by.
MAX_INSTANCES_ASKED = 200
MIN_INSTANCES_TO_JUDGE = 3
#: How many zones and instances are named in a refusal.
MAX_NAMED = 3


class StartRefused(Exception):
    """The account or region that is reached is not that of the cluster. The text says what differs, and the remedy."""


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """Where the credentials lead; what could not be asked is empty."""

    region: str
    cluster: str
    account: str = ""
    caller: str = ""

    def __str__(self) -> str:
        account = f"account {self.account} ({self.caller})" if self.account else "an account that STS does not name"
        return f"{account}, region {self.region}, --cluster-name {self.cluster}"


async def check_ec2_answers(calls: Calls) -> None:
    """A dry run, which changes nothing and returns nothing; raises a CloudError where EC2 does not answer it."""
    try:
        await calls("ec2", "describe_instance_types", DryRun=True)
    except Exception as error:
        if code_of(error) != "DryRunOperation":
            raise explain(code_of(error), message_of(error)) from error


async def reached(calls: Calls, cluster: str) -> Reached:
    """Who we are. STS may be out of reach where EC2 is not: then the account stays unknown."""
    try:
        identity = await asked(calls("sts", "get_caller_identity"))
    except CloudError:
        return Reached(region=calls.region, cluster=cluster)
    return Reached(
        region=calls.region,
        cluster=cluster,
        account=str(identity.get("Account", "")),
        caller=str(identity.get("Arn", "")),
    )


def zone_of(provider_id: str) -> str:
    return provider_id.removeprefix(PREFIX).partition("/")[0]


def foreign_zones(provider_ids: Sequence[str], region: str) -> list[str]:
    """The zones of nodes that are not in the region, if those of most nodes are not."""
    zones = [zone_of(provider_id) for provider_id in provider_ids]
    outside = [zone for zone in zones if zone and not zone.startswith(region)]
    return sorted(set(outside)) if 2 * len(outside) > len(zones) else []


def sample(provider_ids: Sequence[str]) -> list[str]:
    """Instance ids to ask EC2 for, spread over all of them."""
    names = sorted({instance_id(provider_id) for provider_id in provider_ids})
    step = -(-len(names) // MAX_INSTANCES_ASKED) if names else 1
    return names[::step]


async def check_identity(calls: Calls, cluster: str, provider_ids: Sequence[str]) -> None:
    """Compare the provider ids of Nodes and NodeClaims with what EC2 knows; raises StartRefused where they differ.

    Raises a CloudError where EC2 did not answer: that is no evidence.
    """
    ours = sorted({provider_id for provider_id in provider_ids if provider_id.startswith(PREFIX)})
    if not ours:
        return
    if zones := foreign_zones(ours, calls.region):
        where = await reached(calls, cluster)
        raise StartRefused(
            message(
                "the cluster's nodes are in {zones}, and the AWS region reached is {region!r} ({where}); "
                "set AWS_REGION to the nodes' region, or connect to the cluster of this region",
                zones=_named(zones),
                region=calls.region,
                where=where,
            )
        )
    names = sample(ours)
    if len(names) < MIN_INSTANCES_TO_JUDGE:
        return
    filters = [{"Name": "instance-id", "Values": names}]
    rows = await asked(calls.all("ec2", "describe_instances", "Reservations", Filters=filters, MaxResults=1000))
    if not any(reservation.get("Instances") for reservation in rows):
        where = await reached(calls, cluster)
        raise StartRefused(
            message(
                "EC2 knows none of {count} instances of the cluster's nodes ({names}) in {where}; use credentials of "
                "the account that the nodes run in (IRSA annotation, pod identity association, ASSUME_ROLE_ARN), or "
                "connect to the cluster of this account",
                count=len(names),
                names=_named(names),
                where=where,
            )
        )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
