"""Cluster Autoscaler in a lab in virtual time: node groups of one instance type each, at the catalogue's prices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from dovetail.autoscalers.go_flags import FlagError
from dovetail.autoscalers.node_groups import options, program
from dovetail.autoscalers.node_groups.flags import ParsedFlags, parse
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.kube.client import Kube
from dovetail.lab.cluster import Lab
from dovetail.lab.scenario.processes import CrashInjection, ReplicaConnection
from dovetail.lab.scenario.schema import NodeGroupPart, ScenarioStep
from dovetail.lab.simulated_groups import GroupSpec, SimulatedGroups
from dovetail.language import message
from dovetail.model.instance_type import InstanceType

HOUR_S = 3600.0
#: EC2 warns so many seconds before it ends a spot instance; a node group has no listener for the warning.
NOTICE_S = 120.0
#: Flags of the program: a simulation has one process and reads no status ConfigMap.
FLAGS = ("--leader-elect=false", "--write-status-configmap=false", "--v=0")

#: What they are about is not in a scenario: its groups are named, its one process needs no address and no credentials.
_IDLE_FLAGS = frozenset({
    "nodes", "node-group-auto-discovery", "cloud-provider", "cloud-config", "aws-use-static-instance-list",
    "kubeconfig", "address", "user-agent", "kube-client-qps", "kube-client-burst", "leader-elect",
    "leader-elect-lease-duration", "leader-elect-renew-deadline", "leader-elect-retry-period",
    "leader-elect-resource-name", "leader-elect-resource-namespace", "max-inactivity", "max-failing-time",
    "emit-per-nodegroup-metrics",
})  # fmt: skip


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The groups, the types they are of, how long instances take to join, and flags of cluster-autoscaler."""

    groups: tuple[GroupSpec, ...]
    types: Mapping[str, InstanceType]
    market: SimulatedMarket = SimulatedMarket(boot=(25.0, 35.0), ready=(4.0, 6.0))
    flags: tuple[str, ...] = ()


class GroupFleet:
    """A `Fleet` whose nodes Cluster Autoscaler adds to node groups."""

    def __init__(self, settings: GroupSettings, line: Callable[[str], None]) -> None:
        self._settings = settings
        self._line = line
        self.totals: Counter[str] = Counter()
        self.said: Counter[str] = Counter()
        self.changed = 0.0
        self.groups: SimulatedGroups | None = None
        self.connection: ReplicaConnection | None = None
        self._prices = _prices(settings.types.values())
        self._dollars = 0.0
        self._rate = 0.0
        self._since = 0.0
        self._counted: frozenset[str] = frozenset()

    async def run(self, lab: Lab) -> None:
        market, chance = self._settings.market, lab.chance.child("groups boot")
        settings = program_flags(self._settings.flags)
        self.groups = groups = SimulatedGroups(
            lab,
            boot_s=lambda: market.between(chance, market.boot),
            types=self._settings.types,
            defaults=options.group_options(settings),
        )
        self._since = lab.clock.monotonic()
        groups.on_change = lambda: self._account(lab.clock.monotonic(), groups)
        for spec in self._settings.groups:
            await groups.create(spec)
        self.connection = ReplicaConnection(lab.transport, CrashInjection(lambda: None))
        kube = Kube(
            self.connection,
            lab.clock,
            chance=lab.chance.child("client", "cluster-autoscaler"),
            manager="cluster-autoscaler",
            user_agent="cluster-autoscaler",
        )
        try:
            await program.run(
                settings, kube, groups, lab.clock, lab.chance.child("cluster-autoscaler"), write=self._log
            )
        finally:
            await groups.close()

    async def leaks(self, lab: Lab) -> list[str]:
        return []  # a group's instances have no object of their own that could be left behind

    def bill(self, now: float) -> float:
        return self._dollars + self._rate * (now - self._since) / HOUR_S

    def rate(self) -> float:
        return self._rate

    def provider_ids(self) -> frozenset[str]:
        return self._counted

    def calls(self) -> Mapping[str, int]:
        requests = sum(self.connection.requests.values()) if self.connection is not None else 0
        return {"kubernetes": requests, "cloud": sum(self.groups.calls.values()) if self.groups is not None else 0}

    def give_up(self, provider_ids: Iterable[str]) -> None:
        """A group replaces its instances whatever ended them."""

    def inject(self, lab: Lab, step: ScenarioStep) -> str:
        """Interruptions reach node groups as well; what befalls a controller with NodeClaims does not."""
        groups = self.groups
        assert groups is not None
        if step.interrupt is not None:
            spot = [instance for instance in groups.standing() if instance.capacity_type == "spot"]
            chosen = (spot or groups.standing())[: step.interrupt.instances]
            for instance in chosen:
                asyncio.get_running_loop().call_later(NOTICE_S, groups.interrupt, instance.provider_id)
            return f"{step.interrupt.kind} of {len(chosen)} instance(s)"
        if step.vanish is not None:
            chosen = groups.standing()[: step.vanish.instances]
            for instance in chosen:
                groups.interrupt(instance.provider_id)
            return f"{len(chosen)} instance(s) vanish"
        return message("does not concern node groups")

    def _account(self, now: float, groups: SimulatedGroups) -> None:
        self._dollars, self._since = self.bill(now), now
        standing = groups.standing()
        self._rate = sum(
            self._price(instance.instance_type, instance.zone, instance.capacity_type) for instance in standing
        )
        ids = frozenset(instance.provider_id for instance in standing)
        self.totals["instances launched"] += len(ids - self._counted)
        self.totals["instances terminated"] += len(self._counted - ids)
        self._counted, self.changed = ids, now

    def _price(self, instance_type: str, zone: str, capacity_type: str) -> float:
        price = self._prices.get((instance_type, zone, capacity_type))
        if price is None:
            raise ValueError(
                message(
                    "node group of {instance_type} in {zone}: the catalogue has no {capacity_type} price "
                    "there; name a zone and a type of the scenario's region",
                    instance_type=instance_type,
                    zone=zone,
                    capacity_type=capacity_type,
                )
            )
        return price

    def _log(self, line: str) -> None:
        self.said[line] += 1
        self._line(line.strip())


def program_flags(flags: Sequence[str]) -> ParsedFlags:
    """The flags of the program. Raises FlagError, also for those that a simulation does not look at."""
    settings = parse([*FLAGS, *flags])
    named = {word.lstrip("-").partition("=")[0] for word in flags}
    idle = sorted(named & (_IDLE_FLAGS | {*settings.ineffective}))
    if idle:
        raise FlagError(message("--{name} has no effect in a scenario; leave it out", name=idle[0]))
    return settings


def spec_of(part: NodeGroupPart) -> GroupSpec:
    """A group as a scenario describes it."""
    return GroupSpec(
        name=part.name,
        instance_type=part.type,
        min_size=part.min,
        max_size=part.max,
        size=part.min if part.size is None else part.size,
        zones=part.zones,
        labels=part.labels,
        capacity_type=part.capacity_type,
    )


def _prices(types: Iterable[InstanceType]) -> dict[tuple[str, str, str], float]:
    return {
        (kind.name, offering.zone, offering.capacity_type): offering.price
        for kind in types
        for offering in kind.offerings
        if offering.price is not None
    }
