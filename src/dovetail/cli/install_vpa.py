"""`dovetail install vpa` and `dovetail uninstall vpa`: the Vertical Pod Autoscaler in any cluster with metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import click

from dovetail import __version__
from dovetail.autoscalers.vpa.manifests import DEFAULT_IMAGE
from dovetail.cli.installing import InstallSession, print_manifests, print_outcome, print_removal
from dovetail.clock import Clock
from dovetail.cloud.aws.client import Calls
from dovetail.errors import UserError
from dovetail.install import run, vpa
from dovetail.install.plan import RefusedError
from dovetail.install.steps import Account, Change, StepStatus
from dovetail.kube.client import Kube
from dovetail.kube.config import load
from dovetail.kube.credentials import ConfigError
from dovetail.kube.errors import KubeError
from dovetail.language import message


def install(session: InstallSession, namespace: str, *, printed: bool, wait_s: float) -> None:
    """Definitions, rights, accounts, Deployments and Service, by upstream's names."""

    async def talk(account: Account) -> None:
        there = {} if printed else await vpa.deployments(account, namespace)
        planned = vpa.plan(there, namespace, DEFAULT_IMAGE, __version__)
        parts = [*planned.definitions, *planned.cluster]
        if printed:
            print_manifests(parts)
            return
        if session.dry_run:
            session.print_plan(await run.changes(account, parts))
        else:
            print_outcome(await vpa.install(account, planned, session.report, wait_s=wait_s))
        problem = await vpa.metrics_problem(account)
        if problem:
            text = message("metrics.k8s.io does not answer, so nothing can be recommended: {problem}", problem=problem)
            click.echo(text, err=True)

    _converse(session, talk)


def uninstall(session: InstallSession, namespace: str) -> None:
    """What was there before the installation stays, and so do VerticalPodAutoscalers and their definitions."""

    async def talk(account: Account) -> None:
        there = await vpa.deployments(account, namespace)
        planned = vpa.plan(there, namespace, DEFAULT_IMAGE, __version__, removing=True)
        if not session.dry_run:
            print_removal(await vpa.uninstall(account, planned, session.report))
            return
        removed = await run.removals(account, planned.cluster)
        definitions = await run.removals(account, planned.definitions)
        kept = await vpa.kept_definitions(account)
        if kept:
            definitions = [(part, Change(StepStatus.LEAVE, why=kept)) for part, _ in definitions]
        session.print_plan([*removed, *definitions])

    _converse(session, talk)


def _converse(session: InstallSession, talk: Callable[[Account], Awaitable[None]]) -> None:
    """Run `talk` with the cluster's client. No part of it is at AWS, so no call is made there."""

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop())
        kube = Kube(load(session.kubeconfig, session.context).transport(), clock, manager="dovetail-install")
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
