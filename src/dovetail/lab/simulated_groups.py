"""Node groups without AWS, for virtual time: instances boot, join and vanish, and fail on request.

What an Auto Scaling group does that hurts is here too: capacity that runs out, an instance that never joins, a
rebalancing between zones that ends an instance of its own choice, a call that is throttled.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from dovetail.chance import Chance
from dovetail.cloud.node_groups import (
    ErrorClass,
    GroupInitiatedTermination,
    GroupMember,
    GroupOptions,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeGroupError,
    NodeTemplate,
    SizeRefused,
)
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError, NotFound
from dovetail.kube.resources import NODES
from dovetail.lab.cluster import Lab
from dovetail.lab.instances import SimulatedInstance, address, host_name, region_of, resources_of, size_of
from dovetail.model.instance_type import InstanceType, Resources
from dovetail.model.labels import ARCH, HOSTNAME, INSTANCE_TYPE, OS, REGION, ZONE
from dovetail.model.meta import Condition, ObjectMeta
from dovetail.model.nodes import Node, NodeSpec, NodeStatus, Taint
from dovetail.model.quantity import format_resources

BOOT_S = 40.0
READY_S = 5.0
#: Addresses of the lab's first nodes are not used again.
FIRST_ADDRESS = 2000
OUT_OF_CAPACITY = InstanceError(
    ErrorClass.OUT_OF_RESOURCES, "placeholder-cannot-be-fulfilled", "We currently do not have sufficient capacity"
)


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A group as it is created."""

    name: str
    instance_type: str = "m5.large"
    min_size: int = 0
    max_size: int = 10
    size: int = 0
    zones: tuple[str, ...] = ("us-west-2a",)
    labels: Mapping[str, str] = {}
    taints: tuple[Mapping[str, str], ...] = ()
    capacity_type: str = "on-demand"
    #: In place of what the flags say.
    options: GroupOptions | None = None
    #: What a group of several types would say of their sizes; its instances are of one here.
    mixed_sizes: str = ""


class SimulatedGroups:
    """A `NodeGroupCloud`, and the faults that may befall its groups."""

    def __init__(
        self,
        lab: Lab,
        *,
        boot_s: Callable[[], float] = lambda: BOOT_S,
        types: Mapping[str, InstanceType] | None = None,
        defaults: GroupOptions | None = None,
    ) -> None:
        """`boot_s` is drawn for every instance; `types` are those of a catalogue, in place of the sizes at hand.

        `defaults` are the options of groups that have none of their own.
        """
        self._lab = lab
        self._defaults = defaults or GroupOptions()
        self._types = types or {}
        self._kube: Kube = lab.client("cloud-controller-manager")
        self._chance: Chance = lab.chance.child("groups")
        self._boot_s = boot_s
        self._specs: dict[str, GroupSpec] = {}
        self._targets: dict[str, int] = {}
        self._members: dict[str, dict[str, InstanceState]] = {}
        self._instances: dict[str, SimulatedInstance] = {}
        self._number = FIRST_ADDRESS
        #: Groups as last shown, by name and whether they have capacity; forgotten when a member or a target changes.
        self._shown: dict[tuple[str, bool], NodeGroup] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: Groups that get no more instances, and groups whose instances do not join.
        self.out_of_capacity: set[str] = set()
        self.never_join: set[str] = set()
        #: So many calls fail from now on.
        self.throttled = 0
        #: Sizes that were set, in order: (group, size).
        self.sizes: list[tuple[str, int]] = []
        #: Instances that were ended by a call, and those that the group itself ended.
        self.ended: list[str] = []
        #: Calls that were answered, by name.
        self.calls: Counter[str] = Counter()
        #: Called whenever an instance was launched or has ended.
        self.on_change: Callable[[], None] = lambda: None
        self._endings: list[GroupInitiatedTermination] = []

    async def create(self, spec: GroupSpec) -> None:
        """Make a group; its first nodes have joined when this returns."""
        self._specs[spec.name] = spec
        self._targets[spec.name] = spec.size
        self._members[spec.name] = {}
        await self._lab.join([self._launch(spec) for _ in range(spec.size)])

    def _launch(self, spec: GroupSpec, boot_s: float = 0.0) -> SimulatedInstance:
        self._number += 1
        capacity, allocatable, arch = self._shape(spec.instance_type)
        counts = dict.fromkeys(spec.zones, 0)
        for provider_id in self._members[spec.name]:
            counts[self._instances[provider_id].zone] += 1
        zone = min(spec.zones, key=lambda name: counts[name])
        ip = address(self._number)
        provider_id = f"aws:///{zone}/i-{self._number:017x}"
        instance = SimulatedInstance(
            name=host_name(ip, region_of(zone)),
            provider_id=provider_id,
            instance_type=spec.instance_type,
            zone=zone,
            region=region_of(zone),
            ip=ip,
            capacity=capacity,
            allocatable=allocatable,
            labels=dict(spec.labels),
            taints=spec.taints,
            capacity_type=spec.capacity_type,
            arch=arch,
            boot_seconds=boot_s,
            ready_seconds=READY_S if boot_s else 0.0,
        )
        self._instances[provider_id] = instance
        self._members[spec.name][provider_id] = InstanceState.RUNNING
        self._shown.clear()
        self.on_change()
        return instance

    def _shape(self, instance_type: str) -> tuple[Resources, Resources, str]:
        """The capacity, the allocatable resources and the architecture of a type."""
        known_type = self._types.get(instance_type)
        if known_type is not None:
            return known_type.capacity, known_type.allocatable, known_type.labels.get(ARCH, ("amd64",))[0]
        size = size_of(instance_type)
        return *resources_of(size), size.arch

    def standing(self) -> list[SimulatedInstance]:
        """The instances that have not ended."""
        return [self._instances[provider_id] for members in self._members.values() for provider_id in members]

    def interrupt(self, provider_id: str) -> None:
        """The cloud ends an instance, and its group replaces it."""
        for name, members in self._members.items():
            if members.get(provider_id) is InstanceState.RUNNING:
                self._end(name, provider_id)
                self._fill(name)

    def _start(self, work: asyncio.Task[None]) -> None:
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    def _fill(self, name: str) -> None:
        """Launch what the target wants and capacity gives."""
        if name in self.out_of_capacity:
            return
        while self._targets[name] > len(self._living(name)):
            instance = self._launch(self._specs[name], self._boot_s())
            if name not in self.never_join:
                self._start(asyncio.create_task(self._lab.fleet.join(instance)))

    def _living(self, name: str) -> list[str]:
        return [
            instance_id for instance_id, state in self._members[name].items() if state is not InstanceState.DELETING
        ]

    def restore(self, name: str) -> None:
        """Capacity is back."""
        self.out_of_capacity.discard(name)
        self._fill(name)

    async def rebalance(self, name: str) -> str | None:
        """AZRebalance: the group ends an instance of its own choice and launches another."""
        living = self._living(name)
        if not living:
            return None
        doomed = self._chance.choice(living)
        self._endings.append(GroupInitiatedTermination(name, doomed, "a rebalancing of zones", rebalancing=True))
        self._end(name, doomed)
        self._fill(name)
        return doomed

    def _end(self, name: str, provider_id: str) -> None:
        self._members[name][provider_id] = InstanceState.DELETING
        self._shown.clear()
        self._start(asyncio.create_task(self._vanish(name, provider_id)))

    async def _vanish(self, name: str, provider_id: str) -> None:
        await asyncio.sleep(self._chance.uniform(1.0, 4.0))
        instance = self._instances[provider_id]
        self._lab.fleet.vanish(instance.name)
        self._members[name].pop(provider_id, None)
        self._shown.clear()
        self.on_change()
        try:
            await self._kube.delete(NODES, instance.name)
        except NotFound:
            return
        except KubeError:
            await asyncio.sleep(5.0)
            await self._kube.delete(NODES, instance.name)

    # The interface

    async def refresh(self, *, force: bool = False) -> None:
        self._call("refresh")

    def group_initiated_terminations(self) -> Sequence[GroupInitiatedTermination]:
        endings, self._endings = self._endings, []
        return endings

    def groups(self) -> Sequence[NodeGroup]:
        return [self._group(name) for name in self._specs]

    def _group(self, name: str) -> NodeGroup:
        key = name, name in self.out_of_capacity
        shown = self._shown.get(key)
        if shown is None:
            shown = self._shown[key] = self._make(name)
        return shown

    def _make(self, name: str) -> NodeGroup:
        spec, target = self._specs[name], self._targets[name]
        instances = [GroupMember(instance_id, state) for instance_id, state in self._members[name].items()]
        error = OUT_OF_CAPACITY if name in self.out_of_capacity else None
        for number in range(len(self._living(name)), target):
            provider_id = f"aws:///{spec.zones[0]}/i-placeholder-{name}-{number}"
            instances.append(GroupMember(provider_id, InstanceState.CREATING, error))
        return NodeGroup(
            id=name,
            min_size=spec.min_size,
            max_size=spec.max_size,
            target_size=target,
            instances=tuple(instances),
            options=spec.options or self._defaults,
            mixed_sizes=spec.mixed_sizes,
        )

    def group_of(self, provider_id: str) -> NodeGroup | None:
        return next((self._group(name) for name, members in self._members.items() if provider_id in members), None)

    async def template(self, group: NodeGroup) -> NodeTemplate:
        spec = self._specs[group.id]
        capacity, _, arch = self._shape(spec.instance_type)
        amounts = format_resources(capacity)
        labels = {
            ARCH: arch,
            OS: "linux",
            INSTANCE_TYPE: spec.instance_type,
            ZONE: spec.zones[0],
            REGION: region_of(spec.zones[0]),
            HOSTNAME: f"{group.id}-template",
            **spec.labels,
        }
        taints = tuple(msgspec.convert(dict(taint), Taint) for taint in spec.taints)
        status = NodeStatus(capacity=amounts, allocatable=amounts, conditions=(Condition(type="Ready", status="True"),))
        meta = ObjectMeta(name=f"{group.id}-template", labels=labels)
        return NodeTemplate(Node(metadata=meta, spec=NodeSpec(taints=taints), status=status))

    async def increase(self, group: NodeGroup, delta: int) -> None:
        self._call(f"increase {group.id}")
        size = self._targets[group.id] + delta
        if delta <= 0 or size > self._specs[group.id].max_size:
            raise SizeRefused(f"group {group.id}: size {size} is above its maximum or not an increase")
        self._set(group.id, size)

    async def decrease_target(self, group: NodeGroup, delta: int) -> None:
        self._call(f"decrease {group.id}")
        size = self._targets[group.id] - delta
        if size < len(self._living(group.id)):
            raise SizeRefused(f"group {group.id}: attempt to delete existing nodes")
        self._set(group.id, size)

    async def delete(self, group: NodeGroup, provider_ids: Sequence[str]) -> None:
        self._call(f"delete {group.id}")
        if self._targets[group.id] <= self._specs[group.id].min_size:
            raise SizeRefused(f"group {group.id}: min size reached, nodes will not be deleted")
        for provider_id in provider_ids:
            if "i-placeholder-" in provider_id:
                least = max(len(self._living(group.id)), self._specs[group.id].min_size)
                self._set(group.id, max(self._targets[group.id] - 1, least))
            elif self._members[group.id].get(provider_id) is InstanceState.RUNNING:
                self.ended.append(provider_id)
                self._end(group.id, provider_id)
                self._set(group.id, self._targets[group.id] - 1)

    def _set(self, name: str, size: int) -> None:
        self._targets[name] = size
        self._shown.clear()
        self.sizes.append((name, size))
        self._fill(name)

    async def set_bounds(self, name: str, least: int, most: int, size: int) -> None:
        """What UpdateAutoScalingGroup does: bounds and size at once."""
        self._call(f"bounds {name}")
        if not least <= size <= most:
            raise SizeRefused(f"group {name}: size {size} is outside its bounds {least} to {most}")
        self._specs[name] = msgspec.structs.replace(self._specs[name], min_size=least, max_size=most)
        self._set(name, size)

    def spec(self, name: str) -> GroupSpec:
        """The group as it was created, with its bounds of now."""
        return self._specs[name]

    def _call(self, what: str) -> None:
        self.calls[what.partition(" ")[0]] += 1
        if self.throttled > 0:
            self.throttled -= 1
            raise NodeGroupError(f"{what}: Rate exceeded")

    def prices(self) -> Mapping[str, float]:
        return {}

    def spot_prices(self) -> Mapping[str, float]:
        return {}

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def size(self, name: str) -> int:
        return self._targets[name]

    def owner(self, node: str) -> str | None:
        """The group of a node by its name."""
        for name, members in self._members.items():
            if any(self._instances[provider_id].name == node for provider_id in members):
                return name
        return None
