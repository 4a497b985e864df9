"""A NodeClass launched as a dry run, so that a missing right is known before a pod needs it.

EC2 answers a dry run as it would the real thing, and launches nothing. Only the launch template is really made: the dry
runs name it. What was found is believed for a while, and as long as nothing about the class changes, its annotations
included: to annotate a class is to request another dry run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws import create_fleet, ec2nodeclass
from dovetail.cloud.aws.amis import Ami, of_status
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import CREDENTIAL_CODES, asked, code_of
from dovetail.cloud.aws.instances import POOL_TAG
from dovetail.cloud.aws.launch_template_params import LaunchConfigs
from dovetail.cloud.aws.launch_templates import own
from dovetail.cloud.aws.placement_groups import PlacementGroups
from dovetail.cloud.aws.subnets import Network, Subnet
from dovetail.cloud.provider import CloudError, LaunchOption, LaunchRequest, Remedy
from dovetail.language import source
from dovetail.model import labels as keys
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.kinds.nodeclass_hash import unmarked

#: How long, in seconds, a rehearsal is believed that went well, and one that did not: its fault may be mended soon.
GOOD, BAD = 1800.0, 300.0
#: What EC2 says instead of doing it.
_WOULD = "DryRunOperation"
_DENIED = "UnauthorizedOperation"
#: Types to try where the class's pools leave none, one for each architecture.
_USUAL = ("m5.large", "m6g.large")

NodeClass = Mapping[str, Any]
Types = Callable[[NodeClass], Awaitable[tuple[InstanceType, ...]]]


class LaunchFault(msgspec.Struct, frozen=True):
    """Why instances of a class cannot be launched: a reason for the condition, words for people, all that was said."""

    reason: str
    message: str
    detail: str


class _Verdict(msgspec.Struct, frozen=True):
    of: bytes
    until: float
    fault: LaunchFault | None


class DryRunLaunch:
    def __init__(
        self,
        calls: Calls,
        clock: Clock,
        network: Network,
        placement: PlacementGroups,
        configs: LaunchConfigs,
        types: Types,
        tags: Callable[[NodeClass], Mapping[str, str]],
    ) -> None:
        self._calls = calls
        self._clock = clock
        self._network = network
        self._placement = placement
        self._configs = configs
        self._types = types
        self._tags = tags
        self._verdicts: dict[str, _Verdict] = {}

    async def fault(self, node_class: NodeClass, pools: Sequence[Mapping[str, Any]]) -> LaunchFault | None:
        """What stands against launching instances of a class, whose status is filled in; of `pools`, those that use it.

        Raises a CloudError where AWS did not answer: that is no evidence.
        """
        name, now = node_class["metadata"]["name"], self._clock.monotonic()
        played = _validation_inputs(node_class)
        verdict = self._verdicts.get(name)
        if verdict is None or verdict.of != played or verdict.until <= now:
            fault_ = await self._played(node_class, pools)
            verdict = self._verdicts[name] = _Verdict(played, now + (BAD if fault_ else GOOD), fault_)
        return verdict.fault

    def forget(self, name: str) -> None:
        """The class is gone."""
        self._verdicts.pop(name, None)

    async def _played(self, node_class: NodeClass, pools: Sequence[Mapping[str, Any]]) -> LaunchFault | None:
        options = candidates(await self._types(node_class), pools, node_class)
        if not options:
            return None  # nothing to try it with is no fault of the class
        launch = _launch(node_class, pools, options)
        subnets = await asked(self._network.subnets(node_class["spec"]["subnetSelectorTerms"]))
        tags = {**self._tags(node_class), POOL_TAG: next((pool["metadata"]["name"] for pool in pools), "")}
        configs: list[dict[str, Any]] = []

        async def template() -> None:
            place = await self._placement.place(node_class, launch.claim)
            zones = {subnet.zone: subnet for subnet in reversed(subnets)}
            configs.extend(await self._configs.of(launch, keys.ON_DEMAND, options, zones, place))

        async def launch_fleet() -> None:
            request = create_fleet.request(keys.ON_DEMAND, options, configs, tags, node_class["spec"].get("context"))
            await self._calls("ec2", "create_fleet", DryRun=True, **request)

        async def run() -> None:
            await self._runs(node_class, options[0].instance_type.name, configs[0], subnets, tags)

        for right, act in (("CreateLaunchTemplate", template), ("CreateFleet", launch_fleet), ("RunInstances", run)):
            if (fault := await _tried(right, act)) is not None:
                return fault
        return None

    async def _runs(
        self,
        node_class: NodeClass,
        name: str,
        config: Mapping[str, Any],
        subnets: Iterable[Subnet],
        tags: Mapping[str, str],
    ) -> None:
        """An instance in any of the subnets; if none will do, what was said of the first."""
        first: Exception | None = None
        for subnet in subnets:
            try:
                await self._calls("ec2", "run_instances", DryRun=True, **_run(node_class, name, config, subnet, tags))
            except Exception as error:  # reported by the caller, unless another subnet will do
                if code_of(error) == _WOULD:
                    return
                first = first or error
            else:
                return
        if first is not None:
            raise first


def candidates(
    types: Sequence[InstanceType], pools: Iterable[Mapping[str, Any]], node_class: NodeClass
) -> tuple[LaunchOption, ...]:
    """The offerings of one type that stands for all that a class may launch.

    It is one that a pool of the class takes and an image runs on, the cheapest without accelerators: their images are
    larger than the disks of a class made for others. Where the pools leave none, or for Windows, a usual one.
    """
    images = of_status(node_class.get("status") or {})
    sold = {t.name: t for t in sorted(types, key=_rank) if _offers(t) and _runs_on(images, t)}
    pool_requirements = [ec2nodeclass.of_pool(pool) for pool in pools]
    taken = [
        t for t in sold.values() if any(t.requirements.intersects(requirements) for requirements in pool_requirements)
    ]
    if not taken or ec2nodeclass.family(node_class["spec"]).windows:
        taken = [sold[name] for name in _USUAL if name in sold] or list(sold.values())
    return tuple(LaunchOption(instance_type=t, offering=o) for t in taken[:1] for o in _offers(t))


def _offers(t: InstanceType) -> list[Offering]:
    return [offering for offering in t.offerings if offering.capacity_type == keys.ON_DEMAND and offering.available]


def _runs_on(images: Sequence[Ami], t: InstanceType) -> bool:
    """A class with a launch template of its own shows no images."""
    return not images or any(image.suits(t.labels) for image in images)


def _rank(t: InstanceType) -> tuple[bool, float, str]:
    devices = keys.GPU_COUNT in t.labels or keys.ACCELERATOR_COUNT in t.labels
    prices = [offer.price for offer in _offers(t) if offer.price is not None]
    return devices, min(prices, default=float("inf")), t.name


def _launch(
    node_class: NodeClass, pools: Iterable[Mapping[str, Any]], options: tuple[LaunchOption, ...]
) -> LaunchRequest:
    """A request that is never sent; on hardware of its own if any pool allows that, which needs the rights of both."""
    asked_for = (ec2nodeclass.of_pool(pool).get(keys.TENANCY) for pool in pools)
    dedicated = any(placement is not None and placement.has("dedicated") for placement in asked_for)
    needs = [{"key": keys.TENANCY, "operator": "In", "values": ["dedicated"]}] if dedicated else []
    claim = {"metadata": {"name": "", "labels": {}}, "spec": {"requirements": needs}}
    return LaunchRequest(token="", claim=claim, node_class=node_class, options=options, labels={})


def _run(
    node_class: NodeClass, name: str, config: Mapping[str, Any], subnet: Subnet, tags: Mapping[str, str]
) -> dict[str, Any]:
    """RunInstances of one instance in a subnet, with the interfaces that the class lists."""
    listed = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
    made: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceType": name,
        "LaunchTemplate": config["LaunchTemplateSpecification"],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": listed} for kind in ("instance", "volume", "network-interface")
        ],
    }
    if own(node_class):
        return made | {"SubnetId": subnet.id}
    cards: Sequence[Mapping[str, Any]] = node_class["spec"].get("networkInterfaces") or ()
    interfaces = [
        {
            "NetworkCardIndex": card["networkCardIndex"],
            "DeviceIndex": card["deviceIndex"],
            "InterfaceType": card.get("interfaceType", "interface"),
            "SubnetId": subnet.id,
        }
        for card in cards
    ]
    return made | {"NetworkInterfaces": interfaces or [{"DeviceIndex": 0, "SubnetId": subnet.id}]}


def _validation_inputs(node_class: NodeClass) -> bytes:
    """All of a class that a rehearsal depends on; subnets come in another order whenever addresses are taken."""
    status = node_class.get("status") or {}
    ids = {entry["id"] for kind in ("subnets", "securityGroups", "amis") for entry in status.get(kind) or ()}
    notes = unmarked(node_class["metadata"].get("annotations"))
    return msgspec.json.encode((notes, node_class["spec"], sorted(ids), status.get("instanceProfile")), order="sorted")


async def _tried(right: str, act: Callable[[], Awaitable[None]]) -> LaunchFault | None:
    """What came of an act that needs a right; raises where it is not known."""
    try:
        await asked(act())
    except CloudError as problem:
        code = code_of(problem.__cause__ or problem)
        if code == _DENIED:
            text = source("Controller isn't authorized to call ec2:{right}: {problem}").format(
                right=right, problem=problem.message
            )
            return LaunchFault(f"{right}AuthCheckFailed", text, problem.detail)
        if code == _WOULD or problem.remedy is Remedy.NEXT_OFFERING:
            return None  # it would be done, or only capacity is lacking just now
        if problem.remedy is Remedy.OPERATOR and code not in CREDENTIAL_CODES:
            return LaunchFault(problem.reason, problem.message, problem.detail)
        raise
    return None
