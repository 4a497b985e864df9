"""`dovetail install`: everything an EKS cluster needs for Dovetail, planned, made, and repeatable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.language import message

if TYPE_CHECKING:
    from dovetail.install.plan import Installation, InstallOptions
    from dovetail.install.steps import Account, Change, InstallPart
    from dovetail.kube.config import Connection


@click.command()
@click.argument("program", type=click.Choice(["dovetail", "cluster-autoscaler", "vpa"]), default="dovetail")
@click.option("--cluster", default=None, help="Name of the EKS cluster; found by the kubeconfig if left out.")
@click.option("--region", default=None, help="Region; default as the AWS command's.")
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
    from dovetail.cli.installing import checked_namespace, conversation
    from dovetail.errors import UserError
    from dovetail.install.chart import Release, ValuesError
    from dovetail.install.plan import InstallOptions
    from dovetail.install.values import read_values

    if program == "cluster-autoscaler":
        from dovetail.cli import install_cluster_autoscaler as autoscaler

        autoscaler.install(
            cluster, checked_namespace(program), region=region, kubeconfig=kubeconfig, context=context,
            dry_run=dry_run, printed=printed, wait_s=wait_s, verbose=verbose,
        )  # fmt: skip
        return
    if program == "vpa":
        from dovetail.cli import install_vpa as vertical

        vertical.install(
            checked_namespace(program, "cluster", "region"), kubeconfig=kubeconfig, context=context,
            dry_run=dry_run, printed=printed, wait_s=wait_s, verbose=verbose,
        )  # fmt: skip
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
        await _install(account, connection, cluster, context, options, mode, dry_run, wait_s, verbose)

    conversation(talk, region=region, kubeconfig=kubeconfig, context=context)


async def _install(
    account: Account,
    connection: Connection,
    cluster: str | None,
    context: str | None,
    options: InstallOptions,
    mode: str,
    dry_run: bool,
    wait_s: float,
    verbose: bool,
) -> None:
    from dovetail.cli.installing import check_same_cluster, show, show_cluster, totals
    from dovetail.install import removal, run
    from dovetail.install.discovery import discover
    from dovetail.install.plan import plan
    from dovetail.install.take_over import plan_take_over, take_over

    def report(part: InstallPart | str, change: Change) -> None:
        show(part, change, verbose=verbose)

    discovered = await discover(account, cluster, connection.server)
    check_same_cluster(discovered, connection, context)
    planned = plan_take_over(discovered, options) if mode in ("take-over", "hand-back") else plan(discovered, options)
    if mode == "print":
        _print(planned)
        return
    show_cluster(discovered)
    if dry_run:
        if mode == "hand-back":
            changes = await run.removals(account, removal.parts_to_hand_back(discovered, planned))
        else:
            changes = await run.changes(account, [*planned.cloud, *planned.cluster, *planned.first_pool])
        for part, change in changes:
            report(part, change)
        click.echo(message("plan: {totals}; nothing was touched", totals=totals(changes)))
        return
    if mode == "hand-back":
        await removal.hand_back(account, discovered, planned, report, wait_s=wait_s)
        click.echo(message("handed back: Karpenter leads again"))
    elif mode == "take-over":
        await take_over(account, planned, report, wait_s=wait_s)
        click.echo(message("taken over; dovetail install --hand-back returns to Karpenter"))
    else:
        changed = await run.install(account, planned, report, wait_s=wait_s)
        click.echo(message("installed") if changed else message("nothing to do: everything is as it should be"))
        click.echo(planned.notes)


def _print(planned: Installation) -> None:
    from dovetail.install.kubernetes_parts import Object
    from dovetail.install.sprig import dump_yaml

    for part in (*planned.cluster, *planned.first_pool):
        if isinstance(part, Object):
            click.echo("---\n" + dump_yaml(part.body))
