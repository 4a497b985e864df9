"""`dovetail install cluster-autoscaler` and `dovetail uninstall cluster-autoscaler`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail import __version__
from dovetail.autoscalers.node_groups.manifests import DEFAULT_IMAGE
from dovetail.cli.installing import InstallSession, print_manifests, print_outcome, print_removal, run_in_session
from dovetail.install import cluster_autoscaler, run

if TYPE_CHECKING:
    from dovetail.install.cluster_autoscaler import AutoscalerInstallation
    from dovetail.install.steps import Account
    from dovetail.kube.config import Connection


async def _planned(
    session: InstallSession, account: Account, connection: Connection, namespace: str, *, removing: bool
) -> AutoscalerInstallation:
    discovered = await session.discover(account, connection, err=True)
    there = await cluster_autoscaler.deployment(account, namespace)
    return cluster_autoscaler.plan(discovered, there, namespace, DEFAULT_IMAGE, __version__, removing=removing)


def install(session: InstallSession, namespace: str, *, printed: bool, wait_s: float) -> None:
    """Policy, role, service account, rights and Deployment, with the groups found by their tags."""

    async def talk(account: Account, connection: Connection) -> None:
        planned = await _planned(session, account, connection, namespace, removing=False)
        if printed:
            print_manifests(planned.cluster)
        elif session.dry_run:
            session.print_plan(await run.changes(account, [*planned.cloud, *planned.cluster]))
        else:
            print_outcome(await cluster_autoscaler.install(account, planned, session.report, wait_s=wait_s))

    run_in_session(session, talk)


def uninstall(session: InstallSession, namespace: str) -> None:
    """What was there before the installation stays, and so do the nodes."""

    async def talk(account: Account, connection: Connection) -> None:
        planned = await _planned(session, account, connection, namespace, removing=True)
        if session.dry_run:
            session.print_plan(await run.removals(account, [*planned.cluster, *planned.cloud]))
            return
        print_removal(await cluster_autoscaler.uninstall(account, planned, session.report))

    run_in_session(session, talk)
