"""Run the page beside a client of a cluster: shared by `dovetail dashboard`, `dovetail up` and the pod of the chart."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import msgspec

from dovetail.clock import Clock
from dovetail.controllers.history.store import NAMESPACE
from dovetail.install.doctor.checks import report
from dovetail.install.doctor.collect import collect
from dovetail.install.doctor.facts import Finding
from dovetail.kube.client import Kube
from dovetail.language import english
from dovetail.offline.growing_recording import GrowingRecording
from dovetail.view.observer import Observer
from dovetail.web.access import Access, KubernetesTokens, ProxyHeaders, Reviews, UrlToken
from dovetail.web.server import Dashboard, ServerSettings

DEFAULT_PORT = 8090


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`auth` is url, kubernetes or proxy. `port` None is the usual one, or a free one where that is taken."""

    auth: str = "url"
    host: str = "127.0.0.1"
    port: int | None = None
    hosts: tuple[str, ...] = ()
    token: str | None = None
    language: str | None = None
    title: str = ""
    server: str = ""
    history_namespace: str | None = None
    speed: float = 1.0
    secure: bool = False
    user_header: str = "X-Forwarded-User"
    group_header: str = "X-Forwarded-Groups"


@asynccontextmanager
async def dashboard(kube: Kube, clock: Clock, options: ServeOptions) -> AsyncIterator[tuple[str, Dashboard, Observer]]:
    """The page while the block runs; yields the URL to open, with the token where there is one."""
    observer = Observer(kube, clock, history_namespace=options.history_namespace, speed=options.speed)
    access = _access(kube, clock, options, observer)
    with english():  # every viewer has a language; what all of them share has none
        watching = asyncio.create_task(observer.run(), name="dashboard observer")
    try:
        async with _served(observer, access, options) as (url, served):
            yield (f"{url}?token={access.token}" if isinstance(access, UrlToken) else url), served, observer
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


@asynccontextmanager
async def recorded_dashboard(recorded: GrowingRecording, options: ServeOptions) -> AsyncIterator[tuple[str, Dashboard]]:
    """The page over a recording while the block runs; yields the URL to open, with the token."""
    access = UrlToken(options.token)
    observer = await recorded.fleet.at(recorded.fleet.end)
    async with _served(observer, access, options, recorded) as (url, served):
        yield f"{url}?token={access.token}", served


def _access(kube: Kube, clock: Clock, options: ServeOptions, observer: Observer) -> Access:
    if options.auth == "url":
        return UrlToken(options.token)
    namespaces = observer.state.namespaces.store
    reviews = Reviews(
        kube,
        clock,
        lambda: [namespace.metadata.name for namespace in namespaces.all()],
        options.history_namespace or NAMESPACE,
    )
    if options.auth == "proxy":
        return ProxyHeaders(reviews, options.user_header, options.group_header)
    return KubernetesTokens(reviews, clock)


@asynccontextmanager
async def _served(
    observer: Observer, access: Access, options: ServeOptions, recorded: GrowingRecording | None = None
) -> AsyncIterator[tuple[str, Dashboard]]:
    async def examine() -> Sequence[Finding]:
        return report(await collect(observer.kube, None, server=options.server, cluster=""), [])

    settings = ServerSettings(
        host=options.host,
        port=DEFAULT_PORT if options.port is None else options.port,
        hosts=options.hosts,
        language=options.language,
        title=options.title,
        speed=options.speed,
        secure=options.secure,
    )
    candidates = (settings,) if options.port is not None else (settings, msgspec.structs.replace(settings, port=0))
    async with AsyncExitStack() as stack:
        for attempt in candidates:
            served = Dashboard(observer, access, attempt, None if recorded is not None else examine, recorded)
            try:
                url = await stack.enter_async_context(served.serving())
                break
            except OSError as problem:
                if problem.errno != errno.EADDRINUSE or attempt is candidates[-1]:
                    raise
        yield url, served
