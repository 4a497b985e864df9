"""What `dovetail run` does once its flags are read: connect, choose the cloud, lead until stopped."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dovetail.chance import Chance, system_seed
from dovetail.cli.terminal import until_stopped
from dovetail.clock import Clock, run_scaled
from dovetail.cloud.aws import catalog as catalog_module
from dovetail.cloud.aws.api_server import ApiServerInfo, authority, read
from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.aws.region import find_region
from dovetail.cloud.aws.start_checks import StartRefused
from dovetail.cloud.provider import Cloud
from dovetail.cloud.simulated import catalog_file as catalogue_file
from dovetail.cloud.simulated import config as market_file
from dovetail.cloud.simulated.kubelets import SimulatedKubelets
from dovetail.cloud.simulated.provider import SimulatedCloud
from dovetail.controllers import log_output, logs
from dovetail.controllers.aws_program import aws_settings, upkeep
from dovetail.controllers.aws_start import AwsStart
from dovetail.controllers.log_output import LogOutput, LogPathError
from dovetail.controllers.manager import Autoscaler
from dovetail.controllers.settings import Settings
from dovetail.controllers.start_lines import announce
from dovetail.errors import UserError
from dovetail.kube.client import Kube
from dovetail.kube.config import IN_CLUSTER, load
from dovetail.kube.credentials import ConfigError
from dovetail.kube.errors import KubeError
from dovetail.kube.ratelimit import RateLimitedTransport
from dovetail.kube.resources import DEPLOYMENTS, NODES, PODS
from dovetail.language import message
from dovetail.language.system_errors import system_error
from dovetail.runfile import running


class AutoscalerProgram(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    catalog: str | None
    market: str | None
    region: str | None
    kubeconfig: str | None
    context: str | None
    seed: int | None
    settings: Settings


def main(options: AutoscalerProgram) -> None:
    """Until SIGINT or SIGTERM; a second signal does not wait."""
    try:
        run_scaled(until_stopped(_run(options)))
    except (ConfigError, catalogue_file.CatalogueError, KubeError, LogPathError) as problem:
        raise UserError(str(problem)) from problem
    except catalog_module.UnknownRegion as problem:
        raise UserError(f"--region: {problem}") from problem
    except ExceptionGroup as group:
        refused = group.subgroup(StartRefused)
        if refused is None:
            raise
        raise UserError("; ".join(str(problem) for problem in _leaves(refused))) from group
    except BrokenPipeError:
        raise  # the log's reader is gone
    except OSError as problem:
        way_out = message("other ports are chosen by --metrics-port and --health-probe-port")
        raise UserError(f"{system_error(problem)}; {way_out}") from problem


def _leaves(group: ExceptionGroup[Exception]) -> list[Exception]:
    """The exceptions in a group, and in groups within it."""
    leaves: list[Exception] = []
    for problem in group.exceptions:
        leaves.extend(_leaves(problem) if isinstance(problem, ExceptionGroup) else [problem])
    return leaves


async def _run(options: AutoscalerProgram) -> None:
    clock = Clock(asyncio.get_running_loop())
    began = clock.monotonic()
    chance = Chance(system_seed() if options.seed is None else options.seed)
    settings = options.settings
    output = LogOutput(log_output.paths(settings.log_output_paths), log_output.paths(settings.log_error_output_paths))
    logs.configure(clock, settings.log_level, output.write, settings.log_encoding)
    log = logs.logger(clock, output.write, settings.log_level, settings.log_encoding)
    connection = load(options.kubeconfig, options.context)
    # Files and flags are read before the first log line: a wrong one is answered in one line, on stderr alone.
    cloud: Cloud | None = _simulated(options, clock, chance) if options.provider == "simulated" else None
    if cloud is None:
        _check_cluster_name(settings)
    announce(log, settings, os.environ)
    beside_paced = RateLimitedTransport(
        connection.transport(), clock, settings.kube_client_qps, settings.kube_client_burst
    )
    unpaced = Kube(connection.transport(), clock, chance=chance.child("lease"))
    paced = RateLimitedTransport(connection.transport(), clock, settings.kube_client_qps, settings.kube_client_burst)
    beside = Kube(beside_paced, clock, chance=chance.child("beside"))
    kube = Kube(paced, clock, chance=chance.child("kube"))
    identity = f"{socket.gethostname()}_{os.getpid()}_{chance.suffix()}"
    try:
        if not settings.dry_run:
            await _not_a_second(connection.server, unpaced)
        if cloud is None:
            cloud = await _aws(options, clock, lambda: read(beside, authority(connection.tls)))
        fleet = None
        if isinstance(cloud, SimulatedCloud) and not settings.dry_run:
            fleet = SimulatedKubelets(beside, cloud, clock, chance.child("fleet"))
        autoscaler = Autoscaler(
            kube,
            cloud,
            clock,
            chance,
            settings,
            log=log,
            identity=identity,
            lease=unpaced,
            instances=fleet,
            start=AwsStart(cloud, settings.cluster_name, log) if isinstance(cloud, Aws) else None,
            namespace=connection.namespace if connection.context == IN_CLUSTER else "",
        )
        if fleet is not None:
            hear, see = fleet.pod_changed, fleet.node_changed
            autoscaler.cluster_state.listen(PODS, lambda change: hear(change.old, change.new))
            autoscaler.cluster_state.listen(NODES, lambda change: see(change.new))
        looking = [asyncio.create_task(upkeep(cloud, autoscaler), name="upkeep")] if isinstance(cloud, Aws) else []
        try:
            await autoscaler.run()
        finally:
            for task in looking:
                task.cancel()
    finally:
        if isinstance(cloud, Aws):
            cloud.calls.close()
        for client in (kube, unpaced, beside):
            await client.close()
        log.info("stopped dovetail", uptime=round(clock.monotonic() - began, 3))
        output.close()


def _check_cluster_name(settings: Settings) -> None:
    if not settings.cluster_name:
        raise UserError(
            message(
                "--cluster-name: is required on AWS, the name of the EKS cluster [CLUSTER_NAME]; "
                "in the chart it is settings.clusterName"
            )
        )


async def _not_a_second(server: str, kube: Kube) -> None:
    """In a lab: not beside the autoscaler that is installed in it, whose nodes another one would end."""
    if not any(lab.url == server and lab.environment for lab in running()):
        return
    try:
        deployments = (await kube.list(DEPLOYMENTS, labels="app.kubernetes.io/name=karpenter")).items
    except KubeError:
        return  # the start itself will say what is wrong
    if problem := installed_autoscaler(deployments):
        raise UserError(
            message("{server} is a lab with an autoscaler of its own: {problem}", server=server, problem=problem)
        )


def installed_autoscaler(deployments: Sequence[Mapping[str, Any]]) -> str:
    """The Deployment that runs an autoscaler, and how to stop it; empty without one."""
    for deployment in deployments:
        if (deployment.get("spec") or {}).get("replicas", 1):
            name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
            return message(
                "Deployment {namespace}/{name}; kubectl scale deployment {name} -n {namespace} --replicas=0 "
                "stops it, and dovetail up --fresh starts a lab without one",
                namespace=namespace,
                name=name,
            )
    return ""


def _simulated(options: AutoscalerProgram, clock: Clock, chance: Chance) -> SimulatedCloud:
    if options.catalog:
        types = catalogue_file.read(Path(options.catalog))
    else:
        types = catalog_module.load(options.region or "ap-northeast-2")
    return SimulatedCloud(clock, chance.child("cloud"), types, _market(options.market))


async def _aws(options: AutoscalerProgram, clock: Clock, api_server: Callable[[], Awaitable[ApiServerInfo]]) -> Aws:
    settings = options.settings
    region = await find_region(options.region, os.environ)
    if not region:
        raise UserError(
            message(
                "AWS_REGION: no region is set, and the instance metadata service does not tell one; set AWS_REGION or "
                "--region, or let the pod reach the metadata service (hop limit 2)"
            )
        )
    provider = aws_settings(settings, region, os.environ.get("AWS_ENDPOINT_URL") or None)
    return Aws(provider, clock, api_server=api_server)


def _market(file: str | None) -> market_file.SimulatedMarket | None:
    if file is None:
        return None
    try:
        return market_file.read(Path(file).read_bytes())
    except market_file.MarketError as problem:
        raise UserError(f"{file}: {problem}") from problem
