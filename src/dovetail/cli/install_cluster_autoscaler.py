"""`dovetail install cluster-autoscaler` and `dovetail uninstall cluster-autoscaler`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dovetail import __version__
from dovetail.autoscalers.node_groups.manifests import DEFAULT_IMAGE
from dovetail.cli.installing import check_same_cluster, conversation, show, show_cluster, totals
from dovetail.install import cluster_autoscaler, run
from dovetail.install.discovery import discover
from dovetail.language import message

if TYPE_CHECKING:
    from dovetail.install.cluster_autoscaler import AutoscalerInstallation
    from dovetail.install.steps import Account, Change, InstallPart
    from dovetail.kube.config import Connection


async def _planned(
    account: Account,
    connection: Connection,
    cluster: str | None,
    context: str | None,
    namespace: str,
    *,
    removing: bool,
) -> AutoscalerInstallation:
    discovered = await discover(account, cluster, connection.server)
    check_same_cluster(discovered, connection, context)
    there = await cluster_autoscaler.deployment(account, namespace)
    show_cluster(discovered, err=True)
    return cluster_autoscaler.plan(discovered, there, namespace, DEFAULT_IMAGE, __version__, removing=removing)


def install(
    cluster: str | None,
    namespace: str,
    *,
    region: str | None,
    kubeconfig: str | None,
    context: str | None,
    dry_run: bool,
    printed: bool,
    wait_s: float,
    verbose: bool,
) -> None:
    """Policy, role, service account, rights and Deployment, with the groups found by their tags."""

    def report(part: InstallPart | str, change: Change) -> None:
        show(part, change, verbose=verbose)

    async def talk(account: Account, connection: Connection) -> None:
        planned = await _planned(account, connection, cluster, context, namespace, removing=False)
        if printed:
            _print(planned)
        elif dry_run:
            _show_plan(await run.changes(account, [*planned.cloud, *planned.cluster]), verbose=verbose)
        else:
            changed = await cluster_autoscaler.install(account, planned, report, wait_s=wait_s)
            click.echo(message("installed") if changed else message("nothing to do: everything is as it should be"))

    conversation(talk, region=region, kubeconfig=kubeconfig, context=context)


def uninstall(
    cluster: str | None,
    namespace: str,
    *,
    region: str | None,
    kubeconfig: str | None,
    context: str | None,
    dry_run: bool,
    verbose: bool,
) -> None:
    """What was there before the installation stays, and so do the nodes."""

    def report(part: InstallPart | str, change: Change) -> None:
        show(part, change, verbose=verbose)

    async def talk(account: Account, connection: Connection) -> None:
        planned = await _planned(account, connection, cluster, context, namespace, removing=True)
        if dry_run:
            _show_plan(await run.removals(account, [*planned.cluster, *planned.cloud]), verbose=verbose)
            return
        await cluster_autoscaler.uninstall(account, planned, report)
        click.echo(message("uninstalled"))

    conversation(talk, region=region, kubeconfig=kubeconfig, context=context)


def _show_plan(changes: list[tuple[InstallPart, Change]], *, verbose: bool) -> None:
    for part, change in changes:
        show(part, change, verbose=verbose)
    click.echo(message("plan: {totals}; nothing was touched", totals=totals(changes)))


def _print(planned: AutoscalerInstallation) -> None:
    from dovetail.install.kubernetes_parts import Object
    from dovetail.install.sprig import dump_yaml

    for part in planned.cluster:
        if isinstance(part, Object):
            click.echo("---\n" + dump_yaml(part.body))
