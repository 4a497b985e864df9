"""A cloud provider whose instances do not exist.

It keeps the state of a cloud (the instances, their NodeClaims, their states) and obeys its `SimulatedMarket`: stock
runs out, calls take time, are throttled or fail, prices move, spot instances are called back. Joining the cluster
is the fleet's business (`fleet.py`). An instance's id follows from the launch token alone, so a repeated
launch is the same instance even after the books were lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.cloud.provider import (
    CloudError,
    Instance,
    InstanceNotFound,
    InsufficientCapacity,
    Interruption,
    LaunchOption,
    LaunchRequest,
    NodeClassStatus,
    NodeRole,
    Remedy,
    RepairAction,
    RepairPolicy,
)
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.cloud.simulated.instances import IMAGE, SCHEME, labels_of, provider_id
from dovetail.cloud.simulated.offerings import OfferingTable
from dovetail.cloud.unavailable_offerings import UnavailableOfferings
from dovetail.model import labels as keys
from dovetail.model.instance_type import InstanceType
from dovetail.model.taints import UNREGISTERED
from dovetail.runtime.token_bucket import TokenBucket

BORN_WITH: Mapping[str, str] = {"key": UNREGISTERED.key, "effect": UNREGISTERED.effect}

#: For how many seconds an instance is described as terminated before it is forgotten.
DESCRIBED_FOR_S = 3600.0

#: As Karpenter's simulated provider has them: the two that every kubelet shows, and two to try repairs with.
REPAIRS = (
    RepairPolicy(condition_type="Ready", condition_status="False", toleration_seconds=600.0, grace_seconds=0.0),
    RepairPolicy(
        condition_type="Ready",
        condition_status="Unknown",
        toleration_seconds=600.0,
        grace_seconds=0.0,
        reason_regex=".*",
    ),
    RepairPolicy(
        condition_type="KWOKUnhealthy",
        condition_status="True",
        toleration_seconds=30.0,
        grace_seconds=45.0,
        reason_regex=".*",
    ),
    RepairPolicy(
        condition_type="KWOKRebootRequired",
        condition_status="True",
        toleration_seconds=30.0,
        grace_seconds=60.0,
        reason_regex=".*",
        action=RepairAction.REBOOT,
    ),
)


class SimulatedCloud:
    """The `Cloud` protocol over a catalogue and a market."""

    name = SCHEME
    node_class_required = False

    def __init__(
        self, clock: Clock, chance: Chance, catalogue: Iterable[InstanceType], market: SimulatedMarket | None = None
    ) -> None:
        self.market = market or SimulatedMarket()
        self.calls: dict[str, int] = {}
        self.sold = 0
        self._clock = clock
        self._chance = chance
        self.unavailable = UnavailableOfferings(clock, self.market.unavailable_for)
        self._offerings = OfferingTable(clock, catalogue, self.unavailable)
        self._instances: dict[str, Instance] = {}
        self._by_token: dict[str, str] = {}
        self._taints: dict[str, tuple[Mapping[str, str], ...]] = {}
        self._ending: dict[str, float] = {}
        #: Instances that ended, with when: described as terminated for a while, as EC2 does.
        self._terminated: dict[str, float] = {}
        #: The last restart that was asked of each instance, by its operation.
        self.restarts: dict[str, str] = {}
        self._launch_tokens = TokenBucket.full(self.market.launch_burst, 0.0, clock.monotonic())
        self._inbox: asyncio.Queue[Interruption] = asyncio.Queue()
        self._unanswered: dict[str, Interruption] = {}
        self._messages_sent = 0
        self._changed = asyncio.Event()

    # -- what can be launched

    async def instance_types(
        self, node_pool: Mapping[str, Any], node_class: Mapping[str, Any]
    ) -> tuple[InstanceType, ...]:
        """The catalogue with today's prices and memory of refusals; the same objects while nothing changed."""
        return self._offerings.types(self.market, self._reserved_in_use())

    def price(self, instance_type: str, zone: str, capacity_type: str) -> float | None:
        """Today's price of an offering of the catalogue."""
        for offering in self._offerings.declared(instance_type):
            if (offering.zone, offering.capacity_type) == (zone, capacity_type):
                return self._offerings.price(self.market, instance_type, offering)
        return None

    def _reserved_in_use(self) -> dict[str, int]:
        """How many instances each reservation holds."""
        instances = self._instances.values() if self._offerings.reserves else ()
        return dict(Counter(m.tags.get("reservation", "") for m in instances if m.capacity_type == keys.RESERVED))

    # -- launching and giving back

    async def launch(self, launch: LaunchRequest) -> Instance:
        await self._call("launch")
        provider = self._books_entry(launch.token)
        if provider is not None:
            return provider
        self._take_token()
        refused: list[tuple[str, str, str]] = []
        for option in launch.options:
            key = (option.instance_type.name, option.offering.zone, option.offering.capacity_type)
            if self._in_stock(option):
                return self._launch(launch, option)
            refused.append(key)
            self.unavailable.mark(key)
        raise InsufficientCapacity(_refusal(refused), refused)

    async def get(self, provider_id: str) -> Instance:
        await self._call("get")
        return self._known(provider_id)

    async def instances(self) -> tuple[Instance, ...]:
        await self._call("instances")
        self._close_books()
        return tuple(self._instances.values())

    async def terminate(self, provider_id: str) -> None:
        await self._call("terminate")
        instance = self._known(provider_id)
        if provider_id not in self._ending:
            self._ending[provider_id] = self._clock.monotonic() + self.market.shutdown
            self._instances[provider_id] = msgspec.structs.replace(instance, state="shutting-down")
            self._notice_change()
            self._close_books()

    async def reboot(self, provider_id: str, operation: str) -> None:
        await self._call("reboot")
        self._known(provider_id)
        self.restarts[provider_id] = operation
        self._notice_change()

    def vanish(self, provider_id: str) -> None:
        """An instance that ends by itself, without a word."""
        gone = self._instances.pop(provider_id, None)
        if gone is not None:
            self._terminated[provider_id] = self._clock.monotonic()
            self._by_token.pop(gone.claim_uid or "", None)
            self._taints.pop(provider_id, None)
            self.restarts.pop(provider_id, None)
            self._notice_change()

    def adopt(self, instances: Iterable[Instance]) -> None:
        """Instances known from elsewhere (the cluster's own objects), after the books were lost."""
        for instance in instances:
            self._instances.setdefault(instance.provider_id, instance)
            if instance.claim_uid:
                self._by_token.setdefault(instance.claim_uid, instance.provider_id)
        self._notice_change()

    def standing(self) -> tuple[Instance, ...]:
        """The instances that are up, without the manners of an API call: for the fleet and for tests."""
        self._close_books()
        return tuple(self._instances.values())

    def taints_of(self, provider_id: str) -> tuple[Mapping[str, str], ...]:
        """What an instance's node is born with; of an instance found again, the taint that no node may lack."""
        return self._taints.get(provider_id, (BORN_WITH,))

    def next_end(self) -> float | None:
        """Seconds until an instance that is shutting down is gone; None if none is."""
        now = self._clock.monotonic()
        return max(0.01, min(self._ending.values()) - now) if self._ending else None

    async def changed(self) -> None:
        """Returns when an instance was sold, ended or adopted since the last call."""
        await self._changed.wait()
        self._changed.clear()

    def _books_entry(self, token: str) -> Instance | None:
        instance = self._instances.get(self._by_token.get(token, ""))
        return instance if instance is not None and instance.state == "running" else None

    def _known(self, provider_id: str) -> Instance:
        self._close_books()
        instance = self._instances.get(provider_id)
        if instance is None:
            raise InstanceNotFound(provider_id, "terminated" if provider_id in self._terminated else "")
        return instance

    def _in_stock(self, option: LaunchOption) -> bool:
        name, offering = option.instance_type.name, option.offering
        declared = self._offerings.declared(name)
        place = (offering.zone, offering.capacity_type)
        if not any(o.available and (o.zone, o.capacity_type) == place for o in declared):
            return False
        if offering.reservation_id is not None and offering.reservation_capacity is not None:
            used = self._reserved_in_use().get(offering.reservation_id, 0)
            whole = next(o for o in declared if o.reservation_id == offering.reservation_id)
            if used >= (whole.reservation_capacity or 0):
                return False
        stock = next((stock_ for stock_ in self.market.stock if stock_.covers(name, *place)), None)
        if stock is None:
            return True
        standing = (stock.covers(m.instance_type, m.zone, m.capacity_type) for m in self._instances.values())
        return sum(standing) < stock.instances

    def _launch(self, launch: LaunchRequest, option: LaunchOption) -> Instance:
        t, offering = option.instance_type, option.offering
        metadata = launch.claim.get("metadata") or {}
        instance = Instance(
            provider_id=provider_id(launch.token, offering.zone),
            instance_type=t.name,
            zone=offering.zone,
            capacity_type=offering.capacity_type,
            image_id=IMAGE,
            capacity=dict(t.capacity),
            allocatable=dict(t.allocatable),
            labels=labels_of(launch, option),
            created=self._clock.now(),
            claim_uid=launch.token,
            claim_name=metadata.get("name"),
            node_pool=(metadata.get("labels") or {}).get(keys.NODEPOOL),
            tags={**launch.tags, **({"reservation": offering.reservation_id} if offering.reservation_id else {})},
        )
        self.sold += 1
        self._instances[instance.provider_id] = instance
        self._by_token[launch.token] = instance.provider_id
        self._taints[instance.provider_id] = launch.taints
        self._notice_change()
        return instance

    # -- the rest of the protocol

    async def resolve(
        self, node_class: Mapping[str, Any], node_pools: Sequence[Mapping[str, Any]] = ()
    ) -> NodeClassStatus:
        await self._call("resolve")
        return NodeClassStatus(status={}, conditions=())

    async def release(self, node_class: Mapping[str, Any]) -> None:
        await self._call("release")

    async def drift(self, claim: Mapping[str, Any], instance: Instance, node_class: Mapping[str, Any]) -> str | None:
        return None

    async def node_role(self, node_class: Mapping[str, Any]) -> NodeRole | None:
        return None

    async def interruptions(self) -> AsyncIterator[Sequence[Interruption]]:
        """Messages as they come; first those that an earlier listener took and did not acknowledge."""
        if self._unanswered:
            yield list(self._unanswered.values())
        while True:
            message = await self._inbox.get()
            self._unanswered[message.receipt] = message
            yield [message]

    async def acknowledge(self, messages: Sequence[Interruption]) -> None:
        for message in messages:
            self._unanswered.pop(message.receipt, None)

    async def unhealthy(self) -> Sequence[Interruption]:
        return ()

    def interrupt(self, ids: Sequence[str], kind: str = "spot-interruption") -> None:
        """Call instances back; with the market's notice they are gone whether or not the message was read."""
        self._messages_sent += 1
        receipt = f"r-{self._messages_sent}"
        self._inbox.put_nowait(
            Interruption(kind=kind, provider_ids=tuple(ids), received=self._clock.now(), receipt=receipt)
        )

    async def call_back_spot(self) -> None:
        """The market's spot interruptions, one look a minute, until cancelled."""
        chance = self._chance.child("interruptions")
        notified: dict[str, float] = {}
        while True:
            await asyncio.sleep(60.0)
            now, rate = self._clock.monotonic(), self.market.interruptions_per_hour / 60.0
            standing = {instance.provider_id: instance for instance in self.standing()}
            notified = {provider: end for provider, end in notified.items() if provider in standing}
            for instance in standing.values():
                if instance.provider_id in notified:
                    if notified[instance.provider_id] <= now:
                        self.vanish(instance.provider_id)
                elif instance.capacity_type == "spot" and chance.random() < rate:
                    notified[instance.provider_id] = now + self.market.notice
                    self.interrupt([instance.provider_id])

    def repair_policies(self) -> tuple[RepairPolicy, ...]:
        return REPAIRS

    # -- the manners of an API

    async def _call(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        delay = self.market.between(self._chance, self.market.latency)
        if delay > 0:
            await asyncio.sleep(delay)
        if self.market.error_rate and self._chance.random() < self.market.error_rate:
            raise CloudError("InternalError", f"{name}: the simulated cloud failed", Remedy.RETRY)

    def _take_token(self) -> None:
        rate = self.market.launches_per_second
        if rate is None:
            return
        self._launch_tokens.size, self._launch_tokens.rate = self.market.launch_burst, rate  # the market may change
        if not self._launch_tokens.take(self._clock.monotonic()):
            raise CloudError("RequestLimitExceeded", "launch: request limit exceeded", Remedy.RETRY)

    def _close_books(self) -> None:
        now = self._clock.monotonic()
        while self._terminated and now - (oldest := next(iter(self._terminated.items())))[1] > DESCRIBED_FOR_S:
            del self._terminated[oldest[0]]
        for provider in [p for p, end in self._ending.items() if end <= now]:
            del self._ending[provider]
            self.vanish(provider)

    def _notice_change(self) -> None:
        self._changed.set()


def _refusal(refused: Sequence[tuple[str, str, str]]) -> str:
    shown = ", ".join("/".join(key) for key in refused[:5])
    more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
    return f"no capacity for {shown}{more}" if refused else "no offering was left to ask for"
