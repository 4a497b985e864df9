"""A scenario file: the cluster, what is applied, what happens when, and what to report.

Checked before anything runs: a field that does not exist is an error that names its place and the nearest field
that does.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dovetail.clock import EPOCH
from dovetail.lab.durations import Seconds, decode
from dovetail.lab.faults.kinds import KINDS, InjectedFault, unknown
from dovetail.language import message
from dovetail.language.recognition import recognized
from dovetail.language.system_errors import system_error
from dovetail.model import yaml_document
from dovetail.model.formats import yaml_problem

Json = dict[str, Any]


class ScenarioError(ValueError):
    """The file cannot be run; the text says where and why."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    pass


class NodesPart(_Part, frozen=True, kw_only=True):
    """Nodes of one instance type."""

    count: int
    type: str = "m5.large"
    zones: tuple[str, ...] = ("us-west-2a", "us-west-2b", "us-west-2c")
    labels: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] = ()
    boot: Seconds = Seconds(0)


#: So many nodes are a large cluster.
LARGE = 50


class ClusterPart(_Part, frozen=True, kw_only=True):
    """`detail: low` makes large clusters fast, and is what they get unless they ask for `high`."""

    pools: tuple[NodesPart, ...] = (NodesPart(count=3),)
    events: str = "all"
    detail: str = "auto"

    @property
    def lean(self) -> bool:
        large = sum(pool.count for pool in self.pools) >= LARGE
        return self.detail == "low" or (self.detail == "auto" and large)


class AutoscalerPart(_Part, frozen=True, kw_only=True):
    """The autoscaler, with a simulated cloud. `market` has the fields of a market file.

    `reserved` are so many instances of a type that are paid for already.
    `short` is the share of a resource that nodes lack of the catalog's capacity; with `reuse` a new node gets the name
    of one that is gone; several `replicas` stand for election.
    """

    region: str = "ap-northeast-2"
    families: tuple[str, ...] = ()
    reserved: dict[str, int] = {}
    market: Json = {}
    gates: tuple[str, ...] = ()
    replicas: int = 1
    short: dict[str, float] = {}
    reuse: bool = False


class NodeGroupPart(_Part, frozen=True, kw_only=True, rename="camel"):
    """A node group of one instance type; `size` is what it starts with, the minimum if it is left out."""

    name: str
    type: str
    min: int = 0
    max: int = 10
    size: int | None = None
    zones: tuple[str, ...] = ("ap-northeast-2a",)
    labels: dict[str, str] = {}
    capacity_type: str = "on-demand"


class NodeGroupsPart(_Part, frozen=True, kw_only=True):
    """Cluster Autoscaler in place of the autoscaler of NodePools, with its flags, on node groups."""

    groups: tuple[NodeGroupPart, ...]
    region: str = "ap-northeast-2"
    market: Json = {}
    flags: tuple[str, ...] = ()


class Interrupt(_Part, frozen=True, kw_only=True):
    """The cloud interrupts instances: so many of the running ones, oldest first, and any others by `ids`."""

    instances: int = 1
    ids: tuple[str, ...] = ()
    kind: str = "spot-interruption"


class TaintNodes(_Part, frozen=True, kw_only=True):
    """A third party taints every launched node that joins, for so long."""

    key: str
    effect: str = "NoExecute"
    seconds: Seconds = msgspec.field(default=Seconds(300), name="for")


class Vanish(_Part, frozen=True, kw_only=True):
    """So many instances vanish without notice, oldest first."""

    instances: int = 1


class CloudFault(_Part, frozen=True, kw_only=True):
    """The cloud's API is faulty for so long."""

    kind: str
    seconds: Seconds = msgspec.field(default=Seconds(60), name="for")


class UnannouncedPod(_Part, frozen=True, kw_only=True):
    """Every node that joins, for so long, runs a pod that no DaemonSet announces."""

    cpu: str = "100m"
    memory: str = "128Mi"
    seconds: Seconds = msgspec.field(default=Seconds(300), name="for")


class Deschedule(_Part, frozen=True, kw_only=True):
    """Another optimiser evicts a pod of the fullest node every so often."""

    every: Seconds = Seconds(300)
    times: int = 1


class Stall(_Part, frozen=True, kw_only=True):
    """The leader's requests arrive so late."""

    seconds: Seconds = msgspec.field(default=Seconds(20), name="for")


class Crash(_Part, frozen=True, kw_only=True):
    """The autoscaler is killed right after so many more mutating calls of the API server or the cloud."""

    after: int = 1


class ClockJump(_Part, frozen=True, kw_only=True):
    """The autoscaler's clock is off by so many seconds, for so long."""

    amount: float
    seconds: Seconds = msgspec.field(default=Seconds(600), name="for")


class PatchStep(_Part, frozen=True, kw_only=True):
    """A merge patch of an object."""

    kind: str
    name: str
    body: Json
    namespace: str = "default"


class Expect(_Part, frozen=True, kw_only=True):
    """What must be true at the end; what is left out is not looked at."""

    ready: int | None = None
    pending: int | None = None
    nodes_at_least: int | None = None
    nodes_at_most: int | None = None
    launched_at_least: int | None = None
    launched_at_most: int | None = None
    terminated_at_least: int | None = None
    terminated_at_most: int | None = None
    disruptions_at_least: int | None = None
    disruptions_at_most: int | None = None
    evictions_at_most: int | None = None
    reasons: tuple[str, ...] = ()
    #: What the autoscaler's log must have said.
    said: tuple[str, ...] = ()
    #: Whether the cluster must be at rest: workloads complete, nothing terminating, nothing launched lately.
    settled: bool = False
    #: The growth of memory between a third of the way and the end, as a share.
    growth_at_most: float | None = None


class ObjectPart(_Part, frozen=True, kw_only=True):
    """An object, by kind and name; `#0` is the oldest of its kind that the autoscaler made, if there is one."""

    kind: str
    name: str
    namespace: str = "default"


class ScaleStep(_Part, frozen=True, kw_only=True):
    """A Deployment's (or other scalable workload's) new size."""

    name: str
    replicas: int
    kind: str = "Deployment"
    namespace: str = "default"


class ScenarioStep(_Part, frozen=True, kw_only=True):
    """One thing that happens at a time."""

    at: Seconds
    apply: str | tuple[Json, ...] | Json | None = None
    delete: ObjectPart | None = None
    scale: ScaleStep | None = None
    fault: InjectedFault | None = None
    evict: ObjectPart | None = None
    cordon: str | None = None
    join: NodesPart | None = None
    interrupt: Interrupt | None = None
    taint: TaintNodes | None = None
    market: Json | None = None
    restart: bool | None = None
    patch: PatchStep | None = None
    vanish: Vanish | None = None
    cloud: CloudFault | None = None
    stowaway: UnannouncedPod | None = None
    deschedule: Deschedule | None = None
    stall: Stall | None = None
    crash: Crash | None = None
    clock: ClockJump | None = None
    drain: str | None = None
    note: str = ""


#: What a step may be that befalls the autoscaler, its cloud or its instances, and what else it may be.
OURS = ("interrupt", "taint", "market", "restart", "vanish", "cloud", "stowaway", "stall", "crash", "clock")
ACTS = ("apply", "delete", "scale", "fault", "evict", "cordon", "drain", "join", "patch", "deschedule", *OURS)


class ReplicaCurve(_Part, frozen=True, kw_only=True):
    """A workload's replicas over the day: straight lines between points, set anew every so often."""

    name: str
    points: dict[str, int]
    kind: str = "Deployment"
    namespace: str = "default"
    every: Seconds = Seconds(300)


class ReportPart(_Part, frozen=True, kw_only=True):
    """What the summary shows: a row every so often."""

    every: Seconds = Seconds(0)


class Scenario(_Part, frozen=True, kw_only=True):
    """The whole file."""

    duration: Seconds
    name: str = ""
    seed: int = 0
    start: datetime = EPOCH
    cluster: ClusterPart = ClusterPart()
    autoscaler: AutoscalerPart | None = None
    node_groups: NodeGroupsPart | None = msgspec.field(default=None, name="nodeGroups")
    manifests: tuple[str | Json, ...] = ()
    steps: tuple[ScenarioStep, ...] = ()
    curves: tuple[ReplicaCurve, ...] = ()
    report: ReportPart = ReportPart()
    expect: Expect = Expect()


def read(path: Path) -> Scenario:
    """Read and check a file."""
    try:
        document = yaml_document.load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(
            message("{path}: {system_error}; name the file of a scenario", path=path, system_error=system_error(error))
        ) from error
    except RecursionError as error:
        raise ScenarioError(message("{path}: nested too deeply to be a scenario", path=path)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: " + message("not YAML: {problem}", problem=yaml_problem(error))) from error
    return convert(document, str(path))


def convert(document: object, where: str = "scenario") -> Scenario:
    if not isinstance(document, dict):
        raise ScenarioError(message("{where}: a scenario is a mapping with at least `duration`", where=where))
    try:
        scenario = msgspec.convert(_current_keys(document, where), Scenario, dec_hook=decode)
    except msgspec.ValidationError as problem:
        raise ScenarioError(f"{where}: {_explain(str(problem))}") from problem
    _check(scenario, where)
    if scenario.start.tzinfo is None:
        scenario = msgspec.structs.replace(scenario, start=scenario.start.replace(tzinfo=UTC))
    return scenario


#: Keys of earlier versions, which stay accepted, and those of today.
_FORMER_EXPECT_KEYS = {
    "boughtAtLeast": "launchedAtLeast",
    "boughtAtMost": "launchedAtMost",
    "givenBackAtLeast": "terminatedAtLeast",
    "givenBackAtMost": "terminatedAtMost",
}
_FORMER_STEP_KEYS = {"machines": "instances"}


def _current_keys(document: dict[str, Any], where: str) -> dict[str, Any]:
    """The document with today's keys."""
    if "expect" in document:
        document = {**document, "expect": _renamed(document["expect"], _FORMER_EXPECT_KEYS, f"{where}: expect")}
    steps = document.get("steps")
    if not isinstance(steps, list):
        return document
    renamed = []
    for number, step in enumerate(steps):
        if isinstance(step, dict):
            step = {
                act: _renamed(part, _FORMER_STEP_KEYS, f"{where}: steps[{number}].{act}")
                if act in ("interrupt", "vanish")
                else part
                for act, part in step.items()
            }
        renamed.append(step)
    return {**document, "steps": renamed}


def _renamed(part: Any, former: Mapping[str, str], where: str) -> Any:
    if not isinstance(part, dict):
        return part
    for old, new in former.items():
        if old in part and new in part:
            raise ScenarioError(
                message("{where}: `{old}` is the former name of `{new}`; remove it", where=where, old=old, new=new)
            )
    return {former.get(key, key): value for key, value in part.items()}


def _explain(problem: str) -> str:
    """Msgspec's words, with the place first and the field that was probably meant."""
    match = re.fullmatch(r"Object contains unknown field `(.+?)`(?: - at `\$(.*)`)?", problem)
    if match is None:
        text, _, place = problem.partition(" - at `$")
        return f"{place.rstrip('`').lstrip('.') or message('the file')}: {recognized(text)}"
    field, place = match[1], (match[2] or "").lstrip(".")
    near = difflib.get_close_matches(field, _fields_at(place), 1, 0.5)
    hint = (
        message("; did you mean `{near}`?", near=near[0])
        if near
        else message("; there are {fields_at}", fields_at=", ".join(_fields_at(place)))
    )
    return message("{place}: unknown field `{field}`{hint}", place=place or message("the file"), field=field, hint=hint)


_PLACES: dict[str, type[msgspec.Struct]] = {
    "": Scenario,
    "cluster": ClusterPart,
    "cluster.pools[...]": NodesPart,
    "steps[...]": ScenarioStep,
    "steps[...].scale": ScaleStep,
    "steps[...].delete": ObjectPart,
    "steps[...].evict": ObjectPart,
    "steps[...].fault": InjectedFault,
    "steps[...].join": NodesPart,
    "steps[...].interrupt": Interrupt,
    "steps[...].taint": TaintNodes,
    "steps[...].patch": PatchStep,
    "steps[...].vanish": Vanish,
    "steps[...].cloud": CloudFault,
    "steps[...].stowaway": UnannouncedPod,
    "steps[...].deschedule": Deschedule,
    "steps[...].stall": Stall,
    "steps[...].crash": Crash,
    "steps[...].clock": ClockJump,
    "expect": Expect,
    "autoscaler": AutoscalerPart,
    "nodeGroups": NodeGroupsPart,
    "nodeGroups.groups[...]": NodeGroupPart,
    "curves[...]": ReplicaCurve,
    "report": ReportPart,
}


def _fields_at(place: str) -> list[str]:
    kind = _PLACES.get(re.sub(r"\[\d+\]", "[...]", place), Scenario)
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _check_node_groups(where: str, part: NodeGroupsPart) -> None:
    """Sizes within their bounds."""
    for group in part.groups:
        if not 0 <= group.min <= (group.min if group.size is None else group.size) <= group.max:
            raise ScenarioError(
                message(
                    "{where}: nodeGroups: group {group}: its size must lie between min and max",
                    where=where,
                    group=group.name,
                )
            )


def _check(scenario: Scenario, where: str) -> None:
    if scenario.duration <= 0:
        raise ScenarioError(message("{where}: duration: must be above 0", where=where))
    for field, value, allowed in (
        ("events", scenario.cluster.events, ("all", "warnings")),
        ("detail", scenario.cluster.detail, ("auto", "high", "low")),
    ):
        if value not in allowed:
            raise ScenarioError(
                message(
                    "{where}: cluster.{field}: {value!r} is not one of {allowed}",
                    where=where,
                    field=field,
                    value=value,
                    allowed=", ".join(allowed),
                )
            )
    if scenario.autoscaler is not None and scenario.node_groups is not None:
        raise ScenarioError(
            message("{where}: nodeGroups: a scenario has either an autoscaler or nodeGroups", where=where)
        )
    if scenario.node_groups is not None:
        _check_node_groups(where, scenario.node_groups)
    for number, step in enumerate(scenario.steps):
        if sum(getattr(step, name) is not None for name in ACTS) != 1:
            raise ScenarioError(
                message(
                    "{where}: steps[{number}]: exactly one of {acts} is needed",
                    where=where,
                    number=number,
                    acts=", ".join(ACTS),
                )
            )
        ours = next((name for name in OURS if getattr(step, name)), None)
        if ours is not None and scenario.autoscaler is None and scenario.node_groups is None:
            raise ScenarioError(
                message(
                    "{where}: steps[{number}].{ours}: the scenario has no autoscaler",
                    where=where,
                    number=number,
                    ours=ours,
                )
            )
        if step.fault is not None and step.fault.kind not in KINDS:
            raise ScenarioError(f"{where}: steps[{number}].fault: {unknown(step.fault.kind, KINDS)}")
