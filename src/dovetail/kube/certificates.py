"""Certificates of our own webhooks: made, kept in a Secret that the replicas share, and renewed in time.

A renewed certificate has a new authority. The bundle that API servers are given holds the former authority as well,
until the next renewal: a replica that has not read the Secret again is still trusted.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, Conflict, NotFound
from dovetail.kube.resources import SECRETS

LIFETIME = timedelta(days=90)
#: A certificate with less time left is renewed.
RENEWAL_MARGIN = timedelta(days=30)
#: Between two looks at the Secret, in seconds.
CHECK_INTERVAL_S = 3600.0


class ServingCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """PEM texts. `authorities` is what clients are to trust."""

    authorities: bytes
    certificate: bytes
    key: bytes

    @property
    def bundle(self) -> str:
        """The authorities, as a webhook's `caBundle`."""
        return base64.b64encode(self.authorities).decode()

    def expires(self) -> datetime:
        from cryptography import x509

        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc

    def is_expired(self, now: datetime) -> bool:
        """Whether clients refuse it by now; False for one without a text, which no connection asks for."""
        return bool(self.certificate) and self.expires() < now

    def load_into(self, context: ssl.SSLContext) -> None:
        """Python reads certificates from files only; new connections get this one."""
        with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
            certificate, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
            certificate.write_bytes(self.certificate)
            key.touch(mode=0o600)
            key.write_bytes(self.key)
            context.load_cert_chain(certificate, key)


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """The names by which an API server calls a Service."""
    return (f"{service}.{namespace}.svc", f"{service}.{namespace}", service, f"{service}.{namespace}.svc.cluster.local")


def make_certificate(names: Sequence[str], now: datetime, former: bytes = b"") -> ServingCertificate:
    """A certificate for `names` under an authority of its own; `former` authorities stay trusted."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def named(common: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])

    def builder(subject: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("dovetail-webhook-ca"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + LIFETIME)
        )

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = (
        builder("dovetail-webhook-ca", authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        builder(names[0], key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return ServingCertificate(
        authorities=authority.public_bytes(serialization.Encoding.PEM) + former,
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def newest_authority(authorities: bytes) -> bytes:
    """The first certificate of a bundle."""
    end = b"-----END CERTIFICATE-----\n"
    first, separator, _ = authorities.partition(end)
    return first + separator


class SharedCertificate:
    """A certificate in a Secret. Replicas that race for it end with the same one."""

    def __init__(self, kube: Kube, secret: str, namespace: str, names: Sequence[str]) -> None:
        self._kube = kube
        self._secret = secret
        self._namespace = namespace
        self._names = tuple(names)

    async def current(self) -> ServingCertificate:
        """The certificate in force; made or renewed first where that is due."""
        while True:
            try:
                kept = await self._kube.get(SECRETS, self._secret, self._namespace)
            except NotFound:
                try:
                    return self._read(await self._kube.create(SECRETS, self._body(self._make(b"")), self._namespace))
                except AlreadyExists:
                    continue
            certificate = self._usable(kept)
            if certificate is not None:
                return certificate
            former = newest_authority(self._data(kept, "ca.crt"))
            body = self._body(self._make(former), resource_version=kept["metadata"]["resourceVersion"])
            try:
                return self._read(await self._kube.update(SECRETS, body))
            except Conflict:
                continue

    def _usable(self, kept: Mapping[str, Any]) -> ServingCertificate | None:
        """None for one that is damaged, for other names, or near its end."""
        from cryptography import x509

        certificate = self._read(kept)
        try:
            parsed = x509.load_pem_x509_certificate(certificate.certificate)
            names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (ValueError, x509.ExtensionNotFound):
            return None
        served = set(names.get_values_for_type(x509.DNSName))
        fresh = parsed.not_valid_after_utc - self._kube.clock.now() > RENEWAL_MARGIN
        return certificate if fresh and served >= set(self._names) else None

    def _make(self, former: bytes) -> ServingCertificate:
        return make_certificate(self._names, self._kube.clock.now(), former)

    def _read(self, secret: Mapping[str, Any]) -> ServingCertificate:
        return ServingCertificate(
            authorities=self._data(secret, "ca.crt"),
            certificate=self._data(secret, "tls.crt"),
            key=self._data(secret, "tls.key"),
        )

    @staticmethod
    def _data(secret: Mapping[str, Any], key: str) -> bytes:
        return base64.b64decode((secret.get("data") or {}).get(key, ""))

    def _body(self, certificate: ServingCertificate, *, resource_version: str = "") -> dict[str, Any]:
        parts = {"ca.crt": certificate.authorities, "tls.crt": certificate.certificate, "tls.key": certificate.key}
        metadata: dict[str, Any] = {"name": self._secret, "namespace": self._namespace}
        if resource_version:
            metadata["resourceVersion"] = resource_version
        return {
            "metadata": metadata,
            "type": "kubernetes.io/tls",
            "data": {name: base64.b64encode(text).decode() for name, text in parts.items()},
        }
