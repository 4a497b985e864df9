"""Where a request comes from: Host and Origin, and the headers that keep other sites away from an answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from aiohttp import web

from dovetail.language import source
from dovetail.web.access import NotAllowed

SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check_origin(request: web.Request, hosts: Collection[str]) -> None:
    """A name that is not ours may be another site's that resolves here; so may a request from another site be.

    `hosts` are names, beside the loopback's, that the page is reached by.
    """
    host = request.headers.get("Host", "")
    if request.path != "/healthz" and not _is_ours(host, hosts):
        raise NotAllowed(source("the host {host} is not this page's; name it with --host-name"), 421, host=repr(host))
    origin = request.headers.get("Origin")
    if origin is not None and _address(origin) != host:
        raise NotAllowed(source("a request from another site is not answered"), 403)
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if site not in ("same-origin", "none") and request.headers.get("Sec-Fetch-Mode") != "navigate":
        raise NotAllowed(source("a request from another site is not answered"), 403)


def _address(origin: str) -> str | None:
    """Host and port of an origin; None of `null`, and of what is none."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def _is_ours(host: str, hosts: Collection[str]) -> bool:
    """The port is the viewer's own where a tunnel leads here; only names can be another site's."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name in hosts or name in LOOPBACK
