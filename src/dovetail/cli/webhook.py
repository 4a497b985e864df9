"""`dovetail webhook`: convert between v1 and v1beta1 for an API server (docs/api.md)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.errors import UserError
from dovetail.language import message
from dovetail.language.system_errors import system_error

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from aiohttp import web

    from dovetail.kube.client import Kube

#: A review may hold a whole list of objects.
LARGEST = 64 * 2**20
#: The Secret in which the replicas keep the certificate of `--service`.
CERTIFICATE_SECRET = "dovetail-webhook-certificate"
#: Between two tries to write the certificate into the definitions, in seconds.
RETRY_INTERVAL_S = 10.0
#: Between two looks at the files of --tls-cert and --tls-key, in seconds.
RELOAD_INTERVAL_S = 10.0


@click.command()
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--service",
    metavar="NAMESPACE/NAME",
    help="Make and renew a certificate for this Service, and point the definitions at it; instead of --tls-cert.",
)
@click.option("--address", default=None, help="Address to listen on.  [default: all, IPv4 and IPv6]")
@click.option("--port", default=8443, show_default=True, type=click.IntRange(1, 65535))
@click.option("--kubeconfig", default=None, help="Kubeconfig file; default as kubectl's, then in-cluster.")
def webhook(
    tls_cert: Path | None,
    tls_key: Path | None,
    service: str | None,
    address: str | None,
    port: int,
    kubeconfig: str | None,
) -> None:
    """Serve POST /convert over TLS; `dovetail crds --webhook` points the definitions at it."""
    import ssl

    from aiohttp import web

    from dovetail.runtime import http_log  # noqa: F401 (it filters what run_app logs)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    app = application()
    if service is not None:
        if tls_cert or tls_key:
            raise click.UsageError(message("--service makes its own certificate; leave out --tls-cert and --tls-key"))
        namespace, slash, name = service.partition("/")
        if not (namespace and slash and name):
            raise click.BadParameter("expected NAMESPACE/NAME", param_hint="--service")
        app.cleanup_ctx.append(lambda app: _certified(context, kubeconfig, namespace, name, port))
    elif tls_cert is None or tls_key is None:
        raise click.UsageError(message("needs --service, or --tls-cert and --tls-key"))
    else:
        try:
            context.load_cert_chain(tls_cert, tls_key)
        except (ssl.SSLError, OSError) as error:
            why = message("not a certificate and its key, both in PEM")
            raise UserError(f"--tls-cert {tls_cert}, --tls-key {tls_key}: {why}") from error
        files = (tls_cert, tls_key)
        app.cleanup_ctx.append(lambda app: _reloaded(context, *files))
    shown = message(
        "converting at https://{address}:{port}/convert; Ctrl-C stops it", address=address or "0.0.0.0", port=port
    )
    try:
        web.run_app(app, host=address, port=port, ssl_context=context, print=lambda _: click.echo(shown))
    except OSError as error:
        raise UserError(
            message(
                "--address {address}, --port {port}: {strerror}; choose others",
                address=address,
                port=port,
                strerror=system_error(error),
            )
        ) from error


async def _reloaded(context: ssl.SSLContext, certificate: Path, key: Path) -> AsyncIterator[None]:
    """While the webhook is served: load the files again whenever they change."""
    import asyncio

    reloading = asyncio.ensure_future(reload_certificate(context, certificate, key))
    try:
        yield
    finally:
        reloading.cancel()


async def reload_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Look at the files every few seconds, until cancelled. A pair that does not load leaves the old one in force."""
    import asyncio
    import ssl

    loaded = _versions(certificate, key)
    while True:
        await asyncio.sleep(RELOAD_INTERVAL_S)
        versions = _versions(certificate, key)
        if versions == loaded:
            continue
        try:
            context.load_cert_chain(certificate, key)
        except (ssl.SSLError, OSError) as error:
            click.echo(
                message(
                    "--tls-cert {certificate}: has changed and does not load with its key: {error}",
                    certificate=certificate,
                    error=error,
                ),
                err=True,
            )
            continue  # the other file of the pair may not be written yet
        loaded = versions


def _versions(*files: Path) -> tuple[tuple[int, int] | None, ...]:
    """What tells that a file was written anew: a Secret's files are links that change their target."""
    return tuple((file.stat().st_mtime_ns, file.stat().st_ino) if file.exists() else None for file in files)


async def _certified(
    context: ssl.SSLContext, kubeconfig: str | None, namespace: str, name: str, port: int
) -> AsyncIterator[None]:
    """While the webhook is served: keep its certificate in force."""
    import asyncio

    from dovetail.clock import Clock
    from dovetail.kube.client import Kube
    from dovetail.kube.config import load

    clock = Clock(asyncio.get_running_loop())
    kube = Kube(load(kubeconfig).transport(), clock)
    keeping = asyncio.ensure_future(keep_certificate(kube, context, namespace, name, port))
    try:
        yield
    finally:
        keeping.cancel()
        await kube.close()


async def keep_certificate(kube: Kube, context: ssl.SSLContext, namespace: str, name: str, port: int) -> None:
    """Load the certificate, write its authority into the definitions, and look again, until cancelled."""
    import asyncio

    from dovetail.kube.certificates import CHECK_INTERVAL_S, SharedCertificate, service_names
    from dovetail.kube.errors import KubeError

    shared = SharedCertificate(kube, CERTIFICATE_SECRET, namespace, service_names(name, namespace))
    while True:
        try:
            certificate = await shared.current()
            certificate.load_into(context)
            await point_definitions(kube, namespace, name, port, certificate.bundle)
            pause = CHECK_INTERVAL_S
        except KubeError as problem:
            click.echo(
                message(
                    "certificate of {namespace}/{name}: {problem}", namespace=namespace, name=name, problem=problem
                ),
                err=True,
            )
            pause = RETRY_INTERVAL_S
        await asyncio.sleep(pause)


async def point_definitions(kube: Kube, namespace: str, name: str, port: int, bundle: str) -> None:
    """Let the API server convert through this Service; what already says so is not written again."""
    from dovetail.kube.resources import CRDS
    from dovetail.model.kinds.crds import KINDS, definition

    client = {"service": {"namespace": namespace, "name": name, "port": port, "path": "/convert"}, "caBundle": bundle}
    for kind in KINDS:
        conversion = definition(kind, client)["spec"].get("conversion")
        if conversion is not None and (await kube.get(CRDS, kind.name))["spec"].get("conversion") != conversion:
            await kube.patch(CRDS, kind.name, {"spec": {"conversion": conversion}})


def application() -> web.Application:
    """The webhook without its socket."""
    from aiohttp import web

    app = web.Application(client_max_size=LARGEST)
    app.router.add_post("/convert", _convert)
    app.router.add_get("/healthz", _healthy)
    return app


async def _convert(request: web.Request) -> web.Response:
    from aiohttp import web

    from dovetail.model.kinds.convert import ConversionError, review

    try:
        return web.json_response(review(await request.json()))
    except (ConversionError, ValueError, AttributeError) as error:
        raise web.HTTPBadRequest(text=str(error)) from error


async def _healthy(request: web.Request) -> web.Response:
    from aiohttp import web

    return web.Response(text="ok")
