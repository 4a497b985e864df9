"""The three programs of the Vertical Pod Autoscaler, with the flags of their pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from dovetail.autoscalers.go_flags import FlagError
from dovetail.autoscalers.vpa import admission_controller, recommender, updater
from dovetail.autoscalers.vpa.metrics import AdmissionMetrics, ProgramMetrics, RecommenderMetrics, UpdaterMetrics
from dovetail.autoscalers.vpa.settings import (
    CommonSettings,
    admission_settings,
    recommender_settings,
    updater_settings,
)
from dovetail.kube.client import Kube
from dovetail.lab.programs.context import ProgramContext, ProgramExit, debug_lines
from dovetail.lab.webhook_services import NO_CERTIFICATE, in_process

S = TypeVar("S")


async def run_recommender(context: ProgramContext) -> None:
    """Until SIGTERM."""
    settings = _settings(context, recommender_settings)
    metrics = RecommenderMetrics(context.clock, settings.interval_s)
    kube = _start(context, settings.common, metrics)
    await recommender.run(settings, kube, context.clock, identity=context.pod, metrics=metrics)


async def run_updater(context: ProgramContext) -> None:
    """Until SIGTERM."""
    settings = _settings(context, updater_settings)
    metrics = UpdaterMetrics(context.clock, settings.interval_s)
    kube = _start(context, settings.common, metrics)
    await updater.run(settings, kube, context.clock, identity=context.pod, metrics=metrics)


async def run_admission_controller(context: ProgramContext) -> None:
    """Until SIGTERM. An API server in this process calls it as a function; another one by HTTPS."""
    settings = _settings(context, admission_settings)
    metrics = AdmissionMetrics(context.clock)
    kube = _start(context, settings.common, metrics)
    if context.server is None:
        await admission_controller.run(settings, kube, context.clock, identity=context.pod, metrics=metrics)
        return
    serve = in_process(context.server, context.namespace, settings.service)
    await admission_controller.run(
        settings, kube, context.clock, identity=context.pod, metrics=metrics, serve=serve, certificate=NO_CERTIFICATE
    )


def _settings(context: ProgramContext, read: Callable[[Sequence[str], Mapping[str, str]], tuple[S, list[str]]]) -> S:
    try:
        settings, notes = read(context.arguments, context.environment)
    except FlagError as problem:
        raise ProgramExit(2, f"Error: {problem}") from problem
    for note in notes:
        context.write(f"note: {note}")
    return settings


def _start(context: ProgramContext, common: CommonSettings, metrics: ProgramMetrics) -> Kube:
    """Serve the program's health; the client for its requests."""
    port = common.address.rpartition(":")[2]
    if port.isdigit():
        context.serve(int(port), {"/health-check": lambda: metrics.problem() or "", "/metrics": lambda: ""})
    debug_lines.set(common.log_level == "debug")
    return context.client("dovetail-vpa", common.kube_api_qps, common.kube_api_burst)
