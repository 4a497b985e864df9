"""The program as a whole: watches, leads if it is elected, loops, serves metrics and health, and cleans up at the end.

`run` is the one entry, from the command line as well as in process.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from dovetail.autoscalers.go_flags import listen_address
from dovetail.autoscalers.node_groups import options as options_of
from dovetail.autoscalers.node_groups.actuation import Actuator, Deletion, Reports
from dovetail.autoscalers.node_groups.autoscaler import NodeGroupAutoscaler
from dovetail.autoscalers.node_groups.cluster_watch import ClusterWatch
from dovetail.autoscalers.node_groups.cooldown import Cooldown
from dovetail.autoscalers.node_groups.decision_log import NodeGroupDecisions
from dovetail.autoscalers.node_groups.flags import ParsedFlags
from dovetail.autoscalers.node_groups.klog import Klog
from dovetail.autoscalers.node_groups.metrics import ClusterAutoscalerMetrics
from dovetail.autoscalers.node_groups.recording import LoopRecorder, event_recorder
from dovetail.autoscalers.node_groups.request_controller import ProvisioningRequestController
from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.cloud.node_groups import NodeGroupCloud
from dovetail.kube.client import Kube
from dovetail.kube.events import EventRecorder
from dovetail.kube.lease import LeaderElection, LeadershipLost
from dovetail.model.pods import Pod
from dovetail.runtime.http_log import http_log

COMPONENT = "cluster-autoscaler"
#: How long an ending program may take to delete its status.
CLEAN_UP_S = 5.0


class ProgramHandle:
    """A handle on the program in process: the loop once it leads, for explanation and tests."""

    def __init__(self) -> None:
        self.autoscaler: NodeGroupAutoscaler | None = None
        self.metrics: ClusterAutoscalerMetrics | None = None


async def run(
    settings: ParsedFlags,
    kube: Kube,
    cloud: NodeGroupCloud,
    clock: Clock,
    chance: Chance,
    *,
    identity: str = COMPONENT,
    lease: Kube | None = None,
    events: Kube | None = None,
    write: Callable[[str], object] | None = None,
    serve: bool = False,
    running: ProgramHandle | None = None,
) -> None:
    """Until cancelled. `write` takes log lines, `serve` opens ports.

    `lease` is a client for the election alone, `events` one for events: neither waits behind the other requests, nor
    they behind it.
    """
    klog = Klog(clock, settings["v"], write)
    for notice in settings.notices():
        klog.warning("main", notice)
    metrics = ClusterAutoscalerMetrics(per_group=settings["emit-per-nodegroup-metrics"])
    handle = running or ProgramHandle()
    handle.metrics = metrics
    election = _election(settings, lease or kube, identity)
    writer, teller = kube, events or kube
    if election is not None:
        writer, teller = writer.fenced(election.check), teller.fenced(election.check)

    async def lead() -> None:
        await _lead(settings, writer, teller, cloud, clock, chance, klog, metrics, handle, election)

    async with _serving(settings["address"] if serve else "", metrics, handle, settings, clock):
        while True:
            if election is None:
                await lead()
                return
            try:
                await election.run(lead)
            except LeadershipLost as problem:
                klog.error("main", f"leader election lost: {problem}")


def _election(settings: ParsedFlags, kube: Kube, identity: str) -> LeaderElection | None:
    if not settings["leader-elect"]:
        return None
    namespace = settings["leader-elect-resource-namespace"] or settings["namespace"]
    return LeaderElection(kube, settings["leader-elect-resource-name"], namespace, identity, settings.lease_times())


async def _lead(
    settings: ParsedFlags,
    kube: Kube,
    event_client: Kube,
    cloud: NodeGroupCloud,
    clock: Clock,
    chance: Chance,
    klog: Klog,
    metrics: ClusterAutoscalerMetrics,
    handle: ProgramHandle,
    election: LeaderElection | None,
) -> None:
    options = options_of.options(settings)
    events = event_recorder(event_client, COMPONENT, duplicates=settings["record-duplicated-events"])
    recording = _recorder(settings, kube, clock, events, klog)

    def pod_changed(pod: Pod) -> None:
        if handle.autoscaler is not None:
            handle.autoscaler.pod_changed(pod)

    cooldown = Cooldown(options.delays, clock.now())
    decisions = NodeGroupDecisions(
        kube, settings["namespace"], clock, chance.child("decisions"), keep=settings["write-status-configmap"]
    )

    def removed(deletion: Deletion) -> None:
        metrics.scaled_down_nodes.labels("underutilized" if deletion.drain else "empty").inc()
        cooldown.deleted(deletion.group, clock.now())
        decisions.scaled_down(deletion, deletion.pods)

    watch = ClusterWatch(kube, pod_changed)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(events.run(), name="events")
            if election is not None:
                events.normal(election.about, "LeaderElection", f"{election.identity} became leader")
            tasks.create_task(watch.run(), name="watch")
            await recording.announce()
            await watch.synced()
            reports = _reports(recording, metrics, cooldown, clock, removed)
            requests = None
            if options.requests is not None:
                log = functools.partial(recording.log, "provisioningrequests")
                requests = ProvisioningRequestController(kube, options.requests, log)
                tasks.create_task(requests.run(), name="provisioning requests")
            actuator = Actuator(kube, cloud, watch, clock, options.actuation, reports, tasks)
            handle.autoscaler = NodeGroupAutoscaler(
                options, kube, cloud, watch, actuator, recording, metrics, cooldown, decisions, requests, clock, chance
            )
            await handle.autoscaler.run()
    finally:
        handle.autoscaler = None
        await _withdraw(recording, klog)


def _recorder(settings: ParsedFlags, kube: Kube, clock: Clock, events: EventRecorder, klog: Klog) -> LoopRecorder:
    return LoopRecorder(
        kube,
        clock,
        events,
        klog,
        namespace=settings["namespace"],
        name=settings["status-config-map-name"],
        write_status=settings["write-status-configmap"],
    )


def _reports(
    recording: LoopRecorder,
    metrics: ClusterAutoscalerMetrics,
    cooldown: Cooldown,
    clock: Clock,
    removed: Callable[[Deletion], None],
) -> Reports:
    """Where the actuator reports what it does."""
    return Reports(
        recording.node_event,
        recording.pod_event,
        recording.status_event,
        lambda message: recording.log("actuator", message),
        lambda done: metrics.evicted_pods.labels("succeeded" if done else "failed").inc(),
        removed,
        lambda: cooldown.failed(clock.now()),
        lambda deletion: cooldown.group_failed(deletion.group, clock.now()),
        functools.partial(recording.unexpected, "actuator"),
    )


async def _withdraw(recording: LoopRecorder, klog: Klog) -> None:
    """Clear the status ConfigMap at the end, unless another replica leads or the API server does not answer."""
    try:
        async with asyncio.timeout(CLEAN_UP_S):
            await asyncio.shield(recording.withdraw())
    except (TimeoutError, LeadershipLost):
        klog.error("main", "the status ConfigMap was left as it is")


@asynccontextmanager
async def _serving(
    address: str, metrics: ClusterAutoscalerMetrics, handle: ProgramHandle, settings: ParsedFlags, clock: Clock
) -> AsyncIterator[None]:
    """`/metrics` and `/health-check` on --address while the block runs; no address, nothing."""
    listening = listen_address("address", address)
    if listening is None:
        yield
        return

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), content_type="text/plain")

    async def health(_: web.Request) -> web.Response:
        problem = unhealthy(handle, settings, clock)
        return web.Response(status=500 if problem else 200, text=problem or "OK")

    app = web.Application()
    app.add_routes([web.get("/metrics", show), web.get("/health-check", health)])
    runner = web.AppRunner(app, access_log=None, logger=http_log)
    await runner.setup()
    try:
        await web.TCPSite(runner, *listening).start()
        yield
    finally:
        await runner.cleanup()


def unhealthy(handle: ProgramHandle, settings: ParsedFlags, clock: Clock) -> str:
    """Why the program should be restarted; empty when it should not. One that waits for the lease is well."""
    loop = handle.autoscaler
    if loop is None:
        return ""
    idle = clock.monotonic() - loop.last_loop
    if idle > settings["max-inactivity"]:
        return f"Error: last activity more than {idle:.0f}s ago"
    failing = clock.monotonic() - loop.last_success
    if failing > settings["max-failing-time"]:
        return f"Error: last successful loop more than {failing:.0f}s ago"
    return ""
