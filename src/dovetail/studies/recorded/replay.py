"""Playing a recording in the lab: the run is recorded as well, and both are read by the same eyes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dovetail.clock import run_virtual
from dovetail.cloud.simulated.config import read as read_market
from dovetail.lab.cluster import Extra
from dovetail.lab.scenario.autoscaler import Autoscaled, AutoscalerRequest
from dovetail.lab.scenario.fleet import ScenarioFleet
from dovetail.lab.scenario.node_groups import GroupFleet, GroupSettings
from dovetail.lab.scenario.runner import Player, ScenarioOutcome
from dovetail.lab.scenario.schema import Scenario, ScenarioError, ScenarioStep
from dovetail.language import english, message
from dovetail.offline.recorded_prices import RecordedPrices, recorded_prices
from dovetail.offline.recording import Recording, read
from dovetail.offline.timeline import ScalingDecision, Timeline, TimelineSample, timeline
from dovetail.studies import karpenter
from dovetail.studies.recorded.lab_recorder import LabRecorder, LabRecording
from dovetail.studies.recorded.nodes import RecordedNodes, ReplayedFleet, changes, ready_seconds, standing_nodes
from dovetail.studies.recorded.prices import bound_of, curves, priced
from dovetail.studies.recorded.workload import RecordedWorkload, build, with_groups
from dovetail.studies.run import BOOT, CLUSTER_AUTOSCALER_FLAGS
from dovetail.studies.setups import DOVETAIL_SETTINGS, NodeAutoscaler
from dovetail.studies.workloads.workload import NODE_KINDS, Workload

Json = dict[str, Any]

IDENTITY = b"replayed in lab\0"
#: Figures that differ by more than this share, and by more than one node or pod, are a difference.
TOLERANCE = 0.05
#: Decisions of the same kind within so many seconds are the same decision, made a little earlier or later.
DECISION_WINDOW_S = 60.0


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be replayed: without an autoscaler the nodes are the recorded ones."""

    autoscaler: NodeAutoscaler | None = None
    pools: tuple[Json, ...] = ()
    steps: tuple[ScenarioStep, ...] = ()
    seed: int = 1
    interval_s: float = 60.0


class Pair(msgspec.Struct, frozen=True):
    """A decision that was recorded beside one of the replay; None where the other side has none like it."""

    recorded: ScalingDecision | None
    replayed: ScalingDecision | None


class PairedDecision(msgspec.Struct, frozen=True):
    """A decision of this version beside one of another version; None where that side has none like it."""

    this: ScalingDecision | None
    other: ScalingDecision | None


class OtherVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The same recording and options, played by another version of Dovetail."""

    version: str
    replayed: Timeline
    first_difference: tuple[float, str] | None
    pairs: tuple[PairedDecision, ...]


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions of a dry run, as `replayed` of each pair, beside the recorded ones."""

    pairs: tuple[Pair, ...]


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides. `first_difference` is seconds after the start and what differs; None if nothing does."""

    name: str
    autoscaler: str
    seed: int
    recorded: Timeline
    replayed: Timeline
    first_difference: tuple[float, str] | None
    pairs: tuple[Pair, ...]
    problems: tuple[str, ...] = ()
    other_version: OtherVersion | None = None
    dry_run: DryRun | None = None

    def to_json(self) -> bytes:
        """Everything, for other programs; the same bytes for the same seed."""
        return msgspec.json.format(msgspec.json.encode(self, order="deterministic"))


def replay(recording: Recording, question: ReplayOptions, target: Path) -> Replay:
    """Play it to its end; the replay's own recording goes to `target`."""
    made = build(recording, question.pools, question.steps, one_by_one=question.autoscaler is None)
    workload, bound = made.workload, None
    if workload.node_pools():
        bound = bound_of(workload)
    elif question.autoscaler is not None:
        raise ScenarioError(f"{recording.path}: " + message("there is no NodePool in it; name one with --nodepool"))
    if question.autoscaler is NodeAutoscaler.CLUSTER_AUTOSCALER:
        workload = with_groups(workload, recording.path)
    outcome = run_virtual(_play(recording, msgspec.structs.replace(made, workload=workload), question, target))
    before = timeline(recording, recording.start, question.interval_s, bound)
    ours = read(target)
    after = timeline(ours, ours.start + timedelta(seconds=made.lead_s), question.interval_s, bound)
    if question.autoscaler is None:
        after = _paid_as(before, after)
    return Replay(
        name=recording.path.name,
        autoscaler=question.autoscaler.value if question.autoscaler is not None else "none",
        seed=question.seed,
        recorded=before,
        replayed=after,
        first_difference=first_difference(before, after),
        pairs=tuple(pairs(before.decisions, after.decisions)),
        problems=tuple(outcome.problems),
    )


async def _play(recording: Recording, made: RecordedWorkload, question: ReplayOptions, target: Path) -> ScenarioOutcome:
    workload, prices = made.workload, recorded_prices(recording)
    if question.autoscaler is None:
        planned = changes(recording, lambda node: True)
        nodes = RecordedNodes(planned, made.lead_s, ready_seconds(recording), drains=False)
    else:
        nodes = standing_nodes(recording, made.lead_s)
    recorder = LabRecorder(
        LabRecording(
            path=target,
            cluster=f"replay of {recording.path.name}",
            identity=IDENTITY,
            source="replay",
            prices=prices.first,
            price_changes=tuple(
                msgspec.structs.replace(change, at=change.at + made.lead_s) for change in prices.changes
            ),
        )
    )

    def make_fleet(line: Callable[[str], None]) -> ScenarioFleet:
        if question.autoscaler is None:
            return ReplayedFleet(nodes)
        return fleet_of(workload, question.autoscaler, line, prices, made.lead_s)

    extras: list[Extra] = [recorder.run]
    if question.autoscaler is not None:
        extras.append(nodes.run)
    scenario = _served(workload.scenario, question.autoscaler)
    player = Player(scenario, workload.folder, lambda line: None, question.seed, make_fleet, extras)
    return await player.run()


def _served(scenario: Scenario, autoscaler: NodeAutoscaler | None) -> Scenario:
    """Without Karpenter's kinds where no part of the lab serves them."""
    if autoscaler in (NodeAutoscaler.DOVETAIL, NodeAutoscaler.KARPENTER):
        return scenario

    def concerns(step: ScenarioStep) -> bool:
        applied = step.apply["kind"] if isinstance(step.apply, dict) else ""
        return applied not in NODE_KINDS and (step.delete is None or step.delete.kind not in NODE_KINDS)

    manifests = tuple(item for item in scenario.manifests if isinstance(item, str) or item["kind"] not in NODE_KINDS)
    return msgspec.structs.replace(scenario, manifests=manifests, steps=tuple(filter(concerns, scenario.steps)))


def fleet_of(
    workload: Workload,
    autoscaler: NodeAutoscaler,
    line: Callable[[str], None],
    prices: RecordedPrices,
    lead_s: float,
) -> ScenarioFleet:
    """The autoscaler on a simulated cloud that sells at the recorded prices, `lead_s` before the first of them."""
    part = workload.part
    market = read_market(yaml.safe_dump(part.market)) if part.market else BOOT
    types = tuple(priced(kind, part.region, prices.first) for kind in workload.types().values())
    market = msgspec.structs.replace(market, curves=(*market.curves, *curves(types, part.region, prices, lead_s)))
    if autoscaler is NodeAutoscaler.CLUSTER_AUTOSCALER:
        by_name = {kind.name: kind for kind in types}
        settings = GroupSettings(groups=workload.groups, types=by_name, market=market, flags=CLUSTER_AUTOSCALER_FLAGS)
        return GroupFleet(settings, line)
    request = AutoscalerRequest(region=part.region, types=types, market=market, settings=DOVETAIL_SETTINGS)
    if autoscaler is NodeAutoscaler.KARPENTER:
        request = msgspec.structs.replace(request, settings=karpenter.SETTINGS, controllers=karpenter.controllers())
    return Autoscaled(request, line)


def _paid_as(before: Timeline, after: Timeline) -> Timeline:
    """Without an autoscaler the instances are the recorded ones, and so is what they cost."""
    recorded = {sample.at: sample for sample in before.samples}
    samples = tuple(
        msgspec.structs.replace(sample, rate=recorded[sample.at].rate, bound=recorded[sample.at].bound)
        if sample.at in recorded
        else sample
        for sample in after.samples
    )
    return msgspec.structs.replace(
        after,
        samples=samples,
        decisions=before.decisions,
        dollars=before.dollars,
        lower_bound=before.lower_bound,
        launched=before.launched,
        removed=before.removed,
        unpriced=before.unpriced,
    )


def first_difference(before: Timeline, after: Timeline) -> tuple[float, str] | None:
    """The first sample whose nodes, price or pending pods differ, and how; data, so in English."""
    with english():
        for theirs, ours in zip(before.samples, after.samples, strict=False):
            if (apart := differing(theirs, ours)) is not None:
                what, recorded, replayed = apart
                text = message(
                    "{what}: recorded {recorded}, replayed {replayed}", what=what, recorded=recorded, replayed=replayed
                )
                return theirs.at, text
    return None


def differing(before: TimelineSample, after: TimelineSample) -> tuple[str, str, str] | None:
    """What differs between two samples of the same moment, and both amounts; None if they are alike."""
    for what, first, second in (
        (message("nodes"), before.nodes, after.nodes),
        (message("pending pods"), before.pending, after.pending),
    ):
        if abs(second - first) > max(1.0, TOLERANCE * first):
            return what, str(first), str(second)
    if abs(after.rate - before.rate) > TOLERANCE * max(before.rate, 0.01):
        return "$/h", f"{before.rate:.4f}", f"{after.rate:.4f}"
    return None


def pairs(recorded: Sequence[ScalingDecision], replayed: Sequence[ScalingDecision]) -> Iterable[Pair]:
    """Launches and removals beside each other: the same instance type first, then the same action, near in time."""
    left = list(replayed)
    for decision in recorded:
        near = [
            other
            for other in left
            if other.action == decision.action and abs(other.at - decision.at) <= DECISION_WINDOW_S
        ]
        chosen = min(
            near,
            key=lambda other: (
                other.instance_type != decision.instance_type,
                other.capacity_type != decision.capacity_type,
                other.zone != decision.zone,
                abs(other.at - decision.at),
            ),
            default=None,
        )
        if chosen is not None:
            left.remove(chosen)
        yield Pair(decision, chosen)
    for decision in left:
        yield Pair(None, decision)
