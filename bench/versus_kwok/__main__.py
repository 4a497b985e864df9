"""Runs a scenario on one side or on both, each on a control plane of its own, and prints what was seen.

    python -m bench.versus_kwok mixed                      # 1,000 mixed pods
    python -m bench.versus_kwok down --side dovetail       # 1,000, then 300, then none
    python -m bench.versus_kwok down --gate PodDeletionCostManagement --catalog ec2 --budget 10%
    python -m bench.versus_kwok idle --watch 300           # 3,000 pods on 1,000 nodes, and then nothing happens

Needs `make kubernetes`, and Go for Karpenter's side. A row a step: seconds to the first and the last claim, waves,
nodes and price when every pod runs and again at rest, evictions (and those of pods that had just been moved),
CPU seconds and peak MiB of the autoscaler, and the price of a plan for those pods on an empty cluster.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from bench.child_processes import run
from bench.versus_kwok import instance_types, karpenter, workloads
from bench.versus_kwok.instance_types import InstanceTypes
from bench.versus_kwok.observer import Observer
from bench.versus_kwok.programs import Side, start
from bench.versus_kwok.workloads import Work
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.resources import CRDS, DEPLOYMENTS, NODEPOOLS, PDBS, Resource
from dovetail.lab.real_control_plane import RealControlPlane

NODE_CLASSES = Resource("karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses", "KWOKNodeClass", namespaced=False)
LONGEST = 900.0


class Plane(RealControlPlane):
    """Its controllers make pods faster than the 20 a second of their default: a burst is to come as a burst."""

    def _run(self, part: str, *flags: str) -> None:
        more = ("--kube-api-qps=300", "--kube-api-burst=300") if part == "kube-controller-manager" else ()
        super()._run(part, *flags, *more)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A run, but for its side."""

    scenario: str
    sold: InstanceTypes
    steps: tuple[tuple[Work, ...], ...]
    most_cpu: int | None
    consolidate_after: str
    budget: str
    gates: tuple[str, ...]
    quiet: float
    guarded: bool
    rolling: bool
    fast: bool
    hurry: float
    watch: float
    keep: str | None = None


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One step from a change of the workload to rest."""

    side: str
    pods: int
    first_claim: float | None
    last_claim: float | None
    running: float
    waves: int
    nodes: int
    price: float
    rest: float
    nodes_at_rest: int
    price_at_rest: float
    plan: float = 0.0
    evictions: int
    moved_twice: int
    missing: int
    cpu: float
    cpu_at_rest: float
    memory: float
    used: tuple[float, ...]

    def line(self) -> str:
        claims = "no claims" if self.first_claim is None else f"claims {self.first_claim:.1f}..{self.last_claim:.1f} s"
        above = self.price_at_rest / self.plan - 1 if self.plan else 0.0
        return (
            f"{self.side:9} {self.pods:5} pods  {claims} in {self.waves} waves  running {self.running:.0f} s"
            f" {self.nodes} nodes ${self.price:.3f} cpu {self.cpu:.1f} s | rest {self.rest:.0f} s"
            f" {self.nodes_at_rest} nodes ${self.price_at_rest:.3f} plan ${self.plan:.3f} ({above:+.1%})"
            f" evictions {self.evictions} (twice {self.moved_twice}) missing {self.missing}"
            f" cpu {self.cpu_at_rest:.1f} s peak {self.memory:.0f} MiB used "
            + "/".join(f"{share:.0%}" for share in self.used)
        )


async def drive(side: str, asked: Asked) -> list[Seen]:
    folder = Path(tempfile.mkdtemp(prefix=f"versus-{side}-"))
    plans = [planned(asked, works) for works in asked.steps]
    try:
        async with (Plane if asked.fast else RealControlPlane)(scheduler=True, controllers=True) as plane:
            clock = Clock(asyncio.get_running_loop())
            kube = Kube(plane.transport(), clock)
            try:
                return await _drive(side, asked, kube, plane.kubeconfig, folder, plans)
            finally:
                await kube.close()
    finally:
        if asked.keep:
            shutil.copytree(folder, Path(asked.keep), dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


async def _drive(
    side: str, asked: Asked, kube: Kube, kubeconfig: Path, folder: Path, plans: Sequence[float]
) -> list[Seen]:
    await _install(kube, asked)
    with start(side, kubeconfig, asked.sold, folder, asked.gates) as running:
        observer = Observer(kube, asked.sold)
        watching = asyncio.create_task(observer.run())
        await asyncio.sleep(8.0)
        found = []
        try:
            for number, (works, plan) in enumerate(zip(asked.steps, plans, strict=True)):
                seen = await _step(kube, observer, running, asked, works, first=number == 0)
                found.append(msgspec.structs.replace(seen, plan=plan))
                print(found[-1].line(), flush=True)
            if asked.watch:
                await _watch(running, asked.watch)
        finally:
            watching.cancel()
    return found


async def _install(kube: Kube, asked: Asked) -> None:
    for body in karpenter.definitions():
        await kube.create(CRDS, body)
    await asyncio.sleep(3.0)
    await kube.create(NODE_CLASSES, workloads.NODE_CLASS)
    pool = workloads.pool(consolidate_after=asked.consolidate_after, budget=asked.budget, most_cpu=asked.most_cpu)
    await kube.create(NODEPOOLS, pool)


async def _step(
    kube: Kube, observer: Observer, side: Side, asked: Asked, works: Sequence[Work], *, first: bool
) -> Seen:
    clock = kube.clock
    wanted = sum(work.replicas for work in works)
    observer.begin()
    began, spent = clock.monotonic(), side.cpu()
    for work in works:
        if first:
            await kube.create(DEPLOYMENTS, work.manifest(), "default")
            if asked.guarded:
                await kube.create(PDBS, _guard(work), "default")
        else:
            await kube.patch(DEPLOYMENTS, work.name, {"spec": {"replicas": work.replicas}}, "default")
    if asked.rolling and not first and wanted:
        note = {"metadata": {"annotations": {"rolled": "once"}}}
        await kube.patch(DEPLOYMENTS, works[0].name, {"spec": {"template": note}}, "default")
    placed: tuple[float, int, float, float] | None = None
    while clock.monotonic() - began < LONGEST:
        await asyncio.sleep(0.5)
        if not side.alive:
            raise SystemExit(f"{side.name} ended")
        missing = observer.missing(wanted)
        if placed is None and not missing:
            elapsed = clock.monotonic() - began
            placed = (elapsed, observer.nodes(), observer.price(), side.cpu() - spent)
        if first and placed and asked.hurry and clock.monotonic() - began > placed[0] + asked.hurry:
            break
        at_rest = clock.monotonic() - max(observer.changed, began) > asked.quiet
        if at_rest and (not missing or clock.monotonic() - observer.changed > 3 * asked.quiet):
            break
    running, nodes, price, cpu = placed or (LONGEST, observer.nodes(), observer.price(), side.cpu() - spent)
    claims = [each - began for each in observer.claims]
    return Seen(
        side=side.name,
        pods=wanted,
        first_claim=min(claims, default=None),
        last_claim=max(claims, default=None),
        running=running,
        waves=observer.waves(),
        nodes=nodes,
        price=price,
        rest=observer.changed - began,
        nodes_at_rest=observer.nodes(),
        price_at_rest=observer.price(),
        evictions=len(observer.evictions),
        moved_twice=observer.moved_twice,
        missing=observer.missing(wanted),
        cpu=cpu,
        cpu_at_rest=side.cpu() - spent,
        memory=side.memory(),
        used=observer.used(),
    )


async def _watch(side: Side, seconds: float) -> None:
    """What doing nothing costs."""
    before = side.cpu()
    await asyncio.sleep(seconds)
    share = (side.cpu() - before) / seconds
    print(f"{side.name:9} idle for {seconds:.0f} s: {share:.1%} of a core, {side.memory('VmRSS'):.0f} MiB", flush=True)


def _guard(work: Work) -> dict[str, object]:
    selector = {"matchLabels": {"app": work.name}}
    return {"metadata": {"name": work.name}, "spec": {"maxUnavailable": "10%", "selector": selector}}


def planned(asked: Asked, works: Sequence[Work]) -> float:
    """What a plan for these pods on an empty cluster costs."""
    with tempfile.TemporaryDirectory() as scratch:
        _, catalogue = asked.sold.write(Path(scratch))
        pool = workloads.pool(consolidate_after="0s", budget="100%", most_cpu=asked.most_cpu)
        items = [pool, *(work.manifest() for work in works if work.replicas)]
        for item in items[1:]:
            item["metadata"]["namespace"] = "default"
        objects = Path(scratch, "objects.json")
        objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        command = [
            sys.executable,
            "-m",
            "dovetail.cli",
            "plan",
            "-f",
            str(objects),
            "--catalog",
            str(catalogue),
            "--deadline",
            "5",
            "-o",
            "json",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        return float(json.loads(done.stdout)["cost"]["perHour"])


def _steps(scenario: str, sizes: tuple[tuple[str, str], ...], pods: int | None, to: Sequence[int]) -> list[list[Work]]:
    if scenario == "spread":
        return [workloads.spread(pods or 500)]
    if scenario == "idle":
        return [workloads.idle(pods or 3000)]
    if scenario == "plain":
        return [workloads.plain(pods or 5000)]
    counts = [pods or 1000, *(to or (300, 0))] if scenario == "down" else [pods or 1000]
    return [workloads.mixed(count, sizes, zones=scenario == "zones") for count in counts]


@click.command()
@click.argument("scenario", type=click.Choice(["mixed", "zones", "spread", "plain", "down", "idle"]))
@click.option("--side", type=click.Choice(["both", "karpenter", "dovetail"]), default="both")
@click.option("--catalog", type=click.Choice(["kwok", "ec2"]), default="kwok")
@click.option("--mix", type=click.Choice(["even", "odd"]), default="even")
@click.option("--pods", type=int)
@click.option("--to", type=int, multiple=True, help="Steps of `down` after the first.")
@click.option("--budget", default="100%")
@click.option("--after", default="30s", help="consolidateAfter")
@click.option("--gate", "gates", multiple=True)
@click.option("--quiet", default=75.0, help="Seconds without change that count as rest.")
@click.option("--guarded", is_flag=True, help="A PodDisruptionBudget of 10 % for every Deployment.")
@click.option("--rolling", is_flag=True, help="The first Deployment is rolled with the scale-down.")
@click.option("--slow", is_flag=True, help="kube-controller-manager at its own pace: some 20 pods a second.")
@click.option("--hurry", default=0.0, help="Go on so many seconds after all first pods run, without waiting for rest.")
@click.option("--watch", default=0.0, help="Seconds to look on at the end, while nothing happens.")
@click.option("--keep", help="A folder for the autoscaler's log.")
def main(
    scenario: str,
    side: str,
    catalog: str,
    mix: str,
    pods: int | None,
    to: tuple[int, ...],
    budget: str,
    after: str,
    gates: tuple[str, ...],
    quiet: float,
    guarded: bool,
    rolling: bool,
    slow: bool,
    hurry: float,
    watch: float,
    keep: str | None,
) -> None:
    """Head to head with Karpenter's kwok provider."""
    sizes = workloads.MIX if mix == "even" else workloads.ODD
    asked = Asked(
        scenario=scenario,
        sold=instance_types.kwok() if catalog == "kwok" else instance_types.ec2(),
        budget=budget,
        steps=tuple(tuple(works) for works in _steps(scenario, sizes, pods, to)),
        most_cpu=3 if scenario == "idle" else 32,
        consolidate_after=after,
        gates=gates,
        quiet=quiet,
        guarded=guarded,
        rolling=rolling,
        keep=keep,
        fast=not slow,
        hurry=hurry,
        watch=watch,
    )
    for each in ("karpenter", "dovetail") if side == "both" else (side,):
        run(drive(each, asked))


if __name__ == "__main__":
    main()
