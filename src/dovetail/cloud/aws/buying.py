"""From an order to a machine: subnets, images, launch templates, a fleet call, and what its refusals teach."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws import drift, fleet, joint, machines, nodeclass
from dovetail.cloud.aws.calls import Calls
from dovetail.cloud.aws.cluster import ClusterFacts
from dovetail.cloud.aws.errors import CAPACITY_CODES, SPOT_ROLE_CODE, code_of, explain, is_not_found, message_of
from dovetail.cloud.aws.images import Images
from dovetail.cloud.aws.joint import Joint, Order, Sale
from dovetail.cloud.aws.network import Network, Subnet
from dovetail.cloud.aws.reservations import Reservations
from dovetail.cloud.aws.templates import Blueprint, Templates, own
from dovetail.cloud.aws.userdata import Boot, render
from dovetail.cloud.protocol import CloudError, Launch, LaunchOption, Machine, NodeClassNotReady, Remedy
from dovetail.cloud.unavailable import Unavailable

T = TypeVar("T")

#: How much user data is kept for the next machine that starts alike.
REMEMBERED = 100
EFA = "vpc.amazonaws.com/efa"
ENCLAVE = "eks.amazonaws.com/nitro-sandbox"


async def asked(answer: Awaitable[T]) -> T:
    """Await an answer; AWS's errors come out as ours."""
    try:
        return await answer
    except (CloudError, asyncio.CancelledError):
        raise
    except Exception as error:  # whatever botocore raises is classified in one place
        raise explain(code_of(error), message_of(error)) from error


def full(node_class: Mapping[str, Any], zones: Iterable[str]) -> CloudError:
    """No address is left in these zones for machines of a class."""
    name = node_class["metadata"]["name"]
    said = f"no subnet of EC2NodeClass {name!r} in {', '.join(sorted(zones))} has free addresses"
    return explain("InsufficientFreeAddressesInSubnet", said)


class Parts(msgspec.Struct, frozen=True):
    """What a purchase needs of the provider; `tags` are those of everything made for a node class."""

    calls: Calls
    network: Network
    images: Images
    templates: Templates
    reservations: Reservations
    unavailable: Unavailable
    facts: Callable[[], Awaitable[ClusterFacts]]
    tags: Callable[[Mapping[str, Any]], dict[str, str]]


class Buying:
    def __init__(self, parts: Parts, clock: Clock) -> None:
        self._parts = parts
        self._clock = clock
        self._joint = Joint()
        self._user_data: dict[tuple[str, bytes], str] = {}

    async def buy(self, launch: Launch) -> Machine:
        kind, options = fleet.choose(launch.options, _flexible(launch.claim))
        network, spec = self._parts.network, launch.node_class["spec"]
        pods = min((o.instance_type.capacity.get("pods", 0) for o in options), default=0)
        subnets = network.by_zone(await asked(network.subnets(spec["subnetSelectorTerms"])), pods)
        bought = None
        try:
            sale = await self._sold(launch, kind, options, subnets)
            bought = sale.bought
        finally:
            network.landed(subnets, {bought.subnet} if bought else set(), pods)
        self._remember(sale.refusals, options)
        if bought is None:
            raise fleet.failure(sale.refusals)
        where = (bought.instance_type, bought.zone)
        chosen = next((o for o in options if (o.instance_type.name, o.offering.zone) == where), None)
        if chosen is not None and chosen.offering.reservation_id:
            self._parts.reservations.spent(chosen.offering.reservation_id)
        return self._machine(launch, bought, kind, chosen)

    async def _sold(
        self, launch: Launch, kind: str, options: Sequence[LaunchOption], subnets: Mapping[str, Subnet]
    ) -> Sale:
        """A fleet call, with whoever asks for the same; if a template was deleted under us, another with a new one."""
        for last in (False, True):
            configs = await self._configs(launch, kind, options, subnets)
            try:
                return await self._ordered(launch, kind, options, configs)
            except Exception as error:  # classified below
                if is_not_found(error):
                    for config in configs:
                        self._parts.templates.forget(config["LaunchTemplateSpecification"]["LaunchTemplateName"])
                if last or not is_not_found(error):
                    raise explain(code_of(error), message_of(error)) from error
        raise AssertionError("the last try returns or raises")

    async def _ordered(
        self, launch: Launch, kind: str, options: Sequence[LaunchOption], configs: Sequence[Mapping[str, Any]]
    ) -> Sale:
        context = launch.node_class["spec"].get("context")

        async def purchase(orders: Sequence[Order]) -> tuple[Sequence[fleet.Bought], tuple[fleet.Refusal, ...]]:
            tags, token = self._tags(launch, orders), joint.token(orders)
            request = fleet.request(kind, options, configs, tags, token, context, len(orders))
            return await fleet.buy(self._parts.calls, kind, request)

        alike = (kind, configs, context, _pool(launch), self._parts.tags(launch.node_class))
        goods = msgspec.json.encode(alike, order="sorted")
        return await self._joint.order(goods, _order(launch), purchase)

    async def _configs(
        self, launch: Launch, kind: str, options: Sequence[LaunchOption], subnets: Mapping[str, Subnet]
    ) -> list[dict[str, Any]]:
        """One launch template for each image, pod count and reservation among the options, with its overrides."""
        name = launch.node_class["metadata"]["name"]
        if not any(option.offering.zone in subnets for option in options):
            raise full(launch.node_class, {option.offering.zone for option in options})
        if template := own(launch.node_class):
            return [_config(template, fleet.overrides(options, subnets))]
        images = await asked(
            self._parts.images.select(
                launch.node_class["spec"].get("amiSelectorTerms") or (), (await self._parts.facts()).version
            )
        )
        groups: dict[tuple[str, int, str | None], list[LaunchOption]] = {}
        for option in options:
            image = next((i for i in images if i.suits(option.instance_type.labels)), None)
            if image is not None:
                pods = option.instance_type.capacity.get("pods", 0)
                groups.setdefault((image.id, pods, option.offering.reservation_id), []).append(option)
        if not groups:
            raise CloudError(
                "AMINotFound",
                f"no image of EC2NodeClass {name!r} suits any of the requested instance types;"
                " select images for their architecture and accelerators (BAD_NODECLASS)",
                Remedy.OPERATOR,
            )
        configs = []
        for (image_id, pods, _), members in groups.items():
            listed = fleet.overrides(members, subnets, image_id)
            if listed:
                template = await self._template(launch, kind, image_id, pods, members)
                configs.append(_config(template, listed))
        return configs

    async def _template(
        self, launch: Launch, kind: str, image_id: str, pods: int, members: Sequence[LaunchOption]
    ) -> str:
        node_class = launch.node_class
        spec = node_class["spec"]
        status = node_class.get("status") or {}
        groups = tuple(group["id"] for group in status.get("securityGroups") or ())
        profile = status.get("instanceProfile")
        if not groups or not profile:
            raise NodeClassNotReady(
                f"EC2NodeClass {node_class['metadata']['name']!r} has no"
                f" {'security groups' if not groups else 'instance profile'} in its status yet"
            )
        requests = ((launch.claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
        blueprint = Blueprint(
            family=nodeclass.family_name(spec),
            image_id=image_id,
            profile=profile,
            groups=groups,
            user_data=self._rendered(nodeclass.family_name(spec), await self._boot(launch, kind, pods)),
            spec=spec,
            tags=self._parts.tags(node_class),
            capacity_type=kind,
            efa=max(o.instance_type.capacity.get(EFA, 0) for o in members) if EFA in requests else 0,
            enclave=ENCLAVE in requests,
            reservation_id=members[0].offering.reservation_id,
            market=fleet.market(members[0].offering),
        )
        return await asked(self._parts.templates.ensure(blueprint, node_class["metadata"]["name"]))

    def _rendered(self, family: str, boot: Boot) -> str:
        """User data; machines of a burst start alike, and writing it takes longer than asking for them."""
        key = (family, msgspec.json.encode(boot, order="sorted"))
        if key not in self._user_data:
            if len(self._user_data) >= REMEMBERED:
                self._user_data.clear()
            self._user_data[key] = render(family, boot)
        return self._user_data[key]

    async def _boot(self, launch: Launch, kind: str, pods: int) -> Boot:
        facts = await self._parts.facts()
        spec = launch.node_class["spec"]
        block: Mapping[str, Any] = spec.get("kubelet") or {}
        labels = dict(launch.labels) | {"karpenter.sh/capacity-type": kind, "karpenter.sh/do-not-sync-taints": "true"}
        return Boot(
            cluster_name=facts.name,
            endpoint=facts.endpoint,
            ca_bundle=facts.ca_bundle,
            service_cidr=facts.service_cidr,
            cluster_dns=facts.cluster_dns,
            ipv6=facts.ipv6,
            labels=labels,
            taints=launch.taints,
            kubelet=block,
            max_pods=pods,
            raid0=spec.get("instanceStorePolicy") == "RAID0",
            custom=spec.get("userData"),
        )

    def _machine(self, launch: Launch, bought: fleet.Bought, kind: str, chosen: LaunchOption | None) -> Machine:
        labels = dict(launch.labels)
        room: Mapping[str, int] = {}
        left: Mapping[str, int] = {}
        if chosen is not None:
            labels |= {k: v[0] for k, v in chosen.instance_type.labels.items() if len(v) == 1}
            labels |= chosen.offering.labels
            room, left = chosen.instance_type.capacity, chosen.instance_type.allocatable
        labels |= {
            "node.kubernetes.io/instance-type": bought.instance_type,
            "topology.kubernetes.io/zone": bought.zone,
            "karpenter.sh/capacity-type": kind,
        }
        tags = self._tags(launch, [_order(launch)])
        return Machine(
            provider_id=machines.provider_id(bought.zone, bought.instance_id),
            instance_type=bought.instance_type,
            zone=bought.zone,
            capacity_type=kind,
            image_id=bought.image_id,
            capacity=room,
            allocatable=left,
            labels=labels,
            created=self._clock.now(),
            claim_uid=launch.token,
            claim_name=launch.claim["metadata"]["name"],
            node_pool=tags.get(machines.POOL_TAG),
            tags=tags,
            annotations=drift.fingerprint(launch.node_class),
            network={"subnet": bought.subnet},
        )

    def _remember(self, refusals: Sequence[fleet.Refusal], options: Sequence[LaunchOption]) -> None:
        for refusal in refusals:
            if refusal.key[2] == "reserved":
                for option in options:
                    if (option.instance_type.name, option.offering.zone) == refusal.key[:2]:
                        self._parts.reservations.full(option.offering.reservation_id or "")
            elif refusal.code == "InsufficientFreeAddressesInSubnet" and refusal.subnet:
                self._parts.network.exhausted(refusal.subnet)
            elif refusal.code == SPOT_ROLE_CODE:
                self._parts.unavailable.mark(("*", "*", "spot"))
            elif refusal.code in CAPACITY_CODES:
                self._parts.unavailable.mark(refusal.key)

    def _tags(self, launch: Launch, orders: Sequence[Order]) -> dict[str, str]:
        """A machine that is bought alone carries its claim; a class may give all its machines one name."""
        pool = {machines.POOL_TAG: _pool(launch)}
        if len(orders) > 1:
            return joint.tags_of(orders) | self._parts.tags(launch.node_class) | pool
        (order,) = orders
        own = machines.names(_pool(launch), order.name) | {machines.UID_TAG: order.uid}
        return own | self._parts.tags(launch.node_class) | pool


def _order(launch: Launch) -> Order:
    return Order(launch.token, launch.claim["metadata"]["name"])


def _pool(launch: Launch) -> str:
    pool: str = (launch.claim["metadata"].get("labels") or {}).get(machines.POOL_TAG, "")
    return pool


def _config(template: str, overrides: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "$Latest"},
        "Overrides": list(overrides),
    }


def _flexible(claim: Mapping[str, Any]) -> bool:
    requirements = (claim.get("spec") or {}).get("requirements") or ()
    return any(requirement.get("minValues") for requirement in requirements)
