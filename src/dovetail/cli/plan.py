"""`dovetail plan`: which nodes pods need, and what they cost, from files or from a cluster."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from math import isfinite
from typing import TYPE_CHECKING

import click

from dovetail.cli.terminal import printable, waiting
from dovetail.errors import UserError
from dovetail.language import english, message
from dovetail.language.system_errors import system_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.model.instance_type import InstanceType
    from dovetail.planner.consolidate.policy import ConsolidationPolicy
    from dovetail.planner.optimise.improve import Optimiser
    from dovetail.planner.plan import Plan
    from dovetail.planner.snapshot import Snapshot

#: So many pods take a while.
MANY = 200


@click.command()
@click.option("-f", "--filename", "paths", multiple=True, metavar="PATH", help="A file, a folder, or - for the input.")
@click.argument("more", nargs=-1, metavar="[PATH]...")
@click.option("--catalog", metavar="FILE", help="Instance types as a JSON array, instead of the packaged catalogue.")
@click.option("--region", help="Region of the packaged catalogue; else the input's, AWS_REGION, or ap-northeast-2.")
@click.option(
    "--deadline",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Time to better the quick answer in; by default 0.5 to 2.5, with --consolidate 1 to 4, by the number of pods.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="As text, also what else each node may become, and why nothing cheaper would do.",
)
@click.option(
    "--consolidate",
    "consolidating",
    is_flag=True,
    help="Plan what a cluster could terminate: kubectl's, unless files or another are named.",
)
@click.option("--svg", metavar="FILE", help="Also write the planned nodes with their pods as a picture.")
@click.option("--kubeconfig", metavar="FILE", help="Read the objects from a cluster.")
@click.option("--context", help="Context of the kubeconfig.")
def plan(
    paths: tuple[str, ...],
    more: tuple[str, ...],
    catalog: str | None,
    region: str | None,
    deadline: float | None,
    seed: int,
    output: str,
    verbose: bool,
    consolidating: bool,
    svg: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Say which nodes pods need, and what they cost.

    PATHs hold pods or what makes them, and as much of a cluster as matters: NodePools, Nodes, DaemonSets, volumes.
    Without a NodePool, current general instance types are launched on demand.

    Exit status: 0 every pod has a place, 1 some pod has none, 2 the input is wrong.
    """
    from dovetail.cloud.aws.catalog import load
    from dovetail.offline import snapshot as snapshot_module
    from dovetail.offline.objects import read
    from dovetail.offline.region import region_of
    from dovetail.offline.warnings import notes

    if deadline is not None and not isfinite(deadline):
        raise _not_seconds(deadline, consolidating)
    asking = bool(kubeconfig or context) or (consolidating and not paths and not more)
    if not (paths or more or asking):
        raise UserError(
            message("nothing to plan: name files with -f PATH, or a cluster with --kubeconfig or --context")
        )
    objects = read((*paths, *more))
    if asking:
        from dovetail.cli import cluster_objects

        cluster_objects.read(objects, kubeconfig, context)
    region = "" if catalog else region_of(region, objects)
    types = snapshot_module.catalogue(catalog) if catalog else load(region)
    snapshot = snapshot_module.snapshot(objects, types, any_type=bool(catalog), region=region)
    policy = None
    if consolidating:
        from dovetail.clock import wall
        from dovetail.offline.consolidation import fleet

        snapshot, policy = fleet(objects, snapshot, wall())
    for note in notes(objects, region, snapshot, consolidating):
        click.echo(printable(message("note: {note}", note=note)), err=True)
    pods = len(snapshot.pending) + (sum(len(node.pods) for node in snapshot.nodes) if consolidating else 0)
    shown = waiting(message("planning for {pods} pods …", pods=pods)) if pods > MANY else nullcontext()
    with shown, english():  # a plan is data: its texts are translated where they are shown
        solved = _solve(snapshot, seed, deadline, pods, policy)
    if svg is not None:
        _draw(solved, snapshot, consolidating, svg)
    for piece in _printed(solved, types if region else (), snapshot, output, consolidating, verbose):
        click.echo(piece, nl=False)
    sys.exit(1 if solved.unschedulable else 0)


def _solve(
    snapshot: Snapshot, seed: int, deadline: float | None, pods: int, policy: ConsolidationPolicy | None
) -> Plan:
    """A deadline that is asked for is kept by the clock; else plans are the same however busy the host is."""
    from dovetail.planner.optimise.improve import CLOCK_SLACK, better, default_deadline, default_optimiser
    from dovetail.planner.provision import provision

    if policy is not None:
        from dovetail.planner.consolidate.search import consolidate
        from dovetail.planner.consolidate.search import default_deadline as default_of_consolidation

        if deadline is None:
            return consolidate(snapshot, seed, default_of_consolidation(pods), policy, CLOCK_SLACK)
        return consolidate(snapshot, seed, deadline, policy)
    optimiser: Optimiser = better
    if deadline is None:
        deadline, optimiser = default_deadline(pods), default_optimiser(pods)
    return provision(snapshot, seed=seed, deadline=deadline or None, optimiser=optimiser)


def _not_seconds(deadline: float, consolidating: bool) -> UserError:
    """What is wrong with a deadline that is no finite number, and what the default is."""
    if consolidating:
        from dovetail.planner.consolidate.search import MAX_DEFAULT_DEADLINE_S, MIN_DEFAULT_DEADLINE_S
    else:
        from dovetail.planner.optimise.improve import MAX_DEFAULT_DEADLINE_S, MIN_DEFAULT_DEADLINE_S
    return UserError(
        message(
            "--deadline: {deadline} is no number of seconds; leave it out for the default of {least} to {most}",
            deadline=deadline,
            least=f"{MIN_DEFAULT_DEADLINE_S:g}",
            most=f"{MAX_DEFAULT_DEADLINE_S:g}",
        )
    )


def _draw(solved: Plan, snapshot: Snapshot, consolidating: bool, file: str) -> None:
    from pathlib import Path

    from dovetail.cli.plan_svg import as_svg

    try:
        Path(file).write_text(as_svg(solved, snapshot, consolidating), encoding="utf-8")
    except OSError as problem:
        raise UserError(
            message("--svg {file}: {why}; name a file that can be written", file=file, why=system_error(problem))
        ) from problem


def _printed(
    solved: Plan, types: tuple[InstanceType, ...], snapshot: Snapshot, output: str, consolidating: bool, verbose: bool
) -> Iterator[str]:
    """`types` are those whose prices have a source worth telling."""
    from dovetail.cli.plan_text import sources_of

    sources = sources_of(solved, types)
    if output == "text":
        from dovetail.cli.plan_text import as_text

        yield printable(as_text(solved, snapshot.nodes if consolidating else None, verbose, sources))
        yield "\n"
        return
    from dovetail.cli.plan_json import json_pieces, yaml_pieces

    yield from (json_pieces if output == "json" else yaml_pieces)(solved, consolidating, sources)
    if output == "json":
        yield "\n"
