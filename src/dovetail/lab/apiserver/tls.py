"""A certificate for the loopback, signed by an authority of its own.

The server's certificate is made when the lab starts. The authority and the administrator's token are kept with the
lab's data, so that clients of a lab that was restarted go on.
"""

from __future__ import annotations

import ipaddress
import ssl
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEAR = timedelta(days=365)


class Authority(msgspec.Struct, frozen=True):
    """PEM texts: the authority's certificate and key."""

    certificate: bytes
    key: bytes


class Identity(msgspec.Struct, frozen=True):
    """PEM texts: the authority's certificate, the server's certificate, the server's key."""

    authority: bytes
    certificate: bytes
    key: bytes

    def context(self, folder: Path) -> ssl.SSLContext:
        """A server context; Python reads certificates from files only, so they pass through `folder`."""
        certificate, key = folder / "server.crt", folder / "server.key"
        certificate.write_bytes(self.certificate)
        key.touch(mode=0o600)
        key.write_bytes(self.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def new_authority(now: datetime) -> Authority:
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = (
        x509.CertificateBuilder()
        .subject_name(_name("dovetail-ca"))
        .issuer_name(_name("dovetail-ca"))
        .public_key(ca_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + 10 * _YEAR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return Authority(ca.public_bytes(serialization.Encoding.PEM), _pem(ca_key))


def make(now: datetime, authority: Authority | None = None, address: str = "127.0.0.1") -> Identity:
    """A server certificate for the loopback, by an authority; a new one if none is given."""
    authority = authority or new_authority(now)
    ca_key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.DNSName("kubernetes.default.svc")]
    names += [x509.IPAddress(ipaddress.ip_address(host)) for host in sorted({address, "127.0.0.1"})]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name("dovetail"))
        .issuer_name(_name("dovetail-ca"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _YEAR)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return Identity(authority.certificate, certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def is_usable(authority: Authority, now: datetime) -> bool:
    """Whether certificates can be made with it: both texts can be read, belong together and have not expired."""
    try:
        certificate = x509.load_pem_x509_certificate(authority.certificate)
        key = serialization.load_pem_private_key(authority.key, None)
    except ValueError:
        return False
    return (
        isinstance(key, ec.EllipticCurvePrivateKey)
        and certificate.public_key() == key.public_key()
        and now < certificate.not_valid_after_utc
    )


def _usage(sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not sign,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign,
        crl_sign=sign,
        encipher_only=False,
        decipher_only=False,
    )
