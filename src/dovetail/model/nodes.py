"""Views of nodes, and of the namespaces and leases beside them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dovetail.model.meta import Amount, Condition, ObjectMeta, ObjectReference, View, condition


class Taint(View, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeSpec(View, frozen=True, kw_only=True):
    provider_id: str = msgspec.field(default="", name="providerID")
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeAddress(View, frozen=True, kw_only=True):
    type: str = ""
    address: str = ""


class ContainerImage(View, frozen=True, kw_only=True):
    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeSystemInfo(View, frozen=True, kw_only=True):
    architecture: str = ""
    operating_system: str = ""
    os_image: str = ""
    kubelet_version: str = ""
    boot_id: str = msgspec.field(default="", name="bootID")


class NodeStatus(View, frozen=True, kw_only=True):
    capacity: Mapping[str, Amount] = {}
    allocatable: Mapping[str, Amount] = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        ready_ = condition(self.status.conditions, "Ready")
        return ready_ is not None and ready_.status == "True"


class Namespace(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


class LeaseSpec(View, frozen=True, kw_only=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int = 0


class Lease(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class EventSource(View, frozen=True, kw_only=True):
    component: str = ""
    host: str = ""


class EventSeries(View, frozen=True, kw_only=True):
    count: int = 0
    last_observed_time: datetime | None = None


class Event(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: EventSeries | None = None
    source: EventSource = EventSource()
    reporting_component: str = ""


class PriorityClass(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None
