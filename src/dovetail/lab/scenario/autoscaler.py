"""The autoscaler in a lab in virtual time: the same controllers, a simulated cloud, the lab's own kubelets.

Keeps the bill: the fleet's cost, the instances launched, the decisions that disrupted pods.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

import msgspec
import yaml

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.cloud.aws import catalog
from dovetail.cloud.provider import Instance
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.cloud.simulated.config import read as read_market
from dovetail.controllers.manager import CONTROLLERS, Autoscaler, MakeController
from dovetail.controllers.settings import Settings
from dovetail.kube.errors import AlreadyExists, ApiError, Disconnected, NotFound
from dovetail.kube.resources import CRDS, EC2NODECLASSES, NODECLAIMS, NODES
from dovetail.lab.cluster import Lab
from dovetail.lab.faults.cloud import FaultyCloud
from dovetail.lab.instances import SimulatedInstance, host_name
from dovetail.lab.scenario.actors import Tainter, UnannouncedPods
from dovetail.lab.scenario.processes import CrashInjection, Replica
from dovetail.lab.scenario.schema import Interrupt, ScenarioStep
from dovetail.language import message
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.kinds import crds
from dovetail.model.labels import CAPACITY_TYPE, ON_DEMAND, RESERVED

HOUR = 3600.0
#: Seconds between looks at prices that move.
REPRICED = 5.0
#: Seconds after which a cloud controller manager is sure that an instance is gone.
GONE = 60.0
#: A reserved instance costs next to nothing more, and still more if it is larger.
PAID_ALREADY = 10_000_000.0
RESERVATION = ("karpenter.k8s.aws/capacity-reservation-id", "karpenter.k8s.aws/capacity-reservation-type")
#: Acts on every node that boots, given its name.
NodeActor = Callable[[str], Awaitable[None]]


class AutoscalerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`families` narrows the instance types; `reserved` are instances of a type that are paid for already, in one zone;
    `gates` are feature gates to open.

    `short` is the share of a resource that nodes lack of the catalog's capacity; with `reuse` a node gets the address,
    and so the name, of one that is gone; several `replicas` stand for election.

    `standing` are instances that are there from the start, with the names of their Nodes, which have their kubelets
    already; addresses are given out after `last_address`. With `own_class` false no EC2NodeClass is made.
    """

    region: str = "ap-northeast-2"
    families: tuple[str, ...] = ()
    types: tuple[InstanceType, ...] = ()
    reserved: Mapping[str, int] = {}
    market: SimulatedMarket = SimulatedMarket(boot=(25.0, 35.0), ready=(4.0, 6.0))
    gates: tuple[str, ...] = ()
    settings: dict[str, Any] = {}
    replicas: int = 1
    short: Mapping[str, float] = {}
    reuse: bool = False
    #: The controllers that run: a study of another autoscaler replaces some of them.
    controllers: tuple[MakeController, ...] = CONTROLLERS
    #: Makes the cloud from a clock, a stream of chance, the instance types and the market.
    make_cloud: Callable[[Clock, Chance, tuple[InstanceType, ...], SimulatedMarket], FaultyCloud] = FaultyCloud
    standing: Mapping[str, Instance] = {}
    last_address: int = 0
    own_class: bool = True


class Autoscaled:
    """An extra of the lab: a `Fleet` whose nodes our controllers launch."""

    def __init__(self, request: AutoscalerRequest, line: Callable[[str], None] = lambda text: None) -> None:
        self._asked = request
        self._line = line
        self.cloud: FaultyCloud | None = None
        self.replicas: list[Replica] = []
        #: Set to kill every process after so many mutating calls.
        self.crash_injection = CrashInjection(self.restart)
        self.totals: Counter[str] = Counter()
        #: When an instance was last launched or terminated.
        self.changed = 0.0
        #: What the log said, and how often.
        self.said: Counter[str] = Counter()
        #: Run for every node just before its kubelet starts.
        self.actors: list[NodeActor] = []
        self.dollars = 0.0
        self._rate = 0.0
        self._since = 0.0
        self._joined: dict[str, str] = {}
        self._known: set[str] = set()
        self._addresses: dict[str, int] = {}
        self._next_address = request.last_address

    @property
    def autoscaler(self) -> Autoscaler | None:
        """The process that leads, or would."""
        leading = [replica for replica in self.replicas if replica.leading] or self.replicas
        return leading[0].autoscaler if leading else None

    def safe_mode(self) -> bool:
        """Whether the process that leads has stopped voluntary disruption."""
        return self.autoscaler is not None and self.autoscaler.safety.safe_mode

    def now(self) -> datetime:
        """The time as its processes know it."""
        return self.replicas[0].clock.now()

    def restart(self) -> None:
        """Kill every process; their next lives begin soon after."""
        for replica in self.replicas:
            replica.killed.set()

    def stall(self, seconds: float) -> None:
        """The leader's requests arrive so late."""
        for replica in self.replicas:
            if replica.leading:
                replica.connection.hold(seconds)

    def jump(self, amount: float, seconds: float) -> None:
        """The clock of every process is off for so long."""
        for replica in self.replicas:
            replica.clock.off = amount
            asyncio.get_running_loop().call_later(seconds, setattr, replica.clock, "off", 0.0)

    async def run(self, lab: Lab) -> None:
        request = self._asked
        for definition in _definitions():
            await _create(lab, CRDS, definition)
        if request.own_class:
            await _create(lab, EC2NODECLASSES, _node_class())
        chance = lab.chance.child("autoscaled")
        self.cloud = cloud = request.make_cloud(lab.clock, chance.child("cloud"), self._types(), request.market)
        cloud.adopt(request.standing.values())
        self._joined = {instance.provider_id: node for node, instance in request.standing.items()}
        self._known = set(self._joined)
        cloud.on_mutation = self.crash_injection.count_call
        gates = dict(Settings().feature_gates) | dict.fromkeys(request.gates, True)
        settings = Settings(
            **{
                "metrics_port": 0,
                "health_probe_port": 0,
                "disable_leader_election": request.replicas == 1,
                "plan_deadline": 0.0,
                "feature_gates": gates,
                **request.settings,
            }
        )
        self.replicas = [
            Replica(
                number,
                lab.transport,
                cloud,
                lab.clock,
                chance,
                settings,
                self._log,
                self.crash_injection,
                request.controllers,
            )
            for number in range(request.replicas)
        ]
        self._since = lab.clock.monotonic()
        async with asyncio.TaskGroup() as group:
            for replica in self.replicas:
                group.create_task(replica.run(), name="autoscaler")
            group.create_task(cloud.call_back_spot(), name="interruptions")
            group.create_task(self._follow_instances(lab, cloud, group), name="instances")

    async def leaks(self, lab: Lab) -> list[str]:
        """Instances without a NodeClaim and NodeClaims without an instance, in words."""
        claims = (await lab.kube.list(NODECLAIMS)).items
        claims_by_provider = {
            (claim.get("status") or {}).get("providerID", ""): claim["metadata"]["name"] for claim in claims
        }
        standing = {instance.provider_id for instance in self.cloud.standing()} if self.cloud else set()
        leaks = [
            message("leak: instance {each} has no NodeClaim", each=provider)
            for provider in sorted(standing - claims_by_provider.keys())
        ]
        lost = sorted(name for provider, name in claims_by_provider.items() if provider and provider not in standing)
        return leaks + [message("leak: NodeClaim {name} has no instance", name=name) for name in lost]

    def bill(self, now: float) -> float:
        """Dollars spent on launched instances until now."""
        return self.dollars + self._rate * (now - self._since) / HOUR

    def rate(self) -> float:
        return self._rate

    def provider_ids(self) -> frozenset[str]:
        return (
            frozenset(instance.provider_id for instance in self.cloud.standing())
            if self.cloud is not None
            else frozenset()
        )

    def calls(self) -> Mapping[str, int]:
        requests = sum(sum(replica.connection.requests.values()) for replica in self.replicas)
        return {"kubernetes": requests, "cloud": sum(self.cloud.calls.values()) if self.cloud is not None else 0}

    def give_up(self, provider_ids: Iterable[str]) -> None:
        if self.cloud is not None:
            self.cloud.given_up.update(provider_ids)

    def inject(self, lab: Lab, step: ScenarioStep) -> str:
        cloud = self.cloud
        assert cloud is not None  # the manifests, and so every step, come after its start
        if step.interrupt is not None:
            return _interrupt(cloud, step.interrupt)
        if step.vanish is not None:
            for instance in cloud.standing()[: step.vanish.instances]:
                cloud.vanish(instance.provider_id)
            return f"{step.vanish.instances} instance(s) vanish"
        if step.cloud is not None:
            return cloud.err(step.cloud.kind, step.cloud.seconds)
        if step.taint is not None:
            taint = {"key": step.taint.key, "effect": step.taint.effect}
            self.actors.append(Tainter(lab.kube, lab.clock, taint, step.taint.seconds))
            return f"every node that joins is tainted {step.taint.key}:{step.taint.effect}"
        if step.stowaway is not None:
            requests = {"cpu": step.stowaway.cpu, "memory": step.stowaway.memory}
            self.actors.append(UnannouncedPods(lab.kube, lab.clock, requests, step.stowaway.seconds))
            return f"every node that joins runs an unannounced pod of {step.stowaway.cpu} and {step.stowaway.memory}"
        if step.stall is not None:
            self.stall(step.stall.seconds)
            return f"the leader's requests arrive {step.stall.seconds:g} s late"
        if step.crash is not None:
            self.crash_injection.set(step.crash.after)
            return f"the autoscaler is killed after {step.crash.after} more mutating call(s)"
        if step.clock is not None:
            self.jump(step.clock.amount, step.clock.seconds)
            return f"the autoscaler's clock is off by {step.clock.amount:g} s for {step.clock.seconds:g} s"
        if step.market is not None:
            cloud.market = read_market(yaml.safe_dump(step.market))
            return "the market is another"
        self.restart()
        return "the autoscaler is killed and comes back"

    def _types(self) -> tuple[InstanceType, ...]:
        if self._asked.types:
            return self._asked.types
        families, reserved = self._asked.families, self._asked.reserved
        types = (t for t in catalog.load(self._asked.region) if not families or t.name.split(".")[0] in families)
        return tuple(_with_reservation(t, reserved[t.name]) if t.name in reserved else t for t in types)

    async def _follow_instances(self, lab: Lab, cloud: FaultyCloud, group: asyncio.TaskGroup) -> None:
        while True:
            standing = {running.provider_id: running for running in cloud.standing()}
            self._account(lab.clock.monotonic(), standing.values(), cloud)
            for simulated in standing.values():
                if simulated.provider_id not in self._known:
                    self._known.add(simulated.provider_id)
                    self.totals["instances launched"] += 1
                    self.changed = lab.clock.monotonic()
                    group.create_task(self._boot(lab, cloud, simulated), name=f"boot {simulated.provider_id}")
            gone = self._known - standing.keys()
            if gone:
                self.totals["instances terminated"] += len(gone)
                self.changed = lab.clock.monotonic()
                self._known -= gone
            for provider in [provider_id for provider_id in self._joined if provider_id not in standing]:
                name = self._joined.pop(provider)
                lab.fleet.vanish(name)
                self._addresses.pop(provider, None)
                group.create_task(_take_away(lab, name, provider), name=f"take away {name}")
            try:
                async with asyncio.timeout(REPRICED if cloud.market.curves else cloud.next_end()):
                    await cloud.changed()
            except TimeoutError:
                continue

    async def _boot(self, lab: Lab, cloud: FaultyCloud, instance: Instance) -> None:
        market, chance = cloud.market, lab.chance.child("boot", instance.provider_id)
        if market.never_joins and chance.random() < market.never_joins:
            return
        await asyncio.sleep(market.between(chance, market.boot))
        if instance.provider_id not in {running.provider_id for running in cloud.standing()}:
            return
        address = self._address(instance.provider_id)
        region = instance.labels.get("topology.kubernetes.io/region", self._asked.region)
        simulated = SimulatedInstance(
            name=host_name(address, region),
            provider_id=instance.provider_id,
            instance_type=instance.instance_type,
            zone=instance.zone,
            region=region,
            ip=address,
            capacity=instance.capacity,
            allocatable={
                name: int(amount * (1.0 - self._asked.short.get(name, 0.0)))
                for name, amount in instance.allocatable.items()
            },
            capacity_type=instance.capacity_type,
            arch=instance.labels.get("kubernetes.io/arch", "amd64"),
            taints=tuple(cloud.taints_of(instance.provider_id)),
            ready_seconds=market.between(chance, market.ready),
        )
        self._joined[instance.provider_id] = simulated.name
        for actor in self.actors:
            await actor(simulated.name)
        while instance.provider_id in self._joined:
            try:
                await lab.fleet.join(simulated)
                return
            except (ApiError, Disconnected):
                await asyncio.sleep(1.0)  # a kubelet does not give up either

    def _address(self, provider_id: str) -> str:
        if self._asked.reuse:
            taken = set(self._addresses.values())
            number = next(candidate for candidate in range(1, len(taken) + 2) if candidate not in taken)
        else:
            self._next_address = number = self._next_address + 1
        self._addresses[provider_id] = number
        return f"10.{64 + number // 65536}.{number // 256 % 256}.{number % 256}"

    def _account(self, now: float, standing: Any, cloud: FaultyCloud) -> None:
        self.dollars = self.bill(now)
        self._since = now
        counts = Counter((instance.instance_type, instance.zone, instance.capacity_type) for instance in standing)
        self._rate = sum(count * (cloud.price(*offering) or 0.0) for offering, count in counts.items())

    def _log(self, line: str) -> None:
        message = msgspec.json.decode(line).get("message", "")
        self.said[message] += 1
        if message == "disrupting node(s)":
            self.totals["disruptions"] += 1
        if message in _PUBLISHED_MESSAGES:
            self._line(line.strip())


def _interrupt(cloud: FaultyCloud, interrupt: Interrupt) -> str:
    ids = [instance.provider_id.rsplit("/", 1)[-1] for instance in cloud.standing()[: interrupt.instances]] + list(
        interrupt.ids
    )
    cloud.interrupt(ids, interrupt.kind)
    return f"{interrupt.kind} of {len(ids)} instance(s)"


def _with_reservation(instance_type: InstanceType, count: int) -> InstanceType:
    """The type with a reservation of so many instances in the first zone that has it."""
    plain = next(offering for offering in instance_type.offerings if offering.capacity_type == ON_DEMAND)
    name = f"cr-{instance_type.name.replace('.', '-')}"
    offering = Offering(
        zone=plain.zone,
        capacity_type=RESERVED,
        price=(plain.price or 0.0) / PAID_ALREADY,
        labels={**plain.labels, **dict(zip(RESERVATION, (name, "default"), strict=True))},
        reservation_id=name,
        reservation_capacity=count,
    )
    labels = {**instance_type.labels, CAPACITY_TYPE: (*instance_type.labels.get(CAPACITY_TYPE, ()), RESERVED)}
    return msgspec.structs.replace(instance_type, offerings=(*instance_type.offerings, offering), labels=labels)


_PUBLISHED_MESSAGES = frozenset(
    {
        "computed new nodeclaim(s) to fit pod(s)",
        "launched nodeclaim",
        "initialized nodeclaim",
        "disrupting node(s)",
        "deleted nodeclaim",
        "could not schedule pod",
        "entering safe mode, voluntary disruption stops",
    }
)


async def _take_away(lab: Lab, name: str, provider: str) -> None:
    """The cloud controller manager's part: delete the Node of an instance that is gone."""
    await asyncio.sleep(GONE)
    try:
        node = await lab.kube.get(NODES, name)
        if node["spec"].get("providerID") == provider:
            await lab.kube.delete(NODES, name, uid=node["metadata"]["uid"])
    except (ApiError, Disconnected):
        return  # it is gone, or the server is out of order


@cache
def _definitions() -> list[dict[str, Any]]:
    """Our kinds, worked out once for all labs of a process."""
    return crds.definitions()


def _node_class() -> dict[str, Any]:
    terms = [{"tags": {"karpenter.sh/discovery": "lab"}}]
    return {
        "metadata": {"name": "default"},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "role": "lab",
            "subnetSelectorTerms": terms,
            "securityGroupSelectorTerms": terms,
        },
    }


async def _create(lab: Lab, kind: Any, body: dict[str, Any]) -> None:
    for _ in range(50):
        try:
            await lab.kube.create(kind, body)
        except AlreadyExists:
            return
        except NotFound:
            await asyncio.sleep(0.1)  # a kind is served a moment after it was defined
            continue
        return
