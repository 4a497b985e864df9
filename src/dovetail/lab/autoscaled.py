"""The autoscaler in a lab in virtual time: the same controllers, a simulated seller, the lab's own kubelets.

Keeps the bill: what the fleet cost, how many machines were bought, how many decisions disrupted somebody.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.cloud import catalogue
from dovetail.cloud.protocol import Machine as Bought
from dovetail.cloud.simulated.cloud import SimulatedCloud
from dovetail.cloud.simulated.market import Market
from dovetail.controllers import logs
from dovetail.controllers.run import Autoscaler
from dovetail.controllers.settings import Settings
from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.kube.resources import CRDS, EC2NODECLASSES, NODECLAIMS, NODES
from dovetail.lab.cluster import Lab
from dovetail.lab.machines import Machine, host_name
from dovetail.model.instancetype import InstanceType
from dovetail.model.kinds import crds

HOUR = 3600.0
#: Seconds between a kill and the next life.
AWAY = 5.0
#: Seconds after joining that somebody else's taint comes.
TAINTED_AFTER = 12.0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """`families` narrows what is sold; `gates` are feature gates to open."""

    region: str = "ap-northeast-2"
    families: tuple[str, ...] = ()
    types: tuple[InstanceType, ...] = ()
    market: Market = Market(boot=(25.0, 35.0), ready=(4.0, 6.0))
    gates: tuple[str, ...] = ()
    settings: dict[str, Any] = {}


class Autoscaled:
    """An extra of the lab."""

    def __init__(self, asked: Asked, line: Callable[[str], None] = lambda text: None) -> None:
        self._asked = asked
        self._line = line
        self.cloud: SimulatedCloud | None = None
        self.autoscaler: Autoscaler | None = None
        self.totals: Counter[str] = Counter()
        self.dollars = 0.0
        self._rate = 0.0
        self._since = 0.0
        self._joined: dict[str, str] = {}
        self._booting: set[str] = set()
        self._addresses = 0
        #: Set to kill the autoscaler; another life begins soon after.
        self.restart = asyncio.Event()
        #: A taint that somebody puts on machines as they join, and until when.
        self.tainted: tuple[dict[str, str], float] | None = None

    async def run(self, lab: Lab) -> None:
        asked = self._asked
        for definition in crds.definitions():
            await _create(lab, CRDS, definition)
        await _create(lab, EC2NODECLASSES, _node_class())
        chance = lab.chance.child("autoscaled")
        self.cloud = cloud = SimulatedCloud(lab.clock, chance.child("cloud"), self._sold(), asked.market)
        gates = dict(Settings().feature_gates) | dict.fromkeys(asked.gates, True)
        settings = Settings(
            **{"metrics_port": 0, "health_probe_port": 0, "disable_leader_election": True, "plan_deadline": 0.0,
               "feature_gates": gates, **asked.settings}
        )  # fmt: skip
        self._since = lab.clock.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lives(lab, cloud, settings, chance), name="autoscaler")
            group.create_task(cloud.call_back_spot(), name="interruptions")
            group.create_task(self._machines(lab, cloud, group), name="machines")

    async def _lives(self, lab: Lab, cloud: SimulatedCloud, settings: Settings, chance: Chance) -> None:
        """The autoscaler, again after every kill, with nothing but what the cluster and the cloud know."""
        log = logs.logger(lab.clock, write=self._log)
        life = 0
        while True:
            kube = lab.client("karpenter")
            self.autoscaler = Autoscaler(
                kube, cloud, lab.clock, chance.child("life", str(life)) if life else chance, settings, log=log
            )
            process = asyncio.ensure_future(self.autoscaler.run())
            killed = asyncio.ensure_future(self.restart.wait())
            try:
                await asyncio.wait({process, killed}, return_when=asyncio.FIRST_COMPLETED)
                if not killed.done():
                    await process
            finally:
                killed.cancel()
                process.cancel()
                await asyncio.gather(process, killed, return_exceptions=True)
            self.restart.clear()
            life += 1
            await asyncio.sleep(AWAY)

    async def leaks(self, lab: Lab) -> list[str]:
        """Machines without a claim and claims without a machine, in words."""
        claims = (await lab.kube.list(NODECLAIMS)).items
        known = {(each.get("status") or {}).get("providerID", ""): each["metadata"]["name"] for each in claims}
        standing = {each.provider_id for each in self.cloud.standing()} if self.cloud else set()
        found = [f"leak: machine {each} stands without a claim" for each in sorted(standing - known.keys())]
        lost = sorted(name for provider, name in known.items() if provider and provider not in standing)
        return found + [f"leak: claim {name} has no machine" for name in lost]

    def bill(self, now: float) -> float:
        """Dollars spent on bought machines until now."""
        return self.dollars + self._rate * (now - self._since) / HOUR

    def _sold(self) -> tuple[InstanceType, ...]:
        if self._asked.types:
            return self._asked.types
        wanted = self._asked.families
        return tuple(t for t in catalogue.load(self._asked.region) if not wanted or t.name.split(".")[0] in wanted)

    async def _machines(self, lab: Lab, cloud: SimulatedCloud, group: asyncio.TaskGroup) -> None:
        while True:
            standing = {each.provider_id: each for each in cloud.standing()}
            self._account(lab.clock.monotonic(), standing.values(), cloud)
            for machine in standing.values():
                if machine.provider_id not in self._booting:
                    self._booting.add(machine.provider_id)
                    self.totals["machines bought"] += 1
                    group.create_task(self._boot(lab, cloud, machine), name=f"boot {machine.provider_id}")
            for provider in [each for each in self._joined if each not in standing]:
                self.totals["machines given back"] += 1
                lab.fleet.vanish(self._joined.pop(provider))
            try:
                async with asyncio.timeout(5.0):
                    await cloud.changed()
            except TimeoutError:
                continue

    async def _boot(self, lab: Lab, cloud: SimulatedCloud, bought: Bought) -> None:
        market, chance = cloud.market, lab.chance.child("boot", bought.provider_id)
        if market.never_joins and chance.random() < market.never_joins:
            return
        await asyncio.sleep(market.between(chance, market.boot))
        if bought.provider_id not in {each.provider_id for each in cloud.standing()}:
            return
        self._addresses += 1
        address = f"10.{64 + self._addresses // 65536}.{self._addresses // 256 % 256}.{self._addresses % 256}"
        region = bought.labels.get("topology.kubernetes.io/region", self._asked.region)
        machine = Machine(
            name=host_name(address, region),
            provider_id=bought.provider_id,
            instance_type=bought.instance_type,
            zone=bought.zone,
            region=region,
            ip=address,
            capacity=bought.capacity,
            allocatable=bought.allocatable,
            capacity_type=bought.capacity_type,
            arch=bought.labels.get("kubernetes.io/arch", "amd64"),
            taints=tuple(cloud.taints_of(bought.provider_id)),
            ready_seconds=market.between(chance, market.ready),
        )
        self._joined[bought.provider_id] = machine.name
        await lab.fleet.join(machine)
        if self.tainted is not None and lab.clock.monotonic() < self.tainted[1]:
            await asyncio.sleep(TAINTED_AFTER)
            node = await lab.kube.get(NODES, machine.name)
            taints = [*(node["spec"].get("taints") or []), self.tainted[0]]
            await lab.kube.patch(NODES, machine.name, {"spec": {"taints": taints}})

    def _account(self, now: float, standing: Any, cloud: SimulatedCloud) -> None:
        self.dollars = self.bill(now)
        self._since = now
        prices = [cloud.price(each.instance_type, each.zone, each.capacity_type) for each in standing]
        self._rate = sum(each for each in prices if each is not None)

    def _log(self, line: str) -> None:
        message = msgspec.json.decode(line).get("message", "")
        if message == "disrupting node(s)":
            self.totals["disruptions"] += 1
        if message in _TOLD:
            self._line(line.strip())


_TOLD = frozenset({
    "computed new nodeclaim(s) to fit pod(s)", "launched nodeclaim", "initialized nodeclaim", "disrupting node(s)",
    "deleted nodeclaim", "could not schedule pod", "entering safe mode, voluntary disruption stops",
})


def _node_class() -> dict[str, Any]:
    terms = [{"tags": {"karpenter.sh/discovery": "lab"}}]
    return {
        "metadata": {"name": "default"},
        "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "lab", "subnetSelectorTerms": terms,
                 "securityGroupSelectorTerms": terms},
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
