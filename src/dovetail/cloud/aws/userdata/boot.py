"""What the user data of every AMI family is rendered from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.model import taints

#: Every instance starts under this taint; registration takes it away.
UNREGISTERED = {"key": taints.UNREGISTERED.key, "effect": taints.UNREGISTERED.effect}

_REFUSED_DOMAINS = ("kubernetes.io", "k8s.io")
#: Labels of those domains that a kubelet may set on its own node.
_KUBELET_MAY = ("node.kubernetes.io/", "kubelet.kubernetes.io/")


class BadUserData(ValueError):
    """The user's own part cannot be merged with ours; the text names the field."""


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """`kubelet` has the node class's kubelet block as it stands; `max_pods` is what the type resolved to."""

    cluster_name: str
    endpoint: str
    ca_bundle: str  # base64
    service_cidr: str | None = None
    cluster_dns: str | None = None
    ipv6: bool = False
    labels: Mapping[str, str] = {}
    taints: tuple[Mapping[str, str], ...] = ()
    kubelet: Mapping[str, Any] = {}
    max_pods: int | None = None
    raid0: bool = False
    image_version: str = ""  # as far as anything tells it
    custom: str | None = None

    def node_labels(self) -> dict[str, str]:
        """The labels a kubelet is allowed to give its own node, sorted."""
        return {key: self.labels[key] for key in sorted(self.labels) if allowed(key)}

    def all_taints(self) -> tuple[Mapping[str, str], ...]:
        """The claim's taints and ours; a kubelet refuses to start with the same taint twice."""
        others = (taint for taint in self.taints if taint["key"] != UNREGISTERED["key"])
        return (*others, UNREGISTERED)

    def dns(self) -> str | None:
        own = self.kubelet.get("clusterDNS") or ()
        return own[0] if own else self.cluster_dns


def allowed(key: str) -> bool:
    """Whether the API server lets a kubelet set this label on its own node."""
    domain = key.partition("/")[0] if "/" in key else ""
    if key.startswith(_KUBELET_MAY):
        return True
    return not any(domain == refused or domain.endswith("." + refused) for refused in _REFUSED_DOMAINS)


def taint_text(taint: Mapping[str, str]) -> str:
    return f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
