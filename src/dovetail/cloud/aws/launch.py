"""From an order to an instance: subnets, launch templates, a fleet call, and what its refusals teach."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws import create_fleet, create_fleet_batcher, ec2nodeclass, instances
from dovetail.cloud.aws.capacity_reservations import Reservations
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.create_fleet_batcher import Attempts, FleetBatcher, Order, OrderResult
from dovetail.cloud.aws.errors import (
    SPOT_ROLE_CODE,
    asked,
    code_of,
    explain,
    is_answer,
    is_not_found,
    is_shortage,
    message_of,
)
from dovetail.cloud.aws.launch_template_params import EFA, LaunchConfigs, has_fabric, tenancy
from dovetail.cloud.aws.launch_templates import LaunchTemplates
from dovetail.cloud.aws.min_values import Needs, lacking
from dovetail.cloud.aws.placement_groups import InstancePlacement, PlacementGroups, is_full
from dovetail.cloud.aws.subnets import Network, Subnet
from dovetail.cloud.provider import Instance, InsufficientCapacity, LaunchOption, LaunchRequest
from dovetail.cloud.unavailable_offerings import UnavailableOfferings, inside
from dovetail.language import source
from dovetail.model import labels as keys

#: On a claim whose instance may offer less variety than its pool wants.
RELAXED = "karpenter.sh/nodeclaim-min-values-relaxed"


class LaunchDependencies(msgspec.Struct, frozen=True):
    """What a purchase needs of the provider; `tags` are those of everything made for a node class."""

    calls: Calls
    network: Network
    placement: PlacementGroups
    configs: LaunchConfigs
    templates: LaunchTemplates
    reservations: Reservations
    unavailable: UnavailableOfferings
    tags: Callable[[Mapping[str, Any]], dict[str, str]]


class FleetLauncher:
    def __init__(
        self,
        parts: LaunchDependencies,
        clock: Clock,
        refused: Callable[[create_fleet.RefusedOffering], None] = lambda refusal: None,
        batch: Callable[[str, int, float], None] = lambda name, size, seconds: None,
    ) -> None:
        """`refused` hears of each offering that EC2 refused, once a call; `batch` of the size of each call."""
        self._refused = refused
        self._batch = batch
        self._parts = parts
        self._clock = clock
        self._joint = FleetBatcher()
        self._attempts = Attempts()

    async def launch_fleet(self, launch: LaunchRequest) -> Instance:
        kind, options = create_fleet.choose(launch.options, _needs(launch))
        network, spec = self._parts.network, launch.node_class["spec"]
        place = await asked(self._parts.placement.place(launch.node_class, launch.claim))
        pods = min((o.instance_type.capacity.get("pods", 0) for o in options), default=0)
        subnets = network.by_zone(await asked(network.subnets(spec["subnetSelectorTerms"])), pods)
        launched = None
        try:
            sale = await self._launched(launch, kind, options, subnets, place)
            launched = sale.launched
        finally:
            network.finish_launch(subnets, {launched.subnet} if launched else set(), pods)
        self._remember(sale.refusals, options, place)
        if launched is None:
            raise create_fleet.failure(sale.refusals)
        self._attempts.launched(_order(launch))
        where = (launched.instance_type, launched.zone)
        chosen = next((o for o in options if (o.instance_type.name, o.offering.zone) == where), None)
        if chosen is not None and chosen.offering.reservation_id:
            self._parts.reservations.spent(chosen.offering.reservation_id)
        return self._instance(launch, launched, kind, chosen, place)

    async def _launched(
        self,
        launch: LaunchRequest,
        kind: str,
        options: Sequence[LaunchOption],
        subnets: Mapping[str, Subnet],
        place: InstancePlacement,
    ) -> OrderResult:
        """A fleet call, shared with equal requests; if a template was deleted under us, another with a new one."""
        for last in (False, True):
            configs = await self._parts.configs.of(launch, kind, options, subnets, place)
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
        self, launch: LaunchRequest, kind: str, options: Sequence[LaunchOption], configs: Sequence[Mapping[str, Any]]
    ) -> OrderResult:
        relaxed = (launch.claim["metadata"].get("annotations") or {}).get(RELAXED) == "true"
        context = None if relaxed else launch.node_class["spec"].get("context")

        async def purchase(
            orders: Sequence[Order],
        ) -> tuple[Sequence[create_fleet.FleetInstance], tuple[create_fleet.RefusedOffering, ...]]:
            request = create_fleet.request(kind, options, configs, self._tags(launch, orders), context, len(orders))
            request["ClientToken"] = self._attempts.token(orders, request)
            self._batch("create_fleet", len(orders), create_fleet_batcher.GATHER)
            try:
                launched, refusals = await create_fleet.launch_fleet(self._parts.calls, kind, request)
            except Exception as error:
                if is_answer(error):
                    self._attempts.refused(orders)
                raise
            for refusal in refusals:
                self._refused(refusal)
            if len(launched) < len(orders):
                self._attempts.refused(orders)
            return launched, refusals

        alike = (kind, configs, context, instances.pool_of(launch.claim), self._parts.tags(launch.node_class))
        goods = msgspec.json.encode(alike, order="sorted")
        return await self._joint.order(goods, _order(launch), purchase)

    def _instance(
        self,
        launch: LaunchRequest,
        launched: create_fleet.FleetInstance,
        kind: str,
        chosen: LaunchOption | None,
        place: InstancePlacement,
    ) -> Instance:
        labels = dict(launch.labels)
        room: Mapping[str, int] = {}
        left: Mapping[str, int] = {}
        if chosen is not None:
            labels |= {k: v[0] for k, v in chosen.instance_type.labels.items() if len(v) == 1}
            labels |= chosen.offering.labels
            fabric = has_fabric(launch)
            room, left = (
                {name: amount for name, amount in amounts.items() if name != EFA or fabric}
                for amounts in (chosen.instance_type.capacity, chosen.instance_type.allocatable)
            )
        labels |= {
            keys.INSTANCE_TYPE: launched.instance_type,
            keys.ZONE: launched.zone,
            keys.CAPACITY_TYPE: kind,
            keys.TENANCY: tenancy(launch.claim),
            **place.labels(),
        }
        tags = self._tags(launch, [_order(launch)])
        return Instance(
            provider_id=instances.provider_id(launched.zone, launched.instance_id),
            instance_type=launched.instance_type,
            zone=launched.zone,
            capacity_type=kind,
            image_id=launched.image_id,
            capacity=room,
            allocatable=left,
            labels=labels,
            created=self._clock.now(),
            claim_uid=launch.token,
            claim_name=launch.claim["metadata"]["name"],
            node_pool=tags.get(instances.POOL_TAG),
            tags=tags,
            network={"subnet": launched.subnet},
        )

    def _remember(
        self,
        refusals: Sequence[create_fleet.RefusedOffering],
        options: Sequence[LaunchOption],
        place: InstancePlacement,
    ) -> None:
        unavailable = self._parts.unavailable
        for refusal in refusals:
            name, zone, kind = refusal.key
            if place.group and is_full(refusal.message):
                for capacity_type in keys.CAPACITY_TYPES:
                    unavailable.mark(("*", zone, inside(capacity_type, place.group_id)))
            elif refusal.code == "InsufficientFreeAddressesInSubnet" and refusal.subnet:
                self._parts.network.exhausted(refusal.subnet)
            elif kind == "reserved":
                for option in options:
                    if (option.instance_type.name, option.offering.zone) == (name, zone):
                        self._parts.reservations.full(option.offering.reservation_id or "")
            elif refusal.code == SPOT_ROLE_CODE:
                unavailable.mark(("*", "*", "spot"))
            elif is_shortage(refusal.code, refusal.message):
                unavailable.mark((name, zone, inside(kind, place.group_id)))

    def _tags(self, launch: LaunchRequest, orders: Sequence[Order]) -> dict[str, str]:
        """An instance that is launched alone carries its claim; a class may give all its instances one name."""
        name = instances.pool_of(launch.claim)
        pool = {instances.POOL_TAG: name}
        shared = instances.provisioner_names(name, launch.node_class) | self._parts.tags(launch.node_class) | pool
        if len(orders) > 1:
            return create_fleet_batcher.tags_of(orders) | shared
        (order,) = orders
        return instances.names(name, order.name) | {instances.UID_TAG: order.uid} | shared


def _order(launch: LaunchRequest) -> Order:
    return Order(launch.token, launch.claim["metadata"]["name"])


def _needs(launch: LaunchRequest) -> Needs:
    """What a claim wants to be launched as several of; one that was planned so must still have the choice."""
    needs = {
        key: requirement for key, requirement in ec2nodeclass.of_claim(launch.claim).items() if requirement.min_values
    }
    planned = (launch.claim["metadata"].get("annotations") or {}).get(RELAXED) == "false"
    if planned and (few := lacking(launch.options, needs)):
        unmet = source("minValues requirement is not met for label(s) {keys}: too many offerings are unavailable")
        raise InsufficientCapacity(f"{unmet.format(keys=', '.join(few))} (MIN_VALUES)")
    return needs
