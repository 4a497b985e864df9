"""One run: a workload on a set-up with a seed, in virtual time, and what was measured. The same bytes every time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import yaml

from dovetail.clock import run_virtual
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.cloud.simulated.config import read as read_market
from dovetail.lab.cluster import Extra
from dovetail.lab.scenario.autoscaler import Autoscaled, AutoscalerRequest
from dovetail.lab.scenario.fleet import ScenarioFleet
from dovetail.lab.scenario.node_groups import GroupFleet, GroupSettings
from dovetail.lab.scenario.runner import Player, ScenarioOutcome
from dovetail.language import english
from dovetail.offline.recording import read as read_recording
from dovetail.studies import karpenter, vertical
from dovetail.studies.bound import OfferBounds, pools_of
from dovetail.studies.observation import FleetObserver, StudySample
from dovetail.studies.recorded.nodes import standing_nodes
from dovetail.studies.recorded.workload import LEAD_S
from dovetail.studies.setups import DOVETAIL_SETTINGS, NodeAutoscaler, Setup
from dovetail.studies.workloads.workload import Workload

#: Samples of a run: every so many seconds, or as many as a chart shows.
MIN_SAMPLE_S, SAMPLES = 60.0, 96
#: How an instance boots where the scenario does not say.
BOOT = SimulatedMarket(boot=(25.0, 35.0), ready=(4.0, 6.0))
#: Cluster Autoscaler as its documentation recommends it for groups of one zone each.
CLUSTER_AUTOSCALER_FLAGS = ("--balance-similar-node-groups", "--expander=least-waste")


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What a table shows. Times are seconds from a pod's creation; None where no pod became ready."""

    dollars: float
    lower_bound: float
    cpu_utilisation: float
    memory_utilisation: float
    ready_p50: float | None
    ready_p99: float | None
    pods: int
    pods_waited: int
    pods_never_ready: int
    pending_hours: float
    evictions: int
    nodes_launched: int
    nodes_removed: int
    most_nodes: int
    api_calls: int
    cloud_calls: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one run."""

    workload: str
    setup: Setup
    seed: int
    seconds: float
    measures: Measures
    samples: tuple[StudySample, ...]
    problems: tuple[str, ...] = ()


def run(workload: Workload, setup: Setup, seed: int) -> Run:
    """Play it to its end. Takes the processor for some seconds; nothing of it depends on how many."""
    with english():  # what the cluster writes; the report is made afterwards
        return run_virtual(_run(workload, setup, seed))


async def _run(workload: Workload, setup: Setup, seed: int) -> Run:
    scenario = workload.scenario_for(setup)
    made: list[FleetObserver] = []
    fleets: list[ScenarioFleet] = []
    interval_s = max(MIN_SAMPLE_S, scenario.duration / SAMPLES)
    bound = OfferBounds(pools_of(workload.node_pools(), tuple(workload.types().values())))

    def make_fleet(line: Callable[[str], None]) -> ScenarioFleet:
        fleet = _fleet(workload, setup, line)
        fleets.append(fleet)
        made.append(FleetObserver(fleet, bound, interval_s))
        return fleet

    extras: list[Extra] = [lambda lab: made[0].run(lab)]
    if setup.vpa:
        extras.append(vertical.run)
    if workload.recording is not None:
        extras.append(standing_nodes(read_recording(workload.recording), LEAD_S).run)
    player = Player(scenario, workload.folder, _discard, seed, make_fleet, extras)
    outcome = await player.run()
    return Run(
        workload=workload.name,
        setup=setup,
        seed=seed,
        seconds=outcome.seconds,
        measures=_measures(outcome, made[0], fleets[0]),
        samples=tuple(made[0].samples),
        problems=tuple(outcome.problems),
    )


def _discard(line: str) -> None:
    """The log of a study is not kept: its figures are."""


def _fleet(workload: Workload, setup: Setup, line: Callable[[str], None]) -> ScenarioFleet:
    part = workload.part
    market = read_market(yaml.safe_dump(part.market)) if part.market else BOOT
    if setup.nodes is NodeAutoscaler.CLUSTER_AUTOSCALER:
        settings = GroupSettings(
            groups=workload.groups, types=workload.types(), market=market, flags=CLUSTER_AUTOSCALER_FLAGS
        )
        return GroupFleet(settings, line)
    request = AutoscalerRequest(
        region=part.region,
        families=part.families,
        reserved=part.reserved,
        market=market,
        gates=part.gates,
        short=part.short,
        reuse=part.reuse,
        settings=DOVETAIL_SETTINGS,
    )
    if setup.nodes is NodeAutoscaler.KARPENTER:
        request = msgspec.structs.replace(request, settings=karpenter.SETTINGS, controllers=karpenter.controllers())
    return Autoscaled(request, line)


def _measures(outcome: ScenarioOutcome, observer: FleetObserver, fleet: ScenarioFleet) -> Measures:
    samples, hours = observer.samples, outcome.seconds / 3600.0
    waits, calls = sorted(observer.ready_after.values()), fleet.calls()
    used = [sample for sample in samples if sample.nodes]
    return Measures(
        dollars=round(outcome.dollars or 0.0, 4),
        lower_bound=round(_mean([sample.bound for sample in samples]) * hours, 4),
        cpu_utilisation=round(_mean([sample.cpu for sample in used]), 4),
        memory_utilisation=round(_mean([sample.memory for sample in used]), 4),
        ready_p50=_percentile(waits, 0.50),
        ready_p99=_percentile(waits, 0.99),
        pods=observer.pods,
        pods_waited=observer.waited,
        pods_never_ready=observer.never_ready,
        pending_hours=round(outcome.pods_pending_seconds / 3600.0, 4),
        evictions=outcome.totals.get("evictions", 0),
        nodes_launched=outcome.totals.get("instances launched", 0),
        nodes_removed=outcome.totals.get("instances terminated", 0),
        most_nodes=max((sample.nodes for sample in samples), default=0),
        api_calls=calls["kubernetes"],
        cloud_calls=calls["cloud"],
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile."""
    if not ordered:
        return None
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3)
