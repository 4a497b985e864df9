"""A server's certificate is held to RFC 5280, unless only the strict profile refuses it."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dovetail.clock import run_scaled
from dovetail.kube.config import _context
from dovetail.kube.errors import Disconnected
from dovetail.kube.http import Http
from dovetail.kube.transport import Request

ADDRESS = "127.0.0.1"


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(_named(subject)).issuer_name(_named(issuer)).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))


def pair(folder: Path, *, strict: bool) -> tuple[bytes, Path]:
    """An authority, and the file of a certificate and key that it issued; both lack key identifiers if not `strict`."""
    root, leaf = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _builder("ca", "ca", root.public_key()).add_extension(x509.BasicConstraints(True, None), critical=True)
    issued = _builder("server", "ca", leaf.public_key()).add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(ADDRESS))]), critical=False
    )
    if strict:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        authority = authority.add_extension(usage, critical=True).add_extension(
            x509.SubjectKeyIdentifier.from_public_key(root.public_key()), critical=False
        )
        issued = issued.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(root.public_key()), critical=False
        )
    pem = serialization.Encoding.PEM
    text = issued.sign(root, hashes.SHA256()).public_bytes(pem) + leaf.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / f"server-{strict}.pem"
    file.write_bytes(text)
    return authority.sign(root, hashes.SHA256()).public_bytes(pem), file


def ask(context: ssl.SSLContext, certificate: Path) -> int:
    """The status that a client with `context` gets from a server with `certificate`."""

    async def main() -> int:
        async def answer(_: web.Request) -> web.Response:
            return web.json_response({})

        app = web.Application()
        app.router.add_get("/version", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        served.load_cert_chain(certificate)
        await web.TCPSite(runner, ADDRESS, 0, ssl_context=served).start()
        transport = Http(f"https://{ADDRESS}:{runner.addresses[0][1]}", tls=context)
        try:
            return (await transport.send(Request(method="GET", path="/version"))).status
        finally:
            await transport.close()
            await runner.cleanup()
            await asyncio.sleep(0)

    return run_scaled(main())


@pytest.mark.parametrize("strict", [True, False])
def test_the_strict_profile_stands_unless_it_alone_refuses_the_server(tmp_path: Path, strict: bool) -> None:
    authority, certificate = pair(tmp_path, strict=strict)
    context = _context(authority, "kubeconfig")
    assert context.verify_flags & ssl.VERIFY_X509_STRICT
    assert ask(context, certificate) == 200
    assert bool(context.verify_flags & ssl.VERIFY_X509_STRICT) is strict


def test_a_server_of_another_authority_is_refused_and_the_strict_profile_stands(tmp_path: Path) -> None:
    _, certificate = pair(tmp_path, strict=True)
    other, _ = pair(tmp_path, strict=True)
    _, certificate = pair(tmp_path, strict=True)
    context = _context(other, "kubeconfig")
    with pytest.raises(Disconnected, match="cannot be reached"):
        ask(context, certificate)
    assert context.verify_flags & ssl.VERIFY_X509_STRICT
