"""`dovetail up`: a lab in real time with an endpoint for kubectl, until it receives a signal.

The API server is the embedded one or a real Kubernetes control plane; nodes, and with the embedded one the
controllers and the scheduler, are ours. `extras` is where an autoscaler and a cloud are added.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from dovetail.chance import Chance, system_seed
from dovetail.clock import Clock, wall
from dovetail.kube.errors import KubeError
from dovetail.lab.apiserver_only import ApiServerOnly, StartError, kubeconfig, refuse_second, write_private
from dovetail.lab.aws.ec2 import Timing
from dovetail.lab.aws.eks import Eks, EksSettings
from dovetail.lab.aws.eks_images import kubernetes_release
from dovetail.lab.aws.initial_instances import labelled
from dovetail.lab.cluster import Extra, Lab, LabParts
from dovetail.lab.cluster_config import ClusterConfig
from dovetail.lab.faults.injection import PATH
from dovetail.lab.in_process import InProcess
from dovetail.lab.instances import UnknownType, plain_pool
from dovetail.lab.kubelet.kubelets import ReportingDetail
from dovetail.lab.kubelet.log_server import KubeletServer
from dovetail.lab.kubelet.logs import Logs
from dovetail.lab.metrics_apiservice import extended, mounted
from dovetail.lab.real_control_plane import RealControlPlane, StartFailed
from dovetail.lab.server import LabServer
from dovetail.lab.tunnel import Tunnel, tunnel
from dovetail.lab.wall_clock_ages import WallClockAges, resumed
from dovetail.language import message
from dovetail.runfile import DEFAULT_NAME, RunningLab, find, leave, register

#: Seconds until what lost its owner goes: an idle controller manager is that quick.
COLLECTED_AFTER = 0.01
#: With more nodes than these the lab starts without aws-node and kube-proxy, whose pods would be two for each node.
MAX_NODES_WITH_SYSTEM_PODS = 200

#: What EKS writes on the nodes of the managed node group that a cluster starts with.
FIRST_GROUP_LABELS = {"eks.amazonaws.com/nodegroup": "system", "eks.amazonaws.com/capacityType": "ON_DEMAND"}


class LabSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `dovetail up` was asked for."""

    nodes: int = 3
    node_type: str = "m5.large"
    zones: tuple[str, ...] = ("ap-northeast-2a", "ap-northeast-2b", "ap-northeast-2c")
    cluster_name: str = "dovetail"
    region: str = "ap-northeast-2"
    autoscaler: bool = True
    #: An EKS cluster before an autoscaler is installed.
    fresh: bool = False
    gates: Mapping[str, bool] = {}
    boot: float | None = None
    speed: float = 1.0
    seed: int | None = None
    data: Path | None = None
    recover: bool = False
    kubeconfig: Path = Path("kubeconfig.yaml")
    port: int = 6443
    token: str | None = None
    control_plane: str = "embedded"
    log: str = ""
    name: str = DEFAULT_NAME
    #: An eksctl ClusterConfig: its node groups are the nodes.
    config: ClusterConfig | None = None


class StartedLab(msgspec.Struct):
    """A lab that is up: what the first screen says and the live view watches."""

    lab: Lab
    settings: LabSettings
    url: str
    seed: int
    eks: Eks | None = None
    #: What was put aside of a data folder that was not whole.
    notes: Sequence[str] = ()


#: Shows a running lab until cancelled.
Show = Callable[[StartedLab], Coroutine[Any, Any, None]]


async def up(settings: LabSettings, show: Show, extras: Sequence[Extra] = ()) -> None:
    """Run a lab until SIGINT or SIGTERM; leave nothing behind."""
    refuse_second(settings.name)
    seed = system_seed() if settings.seed is None else settings.seed
    try:
        instances = plain_pool(0 if settings.config else settings.nodes, settings.node_type, settings.zones)
        if settings.autoscaler:
            instances = [msgspec.structs.replace(instance, labels=FIRST_GROUP_LABELS) for instance in instances]
    except UnknownType as error:
        raise StartError(message("--node-type: {problem}", problem=error)) from error
    sys.setswitchinterval(0.0005)  # AWS answers in threads of this process; kubectl must not wait for them
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    opened = _embedded if settings.control_plane == "embedded" else _kubernetes
    async with opened(settings, seed, extras) as running:
        if running.eks is not None:
            running.eks.initial_instances = instances = labelled(instances)
            if running.lab.programs is not None:
                running.lab.programs.aws_ready = running.eks.ready
        run_file = RunningLab(
            os.getpid(),
            running.url,
            str(settings.kubeconfig.absolute()),
            "",
            settings.speed,
            settings.log,
            ready=running.eks is None,
            name=settings.name,
        )
        register(run_file)
        try:
            async with running.lab:
                if running.eks is not None:
                    running.lab.add(running.eks.run)
                    running.lab.add(_tell_environment(running.eks, run_file))
                await running.lab.join(instances)
                view = asyncio.create_task(show(running), name="view")
                waiting = asyncio.create_task(stop.wait(), name="stop")
                await asyncio.wait((view, waiting), return_when=asyncio.FIRST_COMPLETED)
                for task in (view, waiting):
                    task.cancel()
                with suppress(asyncio.CancelledError):
                    await view
        finally:
            leave(os.getpid(), settings.name)


def _tell_environment(eks: Eks, run_file: RunningLab) -> Extra:
    """Once AWS answers, `dovetail env` can say where."""

    async def tell(lab: Lab) -> None:
        await eks.ready.wait()
        registered = find(run_file.name) or run_file  # its page may have been added
        register(msgspec.structs.replace(registered, environment=eks.environment(), ready=True))

    return tell


def _eks(settings: LabSettings, url: str, authority: bytes) -> Eks | None:
    if not settings.autoscaler:
        return None
    timing = Timing() if settings.boot is None else Timing(settings.boot, 0.0, min(settings.boot, Timing().ready))
    config = settings.config
    eks_settings = EksSettings(
        cluster_name=settings.cluster_name,
        region=settings.region,
        gates=settings.gates,
        timing=timing,
        fresh=settings.fresh,
        config=config,
        serves_charts=True,
        system_pods=settings.nodes <= MAX_NODES_WITH_SYSTEM_PODS,
    )
    if config is not None and config.version:
        eks_settings = msgspec.structs.replace(eks_settings, version=config.version)
    return Eks(eks_settings, url, authority)


@asynccontextmanager
async def _embedded(settings: LabSettings, seed: int, extras: Sequence[Extra]) -> AsyncIterator[StartedLab]:
    clock = Clock(asyncio.get_running_loop(), resumed(settings.data, wall()) if settings.data else None)
    chance = Chance(seed)
    bare = ApiServerOnly(
        clock, chance.child("apiserver"), settings.port, settings.token, settings.data, LabServer, settings.recover
    )
    bare.collector.delay = COLLECTED_AFTER
    if settings.speed != 1:
        bare.mount.server = WallClockAges(bare.server, clock)
    try:
        url = await bare.start()
        write_private(settings.kubeconfig, bare.kubeconfig(settings.name))
        server = bare.server
        assert isinstance(server, LabServer)
        if settings.config is not None and settings.config.version:
            server.health.release = kubernetes_release(settings.config.version)
        transport = InProcess(server, {"authorization": f"Bearer {bare.token}"})
        parts = LabParts(pace=_pace(settings), storage=settings.autoscaler, programs=True)
        lab = Lab(transport, clock, chance, parts, server=server, extras=extras)
        yield StartedLab(lab, settings, url, seed, _eks(settings, url, bare.identity.authority), bare.notes)
    finally:
        await bare.stop()


@asynccontextmanager
async def _kubernetes(settings: LabSettings, seed: int, extras: Sequence[Extra]) -> AsyncIterator[StartedLab]:
    if settings.speed != 1:
        raise StartError(
            message("a real control plane runs in real time: leave out --speed, or use --control-plane embedded")
        )
    clock = Clock(asyncio.get_running_loop())
    try:
        async with tunnel() as way, _plane(settings, way) as plane:
            write_private(settings.kubeconfig, _inlined(plane, settings.name))
            transport = plane.transport()
            try:
                parts = LabParts(controllers=False, scheduler=False, pace=_pace(settings), programs=True)
                lab = Lab(transport, clock, Chance(seed), parts, extras=extras)
                eks = _eks(settings, plane.server, plane.certificate.read_bytes())
                kubelets = KubeletServer(
                    Logs(lab.fleet, clock), {PATH: lab.faults.handle_request} if lab.faults is not None else {}
                )
                async with extended(lab.kube, lab.metrics, lab.custom_metrics), mounted(kubelets, clock) as port:
                    way.kubelets = port
                    yield StartedLab(lab, settings, plane.server, seed, eks)
            finally:
                await transport.close()
    except StartFailed as error:
        raise StartError(str(error)) from error
    except KubeError as error:
        raise StartError(message("the control plane stopped answering: {error}", error=error)) from error


def _plane(settings: LabSettings, way: Tunnel) -> RealControlPlane:
    return RealControlPlane(scheduler=True, controllers=True, port=settings.port, folder=settings.data, flags=way.flags)


def _inlined(plane: RealControlPlane, name: str) -> str:
    return kubeconfig(plane.server, plane.certificate.read_bytes(), plane.token, name)


def _pace(settings: LabSettings) -> ReportingDetail:
    """Heartbeats are real ones: ten seconds of the lab's time, but not more often than once a second of ours."""
    return ReportingDetail(heartbeat_seconds=max(10.0, settings.speed))
