"""`dovetail replay`: a recording in virtual time, as it was or with another NodePool, autoscaler or fault."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dovetail.errors import UserError
from dovetail.language import message

if TYPE_CHECKING:
    from dovetail.controllers.history.decisions import Decision
    from dovetail.lab.scenario.schema import ScenarioStep
    from dovetail.offline.recording import Recording
    from dovetail.studies.recorded.other_decisions import VersionProcess
    from dovetail.studies.recorded.replay import Replay, ReplayOptions

_FILE = click.Path(path_type=Path, dir_okay=False)
_AUTOSCALERS = ["none", "dovetail", "karpenter", "cluster-autoscaler"]
_FAULT_HELP = "What happens when, as 30m:spot-interruption:2, 1h:instances-vanish:3 or 2h:api-down; repeat it."
_VERSION_HELP = "The dovetail program of another installation: it plays the same, and is set beside this version."
_SHADOW_HELP = "Decisions of `dovetail run --dry-run`, beside the recorded ones of the same time."
_FAULT = re.compile(r"(?P<at>[^:]+):(?P<kind>[a-z-]+)(:(?P<amount>[0-9]+))?")


@click.command()
@click.argument("file", type=_FILE)
@click.option(
    "--autoscaler",
    type=click.Choice(_AUTOSCALERS),
    default="none",
    show_default=True,
    help="Who launches nodes; none has the recorded nodes come and go as they did.",
)
@click.option("--nodepool", "pools", multiple=True, metavar="FILE", help="NodePools in place of the recorded ones.")
@click.option("--fault", "faults", multiple=True, metavar="AT:KIND[:N]", help=_FAULT_HELP)
@click.option("--seed", type=int, default=1, show_default=True, help="Makes random choices repeatable.")
@click.option("--other-version", "program", default=None, metavar="PROGRAM", help=_VERSION_HELP)
@click.option("--shadow", "history", type=_FILE, default=None, help=_SHADOW_HELP)
@click.option("--svg", type=_FILE, default=None, help="Write the timeline as a picture.")
@click.option("--record", "target", type=_FILE, default=None, help="Keep the recording of the replay.")
@click.option("-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def replay(
    file: Path,
    autoscaler: str,
    pools: tuple[str, ...],
    faults: tuple[str, ...],
    seed: int,
    program: str | None,
    history: Path | None,
    svg: Path | None,
    target: Path | None,
    form: str,
) -> None:
    """Play a recording in the lab, in virtual time.

    Says what it cost, how long pods waited and what was evicted, beside what was recorded and the lower bound; where it
    first differs; and every launch and removal beside the recorded ones. Another version of Dovetail, and the decisions
    of a dry run, can be set beside it.

    Exit status: 0 played, 1 a step failed or an invariant broke, 2 the recording or the question is wrong.
    """
    import msgspec

    from dovetail.cli.terminal import quiet_logs
    from dovetail.offline.recording.writer import check_absent
    from dovetail.studies.recorded import other_decisions
    from dovetail.studies.recorded.replay import ReplayOptions
    from dovetail.studies.setups import NodeAutoscaler

    recording = _recording(file)
    if pools and autoscaler == "none":
        raise UserError(message("--nodepool: the recorded nodes need none; name an --autoscaler"))
    options = ReplayOptions(
        autoscaler=None if autoscaler == "none" else NodeAutoscaler(autoscaler),
        pools=_pools(pools),
        steps=_steps(faults, recording),
        seed=seed,
    )
    if program is not None and autoscaler != "dovetail":
        raise UserError(message("--other-version: only Dovetail has one; name --autoscaler dovetail"))
    decisions = _decisions(history) if history is not None else []
    _check_folder("--svg", svg)
    _check_folder("--record", target)
    quiet_logs()
    if target is not None:
        check_absent(target)
    with ExitStack() as stack:
        other = None
        if program is not None:
            other = other_decisions.VersionProcess(program, _arguments(file, pools, faults, seed))
            stack.callback(other.kill)
        outcome = _play(recording, options, target, other, file)
    if history is not None:
        dry_run = other_decisions.dry_run(recording, outcome.recorded, decisions, history)
        outcome = msgspec.structs.replace(outcome, dry_run=dry_run)
    _show(outcome, form, svg)


def _recording(file: Path) -> Recording:
    from dovetail.offline.recording import read

    recording = read(file)
    if recording.interrupted_at is not None:
        click.echo(
            message("{path} was interrupted: it is played until {end}", path=file, end=recording.end.isoformat()),
            err=True,
        )
    return recording


def _play(
    recording: Recording, options: ReplayOptions, target: Path | None, other: VersionProcess | None, file: Path
) -> Replay:
    """The replay, beside the other version's; recorded to `target`, or for as long as it lasts."""
    from tempfile import TemporaryDirectory

    import msgspec

    from dovetail.cli.terminal import waiting
    from dovetail.lab.scenario.schema import ScenarioError
    from dovetail.studies.recorded.replay import replay

    try:
        with TemporaryDirectory() as folder, waiting(message("playing {path} …", path=file)):
            outcome = replay(recording, options, target or Path(folder) / "replay.dvrec")
            if other is None:
                return outcome
            return msgspec.structs.replace(outcome, other_version=other.beside(outcome))
    except ScenarioError as problem:
        raise UserError(str(problem)) from problem
    except msgspec.ValidationError as problem:
        raise UserError(message("{path}: an object is malformed: {problem}", path=file, problem=problem)) from problem


def _show(outcome: Replay, form: str, svg: Path | None) -> None:
    """Print the replay and write its picture; ends with 1 where it had problems."""
    from dovetail.studies.recorded import report

    if svg is not None:
        svg.write_text(report.chart(outcome), encoding="utf-8")
    if form == "json":
        click.echo(outcome.to_json())
    else:
        for line in report.text(outcome):
            click.echo(line)
    for text in outcome.problems:
        click.echo(message("problem: {text}", text=text), err=True)
    if outcome.problems:
        raise SystemExit(1)


def _check_folder(option: str, path: Path | None) -> None:
    """A wrong name should not cost a replay."""
    if path is not None and not path.resolve().parent.is_dir():
        raise UserError(
            message("{option} {path}: there is no folder {folder}", option=option, path=path, folder=path.parent)
        )


def _arguments(file: Path, pools: tuple[str, ...], faults: tuple[str, ...], seed: int) -> list[str]:
    """The same question for another version."""
    arguments = [str(file), "--autoscaler", "dovetail", "--seed", str(seed)]
    for pool in pools:
        arguments += ["--nodepool", pool]
    for fault in faults:
        arguments += ["--fault", fault]
    return arguments


def _decisions(path: Path) -> list[Decision]:
    """The decisions that a dry run wrote."""
    from dovetail.controllers.history import store
    from dovetail.language.system_errors import system_error

    try:
        decisions = store.lines(path.read_bytes())
    except OSError as problem:
        remedy = message("--shadow names the file that dovetail run --dry-run was given with --history")
        raise UserError(f"{path}: {system_error(problem)}; {remedy}") from problem
    if not decisions:
        raise UserError(message("--shadow {path}: there is no decision in it", path=path))
    return decisions


def _pools(paths: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    """The NodePools and node classes of files, in their newest version."""
    from dovetail.model.kinds.convert import ConversionError, expand
    from dovetail.offline.objects import documents

    kinds = ("NodePool", "Provisioner", "EC2NodeClass", "AWSNodeTemplate", "NodeOverlay")
    objects: list[dict[str, Any]] = []
    for item in documents(paths) if paths else ():
        if not isinstance(item, dict) or item.get("kind") not in kinds:
            kind = item.get("kind") if isinstance(item, dict) else item
            raise UserError(message("--nodepool: {kind} is no NodePool or node class", kind=kind))
        try:
            objects += [part for part in expand(item) if part["kind"] in kinds]
        except ConversionError as problem:
            raise UserError(f"--nodepool: {problem}") from problem
    if paths and not any(item["kind"] == "NodePool" for item in objects):
        raise UserError(message("--nodepool: there is no NodePool in {paths}", paths=", ".join(paths)))
    return tuple(objects)


def _steps(faults: tuple[str, ...], recording: Recording) -> tuple[ScenarioStep, ...]:
    """What --fault asks for; after the recording's end it would not happen."""
    from dovetail.offline.diff.report_text import duration

    length_s = (recording.end - recording.start).total_seconds()
    steps = tuple(map(_step, faults))
    for text, step in zip(faults, steps, strict=True):
        if step.at >= length_s:
            raise UserError(
                message(
                    "--fault {text}: the recording ends after {length}; name an earlier time",
                    text=text,
                    length=duration(length_s),
                )
            )
    return steps


def _step(text: str) -> ScenarioStep:
    """`30m:spot-interruption:2`: so long after the start, what, and how many instances."""
    from dovetail.lab.durations import Seconds, seconds
    from dovetail.lab.faults.kinds import KINDS, InjectedFault, unknown
    from dovetail.lab.scenario.schema import Interrupt, ScenarioStep, Vanish

    match = _FAULT.fullmatch(text)
    if match is None:
        raise UserError(message("--fault {text}: write when and what, as 30m:spot-interruption:2", text=text))
    try:
        when = seconds(match["at"])
    except ValueError as problem:
        raise UserError(f"--fault {text}: {problem}") from problem
    kind, count = match["kind"], int(match["amount"] or 1)
    if kind == "spot-interruption":
        return ScenarioStep(at=when, interrupt=Interrupt(instances=count))
    if kind == "instances-vanish":
        return ScenarioStep(at=when, vanish=Vanish(instances=count))
    if kind not in KINDS:
        raise UserError(str(unknown(kind, (*KINDS, "spot-interruption", "instances-vanish"))))
    length = Seconds(count) if match["amount"] else Seconds(60)
    return ScenarioStep(at=when, fault=InjectedFault(kind=kind, node="*" if KINDS[kind].node else "", seconds=length))
