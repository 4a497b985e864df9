"""What machines must know of the cluster they join: endpoint, certificate, addresses, version."""

from __future__ import annotations

import msgspec

from dovetail.cloud.aws.calls import Calls
from dovetail.cloud.aws.errors import code_of, explain, message_of
from dovetail.cloud.protocol import CloudError, Remedy


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


async def admits(calls: Calls, name: str, role: str) -> bool:
    """Whether an access entry lets machines of a role join. A cluster without access entries has none."""
    try:
        answer = await calls("eks", "list_access_entries", clusterName=name)
    except Exception as error:
        if code_of(error) in ("404", "InvalidRequestException", "ResourceNotFoundException"):
            return False
        raise explain(code_of(error), message_of(error)) from error
    return role in answer.get("accessEntries", ())
