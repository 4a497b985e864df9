"""What the autoscaler asks of EC2, against the token buckets that EC2 keeps for every call of an account.

    python -m bench ec2_calls

A burst of 1,000 mixed pods, then a quiet hour with all its periodic looks, on the lab's AWS over HTTP in virtual
time. `share` is the most that was ever gone from EC2's bucket at once; we leave others half of each.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

import msgspec

from dovetail.cloud.aws.client import EC2_INSTANCE_BUCKETS, CallRecord, ec2_bucket
from dovetail.kube import resources as kinds
from tests.controllers.aws_world import AwsWorld, account, run_scenario

#: (milli-CPU, memory) of the pods of a burst, in equal parts.
MIX = (("100m", "128Mi"), ("250m", "512Mi"), ("500m", "1Gi"), ("1", "2Gi"), ("1500m", "6Gi"))


class Usage(msgspec.Struct, frozen=True):
    calls: int
    share: float


def usage(records: Iterable[CallRecord]) -> dict[str, Usage]:
    """Calls of EC2 by operation, and the largest share of each bucket that was gone at once."""
    made: dict[str, list[CallRecord]] = {}
    for record in records:
        if record.service == "ec2":
            made.setdefault(record.operation, []).append(record)
    return {name: Usage(len(calls), _share(name, calls)) for name, calls in sorted(made.items())}


def _share(operation: str, calls: list[CallRecord]) -> float:
    """Of the bucket for calls, or of the one for instances: whichever was emptier."""
    share = _gone([(call.at, 1) for call in calls], *ec2_bucket(operation))
    if operation in EC2_INSTANCE_BUCKETS:
        share = max(share, _gone([(call.at, call.instances) for call in calls], *EC2_INSTANCE_BUCKETS[operation]))
    return share


def _gone(taken: list[tuple[float, int]], size: float, refill: float) -> float:
    gone = worst = 0.0
    last = min(taken)[0]
    for at, count in sorted(taken):
        gone = max(0.0, gone - (at - last) * refill) + count
        worst, last = max(worst, gone), at
    return worst / size


async def burst(world: AwsWorld, pods: int = 1000) -> None:
    """Pods of five sizes at once; returns when an instance has been asked for each claim."""
    before = len(await world.list(kinds.NODECLAIMS))
    for number, (cpu, memory) in enumerate(MIX):
        await world.pods(pods // len(MIX), prefix=f"b{number}x", cpu=cpu, memory=memory)

    async def asked() -> bool:
        claims = len(await world.list(kinds.NODECLAIMS))
        return claims > before and len(world.account.living()) >= claims

    await world.until(asked, step=0.1)


async def quiet(world: AwsWorld, seconds: float = 3600.0) -> None:
    """The periodic looks of a leader: classes, instances, prices, templates."""
    for _ in range(round(seconds / 60)):
        await world.cloud.refresh()
        await asyncio.sleep(60)


def main() -> None:
    async def scenario(world: AwsWorld) -> None:
        await world.node_class()
        await world.pool()
        world.start()
        await burst(world)
        await world.until(world.running)
        _print("a burst of 1,000 pods", world.records, len(await world.list(kinds.NODECLAIMS)))
        world.records.clear()
        await quiet(world)
        _print("a quiet hour", world.records, len(await world.list(kinds.NODECLAIMS)))

    lab = account("c5", "m5", "r5")
    run_scenario(next(lab), scenario)
    lab.close()  # type: ignore[attr-defined]


def _print(title: str, records: list[CallRecord], instances: int) -> None:
    print(f"{title}, {instances} instances")
    for name, used in usage(records).items():
        size, refill = ec2_bucket(name)
        print(f"  {name:36} {used.calls:5} calls   bucket {size:4.0f} + {refill:2.0f}/s   share {used.share:4.0%}")
    others = Counter(f"{record.service} {record.operation}" for record in records if record.service != "ec2")
    for name, count in sorted(others.items()):
        print(f"  {name:36} {count:5} calls")


if __name__ == "__main__":
    main()
