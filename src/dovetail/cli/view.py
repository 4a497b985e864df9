"""`dovetail view`: the fleet of any cluster in the terminal. It reads; it writes nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.errors import UserError
from dovetail.language import message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dovetail.tui.app import ViewSource
    from dovetail.view.observer import Observer

#: How long the first lists may take; and, before `--once` prints what there is, events, history, usage and bound.
LIST_TIMEOUT_S, SETTLE_TIMEOUT_S = 60.0, 10.0
#: Columns where no terminal says: a pipe, a log.
PIPE_WIDTH = 120
SORTS = ("name", "cpu", "memory", "pods", "type", "price", "state", "age", "pool", "zone")


@click.command()
@click.option("--once", is_flag=True, help="Print the view as text and end; the default without a terminal.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    help="With json, once and for programs.",
)
@click.option(
    "--filter", "filter_text", default="", metavar="WORDS", help="Rows with all words: web pool:spot zone:2a."
)
@click.option("--sort", type=click.Choice(SORTS), default="name", show_default=True, help="Column to sort by.")
@click.option("--reverse", is_flag=True, help="Sort the other way round.")
@click.option("--usage", is_flag=True, help="Bars show usage (metrics-server) in place of requests.")
@click.option("--pods", is_flag=True, help="With --once: list the pods too.")
@click.option(
    "--width", type=click.IntRange(40, 1000), default=None, help="With --once: columns.  [default: the terminal's]"
)
@click.option(
    "--history-namespace", default=None, help="Namespace of the history.  [default: that of the controller's lease]"
)
@click.option(
    "--recording",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Print what a recording of dovetail record holds, in place of a cluster.",
)
@click.option(
    "--at",
    "time",
    default=None,
    metavar="TIME",
    help="With --recording: the time, 2026-01-31T12:00:00Z.  [default: its end]",
)
@click.option("--name", "lab", default=None, metavar="LAB", help="Show the lab of this name.")
@click.option("--kubeconfig", default=None, help="Kubeconfig file; default as kubectl's.")
@click.option("--context", default=None, help="Context of the kubeconfig.")
def view(
    once: bool,
    form: str,
    filter_text: str,
    sort: str,
    reverse: bool,
    usage: bool,
    pods: bool,
    width: int | None,
    history_namespace: str | None,
    recording: Path | None,
    time: str | None,
    lab: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Show the nodes of a cluster with their load and price, its pods, what is pending and why. It writes nothing."""
    from dovetail.cli import cluster_session

    plain = once or form == "json" or recording is not None or not is_terminal()
    if not plain and (pods or width is not None or reverse):
        option = "--pods" if pods else "--reverse" if reverse else "--width"
        raise UserError(message("{option}: is for --once; on the screen there are keys for it (?)", option=option))
    if recording is None and time is not None:
        raise UserError(message("--at: is for --recording FILE; a cluster is shown as it is now"))

    async def show(observer: Observer, server: str) -> None:
        if plain:
            click.echo(await _text(observer, form, filter_text, sort, reverse, usage, pods, width))
        else:
            await _live(observer, server, filter_text, sort, usage)

    if recording is None:
        _observe(cluster_session.kubeconfig(kubeconfig, lab), context, history_namespace, show)
        return
    cluster_session.refuse_with_recording(
        {"--name": lab, "--kubeconfig": kubeconfig, "--context": context, "--history-namespace": history_namespace}
    )
    _read(recording, time, show)


def is_terminal() -> bool:
    """Whether a screen can be drawn: Textual draws on the standard error; a dumb terminal has no cursor to move."""
    terminals = (sys.stdin, sys.stdout, sys.stderr)
    return all(terminal is not None and terminal.isatty() for terminal in terminals) and os.environ.get(
        "TERM", "dumb"
    ) not in (
        "dumb",
        "",
    )


def source_of(observer: Observer) -> ViewSource:
    """What the screen draws: the observer's view, and a call whenever there is another."""
    from dovetail.tui.app import ViewSource
    from dovetail.tui.explanation import ObserverEvidence

    return ViewSource(
        view=lambda: observer.view,
        listen=lambda draw: observer.listen(lambda new, change: draw()),
        now=observer.clock.now,
        evidence=ObserverEvidence(observer),
    )


async def _text(
    observer: Observer,
    form: str,
    filter_text: str,
    sort: str,
    descending: bool,
    usage: bool,
    pods: bool,
    width: int | None,
) -> str:
    import shutil

    import msgspec

    from dovetail.tui.body import body
    from dovetail.tui.figures import glyphs
    from dovetail.tui.tables import TableLook
    from dovetail.tui.text import once

    await observer.settle(SETTLE_TIMEOUT_S)
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(body(observer.view))).decode()
    columns = width or (shutil.get_terminal_size((PIPE_WIDTH, 24)).columns if sys.stdout.isatty() else PIPE_WIDTH)
    look = TableLook(observer.clock.now(), glyphs(sys.stdout.encoding), usage)
    lines = once(observer.view, look, columns, filter_text=filter_text, sort=sort, descending=descending, pods=pods)
    return "\n".join(lines)


async def _live(observer: Observer, server: str, filter_text: str, sort: str, usage: bool) -> None:
    from dovetail.tui.app import ViewApp
    from dovetail.tui.figures import glyphs

    await ViewApp(
        source_of(observer),
        server,
        glyphs=glyphs(sys.stdout.encoding),
        filter_text=filter_text,
        sort=sort,
        usage=usage,
    ).run_async()


def _read(path: Path, time: str | None, show: Callable[[Observer, str], Awaitable[None]]) -> None:
    """Show a recording at an instant."""
    from dovetail.cli.terminal import quiet_logs, waiting
    from dovetail.clock import run_scaled
    from dovetail.offline.recorded_fleet import RecordedFleet

    quiet_logs()

    async def main() -> None:
        with waiting(message("reading the recording …")):
            recorded = await RecordedFleet.opened(path)
            observer = await recorded.at(recorded.instant(time) if time is not None else recorded.end)
        await show(observer, path.name)

    run_scaled(main())


def _observe(
    kubeconfig: str | None,
    context: str | None,
    history_namespace: str | None,
    show: Callable[[Observer, str], Awaitable[None]],
) -> None:
    """Watch the cluster, and once it is listed show it."""
    import asyncio

    from dovetail.chance import Chance, system_seed
    from dovetail.cli.cluster_session import cluster_errors, server_time
    from dovetail.cli.terminal import quiet_logs, waiting
    from dovetail.clock import Clock, run_scaled
    from dovetail.kube.client import Kube
    from dovetail.kube.config import load
    from dovetail.view.observer import Observer

    quiet_logs()

    async def main() -> None:
        connection = load(kubeconfig, context)
        transport = connection.transport()
        try:
            with waiting(message("asking the cluster …")):
                clock = Clock(asyncio.get_running_loop(), await server_time(transport))
                kube = Kube(transport, clock, chance=Chance(system_seed()))
                observer = Observer(kube, clock, history_namespace=history_namespace)
                watching = asyncio.create_task(observer.run(), name="view observer")
                await _listed(observer)
            try:
                await show(observer, connection.server)
            finally:
                watching.cancel()
                await asyncio.wait([watching])
        finally:
            await transport.close()

    try:
        with cluster_errors():
            run_scaled(main())
    except TimeoutError as problem:
        raise UserError(
            message("the cluster did not list its nodes and pods within {seconds:.0f} s", seconds=LIST_TIMEOUT_S)
        ) from problem


async def _listed(observer: Observer) -> None:
    """Wait for the first view; a server that refuses to list nodes will not list them later."""
    import asyncio

    from dovetail.kube.errors import Forbidden, NotFound

    async with asyncio.timeout(LIST_TIMEOUT_S):
        while not observer.ready.is_set():
            for problem in observer.state.failures().values():
                if isinstance(problem, Forbidden | NotFound):
                    raise problem
            await asyncio.sleep(0.05)
