"""Playing a recording in the lab: the run is recorded as well, and both are read by the same eyes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.simulated.config import read as read_market
from dovetail.lab.cluster import Extra, Lab
from dovetail.lab.scenario.autoscaler import Asked, Autoscaled
from dovetail.lab.scenario.fleet import Fleet
from dovetail.lab.scenario.node_groups import GroupFleet, GroupSettings
from dovetail.lab.scenario.runner import Outcome, Player
from dovetail.lab.scenario.schema import Scenario, ScenarioError, Step
from dovetail.language import message
from dovetail.model.instance_type import InstanceType
from dovetail.model.meta import view
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.offline.recorder import Recorder, Settings
from dovetail.offline.recording import OfferingKey, RecordedPrice, Recording, Writer, read
from dovetail.offline.timeline import Bound, Decision, Timeline, timeline
from dovetail.studies import karpenter
from dovetail.studies.bound import LowerBound, pools_of
from dovetail.studies.recorded.nodes import RecordedFleet, RecordedNodes, changes, ready_seconds, standing_nodes
from dovetail.studies.recorded.workload import RecordedWorkload, build, with_groups
from dovetail.studies.run import BOOT, CLUSTER_AUTOSCALER_FLAGS
from dovetail.studies.setups import NodeAutoscaler
from dovetail.studies.workloads.workload import NODE_KINDS, Workload

Json = dict[str, Any]

IDENTITY = b"replayed in lab\0"
#: Figures that differ by more than this share, and by more than one node or pod, are a difference.
TOLERANCE = 0.05
#: Decisions of the same kind within so many seconds are the same decision, made a little earlier or later.
DECISION_WINDOW_S = 60.0


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be replayed: without an autoscaler the nodes are the recorded ones."""

    autoscaler: NodeAutoscaler | None = None
    pools: tuple[Json, ...] = ()
    steps: tuple[Step, ...] = ()
    seed: int = 1
    interval_s: float = 60.0


class Pair(msgspec.Struct, frozen=True):
    """A decision that was recorded beside one of the replay; None where the other side has none like it."""

    recorded: Decision | None
    replayed: Decision | None


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

    def to_json(self) -> bytes:
        """Everything, for other programs; the same bytes for the same seed."""
        return msgspec.json.format(msgspec.json.encode(self, order="deterministic"))


def replay(recording: Recording, question: Question, target: Path) -> Replay:
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


async def _play(recording: Recording, made: RecordedWorkload, question: Question, target: Path) -> Outcome:
    workload = made.workload
    if question.autoscaler is None:
        planned = changes(recording, lambda node: True)
        nodes = RecordedNodes(planned, made.lead_s, ready_seconds(recording), drains=False)
    else:
        nodes = standing_nodes(recording, made.lead_s)
    writers: list[tuple[Writer, Clock]] = []

    async def record(lab: Lab) -> None:
        writer = Writer.create(target, lab.clock.now(), f"replay of {recording.path.name}", IDENTITY, source="replay")
        writers.append((writer, lab.clock))
        for key, price in recording.prices_at(recording.end).items():
            writer.price(lab.clock.now(), key, price.dollars, price.source)
        await Recorder(lab.kube, writer, settings=Settings(usage_interval_s=300.0)).run()

    def make_fleet(line: Callable[[str], None]) -> Fleet:
        if question.autoscaler is None:
            return RecordedFleet(nodes)
        return fleet_of(workload, question.autoscaler, line, recording.prices_at(recording.start))

    extras: list[Extra] = [record]
    if question.autoscaler is not None:
        extras.append(nodes.run)
    scenario = _served(workload.scenario, question.autoscaler)
    player = Player(scenario, workload.folder, lambda line: None, question.seed, make_fleet, extras)
    outcome = await player.run()
    writer, clock = writers[0]
    writer.close(clock.now())
    return outcome


def _served(scenario: Scenario, autoscaler: NodeAutoscaler | None) -> Scenario:
    """Without Karpenter's kinds where no part of the lab serves them."""
    if autoscaler in (NodeAutoscaler.DOVETAIL, NodeAutoscaler.KARPENTER):
        return scenario

    def concerns(step: Step) -> bool:
        applied = step.apply["kind"] if isinstance(step.apply, dict) else ""
        return applied not in NODE_KINDS and (step.delete is None or step.delete.kind not in NODE_KINDS)

    manifests = tuple(item for item in scenario.manifests if isinstance(item, str) or item["kind"] not in NODE_KINDS)
    return msgspec.structs.replace(scenario, manifests=manifests, steps=tuple(filter(concerns, scenario.steps)))


def fleet_of(
    workload: Workload,
    autoscaler: NodeAutoscaler,
    line: Callable[[str], None],
    prices: dict[OfferingKey, RecordedPrice],
) -> Fleet:
    """The autoscaler on a simulated cloud that sells at the recorded prices."""
    part = workload.part
    market = read_market(yaml.safe_dump(part.market)) if part.market else BOOT
    types = tuple(priced(kind, part.region, prices) for kind in workload.types().values())
    if autoscaler is NodeAutoscaler.CLUSTER_AUTOSCALER:
        by_name = {kind.name: kind for kind in types}
        settings = GroupSettings(groups=workload.groups, types=by_name, market=market, flags=CLUSTER_AUTOSCALER_FLAGS)
        return GroupFleet(settings, line)
    asked = Asked(region=part.region, types=types, market=market)
    if autoscaler is NodeAutoscaler.KARPENTER:
        asked = msgspec.structs.replace(asked, settings=karpenter.SETTINGS, controllers=karpenter.controllers())
    return Autoscaled(asked, line)


def priced(kind: InstanceType, region: str, prices: dict[OfferingKey, RecordedPrice]) -> InstanceType:
    """The type at the recorded prices; what was not recorded costs what the packaged list says."""

    def price(zone: str, capacity_type: str) -> float | None:
        for place in (zone, ""):
            known = prices.get(OfferingKey(region, kind.name, place, capacity_type))
            if known is not None:
                return known.dollars
        return None

    offerings = tuple(
        msgspec.structs.replace(offering, price=dollars)
        if (dollars := price(offering.zone, offering.capacity_type)) is not None
        else offering
        for offering in kind.offerings
    )
    return msgspec.structs.replace(kind, offerings=offerings)


def bound_of(workload: Workload) -> Bound:
    """The lower bound of pods and of nodes that stand whatever is launched, in $/h."""
    bound = LowerBound(pools_of(workload.node_pools(), tuple(workload.types().values())))

    def per_hour(pods: list[Json], standing: list[Json]) -> float:
        return bound.per_hour([view(pod, Pod) for pod in pods], [view(node, Node) for node in standing])

    return per_hour


def _paid_as(before: Timeline, after: Timeline) -> Timeline:
    """Without an autoscaler the instances are the recorded ones, and so is what they cost."""
    rates = {sample.at: sample.rate for sample in before.samples}
    samples = tuple(msgspec.structs.replace(sample, rate=rates.get(sample.at, sample.rate)) for sample in after.samples)
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
    """The first sample whose nodes, price or pending pods differ, and how."""
    for ours, theirs in zip(after.samples, before.samples, strict=False):
        for what, mine, recorded in (
            ("nodes", float(ours.nodes), float(theirs.nodes)),
            ("pending pods", float(ours.pending), float(theirs.pending)),
        ):
            if abs(mine - recorded) > max(1.0, TOLERANCE * recorded):
                return theirs.at, f"{what}: recorded {recorded:g}, replayed {mine:g}"
        if abs(ours.rate - theirs.rate) > TOLERANCE * max(theirs.rate, 0.01):
            return theirs.at, f"$/h: recorded {theirs.rate:.4f}, replayed {ours.rate:.4f}"
    return None


def pairs(recorded: Sequence[Decision], replayed: Sequence[Decision]) -> Iterable[Pair]:
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
