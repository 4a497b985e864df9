"""The AWS region of a cluster, where neither an option nor the environment names one."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError
from dovetail.kube.resources import NODES
from dovetail.model.labels import REGION

#: The part of an EKS endpoint's host name that is a region, as `ap-northeast-2` or `us-gov-west-1`.
REGION_NAME = re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-\d+")
AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
#: How the provider ids of EC2 instances begin.
PROVIDER = "aws://"


async def cluster_region(kube: Kube, server: str) -> str:
    """By the API server's name, which EKS gives the region, or by the nodes; empty where neither tells one."""
    return endpoint_region(server) or await nodes_region(kube)


def endpoint_region(server: str) -> str:
    host = urlsplit(server).hostname or ""
    if not host.endswith(AWS_DOMAINS):
        return ""
    return next((part for part in host.split(".") if REGION_NAME.fullmatch(part)), "")


async def nodes_region(kube: Kube) -> str:
    """The region of most nodes that are EC2 instances. A refused list leaves it unknown."""
    try:
        nodes = (await kube.list(NODES, trim=_placement)).items
    except KubeError:
        return ""
    regions = Counter(
        str(node["metadata"]["labels"][REGION])
        for node in nodes
        if str(node["spec"].get("providerID", "")).startswith(PROVIDER) and REGION in node["metadata"]["labels"]
    )
    return regions.most_common(1)[0][0] if regions else ""


def _placement(node: dict[str, Any]) -> dict[str, Any]:
    labels = node["metadata"].get("labels") or {}
    kept = {REGION: labels[REGION]} if REGION in labels else {}
    return {"metadata": {"labels": kept}, "spec": {"providerID": (node.get("spec") or {}).get("providerID", "")}}
