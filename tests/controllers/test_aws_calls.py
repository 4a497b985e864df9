"""Calls to EC2: every call is recorded, and other callers keep half of each of EC2's token buckets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from bench.ec2_calls import burst, quiet, usage
from dovetail.controllers.nodeclaim import disruption_conditions, garbage_collection
from dovetail.kube import resources as kinds
from tests.controllers.aws_world import ON_DEMAND, Account, AwsWorld, account, run_scenario

SMALL = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["32"]}

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def aws() -> Iterator[Account]:
    yield from account("c5", "m5", "r5")


def test_a_burst_of_a_thousand_pods_launches_equal_instances_together_and_uses_half_of_no_bucket(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        await world.node_class()
        await world.pool("default", ON_DEMAND, SMALL)
        world.start()
        await world.pods(1, cpu="3000m")
        await world.until(world.running)
        began = world.lab.clock.monotonic()
        await burst(world)
        assert world.lab.clock.monotonic() - began < 5.0, "no launch waits for a token"
        instances = len(await world.list(kinds.NODECLAIMS))
        used = usage(world.records)
        assert instances > 40 and used["create_fleet"].calls <= 12
        assert used["create_launch_template"].calls <= 6, "NodeClaims that start alike share launch templates"
        assert all(each.share <= 0.52 for each in used.values()), used

    run_scenario(aws, scenario)


def test_a_settled_hour_makes_one_call_a_minute_however_many_instances_there_are(aws: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        await world.node_class()
        await world.pool("default")
        world.start()
        await world.pods(12, cpu="1500m")
        await world.until(world.running)
        world.records.clear()
        await quiet(world)
        dry = Counter(record.operation for record in world.records if record.dry)
        assert dry == {"create_fleet": 2, "run_instances": 2}, "a NodeClass is tried every half hour"
        counts = Counter(record.operation for record in world.records if record.service == "ec2" and not record.dry)
        looks = {"describe_subnets", "describe_security_groups", "describe_images"}
        assert all(counts[name] <= 61 for name in looks), counts
        rounds, drift = (
            garbage_collection.STARTUP_ROUNDS + 3600 / garbage_collection.PERIOD_S,
            3600 / disruption_conditions.DRIFT_ROUND_INTERVAL_S,
        )
        assert counts["describe_instances"] <= rounds + drift, "one call describes many instances"
        assert counts["describe_spot_price_history"] == 1 and counts["describe_launch_templates"] <= 3
        assert not counts.keys() & {"create_fleet", "create_launch_template", "terminate_instances"}
        assert counts["create_tags"] <= len(await world.list(kinds.NODECLAIMS)), (
            "an instance is tagged with its name once"
        )
        used = usage(world.records)
        assert used and all(each.share <= 0.1 for each in used.values())

    run_scenario(aws, scenario)
