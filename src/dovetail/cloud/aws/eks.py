"""What instances must know of the cluster they join: endpoint, certificate, addresses, version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.cloud.aws.api_server import ApiServerInfo
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import code_of, explain, message_of
from dovetail.cloud.provider import UNAUTHORIZED, CloudError, Remedy


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    endpoint: str
    ca_bundle: str
    version: str
    service_cidr: str | None = None
    cluster_dns: str | None = None
    ipv6: bool = False


async def describe(
    calls: Calls,
    name: str,
    *,
    endpoint: str = "",
    ca_bundle: str = "",
    version: str = "",
    eks_version: bool = True,
    api: ApiServerInfo | None = None,
) -> ClusterFacts:
    """The cluster by what the operator set, by the API server and by EKS.

    EKS is needed for what the others leave out: its failure is none where endpoint and version are known, as in a
    cluster that is not of EKS. `eks_version`: EKS's word on the version goes before the API server's.
    """
    api_server = api or ApiServerInfo()
    cluster: Mapping[str, Any] = {}
    try:
        cluster = (await calls("eks", "describe_cluster", name=name))["cluster"]
    except Exception as error:
        if not (endpoint and (version or api_server.version)):
            raise _undescribed(calls, name, error) from error
    network = cluster.get("kubernetesNetworkConfig") or {}
    cidr = network.get("serviceIpv4Cidr")
    versions = (version, cluster.get("version", ""), api_server.version)
    return ClusterFacts(
        name=name,
        endpoint=endpoint or cluster.get("endpoint", ""),
        ca_bundle=ca_bundle or cluster.get("certificateAuthority", {}).get("data", "") or api_server.ca_bundle,
        version=next(filter(None, versions if eks_version else (versions[0], *versions[:0:-1])), ""),
        service_cidr=cidr or network.get("serviceIpv6Cidr") or api_server.service_cidr,
        cluster_dns=api_server.cluster_dns or (cidr.rsplit(".", 1)[0] + ".10" if cidr else None),
        ipv6=network.get("ipFamily") == "ipv6" or (not cluster and ":" in (api_server.cluster_dns or "")),
    )


def _undescribed(calls: Calls, name: str, error: Exception) -> CloudError:
    if code_of(error) == "ResourceNotFoundException":
        return CloudError(
            "ClusterNotFound",
            f"EKS has no cluster {name!r} in {calls.region}; set --cluster-name and AWS_REGION to yours, or"
            " --cluster-endpoint for a cluster that is not of EKS",
            Remedy.OPERATOR,
        )
    return explain(code_of(error), message_of(error))


async def admits(calls: Calls, name: str, role: str) -> bool | None:
    """Whether an access entry lets instances of a role join; None where EKS may not be asked.

    A cluster that uses aws-auth alone has no access entries. Karpenter's policy does not grant DescribeAccessEntry.
    """
    try:
        await calls("eks", "describe_access_entry", clusterName=name, principalArn=role)
    except Exception as error:
        if code_of(error) in ("404", "InvalidRequestException", "ResourceNotFoundException"):
            return False
        refusal = explain(code_of(error), message_of(error))
        if refusal.reason == UNAUTHORIZED:
            return None
        raise refusal from error
    return True
