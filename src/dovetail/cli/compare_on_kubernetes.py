"""`dovetail compare --on kubernetes`: the study as an Indexed Job, applied, waited for and collected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from dovetail.errors import UserError
from dovetail.language import message

if TYPE_CHECKING:
    from dovetail.cli.cluster_session import ClusterSession
    from dovetail.studies.indexed_job import Json
    from dovetail.studies.run import Run
    from dovetail.studies.sources import WorkloadSource
    from dovetail.studies.study import OnProgress, RunCache, Task


class JobOptions(msgspec.Struct, frozen=True):
    """Options of the command that concern the Job."""

    image: str | None
    namespace: str | None
    service_account: str | None
    results: str | None
    dry_run: bool
    kubeconfig: str | None
    context: str | None

    def refuse_here(self) -> None:
        """An option of a Job needs one."""
        given = {
            "--image": self.image,
            "--namespace": self.namespace,
            "--service-account": self.service_account,
            "--results": self.results,
            "--dry-run": self.dry_run,
            "--kubeconfig": self.kubeconfig,
            "--context": self.context,
        }
        for option, value in given.items():
            if value:
                raise click.UsageError(message("{option} needs --on kubernetes", option=option))


def manifests(
    source: WorkloadSource, deciding: Sequence[str], tasks: Sequence[Task], options: JobOptions
) -> list[Json]:
    """The objects of the Job; `deciding` are the options that decide which runs there are."""
    from dovetail.studies import indexed_job

    if options.image is None:
        raise click.UsageError(message("--on kubernetes needs --image: the image of this version of Dovetail"))
    settings = indexed_job.JobSettings(
        image=options.image,
        namespace=options.namespace or "default",
        service_account=options.service_account or "",
        results=options.results or "",
    )
    return indexed_job.manifests(source, deciding, [task.key() for task in tasks], settings)


def print_manifests(objects: Sequence[Json]) -> None:
    import yaml

    click.echo(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True), nl=False)


def collect(
    objects: Sequence[Json], tasks: Sequence[Task], kept: RunCache, options: JobOptions, on_progress: OnProgress
) -> None:
    """Runs that are not kept here are made by the Job and kept."""
    from dovetail.cli.cluster_session import ask
    from dovetail.studies import job_collection
    from dovetail.studies.study import StudyProgress

    keys = [task.key() for task in tasks]
    present = {key for key in keys if kept.get(key) is not None}
    if len(present) == len(set(keys)):
        return

    def keep(key: str, run: Run) -> None:
        kept.put(key, run)
        present.add(key)
        on_progress(StudyProgress(len(present), len(keys), None))

    async def question(cluster: ClusterSession) -> None:
        await job_collection.collect(cluster.kube, objects, keys, keep)

    on_progress(StudyProgress(len(present), len(keys), None))
    try:
        ask(options.kubeconfig, options.context, question, progress=False)
    except KeyboardInterrupt:
        raise UserError(
            message(
                "interrupted; Job {name} goes on: the same command collects its runs",
                name=objects[-1]["metadata"]["name"],
            )
        ) from None
