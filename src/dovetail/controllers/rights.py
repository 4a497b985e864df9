"""Missing rights: what Kubernetes forbids, and which feature is off for it.

Karpenter's own ClusterRole is enough to provision and to disrupt. What needs more is named once in the log, by a
metric and by the readiness endpoint, and is tried again after a while: a right may be granted meanwhile.
"""

from __future__ import annotations

import msgspec
from structlog.typing import FilteringBoundLogger

from dovetail.clock import Clock
from dovetail.controllers.metrics.definitions import Metrics

#: Seconds after which a forbidden call is tried again.
TRIED_AGAIN_AFTER_S = 600.0


class Right(msgspec.Struct, frozen=True):
    """A verb on a resource, and what happens where it is missing."""

    verb: str
    resource: str
    without: str

    @property
    def name(self) -> str:
        return f"{self.verb} {self.resource}"


BIND_PODS = Right("create", "pods/binding", "planned pods are left to the scheduler, as with --place off")
WRITE_HISTORY = Right("create", "configmaps", "decisions are kept in memory and lost with the process")
READ_PRIORITIES = Right("list", "priorityclasses.scheduling.k8s.io", "pods without spec.priority count as priority 0")
READ_OVERLAYS = Right("list", "nodeoverlays.karpenter.sh", "NodeOverlays have no effect")
READ_ATTACHMENTS = Right(
    "list", "volumeattachments.storage.k8s.io", "nodes are terminated without waiting for volumes to be detached"
)
READ_SCALE_UPS = Right(
    "list", "events", "pods for which Cluster Autoscaler grows a node group may get a NodeClaim as well"
)

#: The rights of optional watches, by the resource they watch.
OF_WATCHES = {right.resource: right for right in (READ_PRIORITIES, READ_OVERLAYS, READ_ATTACHMENTS)}


class MissingRights:
    """Which rights are missing, and since when."""

    def __init__(self, clock: Clock, metrics: Metrics, log: FilteringBoundLogger) -> None:
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._missing: dict[Right, float] = {}

    def deny(self, right: Right, why: str) -> None:
        """A call was forbidden."""
        if right not in self._missing:
            self._metrics.missing_rights.labels(right.verb, right.resource).set(1)
            self._log.warning(
                "missing right",
                right=right.name,
                error=why,
                without=right.without,
                remedy=f"grant {right.verb} on {right.resource} to the controller's service account",
            )
        self._missing[right] = self._clock.monotonic()

    def allow(self, right: Right) -> None:
        """A call was allowed."""
        if self._missing.pop(right, None) is not None:
            self._metrics.missing_rights.labels(right.verb, right.resource).set(0)
            self._log.info("right granted", right=right.name)

    def is_denied(self, right: Right) -> bool:
        """Whether a call was forbidden so lately that it is not worth another."""
        since = self._missing.get(right)
        return since is not None and self._clock.monotonic() - since < TRIED_AGAIN_AFTER_S

    def missing(self) -> list[str]:
        return [f"missing right, {right.name}: {right.without}" for right in self._missing]
