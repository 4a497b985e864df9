"""`dovetail compare`: one workload on Cluster Autoscaler, Karpenter and Dovetail, with and without HPA and VPA."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.errors import Problem
from dovetail.language import current, message

if TYPE_CHECKING:
    from dovetail.studies.sources import Source
    from dovetail.studies.study import OnProgress

#: The page that is written where none is named.
DEFAULT_PAGE = Path("dovetail-compare.html")
_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_CACHE_HELP = "Folder of kept runs; the user's cache directory if left out."
_PART_HELP = "Run only this part of the runs, keep them, and print nothing."
_ON_HELP = "kubernetes prints an Indexed Job that runs the study, for kubectl apply."
_FORMS = ["text", "json", "markdown", "html"]
_SETUP_HELP = "Only this set-up, as karpenter or dovetail+hpa; repeat it for several."
_SEEDS_HELP = "Runs of each set-up; several give medians and spread."


def _part(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """`0/4`: the first of four parts."""
    if value is None:
        return None
    number, _, count = value.partition("/")
    if not number.isdigit() or not count.isdigit() or int(number) >= int(count):
        raise click.BadParameter(
            message("{value!r} is no part; write 0/4 for the first of four", value=value), ctx, param
        )
    return int(number), int(count)


@click.command()
@click.argument("workload", required=False)
@click.option("--recording", type=_FILE, default=None, help="Compare on what dovetail record recorded.")
@click.option("--setup", "chosen", multiple=True, metavar="NAME", help=_SETUP_HELP)
@click.option("--seeds", type=click.IntRange(1, 1000), default=1, show_default=True, help=_SEEDS_HELP)
@click.option("--seed", "first", type=int, default=1, show_default=True, help="The first seed.")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Processes at once; all cores if left out.")
@click.option("-o", "--output", "form", type=click.Choice(_FORMS), default="text", show_default=True)
@click.option("--page", type=_FILE, default=None, help="Where the page goes; dovetail-compare.html if left out.")
@click.option("--cache", "folder", type=_FOLDER, default=None, help=_CACHE_HELP)
@click.option("--part", callback=_part, default=None, metavar="I/N", help=_PART_HELP)
@click.option("--on", "place", type=click.Choice(["here", "kubernetes"]), default="here", help=_ON_HELP)
@click.option("--image", default=None, help="Image of the pods, with --on kubernetes.")
@click.option("--no-cache", is_flag=True, help="Run everything anew and keep nothing.")
@click.option("--list", "listing", is_flag=True, help="Show the built-in workloads.")
def compare(
    workload: str | None,
    recording: Path | None,
    chosen: tuple[str, ...],
    seeds: int,
    first: int,
    jobs: int | None,
    form: str,
    page: Path | None,
    folder: Path | None,
    part: tuple[int, int] | None,
    place: str,
    image: str | None,
    no_cache: bool,
    listing: bool,
) -> None:
    """Compare node autoscalers on one workload, in virtual time.

    WORKLOAD is a scenario file or a built-in one (see --list); `web` if left out. Prints a table and writes a page with
    charts and with the advantages and disadvantages that were measured. Runs are kept: the same comparison again takes
    no time, and an interrupted one goes on where it was.
    """
    from dovetail.studies.workloads.built_in import BUILT_IN

    language = current()
    if listing:
        for name, built_in in BUILT_IN.items():
            click.echo(f"{name:<14} {built_in.about[language]}")
        return
    from dovetail.lab.scenario.schema import ScenarioError
    from dovetail.studies import study
    from dovetail.studies.report import Comparison, Report
    from dovetail.studies.setups import UnknownSetup, all_setups, parse

    try:
        source = _source(workload, recording, place)
        base = source.workload(first)
        setups = tuple(map(parse, chosen)) or all_setups(hpa=base.has_hpa, vpa=base.has_vpa)
        for setup in setups:
            if (setup.hpa and not base.has_hpa) or (setup.vpa and not base.has_vpa):
                raise UnknownSetup(
                    f"{setup.name}: {base.name} has no object of such a pod autoscaler among its manifests"
                )
        wanted = study.tasks(source, setups, range(first, first + seeds))
        if place == "kubernetes":
            _print_job(source, chosen, seeds, first, len(wanted), image)
            return
        if image is not None:
            raise click.UsageError(message("--image needs --on kubernetes"))
        if no_cache and (folder is not None or part is not None):
            raise click.UsageError(message("--no-cache keeps nothing; leave it out, or --cache and --part"))
        if part is not None:
            wanted = wanted[part[0] :: part[1]]
        target = None if part is not None else page or (DEFAULT_PAGE if form == "text" else None)
        _check_writable(target)
        kept = study.RunCache(None if no_cache else folder or study.cache_folder())
        with _progress() as on_progress:
            runs = study.execute(wanted, jobs or os.cpu_count() or 1, kept, on_progress)
    except (ScenarioError, UnknownSetup) as error:
        raise Problem(str(error)) from error
    except KeyboardInterrupt:
        if no_cache:
            raise Problem(message("interrupted")) from None
        raise Problem(message("interrupted; finished runs are kept: the same command goes on from here")) from None
    if part is not None:
        return
    comparison = Comparison(base, tuple(runs), _command(source, chosen, seeds, first, language))
    report = Report(comparison, language)
    if target is not None:
        target.write_text(report.html(), encoding="utf-8")
    if form == "json":
        click.echo(comparison.to_json())
    elif form == "markdown":
        click.echo(report.markdown(), nl=False)
    elif form == "html":
        click.echo(report.html(), nl=False)
    else:
        click.echo(f"{report.title()}\n{report.lead()}\n")
        click.echo(report.table())
        click.echo("\n" + "\n".join(report.short()))
        click.echo(f"\npage: {target}")
    problems = sorted({f"{run.setup.title}: {problem}" for run in runs for problem in run.problems})
    for problem in problems:
        click.echo(f"problem: {problem}", err=True)
    if problems:
        raise SystemExit(1)


def _source(workload: str | None, recording: Path | None, place: str) -> Source:
    from dovetail.studies import sources

    if recording is None:
        return sources.source(workload or sources.DEFAULT)
    if workload is not None:
        raise Problem(message("WORKLOAD and --recording both name what is compared; leave one of them out"))
    if place == "kubernetes":
        raise Problem(message("--recording: a recording does not go along to Kubernetes; compare it here"))
    return sources.Source(str(recording), recorded=True)


def _print_job(source: Source, chosen: tuple[str, ...], seeds: int, first: int, parts: int, image: str | None) -> None:
    import yaml

    from dovetail.studies import indexed_job

    if image is None:
        raise click.UsageError(message("--on kubernetes needs --image: the image of this version of Dovetail"))
    found = indexed_job.manifests(source, _options(chosen, seeds, first), parts, image)
    click.echo(yaml.safe_dump_all(found, sort_keys=False, allow_unicode=True), nl=False)


def _options(chosen: tuple[str, ...], seeds: int, first: int) -> list[str]:
    """The options that decide which runs there are."""
    parts: list[str] = []
    for setup in chosen:
        parts += ["--setup", setup]
    if seeds != 1:
        parts += ["--seeds", str(seeds)]
    if first != 1:
        parts += ["--seed", str(first)]
    return parts


def _command(source: Source, chosen: tuple[str, ...], seeds: int, first: int, language: str) -> str:
    """The command that gives the same comparison."""
    named = ["--recording", source.name] if source.recorded else [source.name]
    parts = ["dovetail", "compare", *named, *_options(chosen, seeds, first)]
    if language != "en":
        parts += ["--lang", language]
    return shlex.join(parts)


def _check_writable(page: Path | None) -> None:
    """A wrong name should not cost a study."""
    folder = page.resolve().parent if page is not None else None
    if folder is not None and not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise Problem(
            message(
                "--page {page}: {folder} is not a folder that can be written; name a file in another one",
                page=page,
                folder=folder,
            )
        )


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """On a terminal, how far the study is and how long it probably takes; nothing otherwise."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console

    from dovetail.studies.study import Progress

    with Console(stderr=True).status("starting …") as status:

        def show(progress: Progress) -> None:
            left = f", about {progress.left_s:.0f} s left" if progress.left_s is not None else ""
            status.update(f"{progress.done} of {progress.total} runs{left}")

        yield show
