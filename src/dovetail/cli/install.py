"""`dovetail install`: everything an EKS cluster needs for Dovetail, planned, made, and repeatable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.language import message

if TYPE_CHECKING:
    from dovetail.cli.installing import InstallSession
    from dovetail.install.plan import InstallOptions
    from dovetail.install.steps import Account
    from dovetail.kube.config import Connection


@click.command()
@click.argument("program", type=click.Choice(["dovetail", "cluster-autoscaler", "vpa"]), default="dovetail")
@click.option("--cluster", default=None, help="Name of the EKS cluster; found by the kubeconfig if left out.")
@click.option("--region", default=None, help="Region; default as the AWS command's, or the cluster's.")
@click.option("-n", "--namespace", default="karpenter", show_default=True)
@click.option("--release", "name", default="karpenter", show_default=True, help="Name of the objects.")
@click.option(
    "-f",
    "--values",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Values of Karpenter's or our chart; may be repeated.",
)
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="One value, as Helm's --set.")
@click.option("--no-node-pool", is_flag=True, help="Make no first NodePool and EC2NodeClass.")
@click.option("--take-over", is_flag=True, help="Replace a running Karpenter in place; no node is replaced.")
@click.option("--hand-back", is_flag=True, help="Return to the Karpenter that was taken over.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; touch nothing.")
@click.option("--print", "printed", is_flag=True, help="Print the manifests, and do nothing.")
@click.option(
    "--wait",
    "wait_s",
    default=300.0,
    type=click.FloatRange(min=0),
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the controller; 0 does not wait.",
)
@click.option("--kubeconfig", default=None, help="Kubeconfig file; default as kubectl's.")
@click.option("--context", default=None, help="Context of the kubeconfig.")
@click.option("-v", "--verbose", is_flag=True, help="Show the aws or kubectl command of each step.")
def install(
    program: str,
    cluster: str | None,
    region: str | None,
    namespace: str,
    name: str,
    files: tuple[Path, ...],
    sets: tuple[str, ...],
    no_node_pool: bool,
    take_over: bool,
    hand_back: bool,
    dry_run: bool,
    printed: bool,
    wait_s: float,
    kubeconfig: str | None,
    context: str | None,
    verbose: bool,
) -> None:
    """Install Dovetail into an existing EKS cluster, with all it needs at AWS and a first NodePool.

    PROGRAM may be cluster-autoscaler, or vpa for the Vertical Pod Autoscaler, which needs nothing at AWS.

    Each part is read first: what is there stays, what is missing is made. Repeat the command after an interruption.
    """
    from dovetail.cli.installing import InstallSession, checked_namespace, run_in_session
    from dovetail.errors import UserError
    from dovetail.install.chart import Release, ValuesError
    from dovetail.install.plan import InstallOptions
    from dovetail.install.values import read_values

    session = InstallSession(cluster, region, kubeconfig, context, dry_run, verbose)
    if program == "cluster-autoscaler":
        from dovetail.cli import install_cluster_autoscaler as autoscaler

        autoscaler.install(session, checked_namespace(program), printed=printed, wait_s=wait_s)
        return
    if program == "vpa":
        from dovetail.cli import install_vpa as vertical

        vertical.install(session, checked_namespace(program, "cluster", "region"), printed=printed, wait_s=wait_s)
        return
    if take_over and hand_back:
        raise click.UsageError(message("--take-over and --hand-back are opposites; give one"))
    try:
        values = read_values(list(files), list(sets))
    except ValuesError as problem:
        raise UserError(str(problem)) from problem
    options = InstallOptions(release=Release(name=name, namespace=namespace), values=values, node_pool=not no_node_pool)
    mode = "take-over" if take_over else "hand-back" if hand_back else "print" if printed else "install"

    async def talk(account: Account, connection: Connection) -> None:
        await _install(session, account, connection, options, mode, wait_s)

    run_in_session(session, talk)


async def _install(
    session: InstallSession,
    account: Account,
    connection: Connection,
    options: InstallOptions,
    mode: str,
    wait_s: float,
) -> None:
    from dovetail.cli.installing import print_manifests, print_outcome
    from dovetail.install import removal, run
    from dovetail.install.plan import plan
    from dovetail.install.take_over import plan_take_over, take_over

    discovered = await session.discover(account, connection, err=mode == "print")
    planned = plan_take_over(discovered, options) if mode in ("take-over", "hand-back") else plan(discovered, options)
    if mode == "print":
        print_manifests([*planned.cluster, *planned.first_pool])
        return
    if session.dry_run:
        if mode == "hand-back":
            changes = await run.removals(account, removal.parts_to_hand_back(discovered, planned))
        else:
            changes = await run.changes(account, [*planned.cloud, *planned.cluster, *planned.first_pool])
        session.print_plan(changes)
        return
    if mode == "hand-back":
        await removal.hand_back(account, discovered, planned, session.report, wait_s=wait_s)
        click.echo(message("handed back: Karpenter leads again"))
    elif mode == "take-over":
        await take_over(account, planned, session.report, wait_s=wait_s)
        click.echo(message("taken over; dovetail install --hand-back returns to Karpenter"))
    else:
        changed = await run.install(account, planned, session.report, wait_s=wait_s)
        print_outcome(changed)
        click.echo(planned.notes)
