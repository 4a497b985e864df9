"""Capacity reservations: NodeClaims that outlive theirs become on-demand; those of ending blocks are drained.

EC2 lets an instance run on, at the on-demand price, when its reservation ends or moves. The labels are then updated,
so that it can be consolidated like any other. A capacity block is different: EC2 terminates its instances, so their
nodes are drained before that.
"""

from __future__ import annotations

from contextlib import suppress

from dovetail.cloud.provider import Instance
from dovetail.cluster.indexes import RESERVED, STAGE
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.nodeclaim.deletion import delete
from dovetail.controllers.worker import every, reconcile_ids
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import NODECLAIMS, NODES
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.labels import RESERVATION, RESERVATION_INTERRUPTIBLE, RESERVATION_TYPE

PERIOD_S = 60.0
_LABELS = (RESERVATION, RESERVATION_TYPE, RESERVATION_INTERRUPTIBLE)


class CapacityReservations:
    """The controllers `capacityreservation.capacitytype` and `capacityreservation.expiration`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ids = reconcile_ids(context.chance, "capacityreservation")

    async def run(self) -> None:
        await every(PERIOD_S, self.check, "capacityreservation", self._context.log, self._ids)

    async def check(self) -> None:
        claims = [
            claim
            for claim in self._context.cluster_state.claims.store.by(STAGE, RESERVED)
            if claim.status.provider_id and claim.metadata.deletion_timestamp is None
        ]
        if not claims:
            return
        instances = {instance.provider_id: instance for instance in await self._context.cloud.instances()}
        for claim in claims:
            instance = instances.get(claim.status.provider_id)
            if instance is not None and instance.capacity_type != "reserved":
                await self._demote(claim, instance)
            elif claim.metadata.labels.get(RESERVATION) in self._expiring(claim):
                await self._terminate(claim)

    def _expiring(self, claim: NodeClaim) -> set[str]:
        """The reservations of the NodeClaim's NodeClass that are about to end."""
        node_class = self._context.cluster_state.node_classes.store.get(claim.spec.node_class_ref.name) or {}
        listed = (node_class.get("status") or {}).get("capacityReservations") or ()
        return {reservation["id"] for reservation in listed if reservation.get("state") == "expiring"}

    async def _demote(self, claim: NodeClaim, instance: Instance) -> None:
        labels = {wellknown.CAPACITY_TYPE: instance.capacity_type} | dict.fromkeys(_LABELS)
        body = {"metadata": {"labels": labels}}
        if claim.status.node_name:
            with suppress(NotFound):  # without a Node for a while, its NodeClaim is updated all the same
                await self._context.kube.patch(NODES, claim.status.node_name, body)
        try:
            await self._context.kube.patch(NODECLAIMS, claim.name, body)
        except NotFound:
            return
        self._context.log.info(
            "updated capacity type for nodeclaim",
            controller="capacityreservation.capacitytype",
            NodeClaim=logs.ref(claim.name),
            **{"capacity-type": instance.capacity_type},
        )

    async def _terminate(self, claim: NodeClaim) -> None:
        message = "The capacity block of this NodeClaim ends soon; its node is drained before that"
        self._context.event_publisher.publish(claim, "Warning", "CapacityBlockExpiring", message)
        self._context.log.info(
            "terminating nodeclaim of an expiring capacity block",
            controller="capacityreservation.expiration",
            NodeClaim=logs.ref(claim.name),
        )
        await delete(self._context, claim, "capacity_reservation_expiring")
