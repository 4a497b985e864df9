"""A scale-down from start to rest: 1,000 mixed pods to 300 and to none, in virtual time.

Prints seconds to rest, the price before and after and against a fresh plan for the pods that are left, evictions, the
waves in which nodes went, and the seconds of work that choosing them took.

    python -m bench.scaledown
    python -m bench.scaledown --types kwok --gate PodDeletionCostManagement     # kwok's types: needs Go
    python -m bench.scaledown --pods 5000 --to 1750                             # a large fleet, 35 % used
    python -m bench.scaledown --types kwok --autoscaler karpenter --to 300      # Karpenter's decisions, emulated
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec
from prometheus_client import Counter, Histogram

from bench.fresh_demand import fresh_demand
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.cloud.aws import catalog
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.kube import resources as kinds
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.kubelet.kubelets import ReportingDetail
from dovetail.lab.scenario.autoscaler import Autoscaled, AutoscalerRequest
from dovetail.model.instance_type import InstanceType
from dovetail.planner.provision import provision
from dovetail.studies import karpenter

SHAPES = (("100m", "128Mi"), ("250m", "512Mi"), ("500m", "1Gi"), ("1", "2Gi"), ("1500m", "6Gi"))
POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "expireAfter": "Never",
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                ],
            }
        },
        "disruption": {
            "consolidateAfter": "30s",
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "budgets": [{"nodes": "100%"}],
        },
    },
}


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one scale-down."""

    rest: float
    evictions: int
    before: float
    price: float
    fresh: float
    nodes: int
    launched: int
    waves: int
    planner: float

    @property
    def above(self) -> float:
        return self.price / self.fresh - 1.0 if self.fresh else 0.0

    def reported(self) -> str:
        saving = 1.0 - self.price / self.before if self.before else 0.0
        return (
            f"at rest after {self.rest:.0f} s: ${self.before:.2f} to ${self.price:.2f} an hour, {saving:.1%} saved, "
            f"{self.above:.1%} above a fresh plan; {self.nodes} nodes left, {self.launched} launched; "
            f"{self.evictions} evictions in {self.waves} waves; {self.planner:.2f} s of choosing"
        )


def deployment(number: int, cpu: str, memory: str, replicas: int) -> dict[str, Any]:
    name = f"mix{number}"
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
            },
        },
    }


class Yard:
    """A lab with the autoscaler and the mixed pods."""

    def __init__(self, lab: Lab, scaler: Autoscaled) -> None:
        self.lab, self.scaler = lab, scaler
        self.evictions = 0
        self.wanted = 0
        lab.server.middleware.append(self._intercept)

    async def _intercept(self, request: Any) -> None:
        if request.path.endswith("/eviction"):
            self.evictions += 1

    def price(self) -> float:
        cloud = self.scaler.cloud
        assert cloud is not None
        prices = [cloud.price(each.instance_type, each.zone, each.capacity_type) for each in cloud.standing()]
        return sum(each for each in prices if each is not None)

    def settled(self) -> bool:
        kit = self.lab.controllers.context
        pods = list(kit.pods.all())
        return len(pods) == self.wanted and all(pod.status.phase == "Running" for pod in pods)

    async def scale(self, total: int) -> None:
        self.wanted = total
        for number in range(len(SHAPES)):
            body = {"spec": {"replicas": total // len(SHAPES)}}
            await self.lab.kube.patch(kinds.DEPLOYMENTS, f"mix{number}", body, "default")

    async def all_run(self) -> None:
        async def settled() -> bool:
            return self.settled()

        await self.lab.until(settled, 900.0)

    async def rest(self, quiet: float, most: float = 900.0) -> float:
        """Seconds until nothing changed any more for `quiet` seconds."""
        clock = self.lab.clock
        began = last = clock.monotonic()
        before: Any = None
        while clock.monotonic() - last < quiet and clock.monotonic() - began < most:
            await asyncio.sleep(1.0)
            assert self.scaler.cloud is not None
            now = (self.settled(), self.evictions, frozenset(m.provider_id for m in self.scaler.cloud.standing()))
            if now != before or not now[0]:
                before, last = now, clock.monotonic()
        return last - began

    def counted(self) -> tuple[int, float]:
        """Waves so far in which nodes went that were not empty, and seconds of choosing them."""
        assert self.scaler.autoscaler is not None
        metrics = self.scaler.autoscaler.context.metrics
        waves = _sum(metrics.disruption_decisions, "_total")
        return int(waves), _sum(metrics.disruption_evaluation, "_sum")

    async def fresh(self) -> float:
        """What the pods that are there would cost on an empty cluster."""
        autoscaler = self.scaler.autoscaler
        assert autoscaler is not None
        return provision(await fresh_demand(autoscaler.context)).cost.per_hour


def _sum(family: Counter | Histogram, ending: str) -> float:
    """What a family of metrics says about consolidation."""
    return sum(
        sample.value
        for metric in family.collect()
        for sample in metric.samples
        if sample.name.endswith(ending) and sample.labels.get("reason") == "underutilized"
    )


def sold(types: str) -> tuple[InstanceType, ...]:
    """EC2's types, or those of Karpenter's kwok provider, under 32 vCPU."""
    if types == "ec2":
        return tuple(kind for kind in catalog.load("ap-northeast-2") if kind.capacity.get("cpu", 0) < 32000)
    from bench.versus_kwok import instance_types
    from dovetail.cloud.simulated.catalog_file import parse

    found = parse(json.dumps(instance_types.kwok().catalogue()).encode())
    return tuple(kind for kind in found if kind.capacity["cpu"] < 32000 and kind.name.endswith("-amd64-linux"))


async def measure(
    gates: Sequence[str] = (),
    steps: Sequence[int] = (300, 0),
    start: int = 1000,
    types: str = "ec2",
    autoscaler: str = "dovetail",
    said: Callable[[str], None] = lambda line: None,
) -> list[Measured]:
    asked = AutoscalerRequest(
        types=sold(types), market=SimulatedMarket(boot=(1.0, 2.0), ready=(1.0, 2.0)), gates=tuple(gates)
    )
    if autoscaler == "karpenter":
        asked = msgspec.structs.replace(asked, settings=karpenter.SETTINGS, controllers=karpenter.controllers())
    clock = Clock(asyncio.get_running_loop(), EPOCH)
    parts = LabParts(
        pace=ReportingDetail(lean=True, heartbeat_seconds=None, grid_seconds=0.5), quiet=True, faults=False, check=False
    )
    scaler = Autoscaled(asked)
    found = []
    async with Lab.embedded(7, parts, clock=clock) as lab:
        lab.add(scaler.run)
        await asyncio.sleep(3.0)
        yard = Yard(lab, scaler)
        await lab.kube.create(kinds.NODEPOOLS, POOL)
        for number, (cpu, memory) in enumerate(SHAPES):
            await lab.kube.create(kinds.DEPLOYMENTS, deployment(number, cpu, memory, start // len(SHAPES)), "default")
        yard.wanted = start
        await yard.all_run()
        fresh = await yard.fresh()
        nodes = len(yard.scaler.cloud.standing()) if yard.scaler.cloud else 0
        price = yard.price()
        said(f"all {start} pods run: {nodes} nodes, ${price:.2f} an hour, {price / fresh - 1.0:.1%} above a fresh plan")
        await yard.rest(120.0)
        for total in steps:
            evicted, launched, before = yard.evictions, scaler.totals["instances launched"], yard.price()
            waves, planner = yard.counted()
            await yard.scale(total)
            rest = await yard.rest(120.0)
            now = yard.counted()
            found.append(
                Measured(
                    rest=rest,
                    evictions=yard.evictions - evicted,
                    before=before,
                    price=yard.price(),
                    fresh=await yard.fresh(),
                    nodes=len(scaler.cloud.standing()) if scaler.cloud else 0,
                    launched=scaler.totals["instances launched"] - launched,
                    waves=now[0] - waves,
                    planner=now[1] - planner,
                )
            )
    return found


@click.command()
@click.option("--types", type=click.Choice(["ec2", "kwok"]), default="ec2")
@click.option("--pods", default=1000)
@click.option("--to", type=int, multiple=True, default=(300, 0))
@click.option("--gate", "gates", multiple=True, help="A feature gate to open.")
@click.option("--autoscaler", type=click.Choice(["dovetail", "karpenter"]), default="dovetail")
def main(types: str, pods: int, to: tuple[int, ...], gates: tuple[str, ...], autoscaler: str) -> None:
    """A scale-down from start to rest, in virtual time."""
    for row in run_virtual(measure(gates, to, pods, types, autoscaler, print)):
        print(row.reported())


if __name__ == "__main__":
    main()
