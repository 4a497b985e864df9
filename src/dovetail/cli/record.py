"""`dovetail record`: a cluster into a file, by watching it. It writes nothing to the cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.errors import UserError
from dovetail.language import message

if TYPE_CHECKING:
    from datetime import datetime

    from dovetail.chance import Chance
    from dovetail.kube.transport import Transport
    from dovetail.offline.recorder import Recorder, RecorderSettings
    from dovetail.offline.recording import Writer

#: How often usage is sampled, unless --usage-every says otherwise.
DEFAULT_USAGE_S = 300.0
_FILE = click.Path(path_type=Path, dir_okay=False)


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    from dovetail.model.duration import DurationError, parse

    if value is None:
        return None
    try:
        seconds = parse(value).total_seconds()
    except DurationError as problem:
        raise click.BadParameter(message("{value} is no duration; write 90s, 10m or 24h", value=value)) from problem
    if seconds <= 0:
        raise click.BadParameter(message("{value} is no duration; write 90s, 10m or 24h", value=value))
    return seconds


def _bytes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    from dovetail.model.quantity import QuantityError, parse

    if value is None:
        return None
    try:
        size = parse(value).nano // 10**9
    except QuantityError:
        size = 0
    if size <= 0:
        raise click.BadParameter(message("{value} is no size; write 100M or 1Gi", value=value))
    return size


@click.command()
@click.argument("file", type=_FILE)
@click.option("--for", "length_s", callback=_seconds, default=None, metavar="10m", help="End after this long.")
@click.option("--anonymise", is_flag=True, help="Hash names and labels; what scheduling and prices need stays.")
@click.option("--resume", is_flag=True, help="Go on with FILE; the time between is marked as a gap.")
@click.option("--max-age", callback=_seconds, default=None, metavar="24h", help="Begin another file after this long.")
@click.option("--max-size", callback=_bytes, default=None, metavar="100M", help="Begin another file at this size.")
@click.option(
    "--usage-every",
    callback=_seconds,
    default="5m",
    show_default=True,
    metavar="5m",
    help="How often usage is sampled from metrics.k8s.io.",
)
@click.option(
    "--convert", "sources", multiple=True, type=_FILE, help="Convert another tool's file; no cluster is asked."
)
@click.option("--name", "lab", default=None, metavar="LAB", help="Record the lab of this name.")
@click.option("--kubeconfig", default=None, help="Kubeconfig file; default as kubectl's.")
@click.option("--context", default=None, help="Context of the kubeconfig.")
def record(
    file: Path,
    length_s: float | None,
    anonymise: bool,
    resume: bool,
    max_age: float | None,
    max_size: int | None,
    usage_every: float,
    sources: tuple[Path, ...],
    lab: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Record a cluster into FILE, until interrupted or for a while.

    Nodes, pods, NodePools, NodeClaims, node classes, workloads, budgets, volumes, autoscalers with their events, usage
    and prices. It only reads: get, list and watch. Secrets, environment variables and commands are never recorded.

    With --convert: an audit log of Kubernetes, a Prometheus range export, a simkube trace, AWS Cost and Usage rows.
    """
    from dovetail.cli import cluster_session
    from dovetail.clock import run_scaled
    from dovetail.offline.recorder import RecorderSettings
    from dovetail.offline.recording.writer import check_absent

    if sources:
        _refuse_with_convert(
            {
                "--for": length_s,
                "--resume": resume or None,
                "--max-age": max_age,
                "--max-size": max_size,
                "--usage-every": usage_every if usage_every != DEFAULT_USAGE_S else None,
                "--name": lab,
                "--kubeconfig": kubeconfig,
                "--context": context,
            }
        )
        _convert(sources, file, anonymise)
        return
    if not resume:
        check_absent(file)
    elif anonymise:
        raise UserError(message("--anonymise --resume: the salt is not kept; record into another file"))
    limits = RecordLimits(length_s, max_age, max_size)
    session = RecordSession(file, resume, anonymise, limits, RecorderSettings(usage_interval_s=usage_every))
    config = cluster_session.kubeconfig(kubeconfig, lab)
    try:
        with _progress() as show, cluster_session.cluster_errors():
            run_scaled(session.run(config, context, show))
    except TimeoutError as problem:
        raise UserError(message("the cluster did not list its objects in time; is it reachable?")) from problem
    finally:
        for line in session.summary():
            click.echo(line)


def _refuse_with_convert(given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value is not None:
            raise UserError(message("{option}: leave it out with --convert, which asks no cluster", option=option))


def _convert(sources: tuple[Path, ...], file: Path, anonymise: bool) -> None:
    from dovetail.chance import Chance, system_seed
    from dovetail.offline.conversion.convert import convert
    from dovetail.offline.recording.anonymity import Anonymiser

    anonymiser = Anonymiser(Chance(system_seed()).randbytes(32)) if anonymise else None
    recording = convert(sources, file, anonymiser)
    click.echo(
        message(
            "{events:,} events of {source}, from {start} to {end}",
            events=sum(1 for _ in recording.events(recording.start, recording.end)),
            source=recording.header.source,
            start=recording.start.isoformat(),
            end=recording.end.isoformat(),
        )
    )


class RecordLimits:
    """When to end, and when to begin another file."""

    def __init__(self, length_s: float | None, max_age_s: float | None, max_bytes: int | None) -> None:
        self.length_s = length_s
        self.max_age_s = max_age_s
        self.max_bytes = max_bytes


class ServerClock:
    """The time of the server: what it last said, and how far ours went since."""

    def __init__(self, monotonic: Callable[[], float], speed: float) -> None:
        self._monotonic = monotonic
        self._speed = speed
        self._anchor: tuple[float, datetime] | None = None

    @property
    def is_set(self) -> bool:
        return self._anchor is not None

    def set(self, now: datetime) -> None:
        self._anchor = self._monotonic(), now

    def now(self) -> datetime:
        from datetime import timedelta

        assert self._anchor is not None
        since, instant = self._anchor
        return instant + timedelta(seconds=(self._monotonic() - since) * self._speed)


class RecordSession:
    """One call of the command."""

    def __init__(
        self, file: Path, resume: bool, anonymise: bool, limits: RecordLimits, settings: RecorderSettings
    ) -> None:
        self._file = file
        self._resume = resume
        self._anonymise = anonymise
        self._limits = limits
        self._settings = settings
        self._recorder: Recorder | None = None
        self._files: list[Path] = []
        self._events = 0
        self._written = 0

    async def run(self, kubeconfig: str | None, context: str | None, show: Callable[[str], None]) -> None:
        import asyncio
        import signal

        from dovetail.chance import Chance, system_seed
        from dovetail.cli.terminal import quiet_logs
        from dovetail.clock import Clock
        from dovetail.kube.client import Kube
        from dovetail.kube.config import load
        from dovetail.offline.recorder import Recorder
        from dovetail.offline.recording.anonymity import Anonymiser

        quiet_logs()
        connection = load(kubeconfig, context)
        transport = connection.transport()
        chance = Chance(system_seed())
        loop = asyncio.get_running_loop()
        clock = ServerClock(loop.time, _speed(connection.server))
        try:
            await _set(clock, transport)
            anonymiser = Anonymiser(chance.randbytes(32)) if self._anonymise else None
            cluster = anonymiser.name(connection.server) if anonymiser is not None else connection.server
            writer = self._writer(cluster, clock.now(), chance)
            kube = Kube(transport, Clock(loop), chance=chance)
            recorder = self._recorder = Recorder(
                kube, writer, clock.now, anonymiser=anonymiser, settings=self._settings
            )
            recording = asyncio.create_task(recorder.run(lambda: show(self._line())), name="record")
            loop.add_signal_handler(signal.SIGTERM, recording.cancel)
            keeping = asyncio.create_task(self._keep(recorder, clock, transport, chance), name="rotate")
            try:
                done, _ = await asyncio.wait({recording, keeping}, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if not task.cancelled() and (problem := task.exception()) is not None:
                        raise _first(problem)
            finally:
                recording.cancel()
                keeping.cancel()
                await asyncio.wait({recording, keeping})
                self._end(recorder, clock.now())
        finally:
            await transport.close()

    def summary(self) -> Iterator[str]:
        """What was recorded, what was not, and where it is."""
        recorder = self._recorder
        if recorder is None or not self._files:
            return
        yield self._line()
        unread = [f"{name} ({why})" for name, why in recorder.unread.items() if why != "not served"]
        if unread:
            yield message("not recorded: {kinds}", kinds=", ".join(unread))
        if recorder.usage_problem:
            yield message("usage is not recorded: {why}", why=recorder.usage_problem)
        yield " ".join(map(str, self._files))

    def _writer(self, cluster: str, now: datetime, chance: Chance) -> Writer:
        from dovetail.offline.recording import Writer, read
        from dovetail.offline.recording.blocks import IDENTITY_BYTES

        self._files.append(self._file)
        if not self._resume:
            return Writer.create(self._file, now, cluster, chance.randbytes(IDENTITY_BYTES), anonymised=self._anonymise)
        if read(self._file).header.anonymised:
            raise UserError(message("{path} is anonymised, and its salt was not kept; name another", path=self._file))
        return Writer.resume(self._file, now)

    async def _keep(self, recorder: Recorder, clock: ServerClock, transport: Transport, chance: Chance) -> None:
        """Follow the server's clock, begin other files, and end in time."""
        import asyncio

        from dovetail.offline.recording.blocks import IDENTITY_BYTES

        await recorder.begun.wait()
        began = file_began = clock.now()
        while True:
            await asyncio.sleep(1.0)
            await _set(clock, transport)
            now = clock.now()
            if self._limits.length_s is not None and (now - began).total_seconds() >= self._limits.length_s:
                return
            writer = recorder.writer
            old = self._limits.max_age_s is not None and (now - file_began).total_seconds() >= self._limits.max_age_s
            if old or (self._limits.max_bytes is not None and writer.written >= self._limits.max_bytes):
                self._events += writer.events
                path = _free(self._file)
                recorder.writer = writer.rotated(path, chance.randbytes(IDENTITY_BYTES), now)
                self._written += writer.written
                self._files.append(path)
                file_began = now

    def _end(self, recorder: Recorder, now: datetime) -> None:
        writer = recorder.writer
        if recorder.begun.is_set():
            writer.close(now)
            return
        writer.abandon()
        if not self._resume:
            self._file.unlink(missing_ok=True)
        self._files.clear()

    def _line(self) -> str:
        recorder = self._recorder
        assert recorder is not None
        counts, writer = recorder.counts, recorder.writer
        events, size = self._events + writer.events, self._written + writer.written
        return message(
            "{nodes:,} nodes, {pods:,} pods, {events:,} events, {size}",
            nodes=counts.get("Node", 0),
            pods=counts.get("Pod", 0),
            events=events,
            size=f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB",
        )


def _first(problem: BaseException) -> BaseException:
    """The first error of a group of tasks."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


def _speed(server: str) -> float:
    """How many seconds of the server pass in one of ours: a lab may run faster."""
    from dovetail.runfile import running

    return next((lab.speed for lab in running() if lab.url.rstrip("/") == server.rstrip("/")), 1.0)


async def _set(clock: ServerClock, transport: Transport) -> None:
    """Take the time from the server; while it does not answer, ours goes on."""
    from dovetail.cli.cluster_session import server_time
    from dovetail.clock import wall
    from dovetail.kube.errors import KubeError

    try:
        clock.set(await server_time(transport) or wall())
    except KubeError:
        if not clock.is_set:
            raise


def _free(file: Path) -> Path:
    """The next name of a rotated file: day.dvrec, day.1.dvrec, day.2.dvrec."""
    number = 1
    while (path := file.with_name(f"{file.stem}.{number}{file.suffix}")).exists():
        number += 1
    return path


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """On a terminal, what is recorded so far."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status(message("reading the cluster …")) as status:
        yield status.update
