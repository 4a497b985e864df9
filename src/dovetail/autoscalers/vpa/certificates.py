"""Certificates of the webhook: from files, or made and kept in a Secret by the admission controller itself.

The Secret has the name and keys that upstream's script gives it, so either may have made it. Certificates are
renewed when a third of their time is left.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, Conflict, NotFound
from dovetail.kube.log import Log
from dovetail.kube.resources import SECRETS

log = Log("vpa-admission-controller")

SECRET = "vpa-tls-certs"
AUTHORITY_LIFE = timedelta(days=3650)
CERTIFICATE_LIFE = timedelta(days=365)
#: Clocks of other machines may be behind ours by as much.
CLOCK_SKEW = timedelta(hours=1)
_KEYS = ("caKey.pem", "caCert.pem", "serverKey.pem", "serverCert.pem")


class WebhookIdentity(msgspec.Struct, frozen=True):
    """PEM texts: the authority's certificate, the webhook's certificate and its key."""

    authority: bytes
    certificate: bytes
    key: bytes


class CertificateError(ValueError):
    """Certificates that cannot be read, or do not belong together."""


def service_name(service: str, namespace: str) -> str:
    return f"{service}.{namespace}.svc"


def make(name: str, now: datetime) -> dict[str, bytes]:
    """A new authority and a certificate for a DNS name, by the keys of the Secret."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name("vpa_webhook_ca")
    authority = (
        _builder(issuer, issuer, ca_key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    certificate = (
        _builder(_name(name), issuer, key, now, CERTIFICATE_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return {
        "caKey.pem": _private(ca_key),
        "caCert.pem": authority.public_bytes(pem),
        "serverKey.pem": _private(key),
        "serverCert.pem": certificate.public_bytes(pem),
    }


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + life)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def is_due(certificate: bytes, now: datetime) -> bool:
    """Whether a certificate has less than a third of its time left, or cannot be read."""
    try:
        read = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        return True
    life = read.not_valid_after_utc - read.not_valid_before_utc
    return now > read.not_valid_after_utc - life / 3


def identity_of(pems: Mapping[str, bytes]) -> WebhookIdentity:
    """The parts that the webhook serves with. Raises CertificateError."""
    missing = [key for key in _KEYS if key != "caKey.pem" and not pems.get(key)]
    if missing:
        raise CertificateError(f"secret {SECRET}: no {', '.join(missing)}; delete the secret to have it made anew")
    return WebhookIdentity(pems["caCert.pem"], pems["serverCert.pem"], pems["serverKey.pem"])


async def ensure(kube: Kube, namespace: str, name: str, now: datetime) -> WebhookIdentity:
    """The certificates of the Secret, made or renewed if need be; another replica may have been faster."""
    for _ in range(5):
        try:
            secret = await kube.get(SECRETS, SECRET, namespace)
        except NotFound:
            secret = None
        held = _decoded(secret) if secret is not None else {}
        if held.get("serverKey.pem") and not is_due(held.get("serverCert.pem", b""), now):
            return identity_of(held)
        made = make(name, now)
        data = {key: base64.b64encode(pem).decode() for key, pem in made.items()}
        try:
            if secret is None:
                body = {"metadata": {"name": SECRET, "namespace": namespace}, "type": "Opaque", "data": data}
                await kube.create(SECRETS, body)
            else:
                await kube.update(SECRETS, {**secret, "data": {**(secret.get("data") or {}), **data}})
        except (AlreadyExists, Conflict):
            continue
        log.info("Webhook certificates written", secret=f"{namespace}/{SECRET}", name=name)
        return identity_of(made)
    raise CertificateError(f"secret {namespace}/{SECRET}: it changed with each try to write it")


def _decoded(secret: Mapping[str, Any]) -> dict[str, bytes]:
    pems = {}
    for key, text in (secret.get("data") or {}).items():
        try:
            pems[key] = base64.b64decode(text, validate=True)
        except ValueError:
            continue
    return pems
