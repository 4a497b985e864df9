"""`dovetail dashboard`: a live page of any cluster. It reads; it writes nothing."""

from __future__ import annotations

import asyncio
import signal
import sys
import webbrowser
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from dovetail.errors import UserError
from dovetail.language import current, message
from dovetail.language.system_errors import system_error

if TYPE_CHECKING:
    from dovetail.offline.growing_recording import GrowingRecording
    from dovetail.web.run import ServeOptions

#: Fewer can be guessed.
MIN_TOKEN_CHARS = 16


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="Port; 8090, or a free one if that is taken.")
@click.option("--listen", "host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--auth",
    type=click.Choice(["url", "kubernetes", "proxy"]),
    default="url",
    show_default=True,
    help="Who may look: those with the printed URL, those with a Kubernetes token, or those a proxy names.",
)
@click.option("--host-name", "hosts", multiple=True, metavar="NAME", help="A name that the page is reached by; repeat.")
@click.option("--token", default=None, help="The URL's token, to keep a bookmark; made up if absent.")
@click.option("--tls-proxy", is_flag=True, help="Viewers come by TLS through a proxy: cookies are for TLS alone.")
@click.option("--user-header", default="X-Forwarded-User", show_default=True, help="With --auth proxy: who looks.")
@click.option(
    "--group-header", default="X-Forwarded-Groups", show_default=True, help="With --auth proxy: their groups."
)
@click.option("--lang", type=click.Choice(["en", "ko"]), default=None, help="Language; the browser's if left out.")
@click.option(
    "--history-namespace", default=None, help="Namespace of the history.  [default: that of the controller's lease]"
)
@click.option("--open", "open_browser", is_flag=True, help="Open the page in the browser.")
@click.option(
    "--recording",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Show a recording of dovetail record, with a time slider, in place of a cluster.",
)
@click.option(
    "--scenario",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Simulate a scenario and show it while it runs, with a time slider.",
)
@click.option("--seed", type=int, default=None, help="With --scenario: another seed than the file's.")
@click.option("--name", "lab", default=None, metavar="LAB", help="Show the lab of this name.")
@click.option("--kubeconfig", default=None, help="Kubeconfig file; default as kubectl's.")
@click.option("--context", default=None, help="Context of the kubeconfig.")
def dashboard(
    port: int | None,
    host: str,
    auth: str,
    hosts: tuple[str, ...],
    token: str | None,
    tls_proxy: bool,
    user_header: str,
    group_header: str,
    lang: str | None,
    history_namespace: str | None,
    open_browser: bool,
    recording: Path | None,
    scenario: Path | None,
    seed: int | None,
    lab: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Show a cluster as a live page in the browser: nodes, money, pending pods and why. It writes nothing."""
    from dovetail.cli import cluster_session
    from dovetail.web.run import ServeOptions

    _check_access(auth, host, token)
    _check_headers(auth, {"--user-header": user_header, "--group-header": group_header})
    options = ServeOptions(
        auth=auth,
        host=host,
        port=port,
        hosts=hosts,
        token=token,
        language=lang,
        history_namespace=history_namespace,
        secure=tls_proxy,
        user_header=user_header,
        group_header=group_header,
    )
    if seed is not None and scenario is None:
        raise UserError(message("--seed: is for a simulation; name a scenario with --scenario"))
    if recording is None and scenario is None:
        _serve(cluster_session.kubeconfig(kubeconfig, lab), context, options, open_browser)
        return
    cluster_session.refuse_with_recording(
        {
            "--recording": str(recording) if recording is not None and scenario is not None else None,
            "--name": lab,
            "--kubeconfig": kubeconfig,
            "--context": context,
            "--history-namespace": history_namespace,
            "--auth": auth if auth != "url" else None,
        },
        "--recording" if scenario is None else "--scenario",
    )
    if recording is not None:
        _serve_recording(recording, options, open_browser)
    elif scenario is not None:
        _serve_scenario(scenario, seed, options, open_browser)


def _check_access(auth: str, host: str, token: str | None) -> None:
    """Refuse a token in a URL beyond this host, and one that is of no use or can be guessed."""
    if auth == "url" and host not in ("127.0.0.1", "localhost", "::1"):
        raise UserError(
            message(
                "--listen {host}: a token in a URL is for the loopback; add --auth kubernetes, or leave it out",
                host=host,
            )
        )
    if token is not None and auth != "url":
        raise UserError(
            message("--token: is for --auth url; with --auth {auth} viewers have credentials of their own", auth=auth)
        )
    if token is not None and len(token) < MIN_TOKEN_CHARS:
        raise UserError(
            message(
                "--token: {count} characters can be guessed; give at least {min_token_chars}",
                count=len(token),
                min_token_chars=MIN_TOKEN_CHARS,
            )
        )


def _check_headers(auth: str, given: Mapping[str, str]) -> None:
    """Refuse names of headers that are not read."""
    from dovetail.web.run import ServeOptions

    usual = ServeOptions()
    for option, name in given.items():
        if auth != "proxy" and name not in (usual.user_header, usual.group_header):
            raise UserError(message("{option}: is for --auth proxy", option=option))


def _serve(kubeconfig: str | None, context: str | None, options: ServeOptions, open_browser: bool) -> None:
    import msgspec

    from dovetail.chance import Chance, system_seed
    from dovetail.cli.cluster_session import cluster_errors, server_time
    from dovetail.cli.terminal import quiet_logs
    from dovetail.clock import Clock, run_scaled
    from dovetail.kube.client import Kube
    from dovetail.kube.config import load
    from dovetail.web.run import dashboard as served

    quiet_logs()

    async def main() -> None:
        connection = load(kubeconfig, context)
        transport = connection.transport()
        stop = _stopped_by_signal()
        try:
            clock = Clock(asyncio.get_running_loop(), await server_time(transport))
            kube = Kube(transport, clock, chance=Chance(system_seed()))
            chosen = msgspec.structs.replace(options, title=connection.server, server=connection.server)
            async with served(kube, clock, chosen) as (url, _, _):
                click.echo(message("dashboard   {url}", url=url))
                click.echo(
                    message(
                        "cluster     {server}   (read only; Ctrl-C ends the page, not the cluster)",
                        server=connection.server,
                    )
                )
                if open_browser:
                    await asyncio.to_thread(webbrowser.open, url)
                await stop.wait()
        finally:
            await transport.close()

    try:
        with cluster_errors():
            run_scaled(main())
    except OSError as problem:
        raise _not_listening(options, problem) from problem


def _serve_recording(path: Path, options: ServeOptions, open_browser: bool) -> None:
    from dovetail.cli.terminal import waiting
    from dovetail.offline.growing_recording import GrowingRecording
    from dovetail.offline.recorded_fleet import RecordedFleet, instant_text

    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[GrowingRecording, str]]:
        with waiting(message("reading the recording …")):
            recorded = await RecordedFleet.opened(path)
        span = {"start": instant_text(recorded.start), "end": instant_text(recorded.end)}
        line = message("recording   {path}   {start} to {end}   (Ctrl-C ends the page)", path=path, **span)
        yield GrowingRecording(recorded), line

    _serve_recorded(opened(), options, path.name, open_browser)


def _serve_scenario(file: Path, seed: int | None, options: ServeOptions, open_browser: bool) -> None:
    """The simulation runs in a process of its own, as fast as it can, and records; the page shows the recording."""
    from dovetail.cli.terminal import waiting
    from dovetail.offline.growing_recording import GrowingRecording

    @asynccontextmanager
    async def played() -> AsyncIterator[tuple[GrowingRecording, str]]:
        with TemporaryDirectory(prefix="dovetail-simulation-") as folder:
            target = Path(folder) / "simulation.dvrec"
            process = await asyncio.create_subprocess_exec(*_simulation(file, seed, target))
            try:
                with waiting(message("the simulation starts …")):
                    recording = await GrowingRecording.opened(target, lambda: process.returncode is None)
                if recording is None:  # it has said why
                    raise SystemExit(await process.wait())
                following = asyncio.create_task(recording.follow(lambda: process.returncode is None))
                try:
                    yield (
                        recording,
                        message("simulation  {file}   (Ctrl-C ends the page and the simulation)", file=file),
                    )
                finally:
                    following.cancel()
                    await asyncio.wait([following])
            finally:
                if process.returncode is None:
                    process.terminate()
                    await process.wait()

    _serve_recorded(played(), options, file.name, open_browser)


def _simulation(file: Path, seed: int | None, target: Path) -> list[str]:
    seeded = [f"--seed={seed}"] if seed is not None else []
    command = [sys.executable, "-m", "dovetail.cli", "simulate", str(file), "--record", str(target)]
    return [*command, f"--lang={current()}", *seeded]


def _serve_recorded(
    source: AbstractAsyncContextManager[tuple[GrowingRecording, str]],
    options: ServeOptions,
    title: str,
    open_browser: bool,
) -> None:
    """The page over a recording until a signal comes; `source` gives it, with the line that names it."""
    import msgspec

    from dovetail.cli.terminal import quiet_logs
    from dovetail.clock import run_scaled
    from dovetail.web.run import recorded_dashboard

    quiet_logs()

    async def main() -> None:
        stop = _stopped_by_signal()
        titled = msgspec.structs.replace(options, title=title)
        async with source as (recording, line), recorded_dashboard(recording, titled) as (url, _):
            click.echo(message("dashboard   {url}", url=url))
            click.echo(line)
            if open_browser:
                await asyncio.to_thread(webbrowser.open, url)
            await stop.wait()

    try:
        run_scaled(main())
    except OSError as problem:
        raise _not_listening(options, problem) from problem


def _stopped_by_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _not_listening(options: ServeOptions, problem: OSError) -> UserError:
    where = f"{options.host}:{options.port}" if options.port is not None else options.host
    return UserError(
        message(
            "cannot listen on {where}: {strerror}; choose another --port or --listen",
            where=where,
            strerror=system_error(problem),
        )
    )
