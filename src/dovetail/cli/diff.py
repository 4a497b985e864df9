"""`dovetail diff`: what would change if these manifests were applied, before they are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from dovetail.cli.terminal import waiting
from dovetail.errors import UserError
from dovetail.language import message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.cli.diff_inputs import Input
    from dovetail.model.instance_type import InstanceType
    from dovetail.offline.diff.changes import DiffOptions
    from dovetail.offline.diff.cluster import Json
    from dovetail.offline.diff.limits import Limit
    from dovetail.offline.diff.prediction import Prediction
    from dovetail.studies.what_if.run import WhatIfInput

#: As terraform's detailed exit status has them; a limit that is exceeded has its own.
UNCHANGED, FAILED, CHANGED, EXCEEDED = 0, 1, 2, 3


def _fail(problem: click.ClickException) -> NoReturn:
    problem.show()
    raise click.exceptions.Exit(FAILED) from problem


class _DiffCommand(click.Command):
    """Errors end with 1: 2 says that there are changes."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)
        except click.ClickException as problem:
            _fail(problem)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as problem:
            _fail(problem)


@click.command(cls=_DiffCommand)
@click.option("-f", "--filename", "paths", multiple=True, metavar="PATH", help="Manifests to apply: file, folder or -.")
@click.option("--delete", "deletions", multiple=True, metavar="KIND/NAME", help="Delete an object.")
@click.option("--scale", "replicas", multiple=True, metavar="KIND/NAME=N", help="Scale a Deployment or StatefulSet.")
@click.option("--ami", "images", multiple=True, metavar="[NODECLASS=]AMI", help="NodeClasses resolve to another AMI.")
@click.option("--kubernetes-version", metavar="VERSION", help="Upgrade the control plane: AMIs of aliases change.")
@click.option("--price", "prices", multiple=True, metavar="TYPE=DOLLARS", help="Another price, $/h or such as +10%.")
@click.option("--price-file", metavar="FILE", help="Prices, one TYPE[/ZONE][/CAPACITY]=DOLLARS a line.")
@click.option(
    "--sold-out", multiple=True, metavar="TYPE", help="An offering is sold out: TYPE[/ZONE][/CAPACITY], or */ZONE."
)
@click.option("--lose-zone", "lost_zones", multiple=True, metavar="ZONE", help="A zone fails with all its instances.")
@click.option(
    "--cluster-from",
    "sources",
    multiple=True,
    metavar="PATH",
    help="The cluster's objects from files, not an API server.",
)
@click.option("--recording", metavar="FILE", help="The cluster from a recording of `dovetail record`.")
@click.option("--at", "instant", metavar="TIME", help="Which moment of the recording; its last by default.")
@click.option("--catalog", metavar="FILE", help="Instance types as a JSON array, instead of the packaged catalogue.")
@click.option("--region", help="Region of the packaged catalogue; else the cluster's, AWS_REGION, or ap-northeast-2.")
@click.option("--horizon", default="24h", show_default=True, metavar="TIME", help="How far to look at most.")
@click.option("--boot-time", default="35s", show_default=True, metavar="TIME", help="From launch to a Ready node.")
@click.option("--fail-on", metavar="LIMITS", help="End with status 3 beyond a limit: evictions>10,cost>+5%.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Every node, object and command.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--name", "lab", default=None, metavar="LAB", help="Ask the lab of this name.")
@click.option("--kubeconfig", metavar="FILE", help="The cluster; kubectl's by default.")
@click.option("--context", help="Context of the kubeconfig.")
def diff(
    paths: tuple[str, ...],
    deletions: tuple[str, ...],
    replicas: tuple[str, ...],
    images: tuple[str, ...],
    kubernetes_version: str | None,
    prices: tuple[str, ...],
    price_file: str | None,
    sold_out: tuple[str, ...],
    lost_zones: tuple[str, ...],
    sources: tuple[str, ...],
    recording: str | None,
    instant: str | None,
    catalog: str | None,
    region: str | None,
    horizon: str,
    boot_time: str,
    fail_on: str | None,
    output: str,
    verbose: bool,
    seed: int,
    lab: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Say what would change if manifests were applied to a cluster.

    Reads the cluster, applies the change to a copy of it in virtual time, and runs Dovetail's controllers there until
    it is at rest: which nodes come and go and why, evictions under which budgets, dollars, pods without a node. Nothing
    is written to the cluster.

    Exit status: 0 no changes, 2 changes, 3 changes beyond a limit of --fail-on, 1 an error.
    """
    from dovetail.cli import diff_inputs as inputs
    from dovetail.offline.diff import changes, limits

    options = changes.DiffOptions(
        deletions=deletions,
        replicas=replicas,
        prices=prices,
        price_lines=inputs.price_lines(price_file),
        sold_out=sold_out,
        lost_zones=lost_zones,
        images=images,
        kubernetes_version=kubernetes_version,
    )
    bounds = limits.read(fail_on) if fail_on else ()
    horizon_s, boot_s = inputs.seconds("--horizon", horizon), inputs.seconds("--boot-time", boot_time)
    documents = inputs.manifests(paths)
    if not documents and options == changes.DiffOptions():
        raise _nothing_to_compare()
    read = _source(sources, recording, instant, lab, kubeconfig, context)
    setup = _setup(read, inputs.instance_types(read, catalog, region), horizon_s, boot_s, seed)
    sys.exit(_print(_predict(setup, read, documents, options), bounds, output, verbose))


def _setup(
    read: Input, types: tuple[tuple[InstanceType, ...], str], horizon_s: float, boot_s: float, seed: int
) -> WhatIfInput:
    from dovetail.cli import diff_inputs as inputs
    from dovetail.offline.diff.cluster import complete
    from dovetail.studies.what_if.run import WhatIfInput

    return WhatIfInput(
        cluster=complete(read.objects),
        types=types[0],
        region=types[1],
        now=read.now,
        horizon_s=horizon_s,
        market=inputs.market(boot_s),
        seed=seed,
    )


def _predict(setup: WhatIfInput, read: Input, documents: Sequence[Json], options: DiffOptions) -> Prediction:
    """What the change does to the cluster; a change that is empty is refused."""
    from dovetail.offline.diff import changes
    from dovetail.studies.what_if.predict import predict

    by_name = {instance_type.name: instance_type for instance_type in setup.types}
    change = changes.read_change(map(read.narrow, documents), options, setup.cluster, by_name)
    if change.empty:
        raise _nothing_to_compare()
    with waiting(message("running the cluster in virtual time …")):
        return predict(setup, change)


def _nothing_to_compare() -> UserError:
    return UserError(
        message("nothing to compare: name manifests with -f, or a change such as --scale deployment/web=50")
    )


def _print(prediction: Prediction, bounds: Sequence[Limit], output: str, verbose: bool) -> int:
    """Print the prediction and the limits that it exceeds; returns the exit status."""
    from dovetail.offline.diff.prediction import summary

    exceeded = [limit for limit in bounds if limit.exceeded(summary(prediction))]
    click.echo(_report(prediction, exceeded, output, verbose))
    for limit in exceeded:
        click.echo(message("limit exceeded: {limit}", limit=limit.text), err=True)
    return EXCEEDED if exceeded else CHANGED if prediction.changed else UNCHANGED


def _source(
    files: tuple[str, ...],
    recording: str | None,
    instant: str | None,
    lab: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> Input:
    from dovetail.cli import diff_inputs as inputs
    from dovetail.cli.cluster_session import kubeconfig as chosen

    if bool(files) + bool(recording) + bool(lab or kubeconfig or context) > 1:
        raise UserError(
            message("--cluster-from, --recording, --name and --kubeconfig all say which cluster; leave one")
        )
    if instant is not None and recording is None:
        raise UserError(message("--at names a moment of a recording; name that with --recording"))
    if recording is not None:
        return inputs.from_recording(recording, instant)
    return inputs.from_files(files) if files else inputs.from_cluster(chosen(kubeconfig, lab), context)


def _report(prediction: Prediction, exceeded: Sequence[Limit], output: str, verbose: bool) -> str:
    if output == "json":
        from dovetail.offline.diff.report_json import as_json

        return as_json(prediction, exceeded)
    if output == "markdown":
        from dovetail.offline.diff.report_markdown import as_markdown

        return as_markdown(prediction, exceeded, verbose=verbose)
    from dovetail.offline.diff.report_text import as_text

    return as_text(prediction, verbose=verbose)
