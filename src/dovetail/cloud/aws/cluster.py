"""What machines must know of the cluster they join: endpoint, certificate, addresses, version."""

from __future__ import annotations

import msgspec

from dovetail.cloud.aws.calls import Calls
from dovetail.cloud.aws.errors import code_of, explain, message_of
from dovetail.cloud.protocol import UNAUTHORIZED, CloudError, Remedy


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    endpoint: str
    ca_bundle: str
    version: str
    service_cidr: str | None = None
    cluster_dns: str | None = None
    ipv6: bool = False


async def describe(
    calls: Calls, name: str, *, endpoint: str = "", ca_bundle: str = "", version: str = ""
) -> ClusterFacts:
    """The cluster by EKS, with what the operator set outright taking precedence."""
    try:
        found = (await calls("eks", "describe_cluster", name=name))["cluster"]
    except Exception as error:
        if endpoint and version:
            return ClusterFacts(name=name, endpoint=endpoint, ca_bundle=ca_bundle, version=version)
        if code_of(error) == "ResourceNotFoundException":
            raise CloudError(
                "ClusterNotFound",
                f"EKS has no cluster {name!r} in {calls.region}; set --cluster-name and AWS_REGION to yours",
                Remedy.OPERATOR,
            ) from error
        raise explain(code_of(error), message_of(error)) from error
    network = found.get("kubernetesNetworkConfig", {})
    cidr = network.get("serviceIpv4Cidr")
    return ClusterFacts(
        name=name,
        endpoint=endpoint or found.get("endpoint", ""),
        ca_bundle=ca_bundle or found.get("certificateAuthority", {}).get("data", ""),
        version=version or found.get("version", ""),
        service_cidr=cidr or network.get("serviceIpv6Cidr"),
        cluster_dns=cidr.rsplit(".", 1)[0] + ".10" if cidr else None,
        ipv6=network.get("ipFamily") == "ipv6",
    )


async def admits(calls: Calls, name: str, role: str) -> bool | None:
    """Whether an access entry lets instances of a role join; None where EKS may not be asked.

    A cluster that uses aws-auth alone has no access entries. Karpenter's policy does not grant DescribeAccessEntry.
    """
    try:
        await calls("eks", "describe_access_entry", clusterName=name, principalArn=role)
    except Exception as error:
        if code_of(error) in ("404", "InvalidRequestException", "ResourceNotFoundException"):
            return False
        found = explain(code_of(error), message_of(error))
        if found.reason == UNAUTHORIZED:
            return None
        raise found from error
    return True
