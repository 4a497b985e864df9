"""What people do to a running fleet, one after the other, on a real control plane; after each, rest is awaited.

    python -m bench.versus_kwok.disturbances --side dovetail
    python -m bench.versus_kwok.disturbances --only drift --only "pool deleted"

A row a disturbance: seconds to rest, nodes, price and that of a plan for the pods, evictions, pods that are missing,
and nodes that carry no pods. Nothing may be missing, and no node idle, at rest.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from bench.child_processes import run
from bench.versus_kwok import instance_types, workloads
from bench.versus_kwok.__main__ import NODE_CLASSES, Asked, Plane, planned
from bench.versus_kwok.karpenter import definitions
from bench.versus_kwok.observer import Observer
from bench.versus_kwok.programs import Side, start
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.resources import CRDS, DEPLOYMENTS, NODECLAIMS, NODEPOOLS, NODES, PDBS
from dovetail.model.labels import NODEPOOL

LONGEST, QUIET = 600.0, 60.0


class Fleet:
    """A pool, another that is used when the first is away, and five Deployments."""

    def __init__(self, kube: Kube, pods: int) -> None:
        self.kube = kube
        self.wanted = pods

    @property
    def works(self) -> list[workloads.Work]:
        return workloads.mixed(self.wanted)

    async def set_up(self) -> None:
        for body in definitions():
            await self.kube.create(CRDS, body)
        await asyncio.sleep(3.0)
        await self.kube.create(NODE_CLASSES, workloads.NODE_CLASS)
        for name, weight in (("default", 50), ("second", 1)):
            pool = workloads.pool(consolidate_after="15s", budget="100%", most_cpu=32)
            await self.kube.create(
                NODEPOOLS, pool | {"metadata": {"name": name}, "spec": pool["spec"] | {"weight": weight}}
            )

    async def begin(self) -> None:
        for work in self.works:
            await self.kube.create(DEPLOYMENTS, work.manifest(), "default")

    async def scale(self, total: int) -> None:
        self.wanted = total
        for work in self.works:
            await self.kube.patch(DEPLOYMENTS, work.name, {"spec": {"replicas": work.replicas}}, "default")

    # What people do

    async def drift(self) -> None:
        template = {"metadata": {"labels": {"team": "shop"}}}
        await self.kube.patch(NODEPOOLS, "default", {"spec": {"template": template}})

    async def delete_nodes(self) -> None:
        """A node by its name, and another node's claim."""
        claims = (await self.kube.list(NODECLAIMS)).items
        await self.kube.delete(NODES, claims[0]["status"]["nodeName"])
        await self.kube.delete(NODECLAIMS, claims[1]["metadata"]["name"])

    async def down_and_up(self) -> None:
        """Most go, and come back before anything was terminated for them; then half of them go."""
        most = self.wanted
        for count, pause in ((most // 5, 10.0), (most, 5.0), (most // 2, 0.0)):
            await self.scale(count)
            await asyncio.sleep(pause)

    async def roll(self) -> None:
        note = {"metadata": {"annotations": {"rolled": "once"}}}
        for work in self.works:
            await self.kube.patch(DEPLOYMENTS, work.name, {"spec": {"template": note}}, "default")

    async def guarded_down(self) -> None:
        """Budgets allow no disruption for a while, and then a few at a time."""
        for work in self.works:
            spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": work.name}}}
            await self.kube.create(PDBS, {"metadata": {"name": work.name}, "spec": spec}, "default")
        await self.scale(self.wanted // 2)
        await asyncio.sleep(45.0)
        for work in self.works:
            await self.kube.patch(PDBS, work.name, {"spec": {"maxUnavailable": "20%"}}, "default")

    async def other_types(self) -> None:
        """The pool may not launch what it has."""
        spec = workloads.pool(consolidate_after="15s", budget="20%", most_cpu=9)["spec"]
        await self.kube.patch(NODEPOOLS, "default", {"spec": spec})

    async def pool_deleted(self) -> None:
        await self.kube.delete(NODEPOOLS, "default", propagation="Background")

    async def only_empty(self) -> None:
        """Another policy, at once, and then no node is left."""
        disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"}
        await self.kube.patch(NODEPOOLS, "second", {"spec": {"disruption": disruption}})
        await self.scale(0)

    def disturbances(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {
            "begin": self.begin,
            "drift": self.drift,
            "nodes deleted": self.delete_nodes,
            "down and up": self.down_and_up,
            "roll": self.roll,
            "guarded down": self.guarded_down,
            "other types": self.other_types,
            "pool deleted": self.pool_deleted,
            "only empty, to none": self.only_empty,
        }


async def drive(side: str, pods: int, only: tuple[str, ...], keep: str | None) -> None:
    folder = Path(tempfile.mkdtemp(prefix=f"disturbances-{side}-"))
    sold = instance_types.kwok()
    try:
        async with Plane(scheduler=True, controllers=True) as plane:
            kube = Kube(plane.transport(), Clock(asyncio.get_running_loop()))
            fleet = Fleet(kube, pods)
            await fleet.set_up()
            with start(side, plane.kubeconfig, sold, folder, ()) as running:
                observer = Observer(kube, sold)
                watching = asyncio.create_task(observer.run())
                await asyncio.sleep(8.0)
                for name, act in fleet.disturbances().items():
                    if name == "begin" or not only or name in only:
                        print(await _disturb(name, act, fleet, observer, running), flush=True)
                watching.cancel()
            await kube.close()
    finally:
        if keep:
            shutil.copytree(folder, Path(keep), dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


async def _disturb(name: str, act: Callable[[], Awaitable[None]], fleet: Fleet, observer: Observer, side: Side) -> str:
    clock = fleet.kube.clock
    observer.begin()
    began, spent = clock.monotonic(), side.cpu()
    await act()
    while clock.monotonic() - began < LONGEST and clock.monotonic() - observer.changed < QUIET:
        await asyncio.sleep(0.5)
        if not side.alive:
            raise SystemExit(f"{side.name} ended")
    plan = await asyncio.to_thread(_plan, fleet)
    return (
        f"{side.name:9} {name:20} {fleet.wanted:4} pods  rest {observer.changed - began:.0f} s"
        f"  {observer.nodes()} nodes ${observer.price():.3f} plan ${plan:.3f}"
        f"  launched {len(observer.claims)}  evictions {len(observer.evictions)} (twice {observer.moved_twice})"
        f"  missing {observer.missing(fleet.wanted)}  empty nodes {observer.vacant()}"
        f"  not ours {await _strangers(fleet.kube)}  cpu {side.cpu() - spent:.1f} s"
    )


async def _strangers(kube: Kube) -> int:
    """Nodes without a claim, and claims without a node."""
    nodes = {each["metadata"]["name"] for each in (await kube.list(NODES, labels=NODEPOOL)).items}
    claims = {(each.get("status") or {}).get("nodeName") for each in (await kube.list(NODECLAIMS)).items}
    return len(nodes ^ claims)


def _plan(fleet: Fleet) -> float:
    asked = Asked(
        scenario="disturbances",
        sold=instance_types.kwok(),
        steps=(),
        most_cpu=32,
        consolidate_after="15s",
        budget="100%",
        gates=(),
        quiet=QUIET,
        guarded=False,
        rolling=False,
        fast=True,
        hurry=0.0,
        watch=0.0,
    )
    return planned(asked, fleet.works)


@click.command()
@click.option("--side", type=click.Choice(["karpenter", "dovetail"]), default="dovetail")
@click.option("--pods", default=300)
@click.option("--only", multiple=True, help="These alone, after the beginning.")
@click.option("--keep", help="A folder for the autoscaler's log.")
def main(side: str, pods: int, only: tuple[str, ...], keep: str | None) -> None:
    """Troubles of a running fleet."""
    run(drive(side, pods, only, keep))


if __name__ == "__main__":
    main()
