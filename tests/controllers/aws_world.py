"""A cluster on AWS in virtual time: the lab's API server, scheduler and kubelets, moto over HTTP, the autoscaler.

Time stands still while a call to AWS is under way, so an hour takes as long as its calls. Everything but the
process under test survives its end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import boto3

from dovetail.chance import Chance
from dovetail.clock import Clock, run_virtual, wall
from dovetail.cloud.aws.client import CallRecord, Calls
from dovetail.cloud.aws.provider import Aws, AwsSettings
from dovetail.controllers import logs
from dovetail.controllers.manager import Autoscaler
from dovetail.controllers.settings import Settings
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.transport import Request, Response, Transport
from dovetail.lab.aws import eks
from dovetail.lab.aws.account import build
from dovetail.lab.aws.ec2 import Ec2, Timing
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.kubelet.kubelets import ReportingDetail
from dovetail.model.kinds import crds
from tests.controllers.conftest import Killed

REGION = "ap-northeast-2"
CLUSTER = "demo"
DISCOVERY = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
CLASS = {
    "amiSelectorTerms": [{"alias": "al2023@latest"}],
    "role": f"KarpenterNodeRole-{CLUSTER}",
    "subnetSelectorTerms": DISCOVERY,
    "securityGroupSelectorTerms": DISCOVERY,
}
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
STILL = {"consolidateAfter": "Never", "consolidationPolicy": "WhenEmpty"}
#: What changes something at AWS; everything else only asks.
ASKS = ("describe_", "get_", "list_", "receive_")


class Account:
    """The account, kept over a module's tests: it takes seconds to make."""

    def __init__(self, families: frozenset[str]) -> None:
        self.endpoint = AwsEndpoint(LabOfferings(REGION, families))
        self.world = build(self.endpoint, CLUSTER, version="1.34", api_url="https://127.0.0.1:6443", ca=b"ca")
        self.session = boto3.session.Session(aws_access_key_id="lab", aws_secret_access_key="lab", region_name=REGION)
        self.parameters = {name: list(rows) for name, rows in self.endpoint.backend("ssm")._parameters.items()}
        self.images = dict(self.endpoint.backend("ec2").amis)

    def fresh(self) -> None:
        """Reset the account: no instances, no launch templates, no instance profiles of ours, no faults."""
        ec2, iam, ssm = (
            self.endpoint.backend(name, region) for name, region in (("ec2", REGION), ("iam", "aws"), ("ssm", REGION))
        )
        for instance in self.endpoint.instances():
            instance.terminate()
        ec2.reservations.clear()
        ec2.__dict__.pop("fleets_by_client_token", None)
        ec2.launch_templates.clear()
        ec2.launch_template_name_to_ids.clear()
        for name, profile in list(iam.instance_profiles.items()):
            if profile.path.startswith("/karpenter/"):
                del iam.instance_profiles[name]
        ssm._parameters.clear()
        ssm._parameters.update({name: list(rows) for name, rows in self.parameters.items()})
        ec2.amis.clear()
        ec2.amis.update(self.images)
        self.endpoint.trouble.clear()
        self.endpoint.book.clear()
        self.endpoint.groups.clear()
        self.endpoint.market.allow()
        self.endpoint.market.denied_keys.clear()

    def living(self) -> list[Any]:
        """Our running instances, as EC2 knows them."""
        return [i for i in self.endpoint.instances() if i.state == "running"]


def account(*families: str) -> Iterator[Account]:
    """For a module's fixture."""
    made = Account(frozenset(families))
    yield made
    made.endpoint.close()
    made.endpoint.forget()


class Writes:
    """Counts what the process changes, in Kubernetes and at AWS together; it dies right after the given one."""

    def __init__(self, inner: Transport, die_after: int | None) -> None:
        self._inner = inner
        self._die_after = die_after
        self.made: list[str] = []

    async def send(self, request: Request) -> Response:
        self._breathe()
        response = await self._inner.send(request)
        if request.method != "GET" and "/events" not in request.path:
            self._count(f"{request.method} {request.path}")
        return response

    def observe(self, record: CallRecord) -> None:
        if not record.operation.startswith(ASKS) and not record.dry:
            self._count(f"{record.service} {record.operation}")

    def _count(self, what: str) -> None:
        self.made.append(what)
        if len(self.made) == self._die_after:
            raise Killed

    def _breathe(self) -> None:
        if self._die_after is not None and len(self.made) >= self._die_after:
            raise Killed

    async def close(self) -> None:
        return None


class AwsWorld:
    def __init__(self, account: Account, lab: Lab, **settings: Any) -> None:
        self.account = account
        self.lab = lab
        self.kube = lab.kube
        self.settings = Settings(
            cluster_name=CLUSTER,
            metrics_port=0,
            health_probe_port=0,
            disable_leader_election=True,
            plan_deadline=0.0,
            **settings,
        )
        self.records: list[CallRecord] = []
        self.lines: list[dict[str, Any]] = []
        self._process: asyncio.Task[None] | None = None
        self._processes = 0

    # -- the process under test

    def start(self, die_after: int | None = None) -> None:
        self._processes += 1
        lab, chance = self.lab, self.lab.chance.child("life", str(self._processes))
        self.writes = Writes(lab.transport, die_after)
        kube = Kube(self.writes, lab.clock, chance=chance.child("client"), manager="karpenter", user_agent="karpenter")

        def observe(record: CallRecord) -> None:
            self.records.append(record)
            self.writes.observe(record)

        self.calls = Calls(
            lab.clock, region=REGION, endpoint=self.account.endpoint.url, session=self.account.session, observe=observe
        )
        queue = self.settings.interruption_queue
        self.cloud = Aws(
            AwsSettings(cluster_name=CLUSTER, region=REGION, interruption_queue=queue), lab.clock, self.calls
        )
        log = logs.logger(lab.clock, write=lambda line: self.lines.append(json.loads(line)))
        self.autoscaler = Autoscaler(kube, self.cloud, lab.clock, chance, self.settings, log=log)
        self._process = asyncio.ensure_future(self.autoscaler.run())

    async def died(self, within: float = 300.0) -> bool:
        """Whether the process ends by being killed within so many seconds."""
        assert self._process is not None
        done, _ = await asyncio.wait({self._process}, timeout=within)
        if not done:
            return False
        assert isinstance(self._process.exception(), Killed | BaseExceptionGroup), self._process.exception()
        self.calls.close()
        return True

    async def revive(self) -> None:
        """Start the process again a moment after it died, and wait until it did."""
        if await self.died(within=7200):
            await asyncio.sleep(3)
            self.start()

    async def stop(self) -> None:
        if self._process is not None:
            self._process.cancel()
            with suppress(BaseException):
                await self._process
            self.calls.close()
            self._process = None

    # -- what users do

    async def node_class(self, name: str = "default", **spec: Any) -> None:
        await self.kube.create(kinds.EC2NODECLASSES, {"metadata": {"name": name}, "spec": {**CLASS, **spec}})

    async def pool(self, name: str = "default", *requirements: dict[str, Any], **spec: Any) -> None:
        template = {
            "requirements": list(requirements) or [ON_DEMAND],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": spec.pop("uses", "default")},
        }
        labels = {"metadata": {"labels": spec.pop("labels", {})}}
        body = {"metadata": {"name": name}, "spec": {"template": {**labels, "spec": template}, **spec}}
        body["spec"].setdefault("disruption", STILL)
        await self.kube.create(kinds.NODEPOOLS, body)

    async def pods(self, count: int, prefix: str = "p", cpu: str = "500m", memory: str = "256Mi", **spec: Any) -> None:
        container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
        for number in range(count):
            body = {
                "metadata": {"name": f"{prefix}{number}", "labels": {"app": prefix}},
                "spec": {"containers": [container], **spec},
            }
            await self.kube.create(kinds.PODS, body, "default")

    # -- what is seen

    async def list(self, kind: kinds.Resource) -> list[dict[str, Any]]:
        return (await self.kube.list(kind)).items

    async def events(self, name: str = "") -> str:
        """The Events of `kubectl describe`, of one object or of all."""
        found = await self.list(kinds.CORE_EVENTS)
        return "\n".join(
            f"{each['involvedObject']['kind']}/{each['involvedObject']['name']} {each['reason']}: {each['message']}"
            for each in found
            if not name or each["involvedObject"]["name"] == name
        )

    async def conditions(self, kind: kinds.Resource, name: str) -> dict[str, str]:
        """What `kubectl describe` shows under Conditions."""
        found = await self.kube.get(kind, name)
        return {
            each["type"]: f"{each['status']}/{each['reason']}: {each.get('message', '')}"
            for each in (found.get("status") or {}).get("conditions") or ()
        }

    async def running(self, prefix: str = "") -> bool:
        pods = [p for p in await self.list(kinds.PODS) if p["metadata"]["name"].startswith(prefix)]
        ours = [p for p in pods if p["metadata"].get("namespace") == "default"]
        return bool(ours) and all(p["spec"].get("nodeName") for p in ours)

    async def until(self, holds: Callable[[], Awaitable[Any]], within: float = 600.0, step: float = 1.0) -> Any:
        """Let time pass until `holds` is true."""
        end = self.lab.clock.monotonic() + within
        while not (found := await holds()):
            if self.lab.clock.monotonic() > end:
                published = [line for line in self.lines if line["level"] != "DEBUG"][-8:]
                raise AssertionError("\n".join([f"not within {within} s", await self.events(), *map(str, published)]))
            await asyncio.sleep(step)
        return found

    async def says(self, *message: str, name: str = "", within: float = 300.0) -> str:
        """Wait until the events (of one object) contain all texts."""

        async def logged() -> str:
            text = await self.events(name)
            return text if all(word in text for word in message) else ""

        return str(await self.until(logged, within))

    def count(self, operation: str) -> int:
        return sum(record.operation == operation and not record.dry for record in self.records)


Scenario = Callable[[AwsWorld], Awaitable[None]]
#: Instances of these tests boot quickly, all alike.
TIMING = Timing(boot=20.0, spread=0.0, ready=1.0)


def run_scenario(account: Account, scenario: Scenario, **settings: Any) -> None:
    """Run a story in a fresh cluster of the account, in virtual time."""

    async def main() -> None:
        account.fresh()
        clock = Clock(asyncio.get_running_loop(), wall())
        account.endpoint.book.now = clock.now
        parts = LabParts(
            pace=ReportingDetail(lean=True, heartbeat_seconds=None), quiet=True, check=False, storage=False
        )
        async with Lab.embedded(7, parts, clock=clock) as lab:
            for definition in crds.definitions():
                await lab.kube.create(kinds.CRDS, definition)
            await eks._authorise(lab, account.world)
            instances = Ec2(account.endpoint, account.world, lab.fleet, lab.client("kubelet"), Chance(7), TIMING)

            async def ec2(_: Lab) -> None:
                await instances.run()

            lab.add(ec2)
            made = AwsWorld(account, lab, **settings)
            try:
                await scenario(made)
            finally:
                await made.stop()

    run_virtual(main())
