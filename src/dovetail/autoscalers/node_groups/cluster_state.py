"""Cluster and group health: how many nodes are ready, starting, broken or missing, and whether groups may grow.

A scale-up that was asked for justifies missing nodes until its time is up. Too many nodes that are unready without
such a reason make a group, or the cluster, unhealthy, and then nothing is scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from dovetail.autoscalers.node_groups.annotations import TO_BE_DELETED, has_taint
from dovetail.autoscalers.node_groups.backoff import BackedOff, GroupBackoff
from dovetail.autoscalers.node_groups.readiness import lacks_gpu
from dovetail.cloud.node_groups import ErrorClass, GroupMember, InstanceError, InstanceState, NodeGroup
from dovetail.model.duration import format_duration
from dovetail.model.meta import condition
from dovetail.model.nodes import Node

MAX_MESSAGES_PER_EVENT = 3
#: More nodes than this, or than this share of the instances, do not vanish at once while their instances run.
MAX_VANISHED, MAX_VANISHED_SHARE = 2, 0.1
#: A condition of nodes that their cloud has suspended.
SUSPENDED = "Suspended"


class HealthLimits(msgspec.Struct, frozen=True):
    """Unready nodes are excused while they are few, or a small share."""

    max_unready_percentage: float = 45.0
    ok_unready_count: int = 3


class Readiness(msgspec.Struct):
    """Nodes by name, and unregistered instances by provider id."""

    ready: list[str] = []
    unready: list[str] = []
    #: Nodes whose unreadiness is a missing resource, such as a GPU; they are among `unready` too.
    resource_unready: list[str] = []
    deleted: list[str] = []
    not_started: list[str] = []
    #: Nodes whose condition `Suspended` is true: they count as there, and as neither ready nor broken.
    suspended: list[str] = []
    registered: list[str] = []
    long_unregistered: list[str] = []
    unregistered: list[str] = []
    time: datetime | None = None


class ScaleUpRequest(msgspec.Struct):
    """Nodes that were asked for and have not all come."""

    group: str
    increase: int
    time: datetime
    expected: datetime


class AcceptableRange(msgspec.Struct, frozen=True):
    """How many ready nodes a group should have at least, given what was asked of it."""

    least: int
    target: int


class WrongSize(msgspec.Struct, frozen=True):
    """A difference between a group's target and its nodes, and since when it has been the same."""

    expected: int
    current: int
    since: datetime


class StatusEvent(msgspec.Struct, frozen=True):
    """Something that belongs into an event on the status ConfigMap."""

    kind: str
    reason: str
    message: str


class ScaleUpSafety(msgspec.Struct, frozen=True):
    """Whether a group may grow, and what stands against it."""

    healthy: bool
    backoff: BackedOff | None = None

    @property
    def safe(self) -> bool:
        return self.healthy and self.backoff is None


class GroupClusterState:
    """What is known of nodes and groups from loop to loop. `update` takes the newest view."""

    def __init__(
        self, limits: HealthLimits, backoff: GroupBackoff, is_ready: Callable[[Node], bool] | None = None
    ) -> None:
        self.limits = limits
        self.backoff = backoff
        self._is_ready = is_ready or (lambda node: node.ready)
        self.requests: dict[str, ScaleUpRequest] = {}
        self.groups: dict[str, NodeGroup] = {}
        self.readiness: dict[str, Readiness] = {}
        self.total = Readiness()
        self.ranges: dict[str, AcceptableRange] = {}
        self.wrong_sizes: dict[str, WrongSize] = {}
        self.unregistered: dict[str, tuple[str, datetime]] = {}
        self.failures: list[tuple[str, InstanceError, datetime]] = []
        self._errors: dict[str, dict[str, InstanceError]] = {}
        self._node_count = 0
        #: Instances that were nodes in this program's life, and those that were there before it and were none.
        self._joined: set[str] = set()
        self._strangers: set[str] | None = None
        #: Whether an instance of any group is a node of this cluster now.
        self._any_member = False
        #: Groups that missed nodes when this program first looked, and until when those are waited for.
        self._inherited: dict[str, datetime] | None = None
        #: Requests whose time was up in the last update: the caller withdraws them.
        self.timed_out: list[ScaleUpRequest] = []
        self.happenings: list[StatusEvent] = []

    # What was asked

    def register_scale_up(self, group: NodeGroup, delta: int, now: datetime) -> None:
        """Nodes were asked for (or, below 0, will not come)."""
        request = self.requests.get(group.id)
        provision = timedelta(seconds=group.options.max_node_provision_s)
        if request is None:
            if delta > 0:
                self.requests[group.id] = ScaleUpRequest(group.id, delta, now, now + provision)
            return
        if request.increase + delta <= 0:
            del self.requests[group.id]
            return
        request.increase += delta
        if delta > 0:
            request.time, request.expected = now, now + provision

    def register_failure(self, group: NodeGroup, error: InstanceError, now: datetime) -> datetime:
        """A scale-up failed; until when the group is left alone."""
        self.failures.append((group.id, error, now))
        return self.backoff.fail(group.id, error, now)

    # The newest view

    def update(self, nodes: Sequence[Node], groups: Sequence[NodeGroup], now: datetime) -> None:
        """Take in the nodes and the groups as they are now; `happenings` gains what should be reported."""
        self.groups = {group.id: group for group in groups}
        self._node_count = len(nodes)
        self._note_unregistered(nodes, now)
        self._note_joined(nodes)
        self._measure(nodes, now)
        self._update_ranges()
        self._note_inherited(now)
        self._update_requests(now)
        self._note_creation_errors(now)
        self._update_ranges()
        self._update_wrong_sizes(now)

    def retarget(self, groups: Sequence[NodeGroup]) -> None:
        """Targets changed by our own calls."""
        self.groups = {group.id: group for group in groups}
        self._update_ranges()

    def _note_unregistered(self, nodes: Sequence[Node], now: datetime) -> None:
        registered = {node.spec.provider_id for node in nodes}
        missing: dict[str, tuple[str, datetime]] = {}
        for group in self.groups.values():
            for instance in group.instances:
                if instance.provider_id not in registered and _should_register(instance):
                    earlier = self.unregistered.get(instance.provider_id)
                    missing[instance.provider_id] = (group.id, earlier[1] if earlier else now)
        self.unregistered = missing

    def _note_joined(self, nodes: Sequence[Node]) -> None:
        """Remember what proves that an instance without a node did join, or that it may belong to another cluster."""
        instances = {instance.provider_id: instance for group in self.groups.values() for instance in group.instances}
        members = instances.keys() & {node.spec.provider_id for node in nodes}
        self._any_member = bool(members)
        self._joined = (self._joined & instances.keys()) | members
        if self._strangers is None and self.groups:
            self._strangers = {
                provider_id
                for provider_id in self.unregistered
                if instances[provider_id].state is not InstanceState.CREATING
            }
        if self._strangers is not None:
            self._strangers &= self.unregistered.keys()

    def _measure(self, nodes: Sequence[Node], now: datetime) -> None:
        self.readiness = {}
        self.total = Readiness(time=now)
        members = {instance.provider_id: group.id for group in self.groups.values() for instance in group.instances}
        for node in nodes:
            group = members.get(node.spec.provider_id)
            startup = timedelta(seconds=self.groups[group].options.max_node_startup_s if group is not None else 900.0)
            kinds = self._kinds(node, group is not None, startup, now)
            for readiness in (self.total, self._of(group, now)) if group is not None else (self.total,):
                for kind in kinds:
                    getattr(readiness, kind).append(node.metadata.name)
        for provider_id, (group, since) in self.unregistered.items():
            provision = timedelta(seconds=self.groups[group].options.max_node_provision_s)
            kind = "long_unregistered" if since + provision < now else "unregistered"
            for readiness in (self.total, self._of(group, now)):
                getattr(readiness, kind).append(provider_id)

    def _of(self, group: str, now: datetime) -> Readiness:
        readiness = self.readiness.get(group)
        if readiness is None:
            readiness = self.readiness[group] = Readiness(time=now)
        return readiness

    def _kinds(self, node: Node, member: bool, startup: timedelta, now: datetime) -> tuple[str, ...]:
        if not member and has_taint(node, TO_BE_DELETED):
            return "registered", "deleted"
        paused = condition(node.status.conditions, SUSPENDED)
        if paused is not None and paused.status == "True":
            return "registered", "suspended"
        if self._is_ready(node):
            return "registered", "ready"
        created = node.metadata.creation_timestamp
        if created is not None and created + startup > now:
            return "registered", "not_started"
        lacking = node.ready and lacks_gpu(node)
        return ("registered", "unready", "resource_unready") if lacking else ("registered", "unready")

    def _update_ranges(self) -> None:
        self.ranges = {}
        for group in self.groups.values():
            request = self.requests.get(group.id)
            missing = len(self.readiness[group.id].long_unregistered) if group.id in self.readiness else 0
            least = group.target_size - missing - (request.increase if request else 0)
            self.ranges[group.id] = AcceptableRange(least, group.target_size)

    def _note_inherited(self, now: datetime) -> None:
        """Nodes that a program before this one asked for are waited for, so that they are not asked for twice."""
        if self._inherited is None:
            self._inherited = {
                name: now + timedelta(seconds=group.options.max_node_provision_s) for name, group in self.groups.items()
            }
        self._inherited = {
            name: until for name, until in self._inherited.items() if until >= now and self.has_upcoming(name)
        }

    def _update_requests(self, now: datetime) -> None:
        """A backoff outlives a scale-up that succeeds in part: its group failed a moment ago."""
        self.backoff.remove_stale(now)
        for name, request in list(self.requests.items()):
            group = self.groups.get(name)
            if group is None:
                del self.requests[name]
                self.backoff.remove(name)
            elif not self.has_upcoming(name):
                del self.requests[name]
            elif request.expected < now:
                waited = format_duration(now - request.time)
                message = f"Nodes added to group {name} failed to register within {waited}"
                self.happenings.append(StatusEvent("Warning", "ScaleUpTimedOut", message))
                timeout = InstanceError(
                    ErrorClass.OTHER, "timeout", f"Scale-up timed out for node group {name} after {waited}"
                )
                self.register_failure(group, timeout, now)
                self.timed_out.append(request)
                del self.requests[name]

    def _note_creation_errors(self, now: datetime) -> None:
        """Instances that the cloud could not make: the group backs off at once."""
        for group in self.groups.values():
            earlier = self._errors.get(group.id, {})
            errors = {
                instance.provider_id: instance.error
                for instance in group.instances
                if instance.error is not None and instance.state is InstanceState.CREATING
            }
            self._errors[group.id] = errors
            by_code: dict[str, list[tuple[str, InstanceError]]] = {}
            for provider_id, error in errors.items():
                by_code.setdefault(str(error), []).append((provider_id, error))
            for code, instances in by_code.items():
                unseen = [error for provider_id, error in instances if provider_id not in earlier]
                if not unseen or not self.is_scaling_up(group.id):
                    continue
                messages = _first(error.message for error in unseen)
                self.happenings.append(
                    StatusEvent(
                        "Warning",
                        "ScaleUpFailed",
                        f"Failed adding {len(unseen)} nodes to group {group.id} due to {code}; "
                        f"source errors: {messages}",
                    )
                )
                self.register_scale_up(group, -len(unseen), now)
                self.register_failure(group, msgspec.structs.replace(unseen[0], message=messages), now)

    def _update_wrong_sizes(self, now: datetime) -> None:
        wrong: dict[str, WrongSize] = {}
        for name, acceptable in self.ranges.items():
            readiness = self.readiness.get(name)
            if readiness is None:
                continue
            unregistered = len(readiness.unregistered) + len(readiness.long_unregistered)
            registered = len(readiness.registered)
            if acceptable.target - unregistered <= registered <= acceptable.target:
                continue
            wrong_size = WrongSize(acceptable.target, registered, now)
            earlier = self.wrong_sizes.get(name)
            if earlier is not None and (earlier.expected, earlier.current) == (wrong_size.expected, wrong_size.current):
                wrong_size = earlier
            wrong[name] = wrong_size
        self.wrong_sizes = wrong

    # Asked of it

    def is_cluster_healthy(self) -> bool:
        unready = len(self.total.unready)
        share = self.limits.max_unready_percentage / 100.0
        return not (unready > self.limits.ok_unready_count and unready > share * self._node_count)

    def is_group_healthy(self, group: str) -> bool:
        acceptable = self.ranges.get(group)
        if acceptable is None:
            return False
        readiness = self.readiness.get(group)
        if readiness is None:
            return acceptable.target == 0 or acceptable.least == 0
        missing = max(0, acceptable.least - len(readiness.ready) - len(readiness.suspended))
        share = self.limits.max_unready_percentage / 100.0
        there = (readiness.ready, readiness.unready, readiness.not_started, readiness.suspended)
        counted = sum(len(names) for names in there)
        return not (missing > self.limits.ok_unready_count and missing > share * counted)

    def safety(self, group: str, now: datetime) -> ScaleUpSafety:
        return ScaleUpSafety(self.is_group_healthy(group), self.backoff.status(group, now))

    def has_upcoming(self, group: str) -> bool:
        """Whether the group's target exceeds the nodes that came and started."""
        acceptable = self.ranges.get(group)
        if acceptable is None:
            return False
        readiness = self.readiness.get(group)
        provisioned = len(readiness.registered) - len(readiness.not_started) if readiness else 0
        return acceptable.target > provisioned

    def is_scaling_up(self, group: str) -> bool:
        return group in self.requests and self.has_upcoming(group)

    def upcoming(self, now: datetime) -> tuple[dict[str, int], set[str]]:
        """Nodes that will come or become ready by group, and the names of those that are registered already.

        Only nodes that were asked for come: a group that lost a node otherwise, or that backs off, gets none.
        """
        counts: dict[str, int] = {}
        registered: set[str] = set()
        for group in self.groups:
            readiness = self.readiness.get(group, Readiness())
            acceptable = self.ranges.get(group)
            if acceptable is None or self.backoff.status(group, now) is not None:
                continue
            if group not in self.requests and group not in (self._inherited or {}):
                continue
            came = (readiness.ready, readiness.unready, readiness.suspended, readiness.long_unregistered)
            coming = acceptable.target - sum(len(names) for names in came)
            if coming > 0:
                counts[group] = coming
                registered |= set(readiness.not_started)
        return counts, registered

    def failed_instances(self) -> dict[str, list[str]]:
        """Instances that could not be created, by group."""
        return {group: sorted(errors) for group, errors in self._errors.items() if errors}

    def overdue_instances(self, now: datetime) -> dict[str, list[str]]:
        """Instances that never became nodes in their time, by group. Those of `unproven_instances` are left out."""
        unproven = {provider_id for names in self.unproven_instances(now).values() for provider_id in names}
        overdue: dict[str, list[str]] = {}
        for provider_id in self._overdue(now):
            if provider_id not in unproven:
                overdue.setdefault(self.unregistered[provider_id][0], []).append(provider_id)
        return overdue

    def unproven_instances(self, now: datetime) -> dict[str, list[str]]:
        """Overdue instances for which a missing Node is no evidence, by the reason: each may run pods."""
        overdue = self._overdue(now)
        unproven: dict[str, list[str]] = {}
        vanished = [provider_id for provider_id in overdue if provider_id in self._joined]
        instances = sum(len(group.instances) for group in self.groups.values())
        if len(vanished) > max(MAX_VANISHED, MAX_VANISHED_SHARE * instances):
            unproven["their Nodes vanished from the cluster while the instances run"] = vanished
        if not self._any_member and self._strangers:
            strangers = [provider_id for provider_id in overdue if provider_id in self._strangers]
            if strangers:
                unproven[
                    "no instance of any group is a Node of this cluster, and these were there before this program"
                ] = strangers
        return unproven

    def _overdue(self, now: datetime) -> list[str]:
        return [
            provider_id
            for provider_id, (group, since) in self.unregistered.items()
            if since + timedelta(seconds=self.groups[group].options.max_node_provision_s) < now
        ]


def _should_register(instance: GroupMember) -> bool:
    return instance.state is not InstanceState.DELETING and instance.error is None


def _first(messages: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(messages))
    text = ", ".join(distinct[:MAX_MESSAGES_PER_EVENT])
    return f"{text}, ..." if len(distinct) > MAX_MESSAGES_PER_EVENT else text
