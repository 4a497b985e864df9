"""`dovetail compare`: one workload on Cluster Autoscaler, Karpenter and Dovetail, with and without HPA and VPA."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dovetail.errors import UserError
from dovetail.language import current, message, translated

if TYPE_CHECKING:
    from dovetail.cli.compare_on_kubernetes import JobOptions
    from dovetail.studies.report import StudyComparison
    from dovetail.studies.run import Run
    from dovetail.studies.setups import Setup
    from dovetail.studies.sources import WorkloadSource
    from dovetail.studies.study import OnProgress, RunCache, Task
    from dovetail.studies.workloads.workload import Workload

#: The page that is written where none is named.
DEFAULT_PAGE = Path("dovetail-compare.html")
_FILE = click.Path(path_type=Path, dir_okay=False)
_CACHE_HELP = "Folder or s3://BUCKET/PREFIX of kept runs; the user's cache directory if left out."
_PART_HELP = "Run only this part of the runs, keep them, and print nothing; with -o json, a line for each."
_ON_HELP = "kubernetes runs the study as an Indexed Job in a cluster, and collects its runs."
_RESULTS_HELP = "PersistentVolumeClaim or s3://BUCKET/PREFIX that the Job's pods keep their runs in as well."
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
@click.option("--cache", "folder", default=None, metavar="DIR", help=_CACHE_HELP)
@click.option("--part", callback=_part, default=None, metavar="I/N", help=_PART_HELP)
@click.option("--on", "place", type=click.Choice(["here", "kubernetes"]), default="here", help=_ON_HELP)
@click.option("--image", default=None, help="Image of the pods, with --on kubernetes.")
@click.option("-n", "--namespace", default=None, help="Namespace of the Job; default if left out.")
@click.option("--service-account", default=None, metavar="NAME", help="Service account of the pods.")
@click.option("--results", default=None, metavar="PLACE", help=_RESULTS_HELP)
@click.option("--dry-run", is_flag=True, help="With --on kubernetes: print the Job, for kubectl apply.")
@click.option("--kubeconfig", metavar="FILE", help="The cluster of the Job; kubectl's by default.")
@click.option("--context", help="Context of the kubeconfig.")
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
    folder: str | None,
    part: tuple[int, int] | None,
    place: str,
    image: str | None,
    namespace: str | None,
    service_account: str | None,
    results: str | None,
    dry_run: bool,
    kubeconfig: str | None,
    context: str | None,
    no_cache: bool,
    listing: bool,
) -> None:
    """Compare node autoscalers on one workload, in virtual time.

    WORKLOAD is a scenario file or a built-in one (see --list); `web` if left out. Prints a table and writes a page with
    charts and with the advantages and disadvantages that were measured. Runs are kept: the same comparison again takes
    no time, and an interrupted one goes on where it was.
    """
    if listing:
        _list_workloads()
        return
    from dovetail.cli.compare_on_kubernetes import JobOptions, manifests, print_manifests
    from dovetail.studies import study
    from dovetail.studies.report import StudyComparison
    from dovetail.studies.setups import all_setups, parse

    with _user_errors(no_cache):
        source = _source(workload, recording, place)
        base = source.workload(first)
        setups = tuple(map(parse, chosen)) or all_setups(hpa=base.has_hpa, vpa=base.has_vpa)
        _check_setups(setups, base)
        tasks = study.tasks(source, setups, range(first, first + seeds))
        job = JobOptions(image, namespace, service_account, results, dry_run, kubeconfig, context)
        if place != "kubernetes":
            job.refuse_here()
        if no_cache and (folder is not None or part is not None or place == "kubernetes"):
            raise click.UsageError(message("--no-cache keeps nothing; leave it out, or --cache, --part and --on"))
        objects = manifests(source, _options(chosen, seeds, first), tasks, job) if place == "kubernetes" else []
        if dry_run:
            print_manifests(objects)
            return
        if part is not None:
            tasks = tasks[part[0] :: part[1]]
        target = None if part is not None else page or (DEFAULT_PAGE if form == "text" else None)
        _check_writable(target)
        runs = _execute(tasks, _cache(folder, no_cache), job, objects, jobs or os.cpu_count() or 1)
    if part is None:
        _show(StudyComparison(base, tuple(runs), _command(source, chosen, seeds, first, current())), form, target)
    elif form == "json":
        _print_part(tasks, runs)


def _list_workloads() -> None:
    from dovetail.studies.workloads.built_in import BUILT_IN

    for name, built_in in BUILT_IN.items():
        click.echo(f"{name:<14} {translated(built_in.about)}")


def _execute(
    tasks: Sequence[Task], kept: RunCache, job: JobOptions, objects: Sequence[dict[str, Any]], processes: int
) -> list[Run]:
    """The runs of all tasks; those of a Job are collected first, where `objects` are its manifests."""
    from dovetail.cli.compare_on_kubernetes import collect
    from dovetail.studies import study

    with _progress() as on_progress:
        if objects:
            collect(objects, tasks, kept, job, on_progress)
        return study.execute(tasks, processes, kept, on_progress)


@contextmanager
def _user_errors(no_cache: bool) -> Iterator[None]:
    """A wrong scenario or set-up, and an interrupt, as what the user reads."""
    from dovetail.lab.scenario.schema import ScenarioError
    from dovetail.studies.setups import UnknownSetup

    try:
        yield
    except (ScenarioError, UnknownSetup) as error:
        raise UserError(str(error)) from error
    except KeyboardInterrupt:
        if no_cache:
            raise UserError(message("interrupted")) from None
        raise UserError(message("interrupted; finished runs are kept: the same command goes on from here")) from None


def _print_part(tasks: Sequence[Task], runs: Sequence[Run]) -> None:
    """A line for each run of a part, as the collector of a Job reads it."""
    from dovetail.studies.job_collection import log_line

    for task, run in zip(tasks, runs, strict=True):
        click.echo(log_line(task.key(), run))


def _check_setups(setups: Iterable[Setup], base: Workload) -> None:
    """Refuse a set-up with a pod autoscaler that the workload has no object of."""
    from dovetail.studies.setups import UnknownSetup

    for setup in setups:
        if (setup.hpa and not base.has_hpa) or (setup.vpa and not base.has_vpa):
            raise UnknownSetup(
                message(
                    "{setup}: {scenario} has no object of such a pod autoscaler among its manifests",
                    setup=setup.name,
                    scenario=base.name,
                )
            )


def _show(comparison: StudyComparison, form: str, target: Path | None) -> None:
    """Print the comparison and write its page; ends with 1 where a run had problems."""
    from dovetail.studies.report import Report

    report = Report(comparison, current())
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
        click.echo("\n" + message("page: {target}", target=target))
    problems = sorted({f"{run.setup.title}: {problem}" for run in comparison.runs for problem in run.problems})
    for problem in problems:
        click.echo(message("problem: {problem}", problem=problem), err=True)
    if problems:
        raise SystemExit(1)


def _source(workload: str | None, recording: Path | None, place: str) -> WorkloadSource:
    from dovetail.studies import sources

    if recording is None:
        return sources.source(workload or sources.DEFAULT)
    if workload is not None:
        raise UserError(message("WORKLOAD and --recording both name what is compared; leave one of them out"))
    if place == "kubernetes":
        raise UserError(message("--recording: a recording does not go along to Kubernetes; compare it here"))
    return sources.WorkloadSource(str(recording), recorded=True)


def _cache(named: str | None, no_cache: bool) -> RunCache:
    """Where runs are kept."""
    from dovetail.studies import study

    if named is not None and named.startswith(study.OBJECT_STORE):
        return study.ObjectStoreCache(named)
    folder = Path(named) if named is not None else study.cache_folder()
    if folder.exists() and not folder.is_dir():
        raise UserError(message("--cache {folder}: is a file; name a folder", folder=folder))
    return study.FolderCache(None if no_cache else folder)


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


def _command(source: WorkloadSource, chosen: tuple[str, ...], seeds: int, first: int, language: str) -> str:
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
        raise UserError(
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

    from dovetail.studies.study import StudyProgress

    with Console(stderr=True).status(message("starting …")) as status:

        def show(progress: StudyProgress) -> None:
            left = (
                message(", about {seconds:.0f} s left", seconds=progress.left_s) if progress.left_s is not None else ""
            )
            status.update(message("{done} of {total} runs{left}", done=progress.done, total=progress.total, left=left))

        yield show
