"""Karpenter's controller, or ours: `dovetail run` with the flags and environment of its pod."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from dovetail.clock import virtual
from dovetail.cloud.aws import catalog
from dovetail.cloud.aws.api_server import read as read_api_server
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.aws.start_checks import StartRefused
from dovetail.controllers import logs
from dovetail.controllers.aws_program import aws_settings, upkeep
from dovetail.controllers.aws_start import AwsStart
from dovetail.controllers.manager import Autoscaler
from dovetail.controllers.settings import Settings, SettingsError, is_switch, meanings, read
from dovetail.controllers.start_lines import announce
from dovetail.lab.programs import global_settings, karpenter_webhooks
from dovetail.lab.programs.context import ProgramContext, ProgramExit

#: Seconds of a long poll at the queue: a pod that is stopped does not wait for messages. The poll itself takes real
#: time, so in virtual time there is none: an empty queue is asked again after a while.
QUEUE_WAIT_S = 1


async def run(context: ProgramContext) -> None:
    """Until SIGTERM."""
    kept = await global_settings.variables(context.client("karpenter"), context.namespace)
    settings, region = settings_of(context.arguments, {**kept, **context.environment})
    region = region or (context.aws.region if context.aws is not None else "")
    log = logs.logger(context.clock, context.write, settings.log_level, settings.log_encoding)
    if not settings.cluster_name:
        text = "--cluster-name: is required on AWS, the name of the EKS cluster [CLUSTER_NAME]"
        raise ProgramExit(2, f"Error: {text}; in the chart it is settings.clusterName")
    session = context.aws_session()
    assert context.aws is not None
    try:
        catalog.region(region)
    except catalog.UnknownRegion as problem:
        raise ProgramExit(2, f"Error: --region: {problem}") from problem
    announce(log, settings, context.environment)
    clock, chance = context.clock, context.chance
    wait = 0 if virtual() else QUEUE_WAIT_S
    provider = msgspec.structs.replace(aws_settings(settings, region, context.aws.url), queue_wait=wait)
    calls = Calls(clock, region=region, endpoint=context.aws.url, session=session, share=settings.ec2_share)
    beside = context.client("karpenter", settings.kube_client_qps, settings.kube_client_burst)
    aws = Aws(provider, clock, calls, api_server=lambda: read_api_server(beside))
    autoscaler = Autoscaler(
        context.client("karpenter", settings.kube_client_qps, settings.kube_client_burst),
        aws,
        clock,
        chance,
        msgspec.structs.replace(settings, metrics_port=0, health_probe_port=0, enable_profiling=False, memory_limit=0),
        log=log,
        identity=f"{context.pod}_{chance.suffix()}",
        lease=context.client("karpenter"),
        start=AwsStart(aws, settings.cluster_name, log),
        namespace=context.namespace,
    )
    context.serve(settings.metrics_port, {"/metrics": lambda: ""})
    context.serve(
        settings.health_probe_port,
        {
            "/healthz": lambda: "\n".join(autoscaler.supervisor.unrecovered()),
            "/readyz": lambda: "\n".join(autoscaler.problems()),
        },
    )
    looking = asyncio.create_task(upkeep(aws, autoscaler), name="upkeep")
    began = clock.monotonic()
    try:
        with karpenter_webhooks.served(context):
            await autoscaler.run()
    except* StartRefused as group:
        raise ProgramExit(2, "Error: " + "; ".join(str(problem) for problem in group.exceptions)) from None
    finally:
        looking.cancel()
        calls.close()
        log.info("stopped dovetail", uptime=round(clock.monotonic() - began, 3))


def settings_of(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[Settings, str]:
    """The settings, and the region, from the command line over the environment. Raises ProgramExit."""
    flags: dict[str, str | None] = {}
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION", "")
    settings_names = meanings()
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        field = name.replace("-", "_")
        if not word.startswith("-") or (field not in settings_names and field != "region"):
            raise ProgramExit(2, f"Error: No such option: {word}")
        if not equals:
            if field in settings_names and is_switch(field):
                value = "true"
            elif words:
                value = words.pop(0)
            else:
                raise ProgramExit(2, f"Error: Option {word!r} requires an argument.")
        if field == "region":
            region = value
        else:
            flags[field] = value
    try:
        return read(flags, environment), region
    except SettingsError as problem:
        raise ProgramExit(2, f"Error: {problem}") from problem
