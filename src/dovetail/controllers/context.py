"""What every controller is given: the interfaces, the cluster state, and where to report to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.cloud.provider import Cloud
from dovetail.cluster.snapshot import SnapshotBuilder
from dovetail.cluster.state import ClusterState
from dovetail.controllers.events import EventPublisher
from dovetail.controllers.history.decisions import DecisionHistory
from dovetail.controllers.instance_types import InstanceTypes
from dovetail.controllers.metrics.definitions import Metrics
from dovetail.controllers.metrics.pod_latency import PodLatency
from dovetail.controllers.nodeclaim.creation import NodeClaimCreator
from dovetail.controllers.nodepool.registration_health import RegistrationHealth
from dovetail.controllers.rights import MissingRights
from dovetail.controllers.safemode import SafeMode
from dovetail.controllers.settings import Settings
from dovetail.kube.client import Kube


def _set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(frozen=True, slots=True)
class Context:
    """Passed whole; a controller takes from it what it needs and keeps nothing."""

    kube: Kube
    cloud: Cloud
    clock: Clock
    chance: Chance
    settings: Settings
    cluster_state: ClusterState
    snapshot_builder: SnapshotBuilder
    instance_types: InstanceTypes
    nodeclaim_creator: NodeClaimCreator
    decision_history: DecisionHistory
    safety: SafeMode
    health: RegistrationHealth
    metrics: Metrics
    pod_latency: PodLatency
    event_publisher: EventPublisher
    rights: MissingRights
    log: FilteringBoundLogger
    deleted_claims: set[str] = field(default_factory=set)
    """UIDs of NodeClaims that we have deleted: the watch may report it before the server has answered."""
    written: asyncio.Event = field(default_factory=_set)
    """Cleared while a batch of NodeClaims is being written: all of them first, what follows from them afterwards."""
