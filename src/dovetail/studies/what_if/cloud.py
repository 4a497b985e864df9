"""The cloud of a cluster that was put into a lab: the instance types of its NodeClasses, their images, and drift."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.cloud.aws import catalog, drift, ec2nodeclass
from dovetail.cloud.provider import Instance, NodeClassStatus
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.lab.faults.cloud import FaultyCloud
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.kinds.kubelet import KUBELET_ANNOTATION, with_kubelet
from dovetail.model.kinds.nodeclass_hash import class_hash

Json = dict[str, Any]


class InstanceChange(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that came or went: seconds of the loop, and what it costs an hour (None if that is not known)."""

    at: float
    came: bool
    instance: Instance
    price: float | None


class RestoredCloud(FaultyCloud):
    """`region` is that of the catalogue, empty where the types are given; `classes` are the NodeClasses as they were.

    `images` are AMIs that NodeClasses resolve to from now on, by their names.
    """

    def __init__(
        self,
        clock: Clock,
        chance: Chance,
        types: tuple[InstanceType, ...],
        market: SimulatedMarket,
        *,
        region: str,
        classes: Mapping[str, Mapping[str, Any]],
    ) -> None:
        super().__init__(clock, chance, types, market)
        self._region = region
        self._classes = classes
        self._adopted: set[str] = set()
        self._shown: dict[object, tuple[tuple[InstanceType, ...], tuple[InstanceType, ...]]] = {}
        self.images: dict[str, str] = {}
        self.log: list[InstanceChange] = []

    # -- what is for sale to a NodeClass

    async def instance_types(
        self, node_pool: Mapping[str, Any], node_class: Mapping[str, Any]
    ) -> tuple[InstanceType, ...]:
        types = await super().instance_types(node_pool, node_class)
        if not self._region or not node_class:
            return types
        kubelet = ((node_pool.get("metadata") or {}).get("annotations") or {}).get(KUBELET_ANNOTATION)
        zones = zones_of(node_class)
        key = msgspec.json.encode((node_class.get("spec"), kubelet, sorted(zones)))
        if key not in self._shown or self._shown[key][0] is not types:
            self._shown[key] = types, of_class(types, self._region, node_pool, node_class)
        return self._shown[key][1]

    # -- images and drift

    async def resolve(self, node_class: Mapping[str, Any], node_pools: object = ()) -> NodeClassStatus:
        """As the class was resolved on the cluster, with the image that it resolves to now."""
        await self._call("resolve")
        status: Mapping[str, Any] = node_class.get("status") or {}
        conditions = tuple(
            (
                str(condition.get("type")),
                str(condition.get("status")),
                str(condition.get("reason") or ""),
                str(condition.get("message") or ""),
            )
            for condition in status.get("conditions") or ()
            if condition.get("type") != "Ready"
        )
        image = self.images.get(str((node_class.get("metadata") or {}).get("name")))
        resolved = {"amis": [{"id": image, "name": image, "requirements": []}]} if image else {}
        return NodeClassStatus(status=resolved, conditions=conditions)

    async def drift(self, claim: Mapping[str, Any], instance: Instance, node_class: Mapping[str, Any]) -> str | None:
        """By what the class says now, for instances that were there before it was changed.

        The hash that a controller wrote counts a certificate that only the cluster knows, so classes are compared
        with what they were.
        """
        if instance.provider_id not in self._adopted:
            return None
        name = str((node_class.get("metadata") or {}).get("name"))
        former = self._classes.get(name)
        if former is not None and _hash(former) != _hash(node_class):
            return "NodeClassDrift"
        return drift.reason(claim, instance, node_class)

    # -- what came and went

    def remember(self, classes: Iterable[Mapping[str, Any]]) -> None:
        """From now on instances are compared with these classes, and those that stand with what comes after."""
        self._classes = {str(node_class["metadata"]["name"]): node_class for node_class in classes}
        self._adopted |= {instance.provider_id for instance in self.standing()}

    def adopt(self, instances: Any) -> None:
        adopted = tuple(instances)
        self._adopted |= {instance.provider_id for instance in adopted}
        super().adopt(adopted)

    def _launch(self, launch: Any, option: Any) -> Instance:
        instance = super()._launch(launch, option)
        image = self.images.get(str((launch.node_class.get("metadata") or {}).get("name")))
        if image:
            instance = self._instances[instance.provider_id] = msgspec.structs.replace(instance, image_id=image)
        self._note(instance, came=True)
        return instance

    def vanish(self, provider_id: str) -> None:
        gone = self._instances.get(provider_id)
        super().vanish(provider_id)
        if gone is not None:
            self._note(gone, came=False)

    def _note(self, instance: Instance, *, came: bool) -> None:
        price = self.price(instance.instance_type, instance.zone, instance.capacity_type)
        self.log.append(InstanceChange(at=self._clock.monotonic(), came=came, instance=instance, price=price))


def zones_of(node_class: Mapping[str, Any]) -> frozenset[str]:
    """The zones in which a NodeClass has subnets; none where its status does not say."""
    subnets = (node_class.get("status") or {}).get("subnets") or ()
    return frozenset(str(subnet["zone"]) for subnet in subnets if subnet.get("zone"))


def of_class(
    types: tuple[InstanceType, ...], region: str, node_pool: Mapping[str, Any], node_class: Mapping[str, Any]
) -> tuple[InstanceType, ...]:
    """Types as nodes of a NodeClass show them, in the zones of its subnets, with the offerings of `types`."""
    annotations = (node_pool.get("metadata") or {}).get("annotations") or {}
    zones = zones_of(node_class)
    by_class = {
        instance_type.name: instance_type
        for instance_type in catalog.of_class(region, with_kubelet(node_class, annotations))
    }
    return tuple(
        _combined(instance_type, by_class.get(instance_type.name, instance_type), zones) for instance_type in types
    )


def _combined(sold: InstanceType, shown: InstanceType, zones: frozenset[str]) -> InstanceType:
    usable = {(offering.zone, offering.capacity_type): offering.available for offering in shown.offerings}

    def withheld(offering: Offering) -> Offering:
        usual = usable.get((offering.zone, offering.capacity_type), True)
        return offering if usual or not offering.available else msgspec.structs.replace(offering, available=False)

    offerings = tuple(withheld(offering) for offering in sold.offerings if not zones or offering.zone in zones)
    return msgspec.structs.replace(shown, offerings=offerings)


def _hash(node_class: Mapping[str, Any]) -> str:
    spec: Mapping[str, Any] = node_class.get("spec") or {}
    return class_hash(spec, ec2nodeclass.family_name(spec), "unknown")
