"""Playing a scenario: the lab in virtual time, with a log that is the same for the same seed, byte for byte."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import yaml

from dovetail.clock import Clock
from dovetail.cloud.simulated.config import read as read_market
from dovetail.kube.errors import ApiError, Conflict, ServerError, TooManyRequests, Unavailable
from dovetail.kube.resources import CORE_EVENTS
from dovetail.lab.cluster import Extra, Lab, LabParts
from dovetail.lab.controllers.informer import Informer
from dovetail.lab.controllers.pods import ready
from dovetail.lab.controllers.views import Json, NodeFields, PodFields
from dovetail.lab.durations import seconds
from dovetail.lab.faults.kinds import UnknownFault
from dovetail.lab.instances import UnknownType
from dovetail.lab.kubelet.kubelets import ReportingDetail
from dovetail.lab.load.model import on_curve
from dovetail.lab.scenario.expectations import failed_expectations, unsettled
from dovetail.lab.scenario.fleet import ScenarioFleet
from dovetail.lab.scenario.schema import NodeGroupsPart, ReplicaCurve, Scenario, ScenarioError, ScenarioStep
from dovetail.lab.scenario.steps import Acts
from dovetail.language import message

if TYPE_CHECKING:
    from dovetail.lab.checks.autoscaler import AutoscalerInvariants

#: How long, in seconds, a step is tried again while the server is out of order.
STEP_RETRY_S = 300.0


class SummaryRow(msgspec.Struct, frozen=True):
    """The cluster at a moment."""

    at: float
    nodes: int
    nodes_ready: int
    pods: int
    running: int
    ready: int
    pending: int
    failed: int


class ScenarioOutcome(msgspec.Struct, frozen=True):
    """What came of it."""

    name: str
    seed: int
    seconds: float
    rows: list[SummaryRow]
    totals: dict[str, int]
    reasons: dict[str, int]
    problems: list[str]
    pods_pending_seconds: float = 0.0
    dollars: float | None = None


def row_of(lab: Lab, now: float) -> SummaryRow:
    """The lab as its controllers see it, `now` seconds after the start."""
    assert lab.controllers is not None
    context = lab.controllers.context
    phases: Counter[str] = Counter()
    healthy = 0
    for pod in context.pods.all():
        phases["pending" if not pod.spec.node_name else pod.status.phase] += 1
        healthy += ready(pod)
    return SummaryRow(
        at=round(now, 3),
        nodes=len(context.nodes),
        nodes_ready=sum(_ready(node) for node in context.nodes.all()),
        pods=len(context.pods),
        running=phases["Running"],
        ready=healthy,
        pending=phases["pending"],
        failed=phases["Failed"],
    )


#: Takes one line of the log.
Write = Callable[[str], None]


async def play(
    scenario: Scenario, folder: Path, write: Write, seed: int | None = None, extras: Sequence[Extra] = ()
) -> ScenarioOutcome:
    """Run a scenario to its end on the running (virtual) loop; `extras` are further parts of the lab."""
    player = Player(scenario, folder, write, scenario.seed if seed is None else seed, extras=extras)
    return await player.run()


class Player:
    """One run of one scenario."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        write: Write,
        seed: int,
        make_fleet: Callable[[Write], ScenarioFleet] | None = None,
        extras: Sequence[Extra] = (),
    ) -> None:
        """`make_fleet` makes another autoscaler than the scenario's, given what takes the lines of its log.

        `extras` are parts of the lab that run from before the first node joins.
        """
        self._extras = tuple(extras)
        self._scenario = scenario
        self._judged = make_fleet is None
        self._folder = folder
        self._write = write
        self._seed = seed
        self._clock = Clock(asyncio.get_running_loop(), scenario.start)
        self._zero = self._clock.monotonic()
        #: The instant of the last line and its text: many lines have the same.
        self._instant = 0.0, _clock_text(0.0)
        self._lab = Lab.embedded(seed, self._parts(), clock=self._clock)
        self._autoscaled: ScenarioFleet | None
        if make_fleet is not None:
            self._autoscaled = make_fleet(lambda line: self._log("scaler", line))
        else:
            self._autoscaled = self._autoscaler()
        self._acts = Acts(self._lab, self._autoscaled, folder, self._log)
        self._invariants: AutoscalerInvariants | None = None
        self._rows: list[SummaryRow] = []
        self._totals: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._problems: list[str] = []
        self._pending: dict[str, float] = {}
        self._waited = 0.0
        self._weighed = 0

    def _parts(self) -> LabParts:
        """Where no fault can come between, events go to the log at once: nothing else reads them."""
        scenario = self._scenario
        low = scenario.cluster.lean
        faulty = any(step.fault is not None for step in scenario.steps)
        return LabParts(
            pace=ReportingDetail(lean=low, heartbeat_seconds=None, grid_seconds=0.5 if low else 0.0),
            quiet=scenario.cluster.events == "warnings",
            event_sink=None if faulty else self._on_lab_event,
            faults=faulty,
            check=self._judged and (not low or scenario.autoscaler is not None or scenario.node_groups is not None),
        )

    def _node_groups(self, part: NodeGroupsPart) -> ScenarioFleet:
        from dovetail.cloud.aws import catalog
        from dovetail.lab.scenario.node_groups import GroupFleet, GroupSettings, spec_of

        instance_types = {group.type for group in part.groups}
        types = {kind.name: kind for kind in catalog.load(part.region) if kind.name in instance_types}
        if missing := sorted(instance_types - types.keys()):
            raise ScenarioError(
                message(
                    "nodeGroups: {names}: no instance type of {region} is called so",
                    names=", ".join(missing),
                    region=part.region,
                )
            )
        settings = GroupSettings(groups=tuple(map(spec_of, part.groups)), types=types, flags=part.flags)
        if part.market:
            settings = msgspec.structs.replace(settings, market=read_market(yaml.safe_dump(part.market)))
        return GroupFleet(settings, lambda line: self._log("scaler", line))

    def _autoscaler(self) -> ScenarioFleet | None:
        if self._scenario.node_groups is not None:
            return self._node_groups(self._scenario.node_groups)
        part = self._scenario.autoscaler
        if part is None:
            return None
        from dovetail.lab.scenario.autoscaler import Autoscaled, AutoscalerRequest  # a day without one need not load it

        market = read_market(yaml.safe_dump(part.market)) if part.market else AutoscalerRequest().market
        request = AutoscalerRequest(
            region=part.region,
            families=part.families,
            reserved=part.reserved,
            market=market,
            gates=part.gates,
            replicas=part.replicas,
            short=part.short,
            reuse=part.reuse,
        )
        return Autoscaled(request, lambda line: self._log("scaler", line))

    async def run(self) -> ScenarioOutcome:
        """Play it to its end; a step that cannot be taken is a ScenarioError, not a group of the lab's tasks."""
        try:
            return await self._run()
        except BaseExceptionGroup as group:
            error: BaseException | None = group.subgroup(ScenarioError)
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            if error is None:
                raise
            raise error from group

    async def _run(self) -> ScenarioOutcome:
        scenario = self._scenario
        async with self._lab as lab:
            assert lab.controllers is not None
            lab.controllers.context.pods.listen(self._pod_changed)
            news: Informer[Json] = Informer(lab.kube, CORE_EVENTS, dict)
            news.listen(self._news)
            lab.add(lambda _: news.run())
            for extra in self._extras:
                lab.add(extra)
            for pool in scenario.cluster.pools:
                await self._acts.join(pool)
            if self._autoscaled is not None:
                lab.add(self._autoscaled.run)
                await asyncio.sleep(2.0)  # our kinds are served a moment after they were defined
                self._invariants = self._watched()
            for source in scenario.manifests:
                await self._acts.apply(source)
            await asyncio.sleep(0.1)  # let the caches see the nodes before the first row
            end = self._zero + scenario.duration
            lab.add(lambda _: self._report_often())
            if scenario.expect.growth_at_most is not None:
                lab.add(lambda _: self._weigh(scenario.duration / 3))
            for curve in scenario.curves:
                lab.add(lambda _, curve=curve: self._follow(curve, end))  # type: ignore[misc]
            for step in sorted(scenario.steps, key=lambda step: step.at):
                await self._sleep_until(self._zero + min(step.at, scenario.duration))
                await self._step(step)
            await self._sleep_until(end)
            self._row()
            if self._autoscaled is not None:
                self._totals.update(self._autoscaled.totals)
                for text in await self._autoscaled.leaks(lab):
                    self._problem(text)
            await self._evaluate_expectations()
        for uid in list(self._pending):
            self._waited += self._now() - self._pending.pop(uid)
        return ScenarioOutcome(
            name=scenario.name,
            seed=self._seed,
            seconds=float(scenario.duration),
            rows=self._rows,
            totals=dict(sorted(self._totals.items())),
            reasons=dict(sorted(self._reasons.items())),
            problems=self._problems,
            pods_pending_seconds=round(self._waited, 3),
            dollars=round(self._autoscaled.bill(self._clock.monotonic()), 4) if self._autoscaled else None,
        )

    def _watched(self) -> AutoscalerInvariants | None:
        """Judge every write of our own autoscaler from now on."""
        from dovetail.lab.checks.autoscaler import AutoscalerInvariants
        from dovetail.lab.scenario.autoscaler import Autoscaled

        autoscaled = self._autoscaled
        if not self._judged or not isinstance(autoscaled, Autoscaled):
            return None
        assert self._lab.server is not None and autoscaled.cloud is not None
        invariants = AutoscalerInvariants(
            self._lab.server, self._clock, autoscaled.cloud, autoscaled.safe_mode, autoscaled.now
        )
        self._lab.add(lambda _: invariants.run())
        return invariants

    async def _weigh(self, after: float) -> None:
        await asyncio.sleep(after)
        self._weighed = _weight()

    async def _evaluate_expectations(self) -> None:
        """Expectations that did not come true, and violated invariants."""
        expect, end = self._scenario.expect, msgspec.structs.asdict(self._rows[-1])
        said = self._autoscaled.said if self._autoscaled is not None else {}
        failures = failed_expectations(expect, end, self._totals, self._reasons, said)
        if expect.settled:
            at_rest = self._clock.monotonic() - (self._autoscaled.changed if self._autoscaled is not None else 0.0)
            failures += [text async for text in unsettled(self._lab.kube, at_rest)]
        if expect.growth_at_most is not None and _weight() > (1.0 + expect.growth_at_most) * self._weighed:
            failures.append(
                message(
                    "expected memory to grow by at most {growth_at_most:.0%}: {weighed} blocks became {weight}",
                    growth_at_most=expect.growth_at_most,
                    weighed=self._weighed,
                    weight=_weight(),
                )
            )
        for text in failures + (self._invariants.violations if self._invariants is not None else []):
            self._problem(text)

    def _now(self) -> float:
        return self._clock.monotonic() - self._zero

    async def _sleep_until(self, instant: float) -> None:
        left = instant - self._clock.monotonic()
        if left > 0:
            await asyncio.sleep(left)

    def _log(self, kind: str, text: str) -> None:
        now = self._now()
        if self._instant[0] != now:
            self._instant = now, _clock_text(now)
        self._write(f"{self._instant[1]}  {kind:<8} {text}")

    # What happens by itself

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        if old is None and new is not None:
            self._totals["pods created"] += 1
            if not new.spec.node_name:
                self._pending[new.metadata.uid] = self._now()
        if new is None and old is not None:
            self._totals["pods gone"] += 1
            self._totals["evictions"] += old.status.condition("DisruptionTarget") is not None
        pod = new or old
        if pod is not None and (new is None or new.spec.node_name) and pod.metadata.uid in self._pending:
            self._waited += self._now() - self._pending.pop(pod.metadata.uid)

    def _news(self, old: Json | None, new: Json | None) -> None:
        if new is not None:
            about = new["involvedObject"]
            whom = about["kind"], about.get("namespace", ""), about["name"]
            self._on_lab_event(new.get("type", ""), *whom, new.get("reason", ""), new["message"])

    def _on_lab_event(self, type_: str, kind: str, namespace: str, name: str, reason: str, message: str) -> None:
        self._reasons[reason] += 1
        place = f"{namespace}/" if namespace else ""
        self._log(type_, f"{kind} {place}{name}  {reason}: {message}")

    async def _report_often(self) -> None:
        every = self._scenario.report.every or self._scenario.duration / 12
        while True:
            self._row()
            await asyncio.sleep(every)

    def _row(self) -> None:
        row = row_of(self._lab, self._now())
        self._rows.append(row)
        text = f"{row.nodes_ready}/{row.nodes} nodes, {row.pods} pods, {row.ready} ready, {row.pending} pending"
        self._log("report", text)

    async def _follow(self, curve: ReplicaCurve, end: float) -> None:
        points = tuple(sorted((float(seconds(when)), float(count)) for when, count in curve.points.items()))
        resource = await self._acts.kinds.by_kind(curve.kind)
        current = -1
        while self._clock.monotonic() < end:
            now = self._clock.now()
            replicas = round(on_curve(points, now.hour * 3600 + now.minute * 60 + now.second))
            if replicas != current:
                current = replicas
                body = {"spec": {"replicas": replicas}}
                try:
                    await self._lab.kube.patch(resource, curve.name, body, curve.namespace)
                except ApiError as error:
                    self._problem(message("curve of {curve}: {message}", curve=curve.name, message=error.message))
                    return
            await asyncio.sleep(curve.every)

    async def _step(self, step: ScenarioStep) -> None:
        try:
            await self._play_with_retries(step)
        except (ApiError, UnknownFault, UnknownType) as error:
            text = error.message if isinstance(error, ApiError) else str(error)
            self._problem(message("step at {at:g} s: {text}", at=step.at, text=text))

    async def _play_with_retries(self, step: ScenarioStep) -> None:
        """A person whose command meets a server that is down or busy tries again."""
        end = self._clock.monotonic() + STEP_RETRY_S
        while True:
            try:
                return await self._acts.do(step)
            except (Conflict, ServerError, TooManyRequests, Unavailable):
                if self._clock.monotonic() > end:
                    raise
                await asyncio.sleep(2.0)

    def _problem(self, text: str) -> None:
        self._problems.append(text)
        self._log("problem", text)


def _ready(node: NodeFields) -> bool:
    condition = node.status.condition("Ready")
    return condition is not None and condition.status == "True"


def _weight() -> int:
    """The memory in use, in blocks of the allocator."""
    gc.collect()
    return sys.getallocatedblocks()


def _clock_text(seconds_passed: float) -> str:
    whole, milli = divmod(round(seconds_passed * 1000), 1000)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}.{milli:03d}"
