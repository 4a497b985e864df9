"""`dovetail vpa`: the three programs of the Vertical Pod Autoscaler; `dovetail manifests`: what installs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from dovetail import __version__
from dovetail.errors import UserError
from dovetail.language import message
from dovetail.language.system_errors import system_error

if TYPE_CHECKING:
    from dovetail.autoscalers.vpa.settings import CommonSettings
    from dovetail.clock import Clock
    from dovetail.kube.client import Kube

    #: Runs a program with a client, a clock and an identity.
    Start = Callable[[Kube, Clock, str], Awaitable[None]]

_RAW: dict[str, Any] = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "help_option_names": [],
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def vpa() -> None:
    """The Vertical Pod Autoscaler: recommender, updater, admission-controller.

    Each program takes the flags of VPA 1.8 by the same names and with the same defaults; --help lists them.
    """


@vpa.command(context_settings=_RAW)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def recommender(flags: tuple[str, ...]) -> None:
    """Recommend requests from usage."""
    from dovetail.autoscalers.vpa.metrics import RecommenderMetrics, serving
    from dovetail.autoscalers.vpa.recommender import run
    from dovetail.autoscalers.vpa.settings import recommender_settings

    settings = _settings("recommender", recommender_settings, flags)

    async def start(kube: Kube, clock: Clock, identity: str) -> None:
        metrics = RecommenderMetrics(clock, settings.interval_s)
        async with serving(settings.common.address, metrics):
            await run(settings, kube, clock, identity=identity, metrics=metrics)

    _main(settings.common, start)


@vpa.command(context_settings=_RAW)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def updater(flags: tuple[str, ...]) -> None:
    """Evict or resize pods whose requests are too far off."""
    from dovetail.autoscalers.vpa.metrics import UpdaterMetrics, serving
    from dovetail.autoscalers.vpa.settings import updater_settings
    from dovetail.autoscalers.vpa.updater import run

    settings = _settings("updater", updater_settings, flags)

    async def start(kube: Kube, clock: Clock, identity: str) -> None:
        metrics = UpdaterMetrics(clock, settings.interval_s)
        async with serving(settings.common.address, metrics):
            await run(settings, kube, clock, identity=identity, metrics=metrics)

    _main(settings.common, start)


@vpa.command("admission-controller", context_settings=_RAW)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def admission_controller(flags: tuple[str, ...]) -> None:
    """Serve the webhook that sets the requests of new pods."""
    from dovetail.autoscalers.vpa.admission_controller import CertificateError, run
    from dovetail.autoscalers.vpa.metrics import AdmissionMetrics, serving
    from dovetail.autoscalers.vpa.settings import admission_settings

    settings = _settings("admission-controller", admission_settings, flags)

    async def start(kube: Kube, clock: Clock, identity: str) -> None:
        metrics = AdmissionMetrics(clock)
        async with serving(settings.common.address, metrics):
            await run(settings, kube, clock, identity=identity, metrics=metrics)

    try:
        _main(settings.common, start)
    except CertificateError as problem:
        raise UserError(str(problem)) from problem


def _settings(program: str, read: Callable[..., tuple[Any, list[str]]], flags: tuple[str, ...]) -> Any:
    """Settings from flags; what has no effect is named."""
    import os

    from dovetail.autoscalers.go_flags import FlagError
    from dovetail.autoscalers.vpa.flags import help_text
    from dovetail.autoscalers.vpa.settings import TABLES

    if {"-h", "--help", "-help"} & set(flags):
        click.echo(
            message(
                "Usage: dovetail vpa {program} [FLAGS]\n\n{help_text}",
                program=program,
                help_text=help_text(TABLES[program]),
            )
        )
        raise click.exceptions.Exit(0)
    try:
        settings, notes = read(flags, os.environ)
    except FlagError as error:
        raise click.UsageError(str(error)) from error
    for note in notes:
        click.echo(message("note: {note}", note=note), err=True)
    return settings


def _main(common: CommonSettings, start: Start) -> None:
    """Until SIGINT or SIGTERM."""
    from dovetail.cli.terminal import until_stopped
    from dovetail.clock import run_scaled
    from dovetail.kube.credentials import ConfigError
    from dovetail.kube.errors import KubeError

    try:
        run_scaled(until_stopped(_run(common, start)))
    except (ConfigError, KubeError) as problem:
        raise UserError(str(problem)) from problem
    except OSError as problem:
        raise UserError(
            message("{strerror}; another port is chosen by --address or --port", strerror=system_error(problem))
        ) from problem


async def _run(common: CommonSettings, start: Start) -> None:
    import asyncio
    import socket

    from dovetail.chance import Chance, system_seed
    from dovetail.cli.cluster_session import kubeconfig
    from dovetail.clock import Clock
    from dovetail.controllers import logs
    from dovetail.kube.client import Kube
    from dovetail.kube.config import load
    from dovetail.kube.ratelimit import RateLimitedTransport

    clock = Clock(asyncio.get_running_loop())
    logs.configure(clock, common.log_level)
    connection = load(kubeconfig(common.kubeconfig or None), None)
    paced = RateLimitedTransport(connection.transport(), clock, common.kube_api_qps, common.kube_api_burst)
    kube = Kube(paced, clock, chance=Chance(system_seed()), manager="dovetail-vpa", user_agent="dovetail-vpa")
    try:
        await start(kube, clock, socket.gethostname())
    finally:
        await kube.close()


@click.command()
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@click.option("--image", default=None, help="Image of the programs; {name} in it stands for vpa-recommender and so on.")
@click.option("--tag", default=__version__, show_default=True, help="Its tag.")
@click.option("-n", "--namespace", default="kube-system", show_default=True)
@click.option("--cluster", default="", help="Name of the EKS cluster, for cluster-autoscaler.")
@click.argument("what", type=click.Choice(["vpa", "cluster-autoscaler", "provisioning-requests"]))
def manifests(output: str, image: str | None, tag: str, namespace: str, cluster: str, what: str) -> None:
    """Print what installs the Vertical Pod Autoscaler, the Cluster Autoscaler, or the kind ProvisioningRequest.

    dovetail manifests vpa | kubectl apply -f -

    dovetail manifests cluster-autoscaler --cluster NAME | kubectl apply -f -

    dovetail manifests provisioning-requests | kubectl apply -f -
    """
    import json

    import yaml

    from dovetail.autoscalers.vpa.manifests import DEFAULT_IMAGE
    from dovetail.autoscalers.vpa.manifests import manifests as objects

    if what == "cluster-autoscaler":
        from dovetail.autoscalers.node_groups import manifests as node_groups

        if not cluster:
            raise click.UsageError(
                message("--cluster: is required for cluster-autoscaler, the name of the EKS cluster")
            )
        listed = node_groups.manifests(cluster, image or node_groups.DEFAULT_IMAGE, tag, namespace)
    elif what == "provisioning-requests":
        from dovetail.autoscalers.node_groups.request_crd import definition

        listed = [definition()]
    else:
        listed = objects(image or DEFAULT_IMAGE, tag, namespace)
    if output == "json":
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": listed}))
    else:
        dumper: Any = yaml.CSafeDumper
        dumper.ignore_aliases = lambda *_: True
        click.echo(yaml.dump_all(listed, Dumper=dumper, sort_keys=False, width=120), nl=False)
