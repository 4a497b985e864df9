"""An account in moto, over real HTTP, and a provider that knows nothing of it but its address."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import msgspec
import pytest

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws.client import CallRecord, Calls
from dovetail.cloud.aws.provider import Aws, AwsSettings
from dovetail.cloud.provider import LaunchOption, LaunchRequest
from dovetail.lab.aws.account import AwsAccount, build
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.offerings import LabOfferings

T = TypeVar("T")
REGION = "ap-northeast-2"
DISCOVERY = [{"tags": {"karpenter.sh/discovery": "demo"}}]


class Account:
    """The account, and a way to run one conversation with it."""

    def __init__(self, endpoint: AwsEndpoint, made: AwsAccount) -> None:
        self.endpoint = endpoint
        self.world = made
        self.records: list[CallRecord] = []

    def run(self, talk: Callable[[Aws], Awaitable[T]], *, dry_runs: bool = False) -> T:
        """`dry_runs`: whether classes are tried before they are ready, which takes time."""

        async def main() -> T:
            import boto3

            clock = Clock(asyncio.get_running_loop())
            session = boto3.session.Session(aws_access_key_id="lab", aws_secret_access_key="lab", region_name=REGION)
            calls = Calls(
                clock, region=REGION, endpoint=self.endpoint.url, session=session, observe=self.records.append
            )
            settings = AwsSettings(
                cluster_name="demo", region=REGION, interruption_queue="demo", disable_dry_run=not dry_runs
            )
            try:
                return await talk(Aws(settings, clock, calls))
            finally:
                calls.close()

        return run_virtual(main())

    def node_class(self, **spec: Any) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "role": self.world.node_role,
            "subnetSelectorTerms": DISCOVERY,
            "securityGroupSelectorTerms": DISCOVERY,
        }
        return {"metadata": {"name": "default", "uid": "class-1"}, "spec": plain | spec}

    async def ready(self, aws: Aws, **spec: Any) -> dict[str, Any]:
        node_class = self.node_class(**spec)
        found = await aws.resolve(node_class)
        assert all(status == "True" for _, status, *_ in found.conditions), found.conditions
        return node_class | {"status": dict(found.status)}

    async def order(self, aws: Aws, token: str, node_class: dict[str, Any], *names: str, kind: str) -> LaunchRequest:
        """An order for an instance of one of the named types."""
        types = [t for t in await aws.instance_types({}, node_class) if t.name in names]
        return LaunchRequest(
            token=token,
            claim={
                "metadata": {"name": f"claim-{token}", "uid": token, "labels": {"karpenter.sh/nodepool": "default"}},
                "spec": {},
            },
            node_class=node_class,
            options=tuple(
                LaunchOption(instance_type=t, offering=o)
                for t in types
                for o in t.offerings
                if o.capacity_type == kind or kind == "any"
            ),
            labels={"karpenter.sh/nodepool": "default", "team": "shop"},
            taints=({"key": "dedicated", "value": "shop", "effect": "NoSchedule"},),
        )


@pytest.fixture(scope="module")
def _endpoint() -> Iterator[Account]:
    endpoint = AwsEndpoint(LabOfferings(REGION, families=frozenset({"c5", "m5", "r5"})))
    made = build(endpoint, "demo", version="1.34", api_url="https://127.0.0.1:6443", ca=b"certificate")
    yield Account(endpoint, made)
    endpoint.close()
    endpoint.forget()


@pytest.fixture
def account(_endpoint: Account) -> Iterator[Account]:
    _endpoint.records.clear()
    yield _endpoint
    _endpoint.endpoint.market.allow()
    _endpoint.endpoint.trouble.clear()
    _endpoint.endpoint.book.clear()
    _endpoint.endpoint.groups.clear()


def offered(launch: LaunchRequest, **change: Any) -> LaunchRequest:
    return msgspec.structs.replace(launch, **change)
