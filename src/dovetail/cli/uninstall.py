"""`dovetail uninstall`: take away what `dovetail install` made, to the last tag."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.language import message

if TYPE_CHECKING:
    from dovetail.cli.installing import InstallSession
    from dovetail.install.plan import InstallOptions
    from dovetail.install.removal import Nodes
    from dovetail.install.steps import Account
    from dovetail.kube.config import Connection


@click.command()
@click.argument("program", type=click.Choice(["dovetail", "cluster-autoscaler", "vpa"]), default="dovetail")
@click.option("--cluster", default=None, help="Name of the EKS cluster; found by the kubeconfig if left out.")
@click.option("--region", default=None, help="Region; default as the AWS command's, or the cluster's.")
@click.option("-n", "--namespace", default="karpenter", show_default=True)
@click.option("--release", "name", default="karpenter", show_default=True)
@click.option(
    "-f",
    "--values",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Values that it was installed with.",
)
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE")
@click.option("--drain", is_flag=True, help="Move the pods of all nodes of ours, and end the nodes.")
@click.option("--keep-nodes", is_flag=True, help="Leave the nodes running without an autoscaler.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed; touch nothing.")
@click.option(
    "--wait",
    "wait_s",
    default=900.0,
    type=click.FloatRange(min=0),
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for nodes.",
)
@click.option("--kubeconfig", default=None, help="Kubeconfig file; default as kubectl's.")
@click.option("--context", default=None, help="Context of the kubeconfig.")
@click.option("-v", "--verbose", is_flag=True, help="Show the aws or kubectl command of each step.")
def uninstall(
    program: str,
    cluster: str | None,
    region: str | None,
    namespace: str,
    name: str,
    files: tuple[Path, ...],
    sets: tuple[str, ...],
    drain: bool,
    keep_nodes: bool,
    dry_run: bool,
    wait_s: float,
    kubeconfig: str | None,
    context: str | None,
    verbose: bool,
) -> None:
    """Remove Dovetail from a cluster and its account. What was there before the installation stays."""
    from dovetail.cli.installing import InstallSession, checked_namespace, run_in_session
    from dovetail.errors import UserError
    from dovetail.install.chart import Release, ValuesError
    from dovetail.install.plan import InstallOptions
    from dovetail.install.removal import Nodes
    from dovetail.install.values import read_values

    session = InstallSession(cluster, region, kubeconfig, context, dry_run, verbose)
    if program == "cluster-autoscaler":
        from dovetail.cli import install_cluster_autoscaler as autoscaler

        autoscaler.uninstall(session, checked_namespace(program, "wait_s"))
        return
    if program == "vpa":
        from dovetail.cli import install_vpa as vertical

        vertical.uninstall(session, checked_namespace(program, "cluster", "region", "wait_s"))
        return
    if drain and keep_nodes:
        raise click.UsageError(message("--drain and --keep-nodes are opposites; give one"))
    nodes = Nodes.DRAIN if drain else Nodes.KEEP if keep_nodes else Nodes.REFUSE
    try:
        values = read_values(list(files), list(sets))
    except ValuesError as problem:
        raise UserError(str(problem)) from problem
    options = InstallOptions(release=Release(name=name, namespace=namespace), values=values, removing=True)

    async def talk(account: Account, connection: Connection) -> None:
        await _uninstall(session, account, connection, options, nodes, wait_s)

    run_in_session(session, talk)


async def _uninstall(
    session: InstallSession,
    account: Account,
    connection: Connection,
    options: InstallOptions,
    nodes: Nodes,
    wait_s: float,
) -> None:
    from dovetail.cli.installing import print_removal
    from dovetail.install import removal, run
    from dovetail.install.plan import plan

    discovered = await session.discover(account, connection)
    planned = plan(discovered, options)
    planned_removal = removal.plan_removal(discovered, planned, nodes)
    if session.dry_run:
        order = planned_removal
        parts = [*planned.first_pool, *order.release, *order.definitions, *order.namespace, *order.cloud]
        session.print_plan(await run.removals(account, parts))
        return
    removed = await removal.uninstall(account, planned, planned_removal, nodes, session.report, wait_s=wait_s)
    print_removal(removed)
