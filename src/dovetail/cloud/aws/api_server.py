"""What the API server says of the cluster that instances join: version, DNS address, service range, certificate.

Asked of the cluster itself, so that it holds for clusters that are not of EKS, and while EKS does not answer.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import ssl
from typing import Any

import msgspec

from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError
from dovetail.kube.resources import SERVICES

_SERVICE_CIDR = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"


class ApiServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Empty is what it does not tell, or may not be asked for."""

    version: str = ""
    cluster_dns: str | None = None
    service_cidr: str | None = None
    ca_bundle: str = ""


async def read(kube: Kube, ca_bundle: str = "") -> ApiServerInfo:
    """`ca_bundle` is the authority that we ourselves check the API server by, in base64."""
    version = await _document(kube, "/version")
    service = await _document(kube, SERVICES.path("kube-system", "kube-dns"))
    ranges = ((await _document(kube, _SERVICE_CIDR)).get("spec") or {}).get("cidrs") or ()
    return ApiServerInfo(
        version=_version(version),
        cluster_dns=_address((service.get("spec") or {}).get("clusterIP")),
        service_cidr=str(ranges[0]) if ranges else None,
        ca_bundle=ca_bundle,
    )


async def _document(kube: Kube, path: str) -> dict[str, Any]:
    """An object, empty where it is missing or may not be read."""
    try:
        document = json.loads((await kube.request("GET", path)).body)
    except (KubeError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _version(version: dict[str, Any]) -> str:
    """`1.34`; providers write a minor version as `34+`."""
    major, minor = (re.match(r"\d+", str(version.get(field, ""))) for field in ("major", "minor"))
    return f"{major[0]}.{minor[0]}" if major and minor else ""


def _address(text: Any) -> str | None:
    """A headless Service has None for an address."""
    try:
        return str(ipaddress.ip_address(str(text)))
    except ValueError:
        return None


def authority(tls: ssl.SSLContext) -> str:
    """The certificates that a connection trusts, as one PEM bundle in base64; empty where those of the system are."""
    certificates = tls.get_ca_certs(binary_form=True)
    if not 0 < len(certificates) <= 10:  # a system's own list has more than a hundred
        return ""
    return base64.b64encode("".join(map(ssl.DER_cert_to_PEM_cert, certificates)).encode()).decode()
