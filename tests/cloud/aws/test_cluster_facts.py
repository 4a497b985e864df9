"""What instances must know of their cluster: by the API server, by EKS, by the operator, and which goes first."""

from __future__ import annotations

import asyncio
import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
from botocore.httpsession import where

from dovetail.chance import Chance
from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws import api_server, eks
from dovetail.cloud.aws.api_server import ApiServerInfo, authority
from dovetail.cloud.provider import CloudError
from dovetail.kube.client import Kube
from dovetail.kube.transport import Request, Response

EKS = {
    "endpoint": "https://eks",
    "version": "1.33",
    "certificateAuthority": {"data": "RUtT"},
    "kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/16", "ipFamily": "ipv4"},
}
API = ApiServerInfo(version="1.34", cluster_dns="172.20.0.53", service_cidr="10.96.0.0/12", ca_bundle="QVBJ")


END = "-----END CERTIFICATE-----"


class Refused(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code, "Message": "no"}}


class Aws:
    region = "eu-west-1"

    def __init__(self, found: dict[str, Any] | None, code: str = "ResourceNotFoundException") -> None:
        self.found = found
        self.code = code

    async def __call__(self, service: str, operation: str, **asked: Any) -> Any:
        if self.found is None:
            raise Refused(self.code)
        return {"cluster": self.found}


def described(aws: Aws, **known: Any) -> eks.ClusterFacts:
    return asyncio.run(eks.describe(aws, "demo", **known))


def test_version_and_dns_come_from_the_api_server_and_the_rest_from_eks() -> None:
    found = described(Aws(EKS), api=API, eks_version=False)
    assert (found.version, found.cluster_dns) == ("1.34", "172.20.0.53")
    assert (found.endpoint, found.ca_bundle, found.service_cidr) == ("https://eks", "RUtT", "172.20.0.0/16")
    assert described(Aws(EKS), api=API, eks_version=True).version == "1.33"
    assert described(Aws(EKS)).cluster_dns == "172.20.0.10"


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "AccessDeniedException", "EndpointConnectionError"])
def test_a_cluster_that_is_not_of_eks_needs_its_endpoint_alone(code: str) -> None:
    found = described(Aws(None, code), endpoint="https://mine", api=API, eks_version=False)
    assert (found.endpoint, found.version, found.ca_bundle) == ("https://mine", "1.34", "QVBJ")
    assert (found.service_cidr, found.cluster_dns, found.ipv6) == ("10.96.0.0/12", "172.20.0.53", False)


def test_without_an_endpoint_the_missing_cluster_is_named_with_the_remedy() -> None:
    with pytest.raises(CloudError, match=r"no cluster 'demo' in eu-west-1.*--cluster-endpoint"):
        described(Aws(None), api=API, eks_version=False)


def test_an_ipv6_cluster_has_the_dns_address_of_its_service() -> None:
    network = {"serviceIpv6Cidr": "fd00::/108", "ipFamily": "ipv6"}
    found = described(Aws({**EKS, "kubernetesNetworkConfig": network}), api=ApiServerInfo(cluster_dns="fd00::a"))
    assert (found.cluster_dns, found.ipv6) == ("fd00::a", True)


class _Server:
    """An API server that has some of the documents, and refuses the others."""

    def __init__(self, **documents: bytes) -> None:
        self.documents = documents

    async def send(self, request: Request) -> Response:
        for name, body in self.documents.items():
            if name in request.path:
                return Response(status=200, headers={}, body=body)
        return Response(status=403, headers={}, body=b'{"kind":"Status","reason":"Forbidden","code":403}')

    async def close(self) -> None:
        return None


def read(server: _Server) -> ApiServerInfo:
    async def main() -> ApiServerInfo:
        transport: Any = server
        kube = Kube(transport, Clock(asyncio.get_running_loop()), chance=Chance(1))
        return await api_server.read(kube, "Q0E=")

    return run_virtual(main())


def test_the_api_server_tells_version_dns_and_service_range() -> None:
    found = read(
        _Server(
            version=b'{"major": "1", "minor": "34+"}',
            services=b'{"spec": {"clusterIP": "10.0.0.10"}}',
            servicecidrs=b'{"spec": {"cidrs": ["10.0.0.0/16", "fd00::/108"]}}',
        )
    )
    assert found == ApiServerInfo(version="1.34", cluster_dns="10.0.0.10", service_cidr="10.0.0.0/16", ca_bundle="Q0E=")


def test_what_may_not_be_read_stays_unknown() -> None:
    assert read(_Server()) == ApiServerInfo(ca_bundle="Q0E=")
    assert read(_Server(services=b'{"spec": {"clusterIP": "None"}}', version=b"null")) == ApiServerInfo(
        ca_bundle="Q0E="
    )


def test_the_authority_of_a_connection_is_a_bundle_in_base64() -> None:
    assert authority(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) == ""
    bundle = Path(where()).read_text()
    begin, end = bundle.index("-----BEGIN"), bundle.index(END) + len(END)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=bundle[begin:end])
    assert base64.b64decode(authority(context)).startswith(b"-----BEGIN CERTIFICATE-----")
    context.load_verify_locations(cadata=bundle)
    assert authority(context) == "", "a system's own list is no cluster's authority"
