"""What `dovetail install` and `dovetail uninstall` share: the ways to AWS and the cluster, and how steps are shown."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from typing import NamedTuple, TypeVar

import click
from click.core import ParameterSource

from dovetail.cli.remedies import at_endpoint
from dovetail.clock import Clock
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import code_of, message_of
from dovetail.errors import UserError
from dovetail.install.chart import ValuesError
from dovetail.install.discovery import DiscoveryError, Found, discover
from dovetail.install.gotemplate import TemplateError
from dovetail.install.kubernetes_parts import Object
from dovetail.install.plan import RefusedError
from dovetail.install.sprig import dump_yaml
from dovetail.install.steps import Account, Change, InstallPart, StepStatus
from dovetail.kube.client import Kube
from dovetail.kube.config import Connection, load
from dovetail.kube.credentials import ConfigError
from dovetail.kube.errors import Forbidden, KubeError, Unauthorized
from dovetail.language import columns, message, source, translated

T = TypeVar("T")
_MARKS = {
    StepStatus.EXISTS: "=",
    StepStatus.CREATE: "+",
    StepStatus.CHANGE: "~",
    StepStatus.REMOVE: "-",
    StepStatus.LEAVE: "=",
    StepStatus.ABSENT: " ",
    StepStatus.WAIT: "…",
}
_STATUSES = {
    StepStatus.EXISTS: source("exists"),
    StepStatus.CREATE: source("create"),
    StepStatus.CHANGE: source("change"),
    StepStatus.REMOVE: source("remove"),
    StepStatus.LEAVE: source("leave"),
    StepStatus.ABSENT: source("absent"),
    StepStatus.WAIT: source("waiting"),
}
_TOTALS = {
    StepStatus.EXISTS: source("{n} exists"),
    StepStatus.CREATE: source("{n} create"),
    StepStatus.CHANGE: source("{n} change"),
    StepStatus.REMOVE: source("{n} remove"),
    StepStatus.LEAVE: source("{n} leave"),
    StepStatus.ABSENT: source("{n} absent"),
    StepStatus.WAIT: source("{n} waiting"),
}
_COLOURS = {StepStatus.CREATE: "green", StepStatus.CHANGE: "yellow", StepStatus.REMOVE: "red"}


#: Where autoscalers beside Dovetail are installed unless another namespace is given.
SYSTEM_NAMESPACE = "kube-system"
#: Options of install and uninstall that are about Dovetail's own release and nodes.
_RELEASE_OPTIONS = ("name", "files", "sets", "no_node_pool", "take_over", "hand_back", "drain", "keep_nodes")


class InstallSession(NamedTuple):
    """Which cluster and account a command is about, and how its steps are shown."""

    cluster: str | None
    region: str | None
    kubeconfig: str | None
    context: str | None
    dry_run: bool
    verbose: bool

    def report(self, part: InstallPart | str, change: Change) -> None:
        """Print one line for a part, and with `-v` the commands that do the same and what is not there."""
        if change.status is StepStatus.ABSENT and not self.verbose:
            return
        title = part if isinstance(part, str) else part.title
        why = f"  ({translated(change.why)})" if change.why else ""
        line = f"{_MARKS[change.status]} {columns.left(message(_STATUSES[change.status]), 7)} {title}{why}"
        click.echo(click.style(line, fg=_COLOURS.get(change.status)))
        if self.verbose:
            for step in change.steps:
                click.echo(click.style(_indented(step.command), dim=True))

    def print_plan(self, changes: Sequence[tuple[InstallPart, Change]]) -> None:
        for part, change in changes:
            self.report(part, change)
        click.echo(message("plan: {totals}; nothing was touched", totals=_totals(changes)))

    async def discover(self, account: Account, connection: Connection, *, err: bool = False) -> Found:
        """The account's cluster, which must be the kubeconfig's; a context that was named is believed."""
        discovered = await discover(account, self.cluster, connection.server)
        if self.context is None and discovered.endpoint.rstrip("/") != connection.server.rstrip("/"):
            raise DiscoveryError(
                message(
                    "the kubeconfig speaks to {server}, but {cluster} is at {endpoint}; "
                    "run aws eks update-kubeconfig --name {cluster}, or name the --context",
                    server=connection.server,
                    cluster=discovered.cluster,
                    endpoint=discovered.endpoint,
                )
            )
        text = message(
            "cluster {cluster} ({version}) in {region}, account {account}",
            cluster=discovered.cluster,
            version=discovered.version,
            region=discovered.region,
            account=discovered.account,
        )
        click.echo(text, err=err)
        return discovered


def print_manifests(parts: Iterable[InstallPart]) -> None:
    for part in parts:
        if isinstance(part, Object):
            click.echo("---\n" + dump_yaml(part.body))


def print_outcome(changes: int) -> None:
    click.echo(message("installed") if changes else message("nothing to do: everything is as it should be"))


def print_removal(changes: int) -> None:
    click.echo(message("uninstalled") if changes else message("nothing to do: nothing of it is installed"))


def checked_namespace(program: str, *unused: str) -> str:
    """The namespace that was given, or the usual one. An option that means nothing to the program is refused."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name in (*_RELEASE_OPTIONS, *unused):
            option = max(parameter.opts, key=len)
            raise click.UsageError(
                message("{option} is not for {program}; leave it out", option=option, program=program)
            )
    if context.get_parameter_source("namespace") is ParameterSource.COMMANDLINE:
        return str(context.params["namespace"])
    return SYSTEM_NAMESPACE


def _indented(command: str) -> str:
    """Below its part. A command with a manifest stays at the margin: a shell takes it as it stands."""
    return command if "<<" in command else textwrap.indent(at_endpoint(command), " " * 12)


def _totals(changes: Sequence[tuple[InstallPart, Change]]) -> str:
    counts = {status: sum(change.status is status for _, change in changes) for status in StepStatus}
    return ", ".join(message(_TOTALS[status], n=count) for status, count in counts.items() if count)


def run_in_session(session: InstallSession, talk: Callable[[Account, Connection], Awaitable[T]]) -> T:
    """Run `talk` with both clients; every known failure becomes one line with the way out."""
    import os

    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    from dovetail.cli.cluster_session import needed_region

    async def main() -> T:
        clock = Clock(asyncio.get_running_loop())
        connection = load(session.kubeconfig, session.context)
        kube = Kube(connection.transport(), clock, manager="dovetail-install")
        try:
            region = await needed_region(session.region, kube, connection.server)
            with closing(Calls(clock, region=region, endpoint=os.environ.get("AWS_ENDPOINT_URL"))) as calls:
                return await talk(Account(calls, kube), connection)
        finally:
            await kube.close()

    try:
        return asyncio.run(main())
    except Unauthorized as problem:
        raise UserError(
            message("{problem}; the kubeconfig's credentials are not accepted: renew them", problem=problem)
        ) from problem
    except Forbidden as problem:
        raise UserError(
            message(
                "{problem}; an installation needs the rights of cluster-admin; then repeat the command", problem=problem
            )
        ) from problem
    except (ConfigError, DiscoveryError, RefusedError, ValuesError, TemplateError, KubeError) as problem:
        raise UserError(str(problem)) from problem
    except NoCredentialsError as problem:
        raise UserError(
            message("AWS: no credentials were found; run aws configure or aws sso login, or set AWS_PROFILE")
        ) from problem
    except (BotoCoreError, ClientError) as problem:
        text = f"AWS: {code_of(problem)}: {message_of(problem)}"
        if "AccessDenied" in code_of(problem) or "UnauthorizedOperation" in code_of(problem):
            text = message("{text}; allow the action for this caller, then repeat the command", text=text)
        raise UserError(text) from problem
