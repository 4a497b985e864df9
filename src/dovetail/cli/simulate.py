"""`dovetail simulate FILE` or `--random SEED`: a scenario in virtual time, with a table, JSON and a log."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from dovetail.cli.terminal import waiting
from dovetail.errors import UserError
from dovetail.language import columns, english, message, source
from dovetail.language.recognition import recognized
from dovetail.language.system_errors import system_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.lab.cluster import Extra
    from dovetail.lab.scenario.runner import ScenarioOutcome
    from dovetail.lab.scenario.schema import Scenario
    from dovetail.studies.recorded.lab_recorder import LabRecorder

_FILE = click.Path(path_type=Path, dir_okay=False)
#: How often a recording of the run is written, in seconds of the run: a page over it follows in such steps.
RECORD_FLUSH_S = 60.0


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--random", "drawn", type=int, default=None, metavar="SEED", help="Workloads and faults of a seed.")
@click.option("--seed", type=int, default=None, help="Another seed than the file's.")
@click.option("-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
@click.option("--log", type=_FILE, default=None, help="Write what happened, line by line, to this file.")
@click.option("--record", "target", type=_FILE, default=None, help="Record the run, for the dashboard and replay.")
@click.option("--report", type=_FILE, default=None, help="Write a page with charts to this file.")
@click.option("--check", is_flag=True, help="Only check the file.")
def simulate(
    file: Path | None,
    drawn: int | None,
    seed: int | None,
    form: str,
    as_json: bool,
    log: Path | None,
    target: Path | None,
    report: Path | None,
    check: bool,
) -> None:
    """Run a scenario in virtual time.

    Exit status: 0 all went as it should, 1 a step, an expectation or an invariant failed, 2 the scenario is wrong.
    """
    # Of a million objects that a simulation makes, some five hundred end in cycles: searching for them costs far more
    # than they do. So the collector does not run before the heap has grown by as much as some ten thousand pods are.
    gc.set_threshold(1_000_000, 50, 1000)

    from dovetail.lab.scenario import validation
    from dovetail.lab.scenario.schema import ScenarioError, read
    from dovetail.studies.scenario_report import Samples, html

    if (file is None) == (drawn is None):
        raise click.UsageError(message("give a scenario FILE, or --random SEED"))
    try:
        scenario = read(file) if file is not None else _drawn(drawn or 0)
        folder = file.parent if file is not None else Path()
        validation.check(scenario, folder, str(file))
        if check:
            _print_size(scenario, str(file or message("seed {seed}", seed=drawn)))
            return
        samples = Samples(scenario.duration)
        extras: list[Extra] = [samples.run] if report is not None else []
        if target is not None:
            extras.append(_recorder(scenario, seed, target).run)
        with (
            _opened("--log", log) as story,
            _opened("--report", report) as page,
            waiting(message("playing {span} …", span=_span(scenario.duration))),
        ):
            outcome, lines = _play(scenario, folder, seed, extras)
            story.writelines(f"{line}\n" for line in lines)
            if report is not None:
                page.write(html(outcome, samples.rows, _command(file, drawn, seed)))
    except ScenarioError as error:
        raise UserError(str(error)) from error
    if as_json or form == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(outcome), indent=2).decode())
    else:
        _table(outcome)
    if outcome.problems:
        raise SystemExit(1)


def _print_size(scenario: Scenario, name: str) -> None:
    steps, span = len(scenario.steps), _span(scenario.duration)
    click.echo(message("{name}: a scenario of {count} steps over {span}", name=name, count=steps, span=span))


def _opened(option: str, path: Path | None) -> TextIO:
    """Where the log or the page goes: opened before the day begins, so that a wrong name costs no day."""
    try:
        return (path or Path(os.devnull)).open("w", encoding="utf-8")
    except OSError as error:
        raise UserError(
            message(
                "{option} {path}: {strerror}; name a file that can be written",
                option=option,
                path=path,
                strerror=system_error(error),
            )
        ) from error


def _command(file: Path | None, drawn: int | None, seed: int | None) -> str:
    chosen = str(file) if file is not None else f"--random {drawn}"
    return f"dovetail simulate {chosen}" + (f" --seed {seed}" if seed is not None else "")


def _span(seconds: float) -> str:
    if seconds % 3600 == 0:
        return message("{hours:g} h", hours=seconds / 3600)
    return message("{minutes:g} min", minutes=seconds / 60)


def _drawn(seed: int) -> Scenario:
    from dovetail.lab.scenario import random_scenarios

    return random_scenarios.scenario(seed)


def _recorder(scenario: Scenario, seed: int | None, target: Path) -> LabRecorder:
    """What records the run. The file is named after what was asked: the same run gives the same bytes."""
    import hashlib

    import msgspec

    from dovetail.offline.recorder import RecorderSettings
    from dovetail.offline.recording.writer import check_absent
    from dovetail.studies.recorded.lab_recorder import LabRecorder, LabRecording

    check_absent(target)
    encoded_inputs = msgspec.msgpack.encode((scenario, seed), order="deterministic", enc_hook=float)
    return LabRecorder(
        LabRecording(
            path=target,
            cluster=scenario.name or "simulation",
            identity=hashlib.blake2b(encoded_inputs, digest_size=16).digest(),
            source="simulation",
            settings=RecorderSettings(flush_interval_s=RECORD_FLUSH_S),
        )
    )


def _play(
    scenario: Scenario, folder: Path, seed: int | None, extras: Sequence[Extra]
) -> tuple[ScenarioOutcome, list[str]]:
    from dovetail.clock import run_virtual
    from dovetail.kube import log
    from dovetail.lab.scenario.runner import play

    log.silence()
    if scenario.autoscaler is not None:  # its parts log for operators
        from dovetail.cli.terminal import quiet_logs

        quiet_logs()
    lines: list[str] = []
    try:
        with english():  # what the cluster writes; the outcome is shown afterwards
            return run_virtual(play(scenario, folder, lines.append, seed, extras)), lines
    finally:
        gc.freeze()  # the process ends soon: a cluster need not be taken apart for that


_TITLES = (source("time"), source("nodes"), source("pods"), source("ready"), source("pending"), source("failed"))


def _table(outcome: ScenarioOutcome) -> None:
    if outcome.name:
        click.echo(outcome.name)
    table = [tuple(message(title) for title in _TITLES)]
    for row in outcome.rows:
        whole = int(row.at)
        clock = f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
        nodes = str(row.nodes) if row.nodes == row.nodes_ready else f"{row.nodes_ready}/{row.nodes}"
        table.append((clock, nodes, str(row.pods), str(row.ready), str(row.pending), str(row.failed)))
    widths = [max(map(columns.width_of, column)) for column in zip(*table, strict=True)]
    for line in table:
        click.echo("  ".join(columns.right(cell, width) for cell, width in zip(line, widths, strict=True)))
    created = outcome.totals.get("pods created", 0)
    mean = outcome.pods_pending_seconds / created if created else 0.0
    click.echo(
        message(
            "{created} pods made, {gone} gone; waited {mean:.1f} s on average",
            created=created,
            gone=outcome.totals.get("pods gone", 0),
            mean=mean,
        )
    )
    if outcome.dollars is not None:
        launched, terminated = (
            outcome.totals.get("instances launched", 0),
            outcome.totals.get("instances terminated", 0),
        )
        click.echo(
            message(
                "{launched} nodes launched, {terminated} terminated, ${dollars:.2f} spent",
                launched=launched,
                terminated=terminated,
                dollars=outcome.dollars,
            )
        )
    for problem in outcome.problems:
        click.echo(message("problem: {problem}", problem=recognized(problem)), err=True)
