"""`dovetail webhook`: convert between v1 and v1beta1 for an API server (docs/api.md)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.problem import Problem

if TYPE_CHECKING:
    from aiohttp import web

#: A review may hold a whole list of objects.
LARGEST = 64 * 2**20


@click.command()
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--address", default="0.0.0.0", show_default=True)
@click.option("--port", default=8443, show_default=True, type=click.IntRange(1, 65535))
def webhook(tls_cert: Path, tls_key: Path, address: str, port: int) -> None:
    """Serve POST /convert over TLS; `dovetail crds --webhook` points the definitions at it."""
    import ssl

    from aiohttp import web

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls_cert, tls_key)
    except (ssl.SSLError, OSError) as error:
        why = "not a certificate and its key, both in PEM"
        raise Problem(f"--tls-cert {tls_cert}, --tls-key {tls_key}: {why}") from error
    told = f"converting at https://{address}:{port}/convert; Ctrl-C stops it"
    try:
        web.run_app(application(), host=address, port=port, ssl_context=context, print=lambda _: click.echo(told))
    except OSError as error:
        raise Problem(f"--address {address}, --port {port}: {error.strerror}; choose others") from error


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
