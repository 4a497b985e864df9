"""`dovetail up`, `down` and `env`: the lab, in the foreground or in the background."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail import language
from dovetail.cli.terminal import waiting
from dovetail.errors import UserError
from dovetail.language import message, source
from dovetail.language.recognition import recognized
from dovetail.language.system_errors import system_error
from dovetail.runfile import DEFAULT_NAME, alive, command_for, find, folder, is_name, log_of, register
from dovetail.runfile import running as running_labs

if TYPE_CHECKING:
    from dovetail.lab.cluster_config import ClusterConfig
    from dovetail.lab.up import LabSettings, StartedLab
    from dovetail.runfile import RunningLab
    from dovetail.view.observer import Observer

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)
#: Tells a lab in the background where it writes.
_LOG = "DOVETAIL_LAB_LOG"
#: What EKS takes for the name of a cluster.
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")
_STARTING = source("starting the lab …")


@click.command()
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="Tells labs apart that run at the same time.")
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(0, 5000), help="Nodes at the start.")
@click.option("--node-type", default="m5.large", show_default=True, help="Their instance type.")
@click.option("--zones", default=None, help="Their zones, dealt in turn; three of the region by default.")
@click.option("--cluster-name", default="dovetail", show_default=True, help="What EKS calls the cluster.")
@click.option("--region", default="ap-northeast-2", show_default=True, help="The AWS region the lab is in.")
@click.option(
    "--config", "cluster_config", type=_FILE, default=None, help="An eksctl ClusterConfig: exactly its cluster."
)
@click.option(
    "--autoscaler/--no-autoscaler",
    default=True,
    show_default=True,
    help="With AWS and the autoscaler, or the plain cluster.",
)
@click.option("--fresh", is_flag=True, help="An EKS cluster without an autoscaler, to install one on.")
@click.option(
    "--feature-gates", "gates", default="", help="Gates to open or shut, as NodeRepair=true,StaticCapacity=true."
)
@click.option(
    "--boot",
    default=None,
    type=click.FloatRange(0, 3600),
    help="Seconds until a launched instance joins; 25 to 35 by default.",
)
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 10000, min_open=True),
    help="Seconds of the lab to one of yours, while it waits.",
)
@click.option("--seed", type=int, default=None, help="Makes names and choices repeatable.")
@click.option("--data", type=_FOLDER, default=None, help="Keep the cluster in this folder across restarts.")
@click.option(
    "--recover",
    is_flag=True,
    help="Start with every sound record of a damaged --data folder; the damaged file is kept.",
)
@click.option(
    "--kubeconfig",
    "config",
    type=_FILE,
    default=None,
    help="Where to write it; kubeconfig.yaml by default, kubeconfig-NAME.yaml of a named lab.",
)
@click.option(
    "--port",
    default=None,
    type=click.IntRange(0, 65535),
    help="Port on the loopback; 6443 by default, 0 or a named lab picks a free one.",
)
@click.option("--token", default=None, help="The administrator's token; made up if absent.")
@click.option(
    "--control-plane",
    type=click.Choice(["embedded", "kubernetes"]),
    default="embedded",
    show_default=True,
    help="The API server, scheduler and controllers: ours, or the real ones.",
)
@click.option("--bare", is_flag=True, help="The API server alone, without nodes or controllers.")
@click.option("--plain", is_flag=True, help="Plain lines in place of the screen, also on a terminal.")
@click.option("--detach", is_flag=True, help="Leave the lab in the background; dovetail down stops it.")
def up(
    name: str,
    nodes: int,
    node_type: str,
    zones: str | None,
    cluster_name: str,
    region: str,
    cluster_config: Path | None,
    autoscaler: bool,
    fresh: bool,
    gates: str,
    boot: float | None,
    speed: float,
    seed: int | None,
    data: Path | None,
    recover: bool,
    config: Path | None,
    port: int | None,
    token: str | None,
    control_plane: str,
    bare: bool,
    plain: bool,
    detach: bool,
) -> None:
    """Start the lab: a cluster in one process."""
    from dovetail.lab.up import LabSettings

    configured = _configured(cluster_config, autoscaler)
    if configured is not None:
        cluster_name, region = configured.name, configured.region
        fresh = fresh or configured.karpenter is None
    names = _zones(zones, region)
    _check_names(name, cluster_name)
    _check_nodes(nodes, autoscaler, fresh, needs_node=configured is None and not bare)
    if recover:
        _check_recover(data, control_plane)
    default_config = Path("kubeconfig.yaml" if name == DEFAULT_NAME else f"kubeconfig-{name}.yaml")
    settings = LabSettings(
        nodes=nodes,
        node_type=node_type,
        zones=names,
        boot=boot,
        speed=speed,
        seed=seed,
        data=data,
        recover=recover,
        name=name,
        kubeconfig=config or default_config,
        port=port if port is not None else 6443 if name == DEFAULT_NAME else 0,
        token=token,
        control_plane=control_plane,
        cluster_name=cluster_name,
        region=region,
        autoscaler=autoscaler,
        fresh=fresh,
        gates=_gates(gates),
        log=os.environ.get(_LOG, ""),
        config=configured,
    )
    _start(settings, bare=bare, plain=plain, detach=detach)


def _start(settings: LabSettings, *, bare: bool, plain: bool, detach: bool) -> None:
    from dovetail.lab import apiserver_only

    _make_room()
    try:
        if detach:
            _detach(settings.name, with_page=not bare)
        elif bare:
            apiserver_only.run(
                settings.port,
                settings.kubeconfig,
                settings.token,
                settings.data,
                click.echo,
                settings.log,
                settings.recover,
                settings.name,
            )
        else:
            _run(settings, plain)
    except apiserver_only.StartError as error:
        raise UserError(str(error)) from error


def _check_nodes(nodes: int, autoscaler: bool, fresh: bool, *, needs_node: bool) -> None:
    """Refuse a lab whose autoscaler would have no node to run on, and one that is both with and without it."""
    if fresh and not autoscaler:
        raise UserError(message("--fresh: is a cluster with AWS and without an autoscaler; leave out --no-autoscaler"))
    if nodes == 0 and autoscaler and not fresh and needs_node:
        raise UserError(
            message("--nodes 0: the autoscaler is a pod and needs a node; take --nodes 1, or leave it out: --fresh")
        )


def _check_names(name: str, cluster_name: str) -> None:
    """Refuse names that `dovetail down` or EKS would not take."""
    if not _NAME.fullmatch(cluster_name):
        raise UserError(
            message(
                "--cluster-name: {cluster_name!r} is none that EKS takes: letters, digits, - and _, up to 100",
                cluster_name=cluster_name,
            )
        )
    if not is_name(name):
        raise UserError(
            message("--name: {name!r} is no name of a lab: lower-case letters, digits and -, up to 40", name=name)
        )


def _check_recover(data: Path | None, control_plane: str) -> None:
    """Refuse `--recover` where there is no folder of ours to recover."""
    if data is None:
        raise UserError(message("--recover: is about a --data folder; name it"))
    if control_plane == "kubernetes":
        raise UserError(
            message("--recover: a real control plane keeps its data in etcd, which recovers by itself; leave it out")
        )


def _configured(file: Path | None, autoscaler: bool) -> ClusterConfig | None:
    """The ClusterConfig; what of it means nothing in the lab is listed."""
    if file is None:
        return None
    from dovetail.lab.cluster_config import read
    from dovetail.lab.eksctl_fields import ConfigRefused

    if not autoscaler:
        raise UserError(message("--config: node groups need the lab's AWS; leave --no-autoscaler out"))
    try:
        config = read(file)
    except ConfigRefused as problem:
        raise UserError(f"--config: {problem}") from problem
    for line in config.ignored:
        click.echo(message("note: {note}", note=line), err=True)
    return config


def _make_room() -> None:
    """The folder in which running labs are found."""
    try:
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        text = message(
            "{parent}: {strerror}; set XDG_STATE_HOME to a folder that can be written",
            parent=folder().parent,
            strerror=system_error(error),
        )
        raise UserError(text) from error


def _zones(zones: str | None, region: str) -> tuple[str, ...]:
    from dovetail.cloud.aws import catalog

    try:
        region_zones = sorted(catalog.region(region).zones)
    except catalog.UnknownRegion as error:
        raise UserError(f"--region: {error}") from error
    if zones is None:
        return tuple(region_zones[:3])
    names = tuple(zone.strip() for zone in zones.split(",") if zone.strip())
    if not names:
        raise UserError(message("--zones names no zone; try --zones {known}", known=",".join(region_zones[:2])))
    for name in names:
        if name not in region_zones:
            raise UserError(
                message(
                    "--zones: {name!r} is not a zone of {region}, which has {known}",
                    name=name,
                    region=region,
                    known=", ".join(region_zones),
                )
            )
    return names


def _gates(text: str) -> Mapping[str, bool]:
    from dovetail.controllers.settings import GATES, read_gates, unknown_gates

    for name in unknown_gates(text):
        raise UserError(message("--feature-gates: {name!r} is none of {gates}", name=name, gates=", ".join(GATES)))
    try:
        return read_gates(text)
    except ValueError as error:
        raise UserError(f"--feature-gates: {error}") from error


def _run(settings: LabSettings, plain: bool) -> None:
    from rich.console import Console

    from dovetail.cli.status_lines import StatusLines
    from dovetail.cli.terminal import quiet_logs
    from dovetail.cli.view import is_terminal
    from dovetail.clock import run_scaled
    from dovetail.lab import up as lab
    from dovetail.lab.apiserver_only import StartError

    console = Console()
    quiet_logs(programs=True)
    starting = console.status(message(_STARTING))

    reader = language.current()

    async def show(running: lab.StartedLab) -> None:
        with language.in_language(reader):
            async with _dashboard(running) as (url, observer):
                starting.stop()
                if plain or not is_terminal():
                    await StatusLines(running, console, url).run()
                else:
                    await _screen(running, observer, url)

    try:
        with starting, language.english():  # the lab answers in English, as Kubernetes does
            run_scaled(lab.up(settings, show), settings.speed)
    except* StartError as group:
        raise _first(group) from None


async def _screen(running: StartedLab, observer: Observer, url: str) -> None:
    """The live view of the lab. What runs is printed too: it stays in the terminal once the screen is gone."""
    from dovetail.cli.status_lines import faults_now, welcome
    from dovetail.cli.view import source_of
    from dovetail.tui.app import ViewApp
    from dovetail.tui.figures import glyphs

    await observer.ready.wait()
    names = sorted(node.name for node in observer.view.nodes.values() if node.has_node)
    lines = [*map(recognized, running.notes), *welcome(running, names, url)]
    for text in lines:
        click.echo(text)

    def faults() -> list[str]:
        broken = ", ".join(faults_now(running))
        return [message("broken: {faults}", faults=broken)] if broken else []

    notes = [*lines, "", message("Esc shows the nodes; q stops the lab.")]
    await ViewApp(
        source_of(observer), running.url, notes, glyphs=glyphs(sys.stdout.encoding), warnings=faults
    ).run_async()


@asynccontextmanager
async def _dashboard(running: StartedLab) -> AsyncIterator[tuple[str, Observer]]:
    """The page of the lab, on the loopback; yields its URL, and what it observes."""
    import msgspec

    from dovetail.web.run import ServeOptions, dashboard

    lab = running.lab
    options = ServeOptions(
        title=running.url,
        server=running.url,
        speed=running.settings.speed,
        port=None if running.settings.name == DEFAULT_NAME else 0,
    )
    async with dashboard(lab.client("dovetail-dashboard"), lab.clock, options) as (url, _, observer):
        registered = find(running.settings.name)
        if registered is not None:
            register(msgspec.structs.replace(registered, dashboard=url))
        yield url, observer


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _detach(name: str, with_page: bool) -> None:
    """Start the same command in a session of its own, and wait until it can be reached."""
    from dovetail.lab.apiserver_only import StartError, refuse_second

    refuse_second(name)
    log = log_of(name)
    arguments = [argument for argument in sys.argv[1:] if argument != "--detach"]
    command = [sys.executable, "-c", "from dovetail.cli.main import main; main()", *arguments]
    environment = {**os.environ, _LOG: str(log), "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=environment
        )
    try:
        with waiting(message(_STARTING)):
            _poll(lambda: process.poll() is not None or _ready(find(name)), seconds=60)
            if with_page:
                _poll(lambda: process.poll() is not None or _has_page(find(name)), seconds=20)
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    running = find(name)
    if process.poll() is not None:
        text = log.read_text(errors="replace").strip().removeprefix("Error: ")
        raise StartError(
            text or message("the lab ended with {returncode}; its log is {log}", returncode=process.returncode, log=log)
        )
    if running is None:
        process.terminate()
        raise StartError(message("the lab did not come up within a minute; its log is {log}", log=log))
    click.echo(message("lab         {url}   (process {pid}, log {log})", url=running.url, pid=running.pid, log=log))
    click.echo(message("kubeconfig  {path}", path=running.kubeconfig))
    if running.dashboard:
        click.echo(message("dashboard   {url}", url=running.dashboard))
    click.echo(message("{command} stops it.", command=command_for("down", name)))


def _ready(running: RunningLab | None) -> bool:
    """Whether all that `dovetail env` tells can be reached: without its AWS, `aws` would ask the real one."""
    return running is not None and running.ready


def _has_page(running: RunningLab | None) -> bool:
    return running is None or bool(running.dashboard)


def _poll(done: Callable[[], bool], seconds: float) -> bool:
    """Wait for something in another process; returns whether it came."""
    import asyncio

    from dovetail.clock import run_scaled

    async def wait() -> bool:
        try:
            async with asyncio.timeout(seconds):
                while not done():  # noqa: ASYNC110 (another process sends no event)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return False
        return True

    return run_scaled(wait())


@click.command()
@click.option("--name", default=None, metavar="LAB", help="Which lab, where several run.")
def down(name: str | None) -> None:
    """Stop a lab left in the background."""
    from dovetail.cli import cluster_session

    if name is None and not running_labs():
        click.echo(message("no lab runs"))
        return
    running = cluster_session.lab(name)
    os.kill(running.pid, signal.SIGTERM)
    if _poll(lambda: not alive(running.pid), seconds=15):
        which = message("the lab") if running.name == DEFAULT_NAME else message("lab {name}", name=running.name)
        click.echo(message("stopped {which} at {url}", which=which, url=running.url))
        return
    raise UserError(message("the lab (process {pid}) did not stop within 15 s; kill -9 {pid} will", pid=running.pid))


@click.command()
@click.option("--name", default=None, metavar="LAB", help="Which lab, where several run.")
def env(name: str | None) -> None:
    """Print the environment that points kubectl and aws at the lab: eval "$(dovetail env)"."""
    from dovetail.cli import cluster_session

    chosen = cluster_session.lab(name).name
    with waiting(message(_STARTING)):
        _poll(lambda: find(chosen) is None or _ready(find(chosen)), seconds=60)
    running = find(chosen)
    if running is None or not running.ready:
        raise UserError(message("the lab has not come up; where it was started it says why"))
    for name, value in {"KUBECONFIG": running.kubeconfig, **running.environment}.items():
        click.echo(f"export {name}={shlex.quote(value)}")
