"""`dovetail install vpa` and `dovetail uninstall vpa`: the Vertical Pod Autoscaler in any cluster with metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import click

from dovetail import __version__
from dovetail.autoscalers.vpa.manifests import DEFAULT_IMAGE
from dovetail.cli.installing import show, totals
from dovetail.clock import Clock
from dovetail.cloud.aws.client import Calls
from dovetail.errors import UserError
from dovetail.install import run, vpa
from dovetail.install.plan import RefusedError
from dovetail.install.steps import Account, Change, InstallPart, StepStatus
from dovetail.kube.client import Kube
from dovetail.kube.config import load
from dovetail.kube.credentials import ConfigError
from dovetail.kube.errors import KubeError
from dovetail.language import message


def install(
    namespace: str,
    *,
    kubeconfig: str | None,
    context: str | None,
    dry_run: bool,
    printed: bool,
    wait_s: float,
    verbose: bool,
) -> None:
    """Definitions, rights, accounts, Deployments and Service, by upstream's names."""

    def report(part: InstallPart | str, change: Change) -> None:
        show(part, change, verbose=verbose)

    async def talk(account: Account) -> None:
        there = {} if printed else await vpa.deployments(account, namespace)
        planned = vpa.plan(there, namespace, DEFAULT_IMAGE, __version__)
        parts = [*planned.definitions, *planned.cluster]
        if printed:
            _print(planned)
            return
        if dry_run:
            _show_plan(await run.changes(account, parts), verbose=verbose)
        else:
            changed = await vpa.install(account, planned, report, wait_s=wait_s)
            click.echo(message("installed") if changed else message("nothing to do: everything is as it should be"))
        problem = await vpa.metrics_problem(account)
        if problem:
            text = message("metrics.k8s.io does not answer, so nothing can be recommended: {problem}", problem=problem)
            click.echo(text, err=True)

    _converse(talk, kubeconfig, context)


def uninstall(namespace: str, *, kubeconfig: str | None, context: str | None, dry_run: bool, verbose: bool) -> None:
    """What was there before the installation stays, and so do VerticalPodAutoscalers and their definitions."""

    def report(part: InstallPart | str, change: Change) -> None:
        show(part, change, verbose=verbose)

    async def talk(account: Account) -> None:
        there = await vpa.deployments(account, namespace)
        planned = vpa.plan(there, namespace, DEFAULT_IMAGE, __version__, removing=True)
        if not dry_run:
            await vpa.uninstall(account, planned, report)
            click.echo(message("uninstalled"))
            return
        removed = await run.removals(account, planned.cluster)
        definitions = await run.removals(account, planned.definitions)
        kept = await vpa.kept_definitions(account)
        if kept:
            definitions = [(part, Change(StepStatus.LEAVE, why=kept)) for part, _ in definitions]
        _show_plan([*removed, *definitions], verbose=verbose)

    _converse(talk, kubeconfig, context)


def _converse(talk: Callable[[Account], Awaitable[None]], kubeconfig: str | None, context: str | None) -> None:
    """Run `talk` with the cluster's client. No part of it is at AWS, so no call is made there."""

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop())
        kube = Kube(load(kubeconfig, context).transport(), clock, manager="dovetail-install")
        calls = Calls(clock, region="")
        try:
            await talk(Account(calls, kube))
        finally:
            calls.close()
            await kube.close()

    try:
        asyncio.run(main())
    except (ConfigError, RefusedError, KubeError) as problem:
        raise UserError(str(problem)) from problem


def _show_plan(changes: list[tuple[InstallPart, Change]], *, verbose: bool) -> None:
    for part, change in changes:
        show(part, change, verbose=verbose)
    click.echo(message("plan: {totals}; nothing was touched", totals=totals(changes)))


def _print(planned: vpa.VpaInstallation) -> None:
    from dovetail.install.sprig import dump_yaml

    for part in (*planned.definitions, *planned.cluster):
        click.echo("---\n" + dump_yaml(part.body))
