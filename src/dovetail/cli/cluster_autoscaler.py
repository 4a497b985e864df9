"""`dovetail cluster-autoscaler`: the autoscaler of node groups, with the flags of Cluster Autoscaler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dovetail.errors import UserError
from dovetail.language import message
from dovetail.language.system_errors import system_error

if TYPE_CHECKING:
    from dovetail.autoscalers.node_groups.flags import ParsedFlags
    from dovetail.chance import Chance
    from dovetail.clock import Clock
    from dovetail.cloud.aws.auto_scaling_groups import AutoScalingGroups
    from dovetail.cloud.aws.cloud_config import ServiceEndpoint


@click.command(
    "cluster-autoscaler",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def cluster_autoscaler(flags: tuple[str, ...]) -> None:
    """Run the autoscaler of node groups: Cluster Autoscaler's flags, on Auto Scaling groups."""
    from dovetail.autoscalers.go_flags import FlagError
    from dovetail.autoscalers.node_groups import options
    from dovetail.autoscalers.node_groups.flags import help_text, parse
    from dovetail.cloud.aws.group_tags import SpecError

    if {"-h", "--help", "-help"} & set(flags):
        click.echo(message("Usage: dovetail cluster-autoscaler [FLAGS]\n\n{help_text}", help_text=help_text()))
        return
    try:
        settings = parse(flags)
        discovery = options.discovery(settings)
    except (FlagError, SpecError) as problem:
        raise click.UsageError(str(problem)) from problem
    if not discovery.named and not discovery.tags:
        click.echo(
            message("note: no group is under control; name some with --nodes or --node-group-auto-discovery"), err=True
        )
    _main(settings)


def _main(settings: ParsedFlags) -> None:
    """Until SIGINT or SIGTERM."""
    from dovetail.cli.terminal import until_stopped
    from dovetail.clock import run_scaled
    from dovetail.kube.credentials import ConfigError
    from dovetail.kube.errors import KubeError

    try:
        run_scaled(until_stopped(_run(settings)))
    except (ConfigError, KubeError) as problem:
        raise UserError(str(problem)) from problem
    except OSError as problem:
        raise UserError(
            message("{strerror}; another port is chosen by --address", strerror=system_error(problem))
        ) from problem


async def _run(settings: ParsedFlags) -> None:
    import asyncio
    import os
    import socket

    from dovetail.autoscalers.node_groups import program
    from dovetail.chance import Chance, system_seed
    from dovetail.cli.cluster_session import kubeconfig
    from dovetail.clock import Clock
    from dovetail.kube.client import Kube
    from dovetail.kube.config import load
    from dovetail.kube.ratelimit import RateLimitedTransport

    clock = Clock(asyncio.get_running_loop())
    chance = Chance(system_seed())
    connection = load(kubeconfig(settings["kubeconfig"] or None), None)
    rate, burst = settings["kube-client-qps"], float(settings["kube-client-burst"])
    agent = settings["user-agent"]
    kube, events = (
        Kube(
            RateLimitedTransport(connection.transport(), clock, rate, burst),
            clock,
            chance=chance.child(purpose),
            manager="cluster-autoscaler",
            user_agent=agent,
        )
        for purpose in ("kube", "events")
    )
    lease = Kube(connection.transport(), clock, chance=chance.child("lease"), user_agent=agent)
    cloud = aws_groups(settings, clock, chance)
    identity = os.environ.get("POD_NAME") or f"{socket.gethostname()}_{chance.suffix()}"
    try:
        await program.run(
            settings,
            kube,
            cloud,
            clock,
            chance.child("choices"),
            identity=identity,
            lease=lease,
            events=events,
            serve=True,
        )
    finally:
        await cloud.close()
        for client in (kube, lease, events):
            await client.close()


def aws_groups(settings: ParsedFlags, clock: Clock, chance: Chance) -> AutoScalingGroups:
    """The groups of the account and region that the environment names."""
    import os

    import boto3

    from dovetail.autoscalers.node_groups import options
    from dovetail.cloud.aws.auto_scaling_groups import AutoScalingGroups
    from dovetail.cloud.aws.client import Calls

    session = boto3.session.Session()
    region = os.environ.get("AWS_REGION") or session.region_name or ""
    if not region:
        raise UserError(message("no AWS region is set; set AWS_REGION"))
    calls = Calls(
        clock,
        region=region,
        endpoint=os.environ.get("AWS_ENDPOINT_URL") or None,
        endpoints=_service_endpoints(settings["cloud-config"], region),
        chance=chance.child("aws"),
    )
    return AutoScalingGroups(
        calls,
        clock,
        options.discovery(settings),
        options.group_options(settings),
        static_types=settings["aws-use-static-instance-list"],
    )


def _service_endpoints(path: str, region: str) -> dict[str, ServiceEndpoint]:
    """What the file of --cloud-config says of the region."""
    from pathlib import Path

    from dovetail.cloud.aws.cloud_config import CloudConfigError, service_endpoints

    if not path:
        return {}
    try:
        return service_endpoints(Path(path).read_text(), region)
    except OSError as problem:
        raise UserError(
            message("--cloud-config={path}: {strerror}", path=path, strerror=system_error(problem))
        ) from problem
    except (CloudConfigError, UnicodeDecodeError) as problem:
        raise UserError(message("--cloud-config={path}: {problem}", path=path, problem=problem)) from problem
