"""A day of a large autoscaled cluster: about a thousand nodes launched and terminated along a load curve.

`python -m bench.day [scenario [hours]]` plays `scenarios/large-autoscaled-day.yaml` (or another) in virtual time and
prints the processor time and memory it took, what broke (budgets of pools and pods, lost pods, leaks: judged on
every write; the exit code says whether anything did), and what the fleet cost against a proven bound: every hour, the
bound for the pods there are at that moment, on a fleet launched fresh_demand.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import sys
import time
from pathlib import Path

import msgspec

from bench.fresh_demand import fresh_demand
from dovetail.cli.terminal import quiet_logs
from dovetail.clock import run_virtual
from dovetail.lab.checks.invariants import Broken
from dovetail.lab.durations import Seconds
from dovetail.lab.scenario.autoscaler import Autoscaled
from dovetail.lab.scenario.runner import Player, ScenarioOutcome
from dovetail.lab.scenario.schema import Scenario, ScenarioError, read
from dovetail.planner.optimise.lower_bound import relaxed
from dovetail.planner.problem.compile import Problem

SCENARIO = Path(__file__).parent.parent / "scenarios" / "large-autoscaled-day.yaml"
HOUR = 3600.0


class Measured(Player):
    """A player that works out every hour what the pods would cost at least."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        super().__init__(scenario, folder, lambda _: None, scenario.seed)
        self.bounds: list[float] = []
        #: Seconds of processor time that the bounds took, and not the day.
        self.aside = 0.0

    async def _report_often(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super()._report_often())
            tasks.create_task(self._bound_often())

    async def _bound_often(self) -> None:
        while True:
            await asyncio.sleep(HOUR)
            began = time.process_time()
            self.bounds.append(await self._bound())
            self.aside += time.process_time() - began

    async def _bound(self) -> float:
        autoscaler = self._autoscaled.autoscaler if isinstance(self._autoscaled, Autoscaled) else None
        assert autoscaler is not None
        fluid = relaxed(Problem(await fresh_demand(autoscaler.context)), {}, 60.0)
        assert fluid is not None
        return fluid.price


async def play(scenario: Scenario, folder: Path) -> tuple[Measured, ScenarioOutcome]:
    player = Measured(scenario, folder)
    return player, await player.run()


def report(player: Measured, outcome: ScenarioOutcome, seconds: float) -> None:
    """What it took, what came of it, and what it cost against what it must cost."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    nodes, last, totals = [row.nodes for row in outcome.rows], outcome.rows[-1], outcome.totals
    hours = outcome.seconds / HOUR
    pods = max(row.pods for row in outcome.rows)
    print(f"{hours:g} h: {seconds:.1f} s of processor time, {most} MB; {min(nodes)} to {max(nodes)} nodes")
    print(
        f"{outcome.seconds / seconds:,.0f} simulated seconds per processor second; "
        f"{1e6 * seconds / hours / max(nodes):,.0f} µs for a node and hour, "
        f"{1e6 * seconds / hours / pods:,.0f} µs for a pod and hour"
    )
    print(
        f"{totals.get('instances launched', 0)} nodes launched, {totals.get('instances terminated', 0)} terminated; "
        f"{totals.get('pods created', 0)} pods made, {totals.get('evictions', 0)} evicted; "
        f"{last.pods - last.ready} not ready at the end"
    )
    if player.bounds and outcome.dollars is not None:
        least = sum(player.bounds) / len(player.bounds) * hours
        above = outcome.dollars / least - 1.0
        print(f"${outcome.dollars:.2f} spent; at least ${least:.2f}: {above:.1%} above the bound")
    exceeded = [text for text in outcome.problems if text.startswith("I6")]
    print(
        f"judged on every write: 0 pods lost, 0 disruption budgets broken, {len(exceeded)} pool budgets exceeded, "
        f"{len(outcome.problems) - len(exceeded)} other rules broken"
    )
    for problem in outcome.problems:
        print(f"broken: {problem}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Play a day of a large autoscaled cluster against its bound.")
    parser.add_argument("scenario", nargs="?", type=Path, default=SCENARIO)
    parser.add_argument("hours", nargs="?", type=float, help="how much of it; by default all")
    asked = parser.parse_args()
    path: Path = asked.scenario
    try:
        scenario = read(path)
    except ScenarioError as problem:
        parser.error(str(problem))
    if asked.hours is not None:
        scenario = msgspec.structs.replace(scenario, duration=Seconds(asked.hours * HOUR))
    quiet_logs()
    gc.set_threshold(100_000, 50, 1000)
    began = time.process_time()
    try:
        player, outcome = run_virtual(play(scenario, path.parent))
    except Broken as broken:
        sys.exit(f"a pod was lost or its budget broken: {broken}")
    report(player, outcome, time.process_time() - began - player.aside)
    sys.exit(1 if outcome.problems else 0)


if __name__ == "__main__":
    main()
